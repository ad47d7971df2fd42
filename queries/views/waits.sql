-- title: Each wait of each job
-- tables: jobs, attempts
-- views: job_classes
-- column job_id: text | the job
-- column attempt: number | the attempt that ended the wait
-- column cluster: text | the job's cluster
-- column vc: text | the job's tenant
-- column gpu_count: GPUs | the job's size
-- column gpu_class: class | the job's size class
-- column class_order: number | order of the class
-- column node_count: nodes | nodes of the job's first attempt
-- column wait_s: s | from submission, or the end of the previous attempt, to the start; NULL when unknown
-- rule:
-- One row for each attempt. An attempt whose start is unknown, or whose predecessor's end is, has an unknown wait:
-- the row is there with NULL, so that the unknown can be counted. Zeros are waits. Negative values are
-- contradictions of the source and stay. Definition: Philly (ATC'19), each period of being queued is one wait.
SELECT
    a.job_id,
    a.attempt,
    j.cluster,
    j.vc,
    j.gpu_count,
    j.gpu_class,
    j.class_order,
    j.node_count,
    a.wait_s
FROM attempts AS a
INNER JOIN job_classes AS j ON a.job_id = j.job_id
