-- title: Host CPU and memory use
-- question: How busy are the CPUs and the memory of the machines?
-- paper: Philly Fig 7 (ATC'19)
-- tables: host_utilization
-- needs: host_utilization
-- merge: bins, counted
-- column resource: text | cpu or memory
-- column samples: samples | one sample is one machine for one sampling interval
-- column mean_pct: percent | mean use
-- column p50_pct: percent | median
-- column p90_pct: percent | 90th percentile
-- column p95_pct: percent | 95th percentile
-- rule:
-- CPU use is every known cpu_pct. Memory use is 100 * used / total if the total is above 0. All machines and times are
-- pooled, whether or not a job was running. Whether caches count as used memory depends on the source. A resource
-- without samples has no row. Percentiles interpolate linearly. To save memory, the samples are first counted in bins
-- of a tenth of a percent. Then only the bins that contain a percentile are read value by value. Source: the notebook
-- of the Philly traces.
WITH bins AS (
    SELECT
        resource,
        floor(use_pct * 10) AS bin,
        count(*) AS n,
        sum(CAST(use_pct AS DECIMAL(38, 12))) AS total
    FROM host_samples
    GROUP BY resource, floor(use_pct * 10)
),

ranked_bins AS (
    SELECT
        resource,
        bin,
        CAST(sum(n) OVER (PARTITION BY resource ORDER BY bin) AS DOUBLE) - n AS before,
        CAST(sum(n) OVER (PARTITION BY resource ORDER BY bin) AS DOUBLE) AS upto
    FROM bins
),

resources AS (
    SELECT resource, CAST(sum(n) AS DOUBLE) AS samples, CAST(sum(total) AS DOUBLE) AS total
    FROM bins
    GROUP BY resource
),

ranks AS (
    SELECT
        r.resource,
        q.share,
        floor(q.share * (r.samples - 1)) AS below_rank,
        ceil(q.share * (r.samples - 1)) AS above_rank,
        q.share * (r.samples - 1) - floor(q.share * (r.samples - 1)) AS weight
    FROM resources AS r
    CROSS JOIN (VALUES (0.5), (0.9), (0.95)) AS q (share)
),

wanted AS (
    SELECT DISTINCT b.resource, b.bin, b.before
    FROM ranked_bins AS b
    INNER JOIN ranks AS r
        ON b.resource = r.resource
        AND (
            (b.before <= r.below_rank AND r.below_rank < b.upto)
            OR (b.before <= r.above_rank AND r.above_rank < b.upto)
        )
),

counted AS (
    SELECT s.resource, w.bin, w.before, s.use_pct AS value, count(*) AS n
    FROM host_samples AS s
    INNER JOIN wanted AS w ON s.resource = w.resource AND floor(s.use_pct * 10) = w.bin
    GROUP BY s.resource, w.bin, w.before, s.use_pct
),

ranked AS (
    SELECT
        resource,
        value,
        before + CAST(sum(n) OVER (PARTITION BY resource, bin ORDER BY value) AS DOUBLE) AS upto
    FROM counted
),

-- The value of rank r (from 0) is the smallest value with more than r samples at or below it.
quantiles AS (
    SELECT
        k.resource,
        k.share,
        max(k.weight) AS weight,
        min(v.value) FILTER (WHERE v.upto > k.below_rank) AS below,
        min(v.value) FILTER (WHERE v.upto > k.above_rank) AS above
    FROM ranks AS k
    INNER JOIN ranked AS v ON k.resource = v.resource
    GROUP BY k.resource, k.share
)

SELECT
    r.resource,
    CAST(max(r.samples) AS BIGINT) AS samples,
    max(r.total / r.samples) AS mean_pct,
    max(q.below + (q.above - q.below) * q.weight) FILTER (WHERE q.share = 0.5) AS p50_pct,
    max(q.below + (q.above - q.below) * q.weight) FILTER (WHERE q.share = 0.9) AS p90_pct,
    max(q.below + (q.above - q.below) * q.weight) FILTER (WHERE q.share = 0.95) AS p95_pct
FROM resources AS r
INNER JOIN quantiles AS q ON r.resource = q.resource
GROUP BY r.resource
ORDER BY r.resource
