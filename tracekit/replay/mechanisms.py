"""What a policy hands to the engine: one of a few mechanisms, filled in.

A policy is a rule for people; a mechanism is what carries it out. `Ordered` covers every policy that puts jobs into an
order by a key; it is compiled. `Planner` is Python, called when something happened or at rounds, and may do anything.
Each is carried out by a package of its own, which its method `prepare` loads; a further one needs no more than a class
with that method (see `Mechanism`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tracekit.replay.engine.setting import Mechanism
from tracekit.replay.planning.view import View

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy as np
    from numpy.typing import NDArray

    from tracekit.replay.cells.private import PrivateCells
    from tracekit.replay.engine.setting import Run, Setting
    from tracekit.replay.keys import Key

__all__ = [
    "Backfill",
    "Cells",
    "Fractional",
    "Mechanism",
    "Ordered",
    "Plan",
    "Planner",
    "PowerCap",
    "Recorded",
    "Sharing",
    "Tenants",
    "View",
]


@dataclass(frozen=True)
class PowerCap:
    """The power that the GPUs may draw, idle ones included, and the clocks to choose from (M7).

    All running jobs have one clock: the highest at which the cap is kept, or the lowest if none keeps it.
    """

    cap_mw: int
    """What they may draw together [mW]; 2^62 anything."""
    speed_ppm: tuple[int, ...]
    """Speed of a job at each clock, the first 1,000,000, falling [ppm] (K,)."""
    drawn_ppm: tuple[int, ...]
    """Part of `busy_mw` drawn at each clock, the first 1,000,000 [ppm] (K,)."""
    idle_mw: NDArray[np.int64]
    """Of each node without jobs, all its GPUs [mW] (N,)."""
    busy_mw: NDArray[np.int64]
    """Utilization of each job times the greatest power of its GPU [mW] (n,)."""
    rest_mw: NDArray[np.int64]
    """Utilization of each job times the idle power of its GPU, which it draws in place of that [mW] (n,)."""


@dataclass(frozen=True)
class Ordered:
    """Jobs start in the order of a key; with eviction, the key also tells which running jobs may be stopped."""

    key: Key
    """What tells the order: a function of `replay.keys`, or any like them."""
    scan: Literal["stop", "skip"] = "stop"
    """What a pass does at the first job that cannot start: end, or pass it over."""
    fit: Literal["place", "count"] = "place"
    """Whether a job needs places on nodes, or only enough free GPUs in number."""
    preemptive: bool = False
    """Whether a waiting job may evict running ones whose key is greater."""
    drift: Literal["none", "time", "any"] = "any"
    """How a key changes while its job runs: 'none' (or only at level crossings), 'time' (falls by one each millisecond
    at full speed), 'any' (asked for anew in each pass; slower)."""
    by_tenant: bool = False
    """Whether jobs of different tenants wait in different queues."""
    by_arrival: bool = False
    """Whether keys never fall behind those of earlier jobs, so that a queue is a line."""
    estimate_ms: NDArray[np.int64] | None = None
    """Belief about run times (n,) [ms]; the truth when None."""
    value: NDArray[np.int64] | None = None
    """A number of the policy's own for each job (n,)."""
    thresholds: tuple[int, ...] = ()
    """Attained service at which a job's level rises, ascending [GPU*ms]."""
    level_values: tuple[int, ...] = ()
    """What the key is told of each level, one more than thresholds; the level's number when empty."""
    promote_ppm: int = 0
    """A job stopped for so many times its last run [ppm] begins again at the first level; 0 never."""
    overhead_ms: NDArray[np.int64] | None = None
    """Cost of each preemption and migration by the GPUs of the gang, larger gangs as the last entry [ms]; None is 0."""
    relax_after_ms: int = 0
    """Wait after which a gang takes GPUs anywhere; 0 never."""
    relax_scope: Literal[1, 2] = 2
    """How far it then goes: 1 one group of nodes, 2 all nodes of one model."""
    scopes: tuple[Literal[0, 1, 2], ...] = ()
    """How far apart a gang's GPUs may be, one step after the other: 0 on the fewest nodes, 1 in one group, 2 on all
    nodes of one model. What leads to the next step is the mechanism's. Empty: as `relax_after_ms` has it."""
    age_cap_ms: int = 0
    """Wait after which a job that cannot start ends the pass even when `scan` is 'skip'; 0 never."""
    stall: bool = False
    """Whether every event of the cluster stops each running job for `value` ms, as one peer's simulator has it."""
    power: PowerCap | None = None
    """A cap that the clock of all jobs keeps; only without eviction."""

    def prepare(self, setting: Setting) -> Run:
        """Return a run, as `Mechanism` says."""
        if self.power is not None:
            from tracekit.replay.capping.meter import prepare
        else:
            from tracekit.replay.engine.ordering import prepare

        return prepare(self, setting)


@dataclass(frozen=True)
class Plan:
    """What a planner wants: GPUs for jobs. A running job that is not named loses its GPUs, unless `keep`.

    Jobs are placed in the order given; one that finds no place waits. To ask for more GPUs than a domain has is an
    error.
    """

    job: NDArray[np.int64]
    """Indices into the arrays of `Jobs`, each at most once (k,)."""
    gpus: NDArray[np.int64]
    """GPUs for each; 0 is the same as not naming it (k,)."""
    rate: NDArray[np.int64] | None = None
    """Speed of each with these GPUs [ppm of the recorded speed], before spread and GPU model; full when None (k,)."""
    group: NDArray[np.int64] | None = None
    """Group of nodes for each, -1 any (k,)."""
    model: NDArray[np.int64] | None = None
    """GPU model for each, index into `Cluster.models`, -1 any that it accepts (k,)."""
    keep: bool = False
    """Whether running jobs that are not named keep their GPUs and speed."""
    optional: int = 0
    """How many of the last jobs named may be more than there are GPUs for: each starts only if there is room."""
    wake_ms: int = -1
    """When to be asked again even if nothing happens [ms]; -1 not."""
    place: NDArray[np.int64] | None = None
    """Nodes that are named: rows (place in `job`, node, GPUs there), for some jobs or all (r, 3). Such a job is placed
    before the others, exactly there, or goes on if it runs there. Where jobs share GPUs a fourth number may name the
    first of the GPUs by index in the node, -1 any that no job has (r, 4)."""
    beside: NDArray[np.int64] | None = None
    """Where jobs share: for each the job, named before it or kept, whose GPUs it has too; a job beside itself shares
    its GPUs only with those beside it; -1 leaves a running job where it is, and gives another GPUs that no job has
    (k,). A job whose `beside` waits, waits too; one that loses it to its end keeps the GPUs."""


@dataclass(frozen=True)
class Planner:
    """A policy that looks at all jobs at once and says how many GPUs each should have."""

    plan: Callable[[View], Plan]
    """Called after every event, or at rounds."""
    round_ms: int = 0
    """Plans are made only at multiples of this, when something has happened since the last [ms]; 0: at every event."""
    gap_ms: int = 0
    """Least time between two plans that events ask for [ms]."""
    any_model: bool = False
    """Whether `Plan.model` may name GPU models other than the one that a job asks for."""
    fit: Literal["place", "count"] = "place"
    """Whether gangs need places on nodes, or only enough free GPUs in number."""
    scope: Literal[0, 1, 2] = 2
    """How far apart a gang's GPUs may be: 0 on the fewest nodes, 1 anywhere in a group, 2 on all nodes of a model."""
    overhead_ms: NDArray[np.int64] | None = None
    """Cost of each preemption and migration by the GPUs of the gang, larger gangs as the last entry [ms]; None is 0."""
    resize_ms: int = 0
    """Cost of a change in the number of GPUs [ms]."""
    estimate_ms: NDArray[np.int64] | None = None
    """Belief about run times (n,) [ms]; the truth when None."""
    names_nodes: bool = False
    """Whether `Plan.place` may name nodes."""
    share: int = 1
    """Jobs that a GPU may have, put there by `Plan.beside` or `Plan.place`. Their speeds are the plan's."""

    def __post_init__(self) -> None:
        if self.share < 1:
            raise ValueError(f"{self.share} jobs on a GPU")
        if self.fit == "count" and (self.names_nodes or self.share > 1):
            raise ValueError("by count there are no nodes to name and no GPUs to share")

    def prepare(self, setting: Setting) -> Run:
        """Return a run, as `Mechanism` says."""
        from tracekit.replay.planning.asking import prepare

        return prepare(self, setting)


@dataclass(frozen=True)
class Recorded:
    """No rule: starts and ends are given, and only places are chosen."""

    start_ms: NDArray[np.int64]
    """Start of each job [ms], not before its submission; -1 leaves it out (n,)."""
    end_ms: NDArray[np.int64]
    """End of each job [ms], not before its start; -1 leaves it out (n,)."""
    notes: tuple[str, ...] = ()
    """What the reader of the result should know, one sentence each."""

    def prepare(self, setting: Setting) -> Run:
        """Return a run, as `Mechanism` says."""
        from tracekit.replay.recording.events import prepare

        return prepare(self, setting)


@dataclass(frozen=True)
class Fractional:
    """Jobs share GPUs in thousandths, and ask for CPU and memory too; a rule scores the nodes (`fractions.supply`).

    A job goes to one node if an empty one could hold it. Otherwise it is cut into parts as large as an empty node can
    hold and one for what is left over, with CPU and memory in proportion, each on a node of its own.
    """

    order: Ordered
    """The order of the jobs; it does not evict, has no levels and does not relax. Its key is told milli-GPUs and
    milli-GPU * ms in place of GPUs and GPU * ms."""
    rule: str
    """A name of `fractions.RULES`."""
    popularity: float = 0.95
    """Share of the jobs whose shapes are the expected workload (see `tasks.expected_workload`)."""
    seed: int = 0
    """Of the rule 'random'."""

    def prepare(self, setting: Setting) -> Run:
        """Return a run, as `Mechanism` says."""
        from tracekit.replay.fractions.fractional import prepare

        return prepare(self, setting)


@dataclass(frozen=True)
class Tenants:
    """Tenants take turns by a rule and start their jobs in an order of their own, within quotas or beyond them.

    Each pass picks a tenant and starts its first job if quota, resources and places allow it, until none can start.
    """

    order: Ordered
    """The order inside a tenant, with `by_tenant`; `scan` is about a tenant's own jobs."""
    tenant: NDArray[np.int32]
    """Tenant of each job, from 0 on (n,)."""
    quota: NDArray[np.int64]
    """Quota of each tenant [GPUs] (Q, T)."""
    quota_ms: NDArray[np.int64]
    """Times from which the rows of `quota` hold [ms], ascending; the first holds before too (Q,)."""
    weight: NDArray[np.int64] | None = None
    """Weight of each tenant (T,); the quota when None."""
    pick: Literal["usage", "dominant", "cycle"] = "usage"
    """Whose turn it is. 'usage': least GPUs for its weight. 'dominant': least share, for its weight, of the resource
    that it has most of. 'cycle': the first job of every tenant once, those within their quota before those that borrow,
    then by key."""
    across: Literal["stop", "skip"] = "skip"
    """Whether the pass ends when the tenant whose turn it is cannot start; 'stop' needs an `order` that stops, too."""
    limit: Literal["none", "own", "cohort"] = "none"
    """What a tenant may hold: anything that is free; its quota; its quota and what the others of its domain leave."""
    borrow_ppm: int = -1
    """With a cohort: what a tenant may hold above its quota, in parts of it [ppm]; -1 anything."""
    lend_ppm: int = 1_000_000
    """With a cohort: the part of its quota that others may use [ppm]."""
    reclaim: Literal["never", "overdrawn", "cohort"] = "never"
    """Whom a job may evict. 'overdrawn': where the cluster is full to `theta_ppm`, a job that stays within its quota
    evicts the youngest jobs of tenants above theirs, none of which falls below it. 'cohort': see the next five."""
    theta_ppm: int = 900_000
    """Part of the GPUs in use from which on tenants reclaim [ppm]."""
    reclaim_own: Literal["never", "lower", "lower-or-newer"] = "never"
    """Jobs of its own tenant that a job may evict: none, of lower priority, or also newer ones of its own."""
    reclaim_others: Literal["never", "lower", "any"] = "never"
    """Jobs of tenants who borrow that a job within its tenant's quota may evict."""
    reclaim_borrowing: bool = False
    """Whether a job may evict others' jobs of lower priority even when it has to borrow itself."""
    reclaim_below: int = -1
    """With `reclaim_borrowing`: only jobs of this priority or lower; -1 any lower than its own."""
    fair: bool = False
    """Whether tenants who borrow do so by weight: the turn goes to the smallest share above quota, and is taken from
    the largest."""
    priority: NDArray[np.int64] | None = None
    """Priority of each job, larger is more urgent (n,), 0 to 2^18; all alike when None."""
    half_life_ms: int = 0
    """With pick='usage': time after which past use counts half [ms]; 0: only what is held now counts."""
    attempt_ms: int = 0
    """Time for which a job tries to start as far apart as it may be [ms]; 0: there are no attempts."""
    backoff_ms: int = 0
    """Time for which it rests after an attempt that failed [ms]."""
    attempts: int = 1
    """Failed attempts that lead to the next of `order.scopes`."""
    resources: bool = False
    """Whether CPUs and memory, of a domain as a whole, limit jobs as well."""
    attribute: bool = False
    """Whether each job's waits are told apart: in how much of it its tenant held its quota or more."""

    def prepare(self, setting: Setting) -> Run:
        """Return a run, as `Mechanism` says."""
        from tracekit.replay.quotas.tenant_books import prepare

        return prepare(self, setting)


@dataclass(frozen=True)
class Sharing:
    """Jobs start in the order of a key, on idle GPUs or else beside other jobs; nothing is stopped.

    Jobs on one GPU slow each other down (M1); a gang goes at the pace of its slowest GPU. A waiting job that cannot
    start is passed over. Jobs of equal demand, utilization and memory wait in one line, so both should have few values.
    """

    key: Key
    """A function like those of `replay.keys` that grows with the run time for jobs of one size."""
    utilization_ppm: NDArray[np.int64]
    """GPU utilization of each job (n,) [ppm]."""
    memory_ppm: NDArray[np.int64]
    """Memory of each job on each of its GPUs, by numbers of sub-batches (S, n), or (n,) [ppm of a GPU's]."""
    speeds_ppm: tuple[int, ...] = (1_000_000,)
    """Speed by numbers of sub-batches (S,), the first in one piece [ppm]."""
    strength_ppm: int = 500_000
    """M1's c [ppm]; -1 for the rule 'sum' (D5)."""
    residents: int = 2
    """Jobs that a GPU may have, whose memory adds up to at most the whole; 1 shares nothing."""
    test: bool = True
    """Whether a job shares only where that is better for the mean of both ends than to wait; at most two then share."""
    consolidate: bool = False
    """Whether one node, the tightest, is tried before GPUs of the nodes with the fewest jobs."""

    def prepare(self, setting: Setting) -> Run:
        """Return a run, as `Mechanism` says."""
        from tracekit.replay.sharing.residents import prepare

        return prepare(self, setting)


@dataclass(frozen=True)
class Cells:
    """Virtual clusters (VCs) of private cells, placed in buddy blocks; other jobs run on idle GPUs and make way."""

    order: Ordered
    """The order inside a VC and of the other jobs, with `by_tenant`; its key looks at nothing that changes in a run. It
    does not relax."""
    cells: PrivateCells
    """What each VC owns."""
    tenant: NDArray[np.int32]
    """Domain of `cells.cluster` in which each job is placed, or rejected; their number for the other jobs (n,)."""

    @property
    def guaranteed(self) -> NDArray[np.bool_]:
        """Jobs that are placed in cells of their VC (n,)."""
        found: NDArray[np.bool_] = self.tenant < len(self.cells.cluster.domains)
        return found

    def prepare(self, setting: Setting) -> Run:
        """Return a run, as `Mechanism` says."""
        from tracekit.replay.cells.layout import prepare

        return prepare(self, setting)


@dataclass(frozen=True)
class Backfill:
    """Jobs start in the order of a key, and later ones may go ahead where, by the estimates, they delay none before.

    A running job that outlives its estimate is believed to run twice as long as that, and so on; it is never stopped.
    """

    order: Ordered
    """Key, fit, estimates, and when gangs relax; `scan` is of no meaning. It evicts nothing and has no levels."""
    kind: Literal["easy", "conservative"] = "easy"
    """Who must not be delayed: only the first job that waits, or every one that has a reservation."""
    depth: int = 16
    """Conservative: the first so many waiting jobs of a domain have reservations; 0 all of them."""

    def __post_init__(self) -> None:
        order = self.order
        if order.preemptive or order.thresholds or order.stall or order.age_cap_ms or order.by_tenant or order.scopes:
            raise ValueError("backfilling has neither eviction, levels, an age cap, tenants' queues nor steps of scope")
        if self.depth < 0:
            raise ValueError(f"a depth of {self.depth} reservations")

    def prepare(self, setting: Setting) -> Run:
        """Return a run, as `Mechanism` says."""
        from tracekit.replay.backfilling.prepare import prepare

        return prepare(self, setting)
