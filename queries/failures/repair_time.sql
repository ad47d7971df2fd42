-- title: Time until nodes are back in service, by cause
-- question: How long does it take to return a node to service, by cause?
-- paper: none
-- tables: node_events
-- column cause: text | cause, with the same name for every source; NULL if no reason was given
-- column state: text | down, drained or maintenance
-- column events: events | number of times that a node was out of service for this cause
-- column going_on: events | of these, events without an end
-- column p50_h: hours | time after which half of the events were over, by Kaplan-Meier; NULL if fewer than half were
-- column p90_h: hours | the same for nine in ten
-- column mean_h: hours | mean over the events that ended; NULL if none did
-- rule:
-- The repair time runs from the start of an event to its end. An event without an end lasts at least to the last time
-- in node_events and counts as right-censored; excluding it would make repairs look faster than they are. An event
-- within another event of the same node counts separately. Degraded nodes are excluded. The Kaplan-Meier estimate
-- follows Kaplan and Meier (1958); its q-quantile is the first time at which the share still out of service is 1 - q or
-- less.
WITH last AS (SELECT greatest(max(start_time), max(end_time)) AS t FROM node_events),

lasting AS (
    SELECT
        e.cause,
        e.state,
        e.end_time IS NOT NULL AS ended,
        (epoch_us(coalesce(e.end_time, l.t)) - epoch_us(e.start_time)) AS us
    FROM node_events AS e CROSS JOIN last AS l
    WHERE e.state IN ('down', 'drained', 'maintenance')
),

step AS (
    SELECT cause, state, us, count(*) FILTER (WHERE ended) AS over, count(*) AS left_now
    FROM lasting GROUP BY cause, state, us
),

at_risk AS (
    SELECT
        *,
        sum(left_now) OVER (
            PARTITION BY cause, state ORDER BY us ROWS BETWEEN CURRENT ROW AND UNBOUNDED FOLLOWING
        ) AS still_out
    FROM step
),

survival AS (
    SELECT
        cause,
        state,
        us,
        product(1 - over / still_out) OVER (PARTITION BY cause, state ORDER BY us ROWS UNBOUNDED PRECEDING) AS share
    FROM at_risk
),

quantile AS (
    SELECT
        cause,
        state,
        min(us) FILTER (WHERE share <= 0.5 + 1e-12) AS p50,
        min(us) FILTER (WHERE share <= 0.1 + 1e-12) AS p90
    FROM survival GROUP BY cause, state
),

summary AS (
    SELECT
        cause,
        state,
        count(*) AS events,
        count(*) FILTER (WHERE NOT ended) AS going_on,
        CAST(sum(CAST(us AS HUGEINT)) FILTER (WHERE ended) AS DOUBLE) / count(*) FILTER (WHERE ended) AS mean
    FROM lasting GROUP BY cause, state
)

SELECT
    s.cause,
    s.state,
    s.events,
    s.going_on,
    q.p50 / 3.6e9 AS p50_h,
    q.p90 / 3.6e9 AS p90_h,
    s.mean / 3.6e9 AS mean_h
FROM summary AS s
JOIN quantile AS q ON s.cause IS NOT DISTINCT FROM q.cause AND s.state = q.state
ORDER BY s.events DESC, s.cause NULLS LAST, s.state
