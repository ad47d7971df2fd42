"""Replay one long multi-node job with spare nodes under the outages of a log, recorded or drawn."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import polars as pl

from tracekit.errors import MissingTableError, UsageError, nearest
from tracekit.replay.assumptions.models import load_models
from tracekit.replay.clusters.assignment import assign
from tracekit.replay.clusters.cluster import Node, QuotaTable, make_cluster
from tracekit.replay.clusters.of_trace import AWAY, NO_END
from tracekit.replay.jobs import Jobs
from tracekit.replay.outages.asked import checkpoints_for
from tracekit.replay.outages.away import with_outages
from tracekit.replay.outages.failures import Outages
from tracekit.replay.outcome import LOG_KINDS
from tracekit.replay.registry import named_policy
from tracekit.runs.ledger import Ledger
from tracekit.text import counted

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.capacity_plan.question import SpareQuestion
    from tracekit.replay.outages.asked import CheckpointsAsked
    from tracekit.trace import Trace

    Ints = NDArray[np.int64]
    Floats = NDArray[np.float64]


_DAY_MS = 86_400_000


@dataclass(frozen=True)
class NodePool:
    """Nodes with equal numbers of GPUs, and their outages (m,) in order of begin.

    The period that the log covers is from the first to the last time in jobs, attempts and node_events, as in
    failures/node_availability.
    """

    nodes: int
    gpus_per_node: int | None
    """GPUs of each node, or None if the log does not record them."""
    other_nodes: int
    """Number of GPU nodes of other sizes, which are excluded."""
    span_ms: int
    """Length of the period that the log covers [ms]."""
    node: NDArray[np.int32]
    """The node (m,)."""
    since_ms: Ints
    """Begin, from the start of the log [ms] (m,)."""
    until_ms: Ints
    """End [ms], or NO_END if the log records no end (m,)."""
    kills: NDArray[np.bool_]
    """Whether the outage stops jobs on the node (m,): yes if it is down, no if it is drained or in maintenance.
    """

    @classmethod
    def of(cls, trace: Trace, question: SpareQuestion) -> NodePool:
        """Return the node pool of a Trace.

        Raises
        ------
        MissingTableError
            The Trace has no node_events table.
        UsageError
            No node is of the requested cluster or GPU model, or the log covers no time.
        """
        if not trace.has("node_events"):
            hint = "docs/machines.md lists the files that provide it"
            raise MissingTableError("the Trace has no table 'node_events'", where=trace.path, hint=hint)
        events = trace.scan("node_events").select("node_id", "state", "start_time", "end_time").collect()
        begin, end = _covered(trace, events)
        if end <= begin:
            raise UsageError("the log covers no time", where=trace.path, hint="use a log that records when events end")
        names, gpus, others = _nodes(trace, events, question)
        place = {name: number for number, name in enumerate(names)}
        away = (
            events.filter(pl.col("state").is_in(AWAY) & pl.col("node_id").is_in(names))
            .drop_nulls("start_time")
            .select(
                pl.col("node_id").replace_strict(place, return_dtype=pl.Int32).alias("node"),
                ((pl.col("start_time").dt.epoch("us") - begin) // 1000).alias("since"),
                ((pl.col("end_time").dt.epoch("us") - begin) // 1000).fill_null(NO_END).alias("until"),
                (pl.col("state") == "down").alias("kills"),
            )
            .filter(pl.col("until") > pl.col("since"))
            .sort("since", "node", "until", "kills")
        )
        return cls(
            len(names),
            gpus,
            others,
            (end - begin) // 1000,
            away["node"].to_numpy(),
            away["since"].to_numpy(),
            away["until"].to_numpy(),
            away["kills"].to_numpy(),
        )

    @property
    def days(self) -> float:
        """Length of the period that the log covers [days]."""
        return self.span_ms / _DAY_MS

    @property
    def rate_per_ms(self) -> float:
        """Rate at which a node goes down [1/ms]. Nodes that were already out of service also count."""
        return float(self.kills.sum()) / (self.nodes * self.span_ms)

    def availability(self) -> float:
        """Return 1 - time out of service / total time, over all nodes [0..1]. Overlapping outages count once."""
        return 1 - sum(until - since for _, since, until in self.spans()) / (self.nodes * self.span_ms)

    def spans(self) -> list[tuple[int, int, int]]:
        """Return (node, begin, end) of the outages within the log [ms], merging outages that overlap or touch."""
        order = np.lexsort((self.until_ms, self.since_ms, self.node))
        rows = zip(self.node[order].tolist(), self.since_ms[order].tolist(), self.until_ms[order].tolist(), strict=True)
        found: list[tuple[int, int, int]] = []
        for node, since, until in rows:
            last = min(until, self.span_ms)
            if found and found[-1][0] == node and since <= found[-1][2]:
                found[-1] = (node, found[-1][1], max(found[-1][2], last))
            else:
                found.append((node, since, last))
        return found

    def most_up(self) -> int:
        """Return the maximum number of nodes that were up at once."""
        moves = sorted(move for _, a, b in self.spans() if b > a for move in ((a, 1), (b, -1)))
        # At equal times, returning nodes count before leaving ones, but nodes that are up only for an instant do not
        # count.
        down, least, last = 0, self.nodes, -1
        for time, change in moves:
            if time > max(last, 0):
                least, last = min(least, down), time
            down += change
        if last < self.span_ms:
            least = min(least, down)
        return self.nodes - least

    def nodes_of_gang(self, question: SpareQuestion) -> int:
        """Return the number of nodes that the job needs.

        Raises
        ------
        UsageError
            The log does not record how many GPUs nodes have, or the job needs more nodes than were ever up at once.
        """
        gang = question.gang
        if gang.in_nodes:
            found = gang.number
        elif self.gpus_per_node is None:
            hint = f"give the job size in nodes, such as --gang {max(gang.number // 8, 1)}nodes"
            raise UsageError("the log does not record how many GPUs its nodes have", where="--gang", hint=hint)
        else:
            found = -(-gang.number // self.gpus_per_node)
        most = self.most_up()
        if found > most:
            there = f"the log has {counted(self.nodes, 'nodes')}"
            if most < self.nodes:
                there += f", with at most {most:,} up at once"
            raise UsageError(
                f"the job needs {counted(found, 'nodes')}, but {there}", where="--gang", hint="use a smaller job"
            )
        return found


def _covered(trace: Trace, events: pl.DataFrame) -> tuple[int, int]:
    """Return the first and last time in the log [us since 1970]."""
    times = [events[name].dt.epoch("us") for name in ("start_time", "end_time")]
    for table, columns in (
        ("jobs", ("submit_time", "start_time", "end_time")),
        ("attempts", ("start_time", "end_time")),
    ):
        if trace.has(table):
            own = [pl.col(name).dt.epoch("us") for name in columns]
            ends = trace.scan(table).select(
                pl.min_horizontal(c.min() for c in own), pl.max_horizontal(c.max() for c in own).alias("last")
            )
            times += [pl.Series(ends.collect().row(0), dtype=pl.Int64)]
    known = pl.concat([one.cast(pl.Int64).rename("time") for one in times]).drop_nulls()
    return (int(known.min()), int(known.max())) if len(known) else (0, 0)  # type: ignore[arg-type]  # whole numbers


def _nodes(trace: Trace, events: pl.DataFrame, question: SpareQuestion) -> tuple[list[str], int | None, int]:
    """Return the node names, the GPUs of each node, and the number of nodes of other sizes."""
    wanted = question.cluster is not None or question.model is not None
    if not trace.has("nodes"):
        if wanted:
            what = "the Trace has no table nodes, so the clusters and GPU models of nodes are unknown"
            raise UsageError(what, where=trace.path, hint="omit --model and --for")
        return sorted(events["node_id"].unique().drop_nulls().to_list()), None, 0
    nodes = trace.scan("nodes").select("node_id", "cluster", "gpu_model", "gpu_count").collect()
    for option, column, value in (("--for", "cluster", question.cluster), ("--model", "gpu_model", question.model)):
        if value is not None:
            known = nodes[column].drop_nulls().unique().sort().to_list()
            if value not in known:
                what = f"no node {'belongs to cluster' if column == 'cluster' else 'is of GPU model'} '{value[:60]}'"
                raise UsageError(what, where=option, hint=nearest(value[:60], known))
            nodes = nodes.filter(pl.col(column) == value)
    with_gpus = nodes.filter(pl.col("gpu_count").fill_null(0) > 0)
    if with_gpus.is_empty():
        # Nodes that only events name also belong to the log.
        named = nodes["node_id"] if wanted else pl.concat([nodes["node_id"], events["node_id"].drop_nulls()])
        return sorted(named.unique().to_list()), None, 0
    sizes = with_gpus.group_by("gpu_count").len().sort("len", "gpu_count", descending=True)
    gpus = int(sizes["gpu_count"][0])
    alike = with_gpus.filter(pl.col("gpu_count") == gpus)
    return sorted(alike["node_id"].unique().to_list()), gpus, len(with_gpus) - len(alike)


Kind = Literal["recorded", "model"]
KINDS: tuple[Kind, ...] = ("recorded", "model")
"""Outages as recorded in the log, and outages drawn from the recorded ones."""

PARTS = ("ettr", "saving_share", "lost_share", "restarting_share", "waiting_share", "restarts_per_day")
"""The measures of one run, as shares of the length T of the period that the log covers.

ettr (effective training time ratio): work time that was saved by the end. saving_share: time spent on checkpoints.
lost_share: work time not yet saved when an outage, or the end, stopped the job. restarting_share: time spent on
restarts. waiting_share: time during which nodes of the job are missing. These five sum to 1. restarts_per_day: number
of stops caused by outages / T [1/day]."""

_DAY_MS = 86_400_000
_PPM = 1_000_000
_POLICY = "fifo"


@dataclass(frozen=True)
class GangRuns:
    """Runs of one multi-node job, each determined by its number, the kind of outages and the number of spares."""

    pool: NodePool
    gang: int
    """Number of nodes of the job."""
    checkpoint: CheckpointsAsked
    resamples: int
    seed: int
    ledger: Ledger = field(default_factory=Ledger)
    """Ledger in which shards share the runs. It already identifies the Trace, the nodes and the program."""

    def most_spares(self, kind: Kind) -> int:
        """Return the maximum number of spares: the other nodes or, for drawn outages, as many as the job's nodes."""
        return self.pool.nodes - self.gang if kind == "recorded" else max(self.gang, 8)

    def of(self, kind: Kind, spares: int, checkpoint: CheckpointsAsked | None = None) -> Floats:
        """Return the `PARTS` of each run (resamples, parts). Each run is computed only once."""
        rule = checkpoint or self.checkpoint
        # Every draw gives the same set if all nodes are used.
        alike = kind == "recorded" and self.gang + spares == self.pool.nodes
        ledger = self.ledger.about(kind=kind, gang=self.gang, spares=spares, checkpoint=asdict(rule), seed=self.seed)
        makers = {
            ledger.digest(number=number): partial(self._run, kind, spares, rule, number)
            for number in range(1 if alike else self.resamples)
        }
        runs = ledger.results(makers, f"runs with {counted(spares, 'spares')}, outages {kind}")
        return np.array([one["parts"] for one in runs] * (self.resamples if alike else 1))

    def interval_s(self) -> float:
        """Return the job's work time between two checkpoints [s], which is infinite if it makes no checkpoints."""
        nodes = make_cluster([Node("node-0", 1)], QuotaTable.none(), "the plan")
        saving = checkpoints_for(self.checkpoint, _endless(self.gang, 1), nodes, self.pool.rate_per_ms)
        # Without checkpoints, all of the time is work, for any length of the period.
        saves = saving.progress_ppm[0] < _PPM or saving.period_ms[0] < 2 * self.pool.span_ms
        return float(saving.period_ms[0]) / 1000 - self.checkpoint.cost_s if saves else float("inf")

    def outages(self, kind: Kind, spares: int, number: int) -> Outages:
        """Return the outages of one run. More spares add nodes and leave the earlier ones unchanged.

        Recorded outages come from nodes drawn without replacement, at their recorded times. Model outages come from
        nodes drawn with replacement. They are shifted by the same random time for all nodes, so simultaneous faults
        stay together. Second copies of nodes share another shift, and so on, so a node and its copy fail independently.
        Times beyond the end wrap around to the start. At the end of the log, every node goes down.
        """
        pool, size = self.pool, self.gang + spares
        random = np.random.default_rng([self.seed, number, int(kind == "model")])
        if kind == "recorded":
            drawn, shifts = random.permutation(pool.nodes)[:size], np.zeros(1, np.int64)
        else:
            most = self.gang + self.most_spares(kind)
            shifts = random.integers(pool.span_ms, size=most)
            drawn = random.integers(pool.nodes, size=most)[:size]
        parts = []
        copies: Counter[int] = Counter()
        for place, source in enumerate(drawn.tolist()):
            turned = int(shifts[copies[source]])
            copies[source] += 1
            rows = pool.node == source
            since, until = pool.since_ms[rows], np.minimum(pool.until_ms[rows], pool.span_ms)
            length, since = until - since, (since + turned) % pool.span_ms if turned else since
            # An outage that crosses the end of the log continues at the start of the log.
            for back in (0, pool.span_ms) if turned else (0,):
                some = since + length > back
                begin = (since - back)[some]
                parts.append((np.full(begin.size, place), begin, begin + length[some], pool.kills[rows][some]))
        ends = np.full(size, pool.span_ms)
        parts.append((np.arange(size), ends, np.full(size, NO_END), np.ones(size, np.bool_)))
        node, since, until, kills = (np.concatenate(column) for column in zip(*parts, strict=True))
        inside = (since < pool.span_ms) | (until == NO_END)
        order = np.lexsort((kills, until, node, since))
        order = order[inside[order]]
        return Outages(
            node[order].astype(np.int32),
            since[order].astype(np.int64),
            until[order].astype(np.int64),
            kills[order],
            float(pool.span_ms) * size,
            "the log",
        )

    def _run(self, kind: Kind, spares: int, rule: CheckpointsAsked, number: int) -> dict[str, Any]:
        """Return {'parts': the `PARTS` of one run}."""
        from tracekit.replay.engine.run import simulate

        span, size = self.pool.span_ms, self.gang + spares
        # The job takes whole nodes, so a node can count as one GPU.
        nodes = make_cluster([Node(f"node-{n}", 1) for n in range(size)], QuotaTable.none(), "the plan")
        cluster = with_outages(nodes, self.outages(kind, spares, number), spares)
        jobs, models, policy = _endless(self.gang, span), load_models(), named_policy(_POLICY)
        outcome = simulate(
            jobs,
            cluster,
            assign(jobs, cluster),
            policy.mechanism(jobs, cluster, models, self.seed),
            name=policy.label,
            checkpoints=checkpoints_for(rule, jobs, cluster, self.pool.rate_per_ms),
            log=True,
        )
        losses, log = outcome.losses, outcome.log
        assert losses is not None and log is not None  # noqa: S101, PT018 -- the run returns both
        ran, restarting = int(outcome.run_ms[0]), int(outcome.overhead_ms[0])
        lost = float(losses.lost_milli_ms[0]) / (1000 * self.gang)
        worked = ran - restarting - lost
        progress = float(losses.progress_ppm[0]) / 1e6
        # The end of the log also stops the job, but is not an outage.
        stopped = int(((log["kind"] == LOG_KINDS["fail"]) & (log["time_ms"] < span)).sum())
        parts = (worked * progress, worked * (1 - progress), lost, restarting, span - ran)
        return {"parts": [*(part / span for part in parts), stopped / (span / _DAY_MS)]}


def _endless(nodes: int, span_ms: int) -> Jobs:
    """Return one job that is submitted at time 0, requests the given nodes, and has more work than the log is long."""
    none = np.full(1, -1, np.int32)
    unknown = np.full(1, -1, np.int64)
    return Jobs(
        origin=dt.datetime(1970, 1, 1),
        job_id=pl.Series("job_id", ["gang"]),
        submit_ms=np.zeros(1, np.int64),
        work_ms=np.full(1, 2 * span_ms, np.int64),
        devices=np.full(1, nodes, np.int32),
        milli=np.full(1, 1000, np.int32),
        tenant=none,
        user=none,
        model=none,
        name=none,
        priority=np.zeros(1, np.int32),
        preemptible=np.full(1, -1, np.int8),
        cpu_milli=unknown,
        memory_mib=unknown,
        limit_ms=unknown,
        utilization=np.full(1, np.nan),
        recorded_start_ms=unknown,
        recorded_end_ms=unknown,
    )
