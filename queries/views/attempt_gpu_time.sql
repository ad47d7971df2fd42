-- title: Attempts with their GPU time
-- tables: attempts
-- column gpu_s: GPU*s | run_s * gpu_count of the attempt, to the microsecond; NULL when either is unknown
-- column gpu_hours: GPU-hours | the same in hours
-- rule:
-- One row for each row of attempts, with all its columns and the two above. gpu_s is a decimal number, so its sums do
-- not depend on row order.
SELECT
    attempts.*,
    CAST(run_s * gpu_count AS DECIMAL(38, 6)) AS gpu_s,
    run_s * gpu_count / 3600 AS gpu_hours
FROM attempts
