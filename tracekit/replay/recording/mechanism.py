"""Replay the recorded schedule itself, and find when it uses more GPUs than exist."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tracekit.replay.engine.build import Ordered, build, open_nodes
from tracekit.replay.engine.run import Run
from tracekit.replay.jobs import naive_utc
from tracekit.replay.keys import by_arrival
from tracekit.replay.native import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.replay.clusters.assignment import Assignment
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.engine.run import Setting
    from tracekit.replay.jobs import Jobs
    from tracekit.replay.outcome import Outcome
    from tracekit.trace import Trace


@dataclass(frozen=True)
class RecordedSchedule:
    """A schedule with given starts and ends, for which the engine chooses only the nodes."""

    start_ms: NDArray[np.int64]
    """Start of each job [ms], not before its submission, or -1 to exclude the job (n,)."""
    end_ms: NDArray[np.int64]
    """End of each job [ms], not before its start, or -1 to exclude the job (n,)."""
    notes: tuple[str, ...] = ()
    """Notes for readers of the result, one sentence each."""

    def prepare(self, setting: Setting) -> Run:
        """Return a run that replays the recorded starts and ends. Jobs with the start -1 are excluded."""
        state = build(setting, Ordered(by_arrival), kind="Recorded")
        # Recorded jobs did have a place, so let a gang use any nodes of one model.
        state.job_classes["scope"] = 2
        arrays = open_nodes(state, setting.cluster)
        times, kinds, jobs = _events(state.jobs["submit"], self.start_ms, self.end_ms)
        done = 0

        def step(instants: int) -> bool:
            nonlocal done
            part = slice(done, done + _EVENTS * instants)
            compiled.carry_out(arrays, times[part], kinds[part], jobs[part])
            done = part.stop
            return done < len(times)

        def complete(outcome: Outcome) -> Outcome:
            found = violations(setting.jobs, setting.cluster, setting.assignment, self, setting.trace)
            return replace(outcome, notes=(*self.notes, violations_note(found)), violations=found)

        return Run(state, step, complete)


# Times at which the recorded schedule uses more GPUs than the cluster has, by node or by domain.

_ALWAYS = -(2**62)
_GPU_HOUR = 3.6e9


def violations(
    jobs: Jobs, cluster: Cluster, assignment: Assignment, recorded: RecordedSchedule, trace: Trace | None = None
) -> pl.DataFrame:
    """Return all times at which recorded jobs use more GPUs than exist.

    If placements in the Trace name nodes of the cluster, this compares each node's GPUs with its placements. Otherwise,
    it compares each domain's GPUs with its jobs, from first start to end.

    Returns
    -------
    polars.DataFrame
        Rows by time and name: time and until (the span with exactly this number, in UTC, to the millisecond), kind
        ('node' or 'domain'), name ('' is the whole cluster), wanted (GPUs in use), there_were (GPUs available).
    """
    placed = None if trace is None else _placements(trace, jobs, cluster, recorded)
    if placed is not None:
        held, names = placed
        capacity = _steps(cluster, np.arange(cluster.nodes))
        kind = "node"
    else:
        known = np.flatnonzero(recorded.start_ms >= 0)
        milli = (jobs.devices.astype(np.int64) * jobs.milli)[known]
        # Jobs of a VC without nodes form another domain, without GPUs.
        place = np.where(assignment.domain >= 0, assignment.domain, len(cluster.domains))[known]
        held = _changes(place, recorded.start_ms[known], recorded.end_ms[known], milli)
        names = [*cluster.domains, "(VCs without nodes)"]
        capacity = _steps(cluster, cluster.domain)
        kind = "domain"
    return _beyond(pl.concat([held, capacity]), names, kind, jobs)


def violations_note(found: pl.DataFrame) -> str:
    """Return one sentence that sums up a table of violations."""
    if found.is_empty():
        return "the log never had more GPUs allocated than exist"
    kind = found["kind"][0]
    hours = (found["until"] - found["time"]).dt.total_milliseconds() * (found["wanted"] - found["there_were"]) / 3.6e6
    places = found["name"].n_unique()
    what = f"{places:,} {kind}{'s' if places != 1 else ''}"
    return (
        f"the log has more GPUs allocated than exist at {len(found):,} times on {what}, {float(hours.sum()):,.1f} "
        "GPU-hours"
    )


def _placements(
    trace: Trace, jobs: Jobs, cluster: Cluster, recorded: RecordedSchedule
) -> tuple[pl.DataFrame, list[str]] | None:
    """Return the changes of GPUs in use by node, and the nodes' names, or None if no placement names a node."""
    if not trace.has("placements"):
        return None
    included = pl.DataFrame({"job_id": jobs.job_id.filter(pl.Series(recorded.start_ms >= 0))})
    rows = (
        trace.scan("placements")
        .select("job_id", "node_id", "gpu_count", "start_time", "end_time")
        .filter(pl.col("end_time") >= pl.col("start_time"), pl.col("gpu_count") > 0, pl.col("node_id").is_not_null())
        .join(included.lazy(), on="job_id", how="semi")
        .collect()
    )
    names = list(cluster.node_id)
    others = sorted(set(rows["node_id"].unique().to_list()) - set(names))
    if rows.is_empty() or len(others) == rows["node_id"].n_unique():
        return None
    names += others
    index = pl.DataFrame({"node_id": names, "place": np.arange(len(names))})
    # If nodes in two clusters of a Trace have the same name, the first counts.
    index = index.unique("node_id", keep="first", maintain_order=True)
    rows = rows.join(index, on="node_id", how="left", maintain_order="left")
    origin = naive_utc(jobs.origin)
    times = [(rows[c] - origin).dt.total_microseconds().to_numpy() for c in ("start_time", "end_time")]
    start, end = ((t + 500) // 1000 for t in times)
    milli = (rows["gpu_count"] * 1000).round().cast(pl.Int64).to_numpy()
    return _changes(rows["place"].to_numpy(), start, end, milli), names


def _changes(
    place: NDArray[np.int64], start: NDArray[np.int64], end: NDArray[np.int64], milli: NDArray[np.int64]
) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "place": np.concatenate([place, place]).astype(np.int64),
            "time": np.concatenate([start, end]).astype(np.int64),
            "held": np.concatenate([milli, -milli]).astype(np.int64),
            "there": np.zeros(2 * len(place), dtype=np.int64),
        }
    )


def _steps(cluster: Cluster, place: NDArray[np.int64] | NDArray[np.int32]) -> pl.DataFrame:
    """Return the changes of available GPUs, by the nodes' place."""
    gpus = cluster.gpus.astype(np.int64) * 1000
    up = np.where(cluster.absent == 0, gpus, 0)
    later = list(cluster.effective_changes())
    which = np.array([*range(cluster.nodes), *(node for _, node, _ in later)], np.int64)
    times = [_ALWAYS] * cluster.nodes + [time for time, _, _ in later]
    changes = [*up.tolist(), *(int(gpus[node]) * (1 if joins else -1) for _, node, joins in later)]
    return pl.DataFrame(
        {
            "place": np.asarray(place, dtype=np.int64)[which],
            "time": np.array(times, np.int64),
            "held": np.zeros(len(which), dtype=np.int64),
            "there": np.array(changes, np.int64),
        }
    )


def _beyond(changes: pl.DataFrame, names: list[str], kind: str, jobs: Jobs) -> pl.DataFrame:
    steps = (
        changes.group_by("place", "time")
        .agg(pl.col("held").sum(), pl.col("there").sum())
        .sort("place", "time")
        .with_columns(
            pl.col("held").cum_sum().over("place"),
            pl.col("there").cum_sum().over("place"),
            until=pl.col("time").shift(-1).over("place"),
        )
        .filter(pl.col("held") > pl.col("there"))
    )
    origin = naive_utc(jobs.origin)

    def moment(column: str) -> pl.Expr:
        after = (pl.col(column) * 1000).cast(pl.Duration("us"))
        return (pl.lit(origin, dtype=pl.Datetime("us")) + after).alias(column)

    return steps.select(
        moment("time"),
        moment("until"),
        pl.lit(kind).alias("kind"),
        pl.Series("name", names, dtype=pl.String).gather(steps["place"].cast(pl.UInt32)),
        wanted=pl.col("held") / 1000,
        there_were=pl.col("there") / 1000,
    ).sort("time", "name")


_EVENTS = 5
"""Largest number of events processed as one instant."""


def _events(
    submit: NDArray[np.int64], start: NDArray[np.int64], end: NDArray[np.int64]
) -> tuple[NDArray[np.int64], NDArray[np.int8], NDArray[np.int64]]:
    """Return time, kind and job of every event, sorted by time, kind and job."""
    known = np.flatnonzero(start >= 0)
    ends = np.where(end[known] > start[known], compiled.END, compiled.END_AT_ONCE)
    times = np.concatenate([submit[known], start[known], end[known]])
    kinds = np.concatenate(
        [np.full(len(known), compiled.SUBMIT_JOB), np.full(len(known), compiled.START_RUN), ends]
    ).astype(np.int8)
    jobs = np.tile(known, 3)
    order = np.lexsort((jobs, kinds, times))
    return times[order], kinds[order], jobs[order]
