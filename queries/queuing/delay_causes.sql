-- title: Causes of queueing delay
-- question: Do jobs wait because their {tenant.one} is at its quota, or because free GPUs are scattered?
-- paper: Philly Table 2 (ATC'19)
-- tables: jobs, attempts
-- needs: queueing, gpu_count
-- tenant: compared
-- param quota: auto {auto, capacity, peak, p95} | what {tenant.a} may use: its recorded quota or, as a proxy, its peak or 95th percentile
-- param capacity: observed {observed, listed} | source of a node's GPU count: the largest number in any source, or the node list
-- column gpu_class: class | size class of the job
-- column waits: waits | waits longer than 0 s
-- column fair_share_waits: waits | of these, waits caused mainly by the quota
-- column fragmentation_waits: waits | of these, waits caused mainly by fragmentation; NULL when no nodes are known
-- column other_waits: waits | the other waits; the three kinds add up to waits
-- column fair_share_share: share | fair_share_waits / waits
-- column fragmentation_share: share | fragmentation_waits / waits
-- column wait_s: s | total waiting time
-- column fair_share_wait_s: s | total waiting time while the {tenant.one} was at its quota
-- column fragmentation_wait_s: s | total waiting time while no nodes with the requested locality were free
-- interval fair_share_share: proportion of waits
-- interval fragmentation_share: proportion of waits
-- rule:
-- Each moment of a wait for g GPUs in the {tenant.one} v has one cause. The cause is fair share while (GPUs of v in
-- use) + g > (quota of v); otherwise fragmentation while g GPUs do not fit on the fewest nodes that can hold them;
-- otherwise other. The counts classify each wait by its main cause, and the last three columns add up seconds; Philly
-- uses both. Quotas are rarely published. The note next to the result names the source, and says if it is a proxy.
-- Waits of 0 s, unknown waits, and jobs of unknown size are excluded.
SELECT
    gpu_class,
    count(*) AS waits,
    count(*) FILTER (WHERE cause = 'fair_share') AS fair_share_waits,
    CASE WHEN count(fragmentation_us) > 0 THEN count(*) FILTER (WHERE cause = 'fragmentation') END
        AS fragmentation_waits,
    count(*) FILTER (WHERE cause = 'other') AS other_waits,
    count(*) FILTER (WHERE cause = 'fair_share') / count(*) AS fair_share_share,
    CASE WHEN count(fragmentation_us) > 0 THEN count(*) FILTER (WHERE cause = 'fragmentation') / count(*) END
        AS fragmentation_share,
    CAST(sum(wait_us) AS DOUBLE) / 1000000 AS wait_s,
    CAST(sum(fair_share_us) AS DOUBLE) / 1000000 AS fair_share_wait_s,
    CAST(sum(fragmentation_us) AS DOUBLE) / 1000000 AS fragmentation_wait_s
FROM wait_causes
WHERE wait_us > 0 AND gpu_class IS NOT NULL
GROUP BY gpu_class, class_order
ORDER BY class_order
