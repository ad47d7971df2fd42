"""Planners consider all jobs at once: their plans, and a run that requests and carries out plans."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal, NamedTuple, TypeVar

import numpy as np

from tracekit.errors import TracekitError, UsageError
from tracekit.replay.engine.build import Ordered, build, open_nodes, unused_allocations
from tracekit.replay.engine.run import Run
from tracekit.replay.engine.state import NONE, struct_dtype
from tracekit.replay.keys import by_arrival, engine_key
from tracekit.replay.native import compiled
from tracekit.replay.planning.clocks import HINT, ClockBook, ClockPower
from tracekit.replay.planning.view import View

if TYPE_CHECKING:
    from collections.abc import Callable

    import polars as pl
    from numpy.typing import NDArray

    from tracekit.replay.engine.run import Setting
    from tracekit.replay.engine.state import EngineState
    from tracekit.replay.outcome import Outcome


@dataclass(frozen=True)
class Plan:
    """A planner's decision: GPUs for jobs. A running job that is not named loses its GPUs, unless `keep` is set.

    Jobs are placed in this order, and a job without a place waits. Requesting more GPUs than a domain has is an error.
    """

    job: NDArray[np.int64]
    """Indices into the arrays of `Jobs`, each at most once (k,)."""
    gpus: NDArray[np.int64]
    """GPUs for each job, where 0 is the same as not naming the job (k,)."""
    rate: NDArray[np.int64] | None = None
    """Speed of each job with these GPUs [ppm of the recorded speed], before the effects of spread and GPU model, or
    None for full speed (k,)."""
    group: NDArray[np.int64] | None = None
    """Group of nodes for each job, or -1 for any group (k,)."""
    model: NDArray[np.int64] | None = None
    """GPU model for each job, index into `Cluster.models`, or -1 for any model that the job accepts (k,)."""
    keep: bool = False
    """Whether running jobs that are not named keep their GPUs and speed."""
    optional: int = 0
    """The last jobs of the list that may exceed the available GPUs: their number. Each starts only if there is room."""
    wake_ms: int = -1
    """Time at which to request another plan even if nothing happens [ms], or -1 for never."""
    lost_ms: NDArray[np.int64] | None = None
    """Run time since its last checkpoint that each job must redo if it is stopped or moved [ms], in addition to the
    cost of stopping or moving, or None for 0 (k,)."""
    place: NDArray[np.int64] | None = None
    """Named nodes for some or all jobs, as rows (place in `job`, node, GPUs there) (r, 3). A job with named nodes is
    placed exactly there before the others, or continues if it runs there. If jobs share GPUs, a fourth number may give
    the index of the first GPU in the node, or -1 for GPUs without any job (r, 4)."""
    beside: NDArray[np.int64] | None = None
    """If jobs share GPUs, the job whose GPUs each job shares, which must be named earlier or kept (k,). If it is the
    job itself, only jobs that name this job share its GPUs. -1 leaves a running job where it is, and gives other jobs
    GPUs without any job. A job waits while its `beside` waits, and keeps the GPUs when its `beside` ends."""
    clock: NDArray[np.int64] | None = None
    """Clock of each job's GPUs [ppm of the full clock], or None for full clock (k,). It needs a Planner with `clocks`
    and affects only the energy; `rate` must include its effect on the speed."""
    exchange: NDArray[np.int64] | None = None
    """Pairs of nodes that exchange their future changes, as rows (node, other). Both must be available and have the
    same group and GPUs (r, 2). So a plan can choose which nodes leave if the cluster only sets their number."""


@dataclass(frozen=True)
class Planner:
    """A policy that considers all jobs at once and decides how many GPUs each job should have."""

    plan: Callable[[View], Plan]
    """Called after every event, or in rounds."""
    begin: Callable[[View], None] | None = None
    """Called before the first plan of every run, to forget the previous run. A planner may run more than once."""
    round_ms: int = 0
    """Make plans only at multiples of this time [ms], and only if something has happened since the last plan. If 0,
    make a plan at every event."""
    gap_ms: int = 0
    """Minimum time between two plans that events request [ms]."""
    any_model: bool = False
    """Whether `Plan.model` may name a GPU model that a job does not request."""
    fit: Literal["place", "count"] = "place"
    """'place' if gangs need GPUs on specific nodes, 'count' if they only need enough free GPUs."""
    scope: Literal[0, 1, 2] = 2
    """How far a gang may spread: over the fewest nodes (0), any nodes of a group (1) or all nodes of a model (2)."""
    overhead_ms: NDArray[np.int64] | None = None
    """Cost per preemption or migration by number of GPUs [ms], or None for 0. The last entry covers larger gangs."""
    resize_ms: int = 0
    """Cost of a change in the number of GPUs [ms]."""
    estimate_ms: NDArray[np.int64] | None = None
    """Expected run times [ms], or None for the actual run times (n,)."""
    names_nodes: bool = False
    """Whether `Plan.place` may name nodes."""
    share: int = 1
    """Maximum number of jobs that `Plan.beside` or `Plan.place` may put on a GPU. The plan sets their speeds."""
    wide: bool = False
    """Whether to accept jobs that fit only if they spread as far as `scope` allows. If not, jobs must fit on the fewest
    nodes."""
    spread: bool = True
    """Whether the engine slows gangs on more nodes than they need (M4). If not, the plan's rates must include this
    effect."""

    clocks: ClockPower | None = None
    """Power of GPUs by clock. If given, plans may set clocks, and the energy is computed from them."""
    tell: Callable[[Outcome], Outcome] | None = None
    """Adds this policy's own results to the outcome."""

    def __post_init__(self) -> None:
        if self.share < 1:
            raise ValueError(f"{self.share} jobs on a GPU")
        if self.clocks is not None and self.share > 1:
            raise ValueError("jobs that share a GPU cannot have separate clocks")
        if self.fit == "count" and (self.names_nodes or self.share > 1):
            raise ValueError("with fit=count a plan cannot name nodes or share GPUs")

    takes_outages: ClassVar[bool] = True
    """Whether a node failure may stop running jobs."""

    def prepare(self, setting: Setting) -> Run:
        """Return a run controlled by a planner.

        Raises, when run
        ----------------
        UsageError
            The planner fails, or its plan is invalid: it names a job twice, or a job that is neither waiting nor
            running; requests more GPUs than exist, an unknown group of nodes or GPU model, or an invalid speed; names
            nodes that are not free; puts a job next to a job that is not running; or exchanges nodes that differ.
        """
        state = _state(self, setting)
        arrays = open_nodes(state, setting.cluster)
        book = None if self.clocks is None else ClockBook(self.clocks, state, setting.cluster, setting.name)

        def complete(outcome: Outcome) -> Outcome:
            outcome = outcome if book is None else book.complete(outcome)
            return outcome if self.tell is None else self.tell(outcome)

        return Run(state, _steps(self, state, arrays, setting, book), complete)


# Exchange the future changes of nodes. The cluster sets how many identical nodes leave, and a plan chooses which.


def exchange_changes(state: EngineState, pairs: Any, name: str) -> None:
    """Exchange the future changes of the two nodes of each pair.

    Parameters
    ----------
    state : EngineState
        The state whose changes are modified.
    pairs : array, optional
        Rows (node, other), exchanged one after the other (r, 2). None if there are no pairs.
    name : str
        Name of the policy.

    Raises
    ------
    UsageError
        A pair is not two available nodes of the same group with the same number of GPUs.
    """
    if pairs is None:
        return
    rows = np.asarray(pairs)
    if rows.ndim != 2 or rows.shape[1] != 2 or (rows.dtype.kind not in "iu" and len(rows)):
        raise UsageError(f"the policy {name} exchanged nodes, but not in rows of two whole numbers", hint=HINT)
    to_come = state.changes["node"][int(state.g["change"][0]) :]
    nodes = state.nodes
    for one, other in rows.tolist():
        if not (0 <= one < len(nodes) and 0 <= other < len(nodes)):
            raise UsageError(f"the policy {name} exchanged nodes {one} and {other} of {len(nodes)}", hint=HINT)
        alike = all(nodes[column][one] == nodes[column][other] for column in ("group", "gpus"))
        if not (alike and nodes["up"][one] and nodes["up"][other]):
            raise UsageError(
                f"the policy {name} exchanged nodes {one} and {other}, which must both be available and identical",
                hint=HINT,
            )
        mine, theirs = to_come == one, to_come == other
        to_come[mine], to_come[theirs] = other, one


_Result = TypeVar("_Result")
_IDLE_PLANS = 1000
"""Number of plans in a row that start nothing, while nothing is running or pending, after which the remaining jobs wait
forever."""
_PLANS = 1000
"""Number of plans between checks for progress updates and interrupts."""


def _steps(
    planner: Planner, state: EngineState, arrays: Any, setting: Setting, book: ClockBook | None
) -> Callable[[int], bool]:
    """Return a function that runs at most the given number of instants and plans, and returns whether more are left."""
    g, key, name = state.g[0], engine_key(by_arrival), setting.name
    n = len(state.jobs)
    view = _view(planner, state, arrays, name)
    reader = PlanReader(state, planner, name, setting.jobs.job_id, setting.cluster.node_id)
    named, stopped = np.zeros(n, np.int64), np.zeros(len(state.events), np.int64)
    idle = 0

    def step(instants: int) -> bool:
        nonlocal idle
        left = min(instants, _PLANS)
        reason = compiled.next_plan(arrays, key, planner.round_ms, planner.gap_ms, left)
        while reason == compiled.ASK and left > 0:
            left -= 1
            if g["running"] or g["pending"]:
                view.renew()
                plan = _ask(planner, view, name)
                if plan.clock is not None and book is None:
                    raise UsageError(f"the policy {name} gave clocks, which needs a Planner with clocks", hint=HINT)
                # Skip empty plans: most are empty if a planner names only changes.
                if not plan.keep or np.size(plan.job) or plan.optional:
                    read = reader.read(plan)
                    if book is not None:
                        book.begin(plan.job, plan.clock)
                    wrong = compiled.apply_plan(arrays, key, compiled.PlanArrays(read), named, stopped)
                    if wrong:
                        raise reader.fault(wrong, read)
                exchange_changes(state, plan.exchange, name)
                idle = 0 if g["running"] or g["submitted"] < n else idle + 1
                if idle >= _IDLE_PLANS:
                    return False
                g["wake"] = max(int(plan.wake_ms), view.now_ms + 1) if plan.wake_ms >= 0 else -1
            if book is not None:
                book.look()
            reason = compiled.next_plan(arrays, key, planner.round_ms, planner.gap_ms, left)
        return bool(reason != compiled.OVER)

    return step


def _state(planner: Planner, setting: Setting) -> EngineState:
    """Return the state for a planner, in which nothing is queued and several jobs may share a GPU."""
    # A gang that may be spread fits wherever a relaxed gang fits.
    order = Ordered(
        by_arrival,
        fit=planner.fit,
        overhead_ms=planner.overhead_ms,
        estimate_ms=planner.estimate_ms,
        scopes=(planner.scope,) if planner.wide else (),
    )
    state = build(setting if planner.spread else replace(setting, spread=None), order, kind="Planner")
    n, share = len(state.jobs), planner.share
    state.g["planned"], state.g["scope"], state.g["asked"] = 1, planner.scope, NONE
    # The last job class holds a plan's request before the job is placed.
    wish = np.zeros(1, state.job_classes.dtype)
    state = state._replace(active=np.zeros(n, np.int32), job_classes=np.concatenate([state.job_classes, wish]))
    if share == 1:
        return state
    gpus = state.nodes["gpus"]
    total = int(gpus.sum())
    state.g["seats"] = 1
    state.nodes["seat"] = np.cumsum(gpus) - gpus
    # Twice the seats: a job that moves keeps its old allocation until it has the new one.
    allocations = unused_allocations(total + 2 * total * share + 1)
    state.g["unused_allocation"] = total
    return state._replace(allocations=allocations, events=np.zeros(min(n, total * share), struct_dtype("Entry")))


def _view(planner: Planner, state: EngineState, arrays: Any, name: str) -> View:
    """Let the planner begin a run, and return its view of the run."""
    view = View(state, arrays)
    if planner.begin is not None:
        _called(planner.begin, view, name)
    return view


def _called(function: Callable[[View], _Result], view: View, name: str) -> _Result:
    try:
        return function(view)
    except TracekitError:
        raise
    except Exception as error:
        reason = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise UsageError(f"the policy {name} failed at {view.now_ms / 1000:g} s: {reason}", hint=HINT) from error


def _ask(planner: Planner, view: View, name: str) -> Plan:
    plan = _called(planner.plan, view, name)
    if not isinstance(plan, Plan):
        raise UsageError(f"the policy {name} returned {type(plan).__name__} at {view.now_ms / 1000:g} s, not a Plan")
    return plan


# Convert a plan to the engine's arrays (integers of equal length, by domain), and put its errors into words.

_FULL_SPEED = 1_000_000
_LONGEST_MS = 100 * 366 * 86_400_000


class PlanArrays(NamedTuple):
    """The arguments of `apply_plan`: a plan's jobs (k,) by domain, in the order of placement."""

    jobs: NDArray[np.int64]
    """The jobs."""
    gpus: NDArray[np.int64]
    """Number of GPUs, or 0 for none."""
    rates: NDArray[np.int64]
    """Speed [ppm]."""
    groups: NDArray[np.int64]
    """Group of nodes, or -1."""
    models: NDArray[np.int64]
    """GPU model, or -1."""
    optional: NDArray[np.uint8]
    """Whether each job may exceed the available room."""
    rows: NDArray[np.int64] | None
    """Nodes that the plan names, by place in the plan (r, 4), or None if the planner names no nodes."""
    ends: NDArray[np.int64] | None
    """Place i of the plan has the rows from `ends[i]` to `ends[i + 1]` (k + 1,)."""
    beside: NDArray[np.int64] | None
    """The job whose GPUs each job shares (k,), or None if jobs do not share GPUs."""
    lost: NDArray[np.int64]
    """Run time that each job must redo if it is stopped or moved [ms]."""
    share: int
    """Number of jobs that a GPU may have."""
    keep: bool
    """Whether jobs that are not named continue."""
    any_model: bool
    """Whether a named model may differ from the model that the job requests."""
    resize_ms: int
    """Cost of a change in the number of GPUs [ms]."""


class PlanReader:
    """Reads the plans of one planner and reports their errors."""

    def __init__(self, state: EngineState, planner: Planner, name: str, job_id: pl.Series, node_id: list[str]) -> None:
        self.state, self.planner, self.name, self.job_id, self.node_id = state, planner, name, job_id, node_id
        self._sizes = state.nodes["gpus"].astype(np.int64)
        self._models = int(state.groups["model"].max(initial=-1))
        self._room = -1
        self._grow(64)

    def _grow(self, count: int) -> None:
        """Allocate the defaults for a plan of `count` jobs. Most plans use them, and no plan writes to them."""
        if count > self._room:
            self._room = 2 * count
            self._full, self._none, self._zeros = (np.full(self._room, usual) for usual in (_FULL_SPEED, -1, 0))
            self._sure, self._places = np.zeros(self._room, np.uint8), np.arange(self._room + 1)

    def read(self, plan: Plan) -> PlanArrays:
        """Return the arrays of a plan, grouped by domain."""
        jobs, gpus = self._whole(plan.job, "jobs"), self._whole(plan.gpus, "gpus")
        count = len(jobs)
        self._grow(count)
        given = (
            ("rates", plan.rate, self._full),
            ("groups", plan.group, self._none),
            ("models", plan.model, self._none),
            ("beside", plan.beside, self._none),
            ("lost times", plan.lost_ms, self._zeros),
        )
        rates, groups, models, beside, lost = (
            usual[:count] if values is None else self._whole(values, what) for what, values, usual in given
        )
        lengths = {len(column) for column in (jobs, gpus, rates, groups, models, beside, lost)}
        if len(lengths) > 1 or not 0 <= plan.optional <= count:
            raise self._error("made a plan whose columns differ in length")
        if count and plan.lost_ms is not None and (lost.min() < 0 or lost.max() > _LONGEST_MS):
            raise self._error("gave a lost time that is negative or longer than a century")
        if count and plan.model is not None and (models.min() < -1 or models.max() > self._models):
            raise self._error("requested a GPU model that the cluster does not have")
        if plan.beside is not None and self.planner.share == 1:
            raise self._error("put jobs next to others, which needs a Planner with a share of at least 2")
        optional = self._sure[:count]
        if plan.optional:
            optional = (self._places[:count] >= count - plan.optional).view(np.uint8)
        rows = self._rows(plan)
        sound = rows is None or compiled.rows_sound(rows, self._sizes, jobs, gpus, beside)
        if rows is not None and not sound:
            self._check_places(rows, count)
        if len(self.state.domains) > 1:
            inside = np.where((jobs >= 0) & (jobs < len(self.job_id)), jobs, 0)
            order = np.argsort(self.state.job_classes["domain"][self.state.jobs["job_class"][inside]], kind="stable")
            rows = None if rows is None else _moved(rows, order)
            optional = optional[order]
            jobs, gpus, rates, groups, models, beside, lost = (
                column[order] for column in (jobs, gpus, rates, groups, models, beside, lost)
            )
        found = PlanArrays(
            jobs,
            gpus,
            rates,
            groups,
            models,
            optional,
            rows=rows,
            ends=None if rows is None else np.searchsorted(rows[:, 0], self._places[: count + 1]),
            beside=beside if self.planner.share > 1 else None,
            lost=lost,
            share=self.planner.share,
            keep=plan.keep,
            any_model=self.planner.any_model,
            resize_ms=self.planner.resize_ms,
        )
        if rows is not None and not sound:
            self._check_rows(found, rows, beside)
        return found

    def _whole(self, values: Any, what: str) -> NDArray[np.int64]:
        """Return a column of a plan as int64."""
        array = np.asarray(values)
        if array.ndim != 1 or (array.dtype.kind not in "iu" and len(array)):
            raise self._error(f"made a plan whose {what} are not a list of whole numbers")
        # Always copy: compiled code would need a second version for read-only arrays.
        return np.array(array, np.int64)

    def _rows(self, plan: Plan) -> NDArray[np.int64] | None:
        """Return the named nodes as sorted rows (place, node, GPUs, GPU), or None if the planner names no nodes."""
        if plan.place is None:
            named = self.planner.names_nodes or self.planner.share > 1
            return np.zeros((0, 4), np.int64) if named else None
        if not self.planner.names_nodes:
            raise self._error("named nodes, which needs a Planner with names_nodes=True")
        widths = (3,) if self.planner.share == 1 else (3, 4)
        given = np.asarray(plan.place)
        if given.ndim != 2 or given.shape[1] not in widths or (given.dtype.kind not in "iu" and len(given)):
            raise self._error(f"named nodes, but not in rows of {' or '.join(map(str, widths))} whole numbers")
        rows = np.full((len(given), 4), -1)
        rows[:, : given.shape[1]] = given
        return _sorted(rows)

    def _check_places(self, rows: NDArray[np.int64], count: int) -> None:
        """Raise an error if rows name a place that the plan does not have."""
        strange = rows[(rows[:, 0] < 0) | (rows[:, 0] >= count), 0]
        if len(strange):
            raise self._error(f"named nodes for place {strange[0]} of a plan of {count} jobs")

    def _check_rows(self, plan: PlanArrays, rows: NDArray[np.int64], beside: NDArray[np.int64]) -> None:
        """Raise an error if rows name unknown nodes, a GPU twice, or a number of GPUs that differs from the plan's."""
        place, node, gpus, gpu = rows.T
        bad = np.flatnonzero((node < 0) | (node >= len(self.node_id)))
        if len(bad):
            raise self._of_job(f"named node {node[bad[0]]} of {len(self.node_id)}", plan, int(place[bad[0]]))
        size = self.state.nodes["gpus"][node]
        bad = np.flatnonzero((gpus < 1) | (gpu < -1) | (gpus > size - np.maximum(gpu, 0)))
        if len(bad):
            what = f"{gpus[bad[0]]} GPUs" + (f" from GPU {gpu[bad[0]]} on" if gpu[bad[0]] != -1 else "")
            what = f"named {what} of node {self.node_id[node[bad[0]]]}, which has {size[bad[0]]}"
            raise self._of_job(what, plan, int(place[bad[0]]))
        again = (place[1:] == place[:-1]) & (node[1:] == node[:-1])
        bad = np.flatnonzero(again & ((gpu[:-1] == -1) | (gpu[:-1] + gpus[:-1] > gpu[1:])))
        if len(bad):
            raise self._of_job(f"named GPUs of node {self.node_id[node[bad[0]]]} twice", plan, int(place[bad[0]]))
        total = np.bincount(place, gpus, len(plan.jobs)).astype(np.int64)
        bad = np.flatnonzero((total > 0) & (total != plan.gpus))
        if len(bad):
            what = f"named nodes for {total[bad[0]]} GPUs, but gave {plan.gpus[bad[0]]}"
            raise self._of_job(what, plan, int(bad[0]))
        bad = np.flatnonzero((total > 0) & (beside != -1) & (beside != plan.jobs))
        if len(bad):
            raise self._of_job("named both nodes and a job to sit next to", plan, int(bad[0]))

    def fault(self, wrong: int, plan: PlanArrays) -> UsageError:
        """Return the exception for an error of `apply_plan`."""
        at = int(self.state.g["culprit"][0])
        if wrong in {compiled.NOT_ACCEPTED, compiled.MODELS_MIXED, compiled.NO_ROOM} and plan.rows is not None:
            place, node, gpus, gpu = (int(value) for value in plan.rows[at])
            what = f"named node {self.node_id[node]}, which the job may not use"
            if wrong == compiled.MODELS_MIXED:
                what = "named nodes of several GPU models"
            elif wrong == compiled.NO_ROOM:
                what = self._no_room(node, gpus, gpu)
            return self._of_job(what, plan, place)
        beside = -1 if plan.beside is None else int(plan.beside[at])
        other = f"job {self.job_id[beside]}" if 0 <= beside < len(self.job_id) else f"the job at {beside}"
        what = {
            compiled.NOT_ACTIVE: "planned a job that is neither waiting nor running",
            compiled.NAMED_TWICE: "named a job twice in a plan",
            compiled.NO_SPEED: f"gave a speed of {plan.rates[at]} ppm",
            compiled.GROUP_UNKNOWN: f"requested the group of nodes {plan.groups[at]}, which is not in the job's domain",
            compiled.BESIDE_UNKNOWN: f"put a job next to {other}, which is neither planned alone before it nor kept",
            compiled.BESIDE_SIZE: f"put a job of {plan.gpus[at]} GPUs next to {other}, which has a different number",
            compiled.CROWDED: f"put a job next to {other}, whose GPUs already have {self.planner.share} jobs",
            compiled.TOO_FAR: f"put a job next to {other}, whose nodes it may not use",
        }.get(wrong, f"requested more GPUs than the cluster has, or fewer than 0 ({plan.gpus[at]})")
        return self._of_job(what, plan, at)

    def _no_room(self, node: int, gpus: int, gpu: int) -> str:
        row, name = self.state.nodes[node], self.node_id[node]
        if not row["up"]:
            return f"named node {name}, which is away"
        if gpu < 0:
            return f"named {gpus} GPUs of node {name}, which has {row['free']} free"
        return f"named GPUs of node {name} that already have {self.planner.share} jobs"

    def _of_job(self, what: str, plan: PlanArrays, place: int) -> UsageError:
        j, all_jobs = int(plan.jobs[place]), len(self.job_id)
        job = f"job {self.job_id[j]}" if 0 <= j < all_jobs else f"the job at {j} of {all_jobs}"
        at = int(self.state.g["now"][0]) / 1000
        return self._error(f"{what}: {job}, at {at:g} s")

    def _error(self, what: str) -> UsageError:
        return UsageError(f"the policy {self.name} {what}", hint=HINT)


def _moved(rows: NDArray[np.int64], order: NDArray[np.intp]) -> NDArray[np.int64]:
    """Return rows with new places after the plan was sorted in another order."""
    place = np.empty(len(order), np.int64)
    place[order] = np.arange(len(order))
    return _sorted(np.column_stack([place[rows[:, 0]], rows[:, 1:]]))


def _sorted(rows: NDArray[np.int64]) -> NDArray[np.int64]:
    return rows if len(rows) < 2 else np.ascontiguousarray(rows[np.lexsort((rows[:, 3], rows[:, 1], rows[:, 0]))])
