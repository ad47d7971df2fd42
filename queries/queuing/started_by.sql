-- title: Starts by backfill
-- question: How many jobs does the backfill scheduler start, by job size?
-- paper: none
-- tables: jobs
-- needs: gpu_count
-- column gpu_class: class | size class of the job
-- column jobs: jobs | jobs for which the source records what started them
-- column main_jobs: jobs | of these, jobs started by the main scheduler, in priority order
-- column backfill_jobs: jobs | of these, jobs started by backfill, ahead of jobs with higher priority
-- column backfill_share: share | backfill_jobs / jobs
-- column main_p50_s: s | median wait of the jobs started by the main scheduler
-- column backfill_p50_s: s | median wait of the jobs started by backfill
-- interval backfill_share: proportion of jobs
-- rule:
-- The query counts jobs by what started their first run (jobs.started_by: Slurm's flags SchedMain and SchedSubmit mean
-- main, and SchedBackfill means backfill). Jobs of unknown size are excluded, and so are jobs for which the source does
-- not record what started them. Medians are over the known waits from the submission to the first start.
SELECT
    gpu_class,
    count(*) AS jobs,
    count(*) FILTER (WHERE started_by = 'main') AS main_jobs,
    count(*) FILTER (WHERE started_by = 'backfill') AS backfill_jobs,
    count(*) FILTER (WHERE started_by = 'backfill') / count(*) AS backfill_share,
    quantile_cont(queue_s, 0.5) FILTER (WHERE started_by = 'main') AS main_p50_s,
    quantile_cont(queue_s, 0.5) FILTER (WHERE started_by = 'backfill') AS backfill_p50_s
FROM job_classes
WHERE started_by IS NOT NULL AND gpu_class IS NOT NULL
GROUP BY gpu_class, class_order
ORDER BY class_order
