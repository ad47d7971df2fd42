-- title: The observed time of the trace
-- tables: jobs, attempts, node_events
-- column since: us since 1970 | the first of the times in jobs, attempts and node_events
-- column until: us since 1970 | the last of these times
-- rule:
-- One row. The observed time is the same for every node, because the trace does not show when a node was bought or
-- removed for good.
WITH moment AS (
    SELECT unnest([min(submit_time), max(submit_time), min(start_time), max(start_time), max(end_time)]) AS t FROM jobs
    UNION ALL
    SELECT unnest([min(start_time), max(start_time), max(end_time)]) FROM attempts
    UNION ALL
    SELECT unnest([min(start_time), max(start_time), max(end_time)]) FROM node_events
)

SELECT epoch_us(min(t)) AS since, epoch_us(max(t)) AS until FROM moment
