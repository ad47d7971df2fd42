-- title: Out-of-order scheduling
-- question: How often do jobs overtake others of their {tenant.one}, and at whose cost?
-- paper: Philly Section 3.1 (ATC'19)
-- tables: jobs, attempts
-- needs: queueing, gpu_count
-- tenant: compared
-- param quota: auto {auto, capacity, peak, p95} | what {tenant.a} may use: its recorded quota or, as a proxy, its peak or 95th percentile
-- param capacity: observed {observed, listed} | source of a node's GPU count: the largest number in any source, or the node list
-- column gpu_class: class | size class of the job
-- column starts: starts | starts of attempts after a known wait
-- column out_of_order_starts: starts | of these, starts while a job of the {tenant.one} that had been queued earlier was still waiting
-- column out_of_order_share: share | out_of_order_starts / starts
-- column overtaken_jobs: jobs | jobs of this class overtaken at least once by a job queued later
-- column harmless_share: share | out-of-order starts that took nothing from the overtaken jobs / out-of-order starts for which this is known
-- interval out_of_order_share: proportion of starts
-- interval harmless_share: proportion of _told
-- rule:
-- The query compares jobs with GPUs within one {tenant.one}. A start at s of a job queued at q is out of order if
-- another job was queued before q and left the queue after s. The start is harmless if even the smallest overtaken job
-- could not have started at s, because of the {tenant.one}'s quota or because it did not fit on the fewest nodes that
-- can hold it. If the trace has no nodes, only the quota counts. The note next to the result names the quota's source.
-- A job still pending at the end of the trace counts as waiting until then.
SELECT
    gpu_class,
    count(*) FILTER (WHERE started) AS starts,
    count(*) FILTER (WHERE out_of_order) AS out_of_order_starts,
    count(*) FILTER (WHERE out_of_order) / nullif(count(*) FILTER (WHERE started), 0) AS out_of_order_share,
    count(DISTINCT CASE WHEN overtaken THEN job_id END) AS overtaken_jobs,
    count(*) FILTER (WHERE harmless) / nullif(count(*) FILTER (WHERE harmless IS NOT NULL), 0) AS harmless_share,
    count(*) FILTER (WHERE harmless IS NOT NULL) AS _told
FROM queue_order
GROUP BY gpu_class, class_order
ORDER BY class_order
