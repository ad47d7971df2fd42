"""Jobs that started before others of the same VC that had queued longer, and whether that delayed these."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tracekit.answer import AnswerColumn
from tracekit.characterize.notes import Note
from tracekit.characterize.occupancy import attempts_sql, no_attempt_sql, running, tenants, window_us
from tracekit.characterize.placeable import free_nodes
from tracekit.characterize.quotas import quotas
from tracekit.characterize.timeline import TimelineRows
from tracekit.characterize.timelines.wait_causes import JOB_COLUMNS, QUEUE_TIMELINE

if TYPE_CHECKING:
    from collections.abc import Mapping

    import duckdb

    from tracekit.array_types import Bools, Floats, Ints
    from tracekit.characterize.placeable import FreeNodes


def _compute(con: duckdb.DuckDBPyConnection, params: Mapping[str, int | float | str]) -> TimelineRows:
    groups = tenants(con)
    source = attempts_sql(con)
    window = window_us(con)
    # A job that waits when the trace ends has waited through all its starts.
    queued = pl.DataFrame(
        con.sql(
            f"""SELECT w.job_id, w.attempt, t.cluster, t.vc, w.code, w.job_gpus AS gpu_count,
                   w.gpu_class, w.class_order,
                   true AS started,
                   epoch_us(w.start_time) - CAST(round(w.wait_s * 1000000) AS BIGINT) AS since,
                   epoch_us(w.start_time) AS until
            FROM ({source}) AS w INNER JOIN tenant AS t ON w.code = t.code
            WHERE w.wait_s >= 0 AND w.start_time IS NOT NULL AND w.job_gpus > 0
            UNION ALL
            SELECT * FROM (
                SELECT j.job_id, NULL, j.cluster, j.vc, t.code, j.gpu_count, j.gpu_class, j.class_order, false,
                       epoch_us(j.submit_time) AS since,
                       coalesce(epoch_us(j.end_time), CASE WHEN j.status = 'pending' THEN $beyond END) AS until
                FROM job_classes AS j
                JOIN tenant AS t ON j.cluster IS NOT DISTINCT FROM t.cluster AND j.vc IS NOT DISTINCT FROM t.vc
                WHERE j.gpu_count > 0 AND {no_attempt_sql(con)})
            WHERE since <= until""",
            params={"beyond": window and window[1] + 1},
        )
    )
    held, notes = running(con, source, with_gpus=True)
    # In half microseconds: what starts at a moment does so after what ends then, and can be looked at in between.
    between = held.half_steps()
    used = between.by_tenant(len(groups))
    allowed, quota = quotas(con, groups, lambda: used, str(params["quota"]))
    notes.append(quota)
    waiter = queued["code"].to_numpy()
    nodes: dict[str | None, FreeNodes] = {}
    if con.execute("SELECT 1 FROM placements LIMIT 1").fetchall():
        nodes, lost = free_nodes(con, str(params["capacity"]), half_steps=True)
        notes += lost
    else:
        notes.append(Note("room without nodes"))
    early, overtaken, harmless = (np.zeros(len(queued), dtype=bool) for _ in range(3))
    known = np.zeros(len(queued), dtype=bool)
    since, until = queued["since"].to_numpy(), queued["until"].to_numpy()
    size, started = queued["gpu_count"].to_numpy(), queued["started"].to_numpy()
    by_tenant = np.argsort(waiter, kind="stable")
    cuts = np.searchsorted(waiter[by_tenant], np.arange(len(groups) + 1))
    for group, cluster in enumerate(groups["cluster"]):
        rows = by_tenant[cuts[group] : cuts[group + 1]]
        if not len(rows):
            continue
        early[rows], overtaken[rows] = _out_of_order(since[rows], until[rows], started[rows])
        jumped = rows[early[rows]]
        least = _least_overtaken(since[rows], until[rows], size[rows], since[jumped], until[jumped])
        room = allowed[group].at(until[jumped]) - used[group].at(until[jumped] * 2)
        placeable = least <= room + 1e-9
        pool = nodes.get(cluster)
        if pool is not None:
            for gang in np.unique(least):
                same = least == gang
                placeable[same] &= pool.fits(float(gang)).at(until[jumped[same]] * 2) >= 1
        harmless[jumped] = ~placeable
        known[jumped] = ~np.isnan(room)
    frame = queued.select(
        "job_id",
        "attempt",
        *(column.name for column in JOB_COLUMNS),
        "started",
        out_of_order=pl.Series(early),
        overtaken=pl.Series(overtaken),
        harmless=pl.when(pl.Series(known)).then(pl.Series(harmless)),
    )
    return TimelineRows(frame, tuple(notes))


def _out_of_order(since: Ints, until: Ints, started: Bools) -> tuple[Bools, Bools]:
    """Return which starts came before a longer queued job left the queue, and which jobs were overtaken."""
    order = np.argsort(since, kind="stable")
    queued = since[order]
    latest = np.maximum.accumulate(until[order])
    ahead = np.searchsorted(queued, since, side="left")  # how many queued strictly earlier
    early = started & (ahead > 0) & (latest[np.maximum(ahead - 1, 0)] > until)
    starts = np.where(started[order], until[order], np.iinfo(np.int64).max)
    soonest = np.append(np.minimum.accumulate(starts[::-1])[::-1], np.iinfo(np.int64).max)
    overtaken = soonest[np.searchsorted(queued, since, side="right")] < until
    return early, overtaken


def _least_overtaken(since: Ints, until: Ints, size: Floats, jumper_since: Ints, jumper_start: Ints) -> Floats:
    """Return the size of the smallest job that each out-of-order start overtook.

    There are few sizes: for each of them, the smallest first, one of the jobs up to that size was overtaken if the
    latest of them to leave the queue left after the start.
    """
    order = np.argsort(since, kind="stable")
    ahead = np.searchsorted(since[order], jumper_since, side="left")
    least = np.full(len(jumper_since), np.nan)
    open_ = np.arange(len(jumper_since))
    for gang in np.unique(size):
        if not len(open_):
            break
        leaving = np.where(size[order] <= gang, until[order], np.iinfo(np.int64).min)
        latest = np.maximum.accumulate(leaving)
        found = latest[ahead[open_] - 1] > jumper_start[open_]
        least[open_[found]] = gang
        open_ = open_[~found]
    return least


TIMELINE = QUEUE_TIMELINE(
    name="queue_order",
    title="Each period in the queue, and whether it was out of order",
    columns=(
        AnswerColumn("job_id", "text", "the job"),
        AnswerColumn("attempt", "number", "the attempt that ended the wait; NULL for a job that left without one"),
        *JOB_COLUMNS,
        AnswerColumn("started", "true or false", "whether the job started; else it left the queue"),
        AnswerColumn("out_of_order", "true or false", "whether it started while a job queued earlier still waited"),
        AnswerColumn("overtaken", "true or false", "whether a job queued later started while it waited"),
        AnswerColumn(
            "harmless",
            "true or false",
            "whether none of those it overtook could have been placed then; NULL when that is unknown",
        ),
    ),
    rule="""Jobs of one VC are compared, those with GPUs only. A start at s of a job queued at q is out of order when
another job queued before q and was still waiting after s. It is harmless when even the smallest of those could not
have been placed at s: its VC's quota had no room for it, or no nodes with the wanted locality were free. GPUs that
were released at s count as free, those taken at s too. A job still pending at the end of the trace has waited through
all starts; other waits that are unknown, or below zero, are out.
Source: the question is Philly's (ATC'19); the test is ours.""",
    compute=_compute,
)
