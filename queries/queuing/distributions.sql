-- title: Distributions of run times and waits
-- question: How are run times and waits distributed?
-- paper: none
-- tables: jobs
-- needs: run_time, gpu_count
-- param most: 12 | number of tenants that get their own rows, starting with the most values
-- column measure: text | run time or wait
-- column scope: text | set of values: all, or those of a size, a cluster or a tenant
-- column cluster: text | the cluster, in the scopes cluster and tenant; NULL when unknown
-- column vc: text | the tenant, in the scope tenant; NULL when unknown
-- column gpu_class: class | the size class, in the scope size
-- column number: jobs | jobs with a known run time, or with a known wait
-- column mean_s: s | mean
-- column p0_s: s | shortest
-- column p1_s: s | 1st percentile
-- column p5_s: s | 5th percentile
-- column p10_s: s | 10th percentile
-- column p15_s: s | 15th percentile
-- column p20_s: s | 20th percentile
-- column p25_s: s | 25th percentile
-- column p30_s: s | 30th percentile
-- column p35_s: s | 35th percentile
-- column p40_s: s | 40th percentile
-- column p45_s: s | 45th percentile
-- column p50_s: s | median
-- column p55_s: s | 55th percentile
-- column p60_s: s | 60th percentile
-- column p65_s: s | 65th percentile
-- column p70_s: s | 70th percentile
-- column p75_s: s | 75th percentile
-- column p80_s: s | 80th percentile
-- column p85_s: s | 85th percentile
-- column p90_s: s | 90th percentile
-- column p95_s: s | 95th percentile
-- column p99_s: s | 99th percentile
-- column p100_s: s | longest
-- rule:
-- Only jobs with GPUs are counted, with any status. Run times are those of queuing/run_time. The wait of a job is the
-- time from its submission to its first start, as on the first screen; queuing/queue_delay has the queueing delay per
-- attempt. The percentiles are points on the distribution curve; they interpolate linearly between the two nearest
-- values. Clusters have rows if there are several, and so do tenants. The tenants with the most values of a measure get
-- rows; ties are broken by name.
WITH one AS (
    SELECT 'run time' AS measure, cluster, vc, gpu_class, class_order, run_s AS value_s
    FROM job_classes
    WHERE gpu_count > 0 AND run_s IS NOT NULL
    UNION ALL
    SELECT 'wait' AS measure, cluster, vc, gpu_class, class_order, queue_s AS value_s
    FROM job_classes
    WHERE gpu_count > 0 AND queue_s IS NOT NULL
),

spread AS (
    SELECT
        measure,
        CASE
            WHEN grouping(gpu_class) = 0 THEN 'size'
            WHEN grouping(vc) = 0 THEN 'tenant'
            WHEN grouping(cluster) = 0 THEN 'cluster'
            ELSE 'all'
        END AS scope,
        cluster,
        vc,
        gpu_class,
        class_order,
        count(*) AS number,
        CAST(avg(CAST(value_s AS DECIMAL(38, 6))) AS DOUBLE) AS mean_s,
        percentiles(value_s) AS p
    FROM one
    GROUP BY GROUPING SETS (
        (measure),
        (measure, gpu_class, class_order),
        (measure, cluster),
        (measure, cluster, vc)
    )
),

ranked AS (
    SELECT
        *,
        row_number() OVER (PARTITION BY measure, scope ORDER BY number DESC, cluster NULLS LAST, vc NULLS LAST) AS place,
        count(*) OVER (PARTITION BY measure, scope) AS several
    FROM spread
)

SELECT
    measure,
    scope,
    cluster,
    vc,
    gpu_class,
    number,
    mean_s,
    p[1] AS p0_s,
    p[2] AS p1_s,
    p[6] AS p5_s,
    p[11] AS p10_s,
    p[16] AS p15_s,
    p[21] AS p20_s,
    p[26] AS p25_s,
    p[31] AS p30_s,
    p[36] AS p35_s,
    p[41] AS p40_s,
    p[46] AS p45_s,
    p[51] AS p50_s,
    p[56] AS p55_s,
    p[61] AS p60_s,
    p[66] AS p65_s,
    p[71] AS p70_s,
    p[76] AS p75_s,
    p[81] AS p80_s,
    p[86] AS p85_s,
    p[91] AS p90_s,
    p[96] AS p95_s,
    p[100] AS p99_s,
    p[101] AS p100_s
FROM ranked
WHERE (scope <> 'tenant' OR place <= $most) AND (scope IN ('all', 'size') OR several > 1)
ORDER BY
    measure,
    CASE scope WHEN 'all' THEN 0 WHEN 'size' THEN 1 WHEN 'cluster' THEN 2 ELSE 3 END,
    class_order,
    place
