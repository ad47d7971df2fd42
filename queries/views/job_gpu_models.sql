-- title: The GPU model that each job ran on
-- tables: jobs, placements, nodes
-- column job_id: text | the job
-- column gpu_model: text | the model; if the job accepted several, they are joined by '|'; NULL when unknown
-- rule:
-- The model is jobs.gpu_model if that names one model. Otherwise it is the model of the nodes on which the job's
-- attempts were placed, if they all have the same model. Otherwise it is jobs.gpu_model unchanged.
WITH placed AS (
    SELECT p.job_id, CASE WHEN min(n.gpu_model) = max(n.gpu_model) THEN min(n.gpu_model) END AS gpu_model
    FROM placements AS p
    INNER JOIN nodes AS n ON p.node_id = n.node_id
    WHERE p.gpu_count > 0 OR len(p.gpu_index) > 0
    GROUP BY p.job_id
)

SELECT
    j.job_id,
    CASE
        WHEN j.gpu_model IS NULL OR contains(j.gpu_model, '|') THEN coalesce(p.gpu_model, j.gpu_model)
        ELSE j.gpu_model
    END AS gpu_model
FROM jobs AS j
LEFT JOIN placed AS p ON j.job_id = p.job_id
