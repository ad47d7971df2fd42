"""Guidelines about where jobs run: on how many nodes, and next to which other jobs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import polars as pl

from tracekit.guidelines.declared import declared
from tracekit.guidelines.interface import (
    Assumption,
    Evidence,
    Finding,
    Guideline,
    LackingError,
    Number,
    RuleChange,
    Trial,
    day_of,
)
from tracekit.guidelines.intervals import over_days, pooled_drop, ratio, strata_with_both

if TYPE_CHECKING:
    from tracekit.replay.assumptions.models import Models


# Let multi-GPU jobs wait for GPUs that are close together.

_MOST_NEIGHBOURS = 3
"""Attempts with at least this many other jobs on a node form one class."""

_MOST_WAIT = 0.1
"""Largest acceptable wait as a share of the run time [1]."""

_LEAST_ATTEMPTS = 5
"""Minimum number of attempts on each side of a comparison. With fewer attempts, one user's jobs dominate the mean."""

_BY = ("gpu_count", "neighbours")

# A node's intervals have no gaps, so the latest interval to begin contains the sample. A multi-node job runs in
# lockstep, and a delay on one node delays all, so the maximum over its nodes counts.
_SPREAD_SAMPLES = f"""
WITH spread AS (
    SELECT job_id, attempt, count(DISTINCT node_id) AS node_count
    FROM placements
    WHERE len(gpu_index) > 0 OR gpu_count > 0
    GROUP BY job_id, attempt
),

sampled AS (SELECT job_id, attempt, count(*) AS samples FROM attempt_samples GROUP BY job_id, attempt),

gangs AS (
    SELECT
        a.job_id,
        a.attempt,
        a.gpu_count,
        p.node_count,
        {day_of("a.start_time")} AS day,
        p.node_count > min(p.node_count) OVER (PARTITION BY a.gpu_count) AS worse
    FROM attempts AS a
    INNER JOIN spread AS p ON a.job_id = p.job_id AND a.attempt = p.attempt
    INNER JOIN sampled AS s ON a.job_id = s.job_id AND a.attempt = s.attempt
    WHERE a.gpu_count > 1
),

on_nodes AS (
    SELECT
        s.job_id,
        s.attempt,
        s.node_id,
        s.time,
        count(*) AS samples,
        sum(CAST(s.utilization_pct AS DECIMAL(38, 6))) AS total
    FROM attempt_samples AS s
    INNER JOIN gangs AS g ON s.job_id = g.job_id AND s.attempt = g.attempt
    GROUP BY s.job_id, s.attempt, s.node_id, s.time
),

at_moments AS (
    SELECT
        n.job_id,
        n.attempt,
        least(max(c.jobs) - 1, {_MOST_NEIGHBOURS}) AS neighbours,
        sum(n.samples) AS samples,
        sum(n.total) AS total
    FROM on_nodes AS n
    ASOF LEFT JOIN node_job_counts AS c ON n.node_id = c.node_id AND n.time >= c.since
    GROUP BY n.job_id, n.attempt, n.time
),

counted AS (
    SELECT job_id, attempt, neighbours, sum(samples) AS samples, sum(total) AS total
    FROM at_moments
    GROUP BY job_id, attempt, neighbours
)

SELECT
    g.job_id,
    g.attempt,
    g.gpu_count,
    c.neighbours,
    g.worse,
    g.day,
    CAST(c.samples AS BIGINT) AS samples,
    CAST(c.total AS DOUBLE) AS total
FROM counted AS c
INNER JOIN gangs AS g ON c.job_id = g.job_id AND c.attempt = g.attempt
"""

_WAITS_FOR_PLACES = f"""
SELECT
    w.gpu_count,
    {day_of("a.start_time")} AS day,
    1 AS one,
    w.extra_wait_us / 1e6 AS extra_s,
    w.run_us / 1e6 AS run_s,
    w.found
FROM locality_waits AS w
INNER JOIN attempts AS a ON w.job_id = a.job_id AND w.attempt = a.attempt
"""


def _comparable(samples: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of the strata with enough attempts both on the fewest nodes and on more nodes."""
    both = strata_with_both(samples, _BY)
    attempts = both.group_by(*_BY, "worse").agg(pl.struct("job_id", "attempt").n_unique().alias("attempts"))
    few = attempts.filter(pl.col("attempts") < _LEAST_ATTEMPTS)
    return both.join(few, on=_BY, how="anti")


def _find_wait_for_locality(evidence: Evidence) -> Finding:
    """Measure the loss from spreading, at equal size and number of neighbours, and the cost of waiting for fewer nodes.

    drop_pct compares spread attempts with attempts of the same size on the fewest nodes seen for this size. It uses
    samples taken while the same number of other jobs (0, 1, 2, 3 or more) used GPUs on the attempt's most crowded node.
    The strata are weighted by their spread samples. Strata with fewer than five attempts on either side are excluded.
    If neighbours were ignored, interference would count as a loss from spreading, because a job on parts of nodes has
    neighbours and a job on whole nodes has none.

    extra_wait_share is the sum of extra_wait_us (locality_waits timeline) over the spread attempts of these sizes,
    divided by the sum of their run times. The waits of attempts on the fewest nodes do not measure this cost: these
    attempts waited for other reasons, or their nodes were already free.
    """
    samples = evidence.sql(_SPREAD_SAMPLES, merge=("sampled", "counted"))
    if not len(strata_with_both(samples)):
        raise LackingError("No job size has samples on different numbers of nodes.")
    compared = _comparable(samples)
    if compared.is_empty():
        raise LackingError(
            f"For every size, fewer than {_LEAST_ATTEMPTS} attempts on the fewest nodes had as many neighbours as "
            f"the spread attempts, so the effects of spreading and of neighbours cannot be separated."
        )
    spread = compared.filter("worse")
    rows = evidence.answer(_WAITS_FOR_PLACES, also=("nodes", "gpu_utilization", "node_events"))
    waits = rows.frame.join(spread.select("gpu_count").unique(), on="gpu_count", how="semi")
    never = len(waits) - int(waits["found"].sum())
    sums = waits.select("day", "one", "extra_s", "run_s")
    share = over_days(sums, ratio("extra_s", "run_s"), n=len(waits))
    # If waiting would have cost too much, an unknown loss does not matter.
    too_long = share.value is not None and share.value > _MOST_WAIT
    covered = int(spread["samples"].sum()) / int(samples.filter("worse")["samples"].sum())
    return Finding(
        {
            "drop_pct": pooled_drop(compared, spread.select("job_id", "attempt").n_unique(), _BY),
            "extra_wait_share": share,
            "extra_wait_s": over_days(sums, ratio("extra_s", "one"), n=len(waits)),
        },
        notes=(
            *rows.notes,
            (
                "For each size, attempts on the fewest nodes seen for this size are compared with attempts on more "
                "nodes that have the same number of other jobs (0, 1, 2, 3 or more) on one of their nodes."
            ),
            "Spread jobs are not a random sample and may differ from other jobs in other ways.",
            (
                "The wait is the time from the start of each spread attempt until the fewest nodes had space for it in "
                f"the recorded schedule. For {never:,} of {len(waits):,} attempts there was never enough space, so "
                f"their run time counts as the wait."
            ),
        ),
        covers=None if too_long else covered,
        covers_of="the samples of spread multi-GPU jobs",
    )


def _spread(level: str) -> Assumption:
    def change(models: Models) -> Models:
        return replace(models, spread=replace(models.spread, level=level))

    return Assumption(f"penalty of spreading: {level}", change)


def _wait(minutes: float) -> RuleChange:
    words = f"at most {minutes:g} min" if minutes else "as long as it takes"
    name = f"jobs wait for the fewest nodes {words}"
    return RuleChange.of(name, "Waiting for locality", relax_s=60.0 * minutes, fit="place")


WAIT_FOR_LOCALITY = Guideline(
    **declared("wait-for-locality", most_wait=_MOST_WAIT),
    find=_find_wait_for_locality,
    tables=("jobs", "attempts", "placements", "gpu_utilization"),
    needs=("utilization", "placement", "gpu_index", "run_time"),
    trial=Trial(
        tuple(_wait(minutes) for minutes in (10, 1, 60, 0)),
        bracket=(_spread("default"), _spread("low"), _spread("high")),
    ),
)


# Prevent jobs on a shared node from slowing each other down.

# A node's shared intervals do not overlap, so the latest interval to begin shows whether the sample is shared.
_SHARED_SAMPLES = f"""
WITH judged AS (
    SELECT s.job_id, s.attempt, s.utilization_pct, coalesce(s.time < t.until, FALSE) AS worse
    FROM attempt_samples AS s
    ASOF LEFT JOIN shared_node_times AS t ON s.node_id = t.node_id AND s.time >= t.since
),

counted AS (
    SELECT
        j.job_id,
        j.attempt,
        a.gpu_count,
        j.worse,
        {day_of("a.start_time")} AS day,
        count(*) AS samples,
        sum(CAST(j.utilization_pct AS DECIMAL(38, 6))) AS total
    FROM judged AS j
    INNER JOIN attempts AS a ON j.job_id = a.job_id AND j.attempt = a.attempt
    WHERE a.gpu_count IS NOT NULL
    GROUP BY 1, 2, 3, 4, 5
)

SELECT gpu_count, worse, day, samples, CAST(total AS DOUBLE) AS total FROM counted
"""


def _find_limit_interference(evidence: Evidence) -> Finding:
    samples = evidence.sql(_SHARED_SAMPLES, merge=("counted",))
    all_samples = int(samples["samples"].sum())
    both = strata_with_both(samples)
    if both.is_empty():
        raise LackingError("No job size has samples both for jobs alone on a node and for jobs next to another job.")
    shared = both.filter("worse")
    beside = int(samples.filter("worse")["samples"].sum())
    return Finding(
        {
            "drop_pct": pooled_drop(both, len(shared)),
            "shared_share": Number(beside / all_samples, all_samples),
        },
        notes=(
            (
                "Samples are compared within each size, as in locality/utilization_by_colocation with rule=same_node. "
                "The sizes are weighted by their shared samples."
            ),
        ),
        rows=tuple(
            both.group_by("gpu_count", "worse")
            .agg(pl.col("samples").sum(), (pl.col("total").sum() / pl.col("samples").sum()).alias("mean_pct"))
            .sort("gpu_count", "worse")
            .select("gpu_count", pl.col("worse").alias("beside_others"), "samples", "mean_pct")
            .iter_rows(named=True)
        ),
        rows_title="GPU utilization alone and next to other jobs",
    )


LIMIT_INTERFERENCE = Guideline(
    **declared("limit-interference"),
    find=_find_limit_interference,
    tables=("jobs", "attempts", "placements", "gpu_utilization"),
    needs=("utilization", "placement", "gpu_index"),
)


MEMBERS = (WAIT_FOR_LOCALITY, LIMIT_INTERFERENCE)
