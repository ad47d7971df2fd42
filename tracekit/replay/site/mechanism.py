"""Scheduling by the rules of a site: partitions with tiers, limits, CPUs and memory, and backfilling by partition."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from tracekit.replay.clusters.assignment import assign
from tracekit.replay.engine.build import Ordered, build, open_nodes, unused_allocations
from tracekit.replay.engine.run import Run
from tracekit.replay.engine.state import NONE, struct_dtype
from tracekit.replay.keys import by_arrival, engine_key
from tracekit.replay.native import compiled
from tracekit.replay.outages.asked import saves_nothing

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.replay.engine.run import Setting
    from tracekit.replay.engine.state import EngineState
    from tracekit.replay.jobs import Jobs
    from tracekit.replay.outages.asked import Checkpoints
    from tracekit.replay.outcome import Outcome

    Ints = NDArray[np.int32]
    Longs = NDArray[np.int64]

UNLIMITED = 1 << 60
"""More than any amount."""


@dataclass(frozen=True)
class Limit:
    """The most that each owner may run at once."""

    of: Literal["gpus", "jobs"]
    """What the limit counts."""
    owner: Ints
    """Owner of each job, or -1 if the limit does not concern it (n,)."""
    most: Longs
    """The limit of each owner (owners,)."""


@dataclass(frozen=True)
class WithOthers:
    """The jobs of a replay together with their `others`, as `jobs.with_others` returns them."""

    jobs: Jobs
    own: Longs
    elsewhere: NDArray[np.bool_]


@dataclass(frozen=True)
class SiteRules:
    """Jobs start in order on the tightest nodes of their partition with enough GPUs, CPUs and memory.

    Ties go to the first node in the site's list. A job on several nodes spreads evenly over the fewest nodes that can
    hold it. CPUs and memory count if they are known for all nodes; a job that does not state them needs none. A job at
    a limit is skipped and holds up no other job.

    There are n jobs, including those in `others`.
    """

    key: Longs
    """Jobs with smaller keys go first; ties go to the earlier job (n,)."""
    tier: Ints
    """Tier of each job's partition. Jobs of a lower number go before all others (n,)."""
    behind: Literal["strict", "passing", "easy"]
    """What later jobs of a partition do while a job cannot start: they wait, they may pass it, or they may pass it if
    that does not delay the partition's first waiting job (EASY)."""
    limits: tuple[Limit, ...] = ()
    length_ms: Longs | None = None
    """Believed run times for 'easy' [ms], or None for the true ones (n,)."""
    owner: Ints | None = None
    """Owner of each job under fair share, where owners with fewer GPUs in use go first, or None (n,)."""
    may_stop: Longs | None = None
    """The rules by which each job may stop others, as bits. A job that does not fit stops the youngest of those that
    yield by one of these rules, as few as make room. They start over, and wait again (n,)."""
    yields: Longs | None = None
    """The rules by which others may stop each job, as bits (n,). Given with `may_stop`."""
    others: WithOthers | None = None
    """Further jobs that are replayed but not reported, or None. Those that run elsewhere start when they arrive, need
    no nodes, and count towards limits."""

    takes_outages: ClassVar[bool] = True
    """Whether a node failure may stop running jobs."""

    def prepare(self, setting: Setting) -> Run:
        """Return a run by these rules (see site.pxi)."""
        with_others = self.others
        if with_others is not None:
            jobs, saving = with_others.jobs, setting.checkpoints
            if saving is not None:
                saving = _without_checkpoints(saving, with_others)
            setting = replace(setting, jobs=jobs, assignment=assign(jobs, setting.cluster), checkpoints=saving)
        key = engine_key(by_arrival)
        order = Ordered(by_arrival, scan="skip", drift="none", by_arrival=True)
        state = build(setting, order, rule="consolidate", kind="SiteRules")
        n = len(setting.jobs)
        # The pass has a queue of its own, and needs the jobs that ended with their allocations.
        state = state._replace(active=np.zeros(n, np.int32), events=np.zeros(n, struct_dtype("Entry")))
        state.g["planned"], state.g["tenants"], state.g["keeps"] = 1, 1, 1
        state.g["ended"] = state.g["rung"] = NONE
        if self.may_stop is not None and setting.checkpoints is None:
            state.jobs["saved"] = state.jobs["remaining"]
        rules = self._arrays(setting, state)
        if with_others is not None:
            # A job without GPUs has allocations of none.
            more = int(rules["needs"]["nodes"][rules["need"]][setting.jobs.devices == 0].sum())
            state = state._replace(
                allocations=unused_allocations(len(state.allocations) + more),
                broken=np.zeros(0 if setting.checkpoints is None else n, np.int32),
            )
        arrays = open_nodes(state, setting.cluster)
        step = partial(compiled.run_site, arrays, key, compiled.SiteRules(**rules))
        return Run(state, step) if with_others is None else Run(state, step, partial(_own, own=with_others.own))

    def _arrays(self, setting: Setting, state: EngineState) -> dict[str, Any]:
        jobs, cluster = setting.jobs, setting.cluster
        n, nodes = len(jobs), cluster.nodes
        room = np.zeros(nodes, struct_dtype("Room"))
        room["gpus"], room["place"] = cluster.gpus, cluster.place
        room["cpu"] = cluster.cpu_milli if (cluster.cpu_milli >= 0).all() else UNLIMITED
        room["memory"] = cluster.memory_mib if (cluster.memory_mib >= 0).all() else UNLIMITED
        elsewhere = np.zeros(n, np.bool_) if self.others is None else self.others.elsewhere
        needs, need, lines = self._needs(setting, state, room, elsewhere)
        limits = [limit for limit in self.limits if len(limit.most)]
        counters = np.zeros(sum(len(limit.most) for limit in limits), struct_dtype("Counter"))
        counter = np.full((n, len(limits)), NONE, np.int32)
        first = 0
        for b, limit in enumerate(limits):
            counters["most"][first : first + len(limit.most)] = limit.most
            counter[:, b] = np.where(limit.owner >= 0, limit.owner + first, NONE)
            first += len(limit.most)
            amount = jobs.devices if limit.of == "gpus" else np.ones(n, np.int32)
            mine = np.append(limit.most, UNLIMITED)[limit.owner]
            state.jobs["never"] |= ((amount > mine) & ~elsewhere).astype(np.int8)
        rank = np.empty(n, np.int32)
        # A job elsewhere arrives when it starts, but had its place in the order since its submission.
        since = np.where(elsewhere, jobs.submit_ms, jobs.arrival_ms)
        rank[np.lexsort((np.arange(n), since, self.key, self.tier))] = np.arange(n)
        owner = np.full(n, NONE, np.int32) if self.owner is None else self.owner
        facts = np.zeros(1, struct_dtype("SiteFacts"))
        facts["backfill"] = getattr(compiled, f"SITE_{self.behind.upper()}")
        facts["shared"] = self.owner is not None
        return {
            "facts": facts,
            "needs": needs,
            "need": need,
            "rank": rank,
            "tier": np.ascontiguousarray(self.tier, np.int32),
            "owner": np.ascontiguousarray(owner, np.int32),
            "share": np.zeros(int(owner.max(initial=0)) + 1, np.int64),
            "length": jobs.work_ms if self.length_ms is None else np.ascontiguousarray(self.length_ms, np.int64),
            "counter": counter,
            "of_gpus": np.array([limit.of == "gpus" for limit in limits], np.int8),
            "counters": counters,
            "lines": np.zeros(lines, struct_dtype("SiteLine")),
            "room": room,
            "later": room.copy(),
            "left": np.zeros((lines, nodes), struct_dtype("Room")),
            "waiting": np.zeros(n, np.int32),
            "turn": np.zeros(n, np.int64),
            "running": np.zeros(n + 1, struct_dtype("Ending")),
            "ends": np.zeros(n, np.int64),
            "may_stop": np.zeros(n, np.int64) if self.may_stop is None else self.may_stop,
            "yields": np.zeros(n, np.int64) if self.yields is None else np.where(elsewhere, 0, self.yields),
            "victims": np.zeros(n, np.int32),
            "stopped": np.zeros(n, np.int32),
        }

    @staticmethod
    def _needs(
        setting: Setting, state: EngineState, room: NDArray[np.void], elsewhere: NDArray[np.bool_]
    ) -> tuple[NDArray[np.void], Ints, int]:
        """Return the needs, the need of each job and the number of lines. Jobs that fit nowhere never run."""
        jobs, assignment = setting.jobs, setting.assignment
        part = np.full(len(jobs), NONE, np.int32) if jobs.partition is None else jobs.partition
        line, _ = _kinds(assignment.domain, part)
        cpu, memory = np.maximum(jobs.cpu_milli, 0), np.maximum(jobs.memory_mib, 0)
        columns = (state.jobs["job_class"], line, cpu, memory, elsewhere)
        need, first = _kinds(*columns)
        kinds = np.stack([column[first].astype(np.int64) for column in columns])
        needs = np.zeros(kinds.shape[1], struct_dtype("Need"))
        for k, (job_class, own_line, cpu, memory, away) in enumerate(kinds.T.tolist()):
            row = needs[k]
            row["line"] = own_line
            if away:
                continue
            gpus = int(state.job_classes["gpus"][job_class])
            usable = _usable(setting, int(first[k]))
            largest = int(room["gpus"][usable].max(initial=0))
            nodes = max(-(-gpus // largest), 1) if largest else 0
            most = min(gpus or len(usable), int(usable.sum()))
            while nodes and not _enough(room[usable], nodes, gpus, cpu, memory):
                nodes = nodes + 1 if nodes < most else 0
            row["nodes"] = nodes
            for name, amount in (("gpus", gpus), ("cpu", cpu), ("memory", memory)):
                row[name] = -(-amount // nodes) if nodes else 0
        of_job = need.astype(np.int32)
        state.jobs["never"] = (needs["nodes"][of_job] == 0) & ~elsewhere
        return needs, of_job, int(line.max(initial=0)) + 1


def _kinds(*columns: NDArray[Any]) -> tuple[Longs, Longs]:
    """Return a number for each distinct combination of values (n,), and where each combination occurs first.

    Combining one column after the other is ten times faster than sorting rows.
    """
    number = np.zeros(len(columns[0]), np.int64)
    first = np.zeros(0, np.int64)
    for column in columns:
        _, value = np.unique(column, return_inverse=True)
        code = number * (int(value.max(initial=0)) + 1) + value
        _, first, number = np.unique(code, return_index=True, return_inverse=True)
    return number, first


def _without_checkpoints(saving: Checkpoints, others: WithOthers) -> Checkpoints:
    """Return the checkpoints of jobs, for these jobs and others, which save none."""
    made = replace(saves_nothing(len(others.jobs)), restart_ms=saving.restart_ms)
    made.period_ms[others.own], made.progress_ppm[others.own] = saving.period_ms, saving.progress_ppm
    return made


def _own(outcome: Outcome, own: Longs) -> Outcome:
    """Return the outcome of the jobs with the given indices. Its timeline counts all jobs."""
    changed: dict[str, Any] = {
        f.name: value[own]
        for f in fields(outcome)
        if isinstance(value := getattr(outcome, f.name), np.ndarray) and f.name != "log"
    }
    if outcome.log is not None:
        log = outcome.log
        place = np.full(max(int(log["job"].max(initial=-1)), int(own.max(initial=-1))) + 2, NONE, np.int64)
        place[own] = np.arange(len(own))
        # Rows about nodes have no job: their index -1 reads the last entry, which stays NONE.
        kept = (log["job"] == NONE) | (place[log["job"]] != NONE)
        changed["log"] = log[kept].copy()
        changed["log"]["job"] = place[changed["log"]["job"]]
    if outcome.losses is not None:
        parts = {f.name: getattr(outcome.losses, f.name)[own] for f in fields(outcome.losses)}
        changed["losses"] = replace(outcome.losses, **parts)
    return replace(outcome, **changed)


def _usable(setting: Setting, job: int) -> NDArray[np.bool_]:
    """Return the nodes that a job accepts (N,)."""
    assignment = setting.assignment
    found = np.zeros(setting.cluster.nodes, np.bool_)
    if assignment.domain[job] >= 0:
        low, high = assignment.groups_of(int(assignment.domain[job]))
        accept = int(assignment.kind_accept[assignment.kind[job]])
        for group in range(low, high):
            if accept >> (group - low) & 1:
                found[assignment.group_low[group] : assignment.group_high[group]] = True
    return found


def _enough(room: NDArray[np.void], nodes: int, gpus: int, cpu: int, memory: int) -> bool:
    """Return whether that many empty nodes have the job's amounts, spread evenly."""
    able = room["gpus"] >= -(-gpus // nodes)
    able &= (room["cpu"] >= -(-cpu // nodes)) & (room["memory"] >= -(-memory // nodes))
    return int(able.sum()) >= nodes


def tiers_of(jobs: Jobs, order: tuple[str, ...]) -> Ints:
    """Return the tier of each job: partitions in the given order, then all others (n,)."""
    places = [order.index(name) if name in order else len(order) for name in jobs.partitions]
    if jobs.partition is None:
        return np.zeros(len(jobs), np.int32)
    return np.array([*places, len(order)], np.int32)[jobs.partition]
