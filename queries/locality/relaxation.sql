-- title: How far jobs are spread beyond the fewest nodes
-- question: How many jobs run on more nodes than they need, and do they wait less in return?
-- paper: relaxed locality of Philly's scheduler (ATC'19), quantified here
-- tables: jobs
-- also: attempts
-- needs: gpu_count, node_count
-- param gpus_per_node: 8 | GPUs per node, used to compute the fewest nodes that a job needs
-- column gpu_class: class | size class of the job
-- column relaxation: nodes per node | nodes of the job / fewest nodes that fit it; 1 is strict locality
-- column jobs: jobs | jobs of this class and relaxation
-- column jobs_share: share | jobs / jobs of the class with a known number of nodes
-- column mean_queue_s: s | mean first wait of the jobs whose first wait is known
-- column waits: jobs | number of these jobs
-- rule:
-- relaxation is node_count / ceil(gpu_count / gpus_per_node) for the job's first attempt. Only jobs with GPUs are
-- counted; jobs of unknown size or on an unknown number of nodes are excluded. The first wait is that of
-- locality/delay_by_spread. A relaxation below 1 means that the nodes have more than gpus_per_node GPUs. Nodes of
-- processes without a GPU, such as PAI's parameter servers, also count.
WITH relaxed AS (
    SELECT
        j.gpu_class,
        j.class_order,
        CAST(j.node_count AS DOUBLE) / ceil(j.gpu_count / $gpus_per_node) AS relaxation,
        w.wait_s
    FROM job_classes AS j
    LEFT JOIN (SELECT job_id, wait_s FROM attempts WHERE attempt = 0) AS w ON j.job_id = w.job_id
    WHERE j.gpu_count > 0 AND j.node_count IS NOT NULL
)

SELECT
    gpu_class,
    relaxation,
    count(*) AS jobs,
    CAST(count(*) AS DOUBLE) / CAST(sum(count(*)) OVER (PARTITION BY gpu_class) AS DOUBLE) AS jobs_share,
    CAST(avg(CAST(wait_s AS DECIMAL(38, 6))) AS DOUBLE) AS mean_queue_s,
    count(wait_s) AS waits
FROM relaxed
GROUP BY gpu_class, class_order, relaxation
ORDER BY class_order, relaxation
