"""Replay one long multi-node job with spare nodes under outages."""

from __future__ import annotations

import datetime as dt
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import polars as pl

from tracekit.replay.assumptions.models import load_models
from tracekit.replay.clusters.assignment import assign
from tracekit.replay.clusters.cluster import Node, QuotaTable, make_cluster
from tracekit.replay.clusters.of_trace import NO_END
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

    from tracekit.capacity_plan.spares.pool import NodePool
    from tracekit.replay.outages.asked import CheckpointsAsked

    Floats = NDArray[np.float64]

Kind = Literal["recorded", "model"]
KINDS: tuple[Kind, ...] = ("recorded", "model")
"""Outages as recorded in the log, and outages drawn from the recorded ones."""

PARTS = ("ettr", "saving_share", "lost_share", "restarting_share", "waiting_share", "restarts_per_day")
"""The measures of one run, as shares of the time that the log covers, T.

ettr (effective training time ratio): work time saved by the end; saving_share: time spent on checkpoints; lost_share:
work time not yet saved when an outage, or the end, stopped the job; restarting_share: time spent on restarts;
waiting_share: time in which the job did not have all its nodes. These five sum to 1. restarts_per_day: number of stops
by outages / T [1/day]."""

_DAY_MS = 86_400_000
_PPM = 1_000_000
_POLICY = "fifo"


@dataclass(frozen=True)
class GangRuns:
    """Runs of one multi-node job, each determined by its number, the kind of outages and the number of spares."""

    pool: NodePool
    gang: int
    """Nodes of the job."""
    checkpoint: CheckpointsAsked
    resamples: int
    seed: int
    ledger: Ledger = field(default_factory=Ledger)
    """Ledger in which shards share the runs; it already knows the Trace, the nodes and the program."""

    def most_spares(self, kind: Kind) -> int:
        """Return the most spares to try: as many as the log has nodes left or, for drawn outages, as the job has."""
        return self.pool.nodes - self.gang if kind == "recorded" else max(self.gang, 8)

    def of(self, kind: Kind, spares: int, checkpoint: CheckpointsAsked | None = None) -> Floats:
        """Return the `PARTS` of each run (resamples, parts); each run is computed once."""
        rule = checkpoint or self.checkpoint
        # If all nodes are used, every draw gives the same set.
        alike = kind == "recorded" and self.gang + spares == self.pool.nodes
        ledger = self.ledger.about(kind=kind, gang=self.gang, spares=spares, checkpoint=asdict(rule), seed=self.seed)
        makers = {
            ledger.digest(number=number): partial(self._run, kind, spares, rule, number)
            for number in range(1 if alike else self.resamples)
        }
        runs = ledger.results(makers, f"runs with {counted(spares, 'spares')}, outages {kind}")
        return np.array([one["parts"] for one in runs] * (self.resamples if alike else 1))

    def interval_s(self) -> float:
        """Return the work time between two checkpoints of the job [s]; infinite without checkpoints."""
        nodes = make_cluster([Node("node-0", 1)], QuotaTable.none(), "the plan")
        saving = checkpoints_for(self.checkpoint, _endless(self.gang, 1), nodes, self.pool.rate_per_ms)
        # Without checkpoints, all time is work, no matter how long the period is.
        saves = saving.progress_ppm[0] < _PPM or saving.period_ms[0] < 2 * self.pool.span_ms
        return float(saving.period_ms[0]) / 1000 - self.checkpoint.cost_s if saves else float("inf")

    def outages(self, kind: Kind, spares: int, number: int) -> Outages:
        """Return the outages of one run; more spares add nodes and leave the earlier ones unchanged.

        Recorded outages are those of nodes drawn from the log without replacement, at their recorded times. Model
        outages are those of nodes drawn with replacement, all shifted by the same random time, so faults that occurred
        together stay together; times beyond the end wrap around to the start. At the end of the log every node goes
        down.
        """
        pool, size = self.pool, self.gang + spares
        random = np.random.default_rng([self.seed, number, int(kind == "model")])
        if kind == "recorded":
            drawn, turned = random.permutation(pool.nodes)[:size], 0
        else:
            turned = int(random.integers(pool.span_ms))
            drawn = random.integers(pool.nodes, size=self.gang + self.most_spares(kind))[:size]
        parts = []
        for place, source in enumerate(drawn.tolist()):
            rows = pool.node == source
            since, until = pool.since_ms[rows], np.minimum(pool.until_ms[rows], pool.span_ms)
            length, since = until - since, (since + turned) % pool.span_ms if turned else since
            # An outage that crosses the end of the log continues at its start, so the node is out of service there.
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
    """Return one job, submitted at time 0, that requests the given nodes and has work for longer than the log."""
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
