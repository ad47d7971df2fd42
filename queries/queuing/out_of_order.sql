-- title: Out-of-order scheduling
-- question: How often do jobs overtake others of their VC, and at whose cost?
-- paper: Philly Section 3.1 (ATC'19)
-- tables: jobs, attempts
-- needs: queueing, gpu_count
-- tenant: compared
-- param quota: auto {auto, capacity, peak, p95} | what a VC may use: stated, or as a proxy its peak or 95th percentile
-- param capacity: observed {observed, listed} | GPUs of a node: the largest number any source shows, or the node list
-- column gpu_class: class | size class of the job
-- column starts: starts | starts of attempts after a known wait
-- column out_of_order_starts: starts | those while a job of the VC that had queued earlier still waited
-- column out_of_order_share: share | out_of_order_starts / starts
-- column overtaken_jobs: jobs | jobs of this class that a later queued one overtook at least once
-- column harmless_share: share | out-of-order starts that took nothing from those they overtook, of those that can be told
-- interval out_of_order_share: proportion of starts
-- interval harmless_share: proportion of _told
-- rule:
-- Jobs of one VC are compared, those with GPUs only. A start at s of a job queued at q is out of order when another
-- job queued before q and left the queue after s. It is harmless when even the smallest job it overtook could not
-- have been placed at s: the VC's quota had no room for it, or no nodes could take it on the fewest nodes that can
-- hold it. Without nodes in the trace only the quota counts. The note beside the result names the quota's source.
-- A job still pending at the end of the trace has waited through all starts.
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
