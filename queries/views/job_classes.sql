-- title: Jobs with their size class and outcome
-- tables: jobs
-- column gpu_class: class | 0, <1, 1, 2-4, 5-8 or >8; NULL when the job's GPU count is unknown
-- column class_order: number | 0..5, the order in which the classes are listed
-- column unsuccessful: true or false | whether the job ended badly; NULL when its status is unknown
-- rule:
-- One row for each row of jobs, with all its columns and the three above. A class includes its upper bound: 1 < x <= 4
-- is '2-4', and 4 < x <= 8 is '5-8'. A part of one GPU is '<1'. The classes are those of Philly (ATC'19), plus '0' for
-- CPU jobs and '<1' for shared GPUs. A job is unsuccessful if its status is failed, timeout, node_fail or
-- out_of_memory. This excludes jobs cancelled by their user.
SELECT
    jobs.*,
    CASE
        WHEN gpu_count = 0 THEN '0'
        WHEN gpu_count < 1 THEN '<1'
        WHEN gpu_count = 1 THEN '1'
        WHEN gpu_count <= 4 THEN '2-4'
        WHEN gpu_count <= 8 THEN '5-8'
        WHEN gpu_count > 8 THEN '>8'
    END AS gpu_class,
    CASE
        WHEN gpu_count = 0 THEN 0
        WHEN gpu_count < 1 THEN 1
        WHEN gpu_count = 1 THEN 2
        WHEN gpu_count <= 4 THEN 3
        WHEN gpu_count <= 8 THEN 4
        WHEN gpu_count > 8 THEN 5
    END AS class_order,
    is_unsuccessful(status) AS unsuccessful
FROM jobs
