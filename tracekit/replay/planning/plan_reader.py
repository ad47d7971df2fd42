"""Convert a plan to the engine's arrays (integers of equal length, by domain), and describe its errors in words."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tracekit.errors import UsageError
from tracekit.replay.native import compiled

if TYPE_CHECKING:
    import polars as pl
    from numpy.typing import NDArray

    from tracekit.replay.engine.state import EngineState
    from tracekit.replay.planning.mechanism import Plan, Planner


HINT = "fix the policy"
_FULL_SPEED = 1_000_000
_LONGEST_MS = 100 * 366 * 86_400_000


class PlanArrays(NamedTuple):
    """A plan as `apply_plan` takes it: its jobs (k,) by domain, in the order in which they are placed."""

    jobs: NDArray[np.int64]
    """The jobs."""
    gpus: NDArray[np.int64]
    """GPUs; 0 means none."""
    rates: NDArray[np.int64]
    """Speed [ppm]."""
    groups: NDArray[np.int64]
    """Group of nodes, or -1."""
    models: NDArray[np.int64]
    """GPU model, or -1."""
    optional: NDArray[np.uint8]
    """Whether each job may exceed the available room."""
    rows: NDArray[np.int64] | None
    """Nodes that the plan names (r, 4), by place in the plan; None if the planner names no nodes."""
    ends: NDArray[np.int64] | None
    """Place i of the plan has the rows from `ends[i]` to `ends[i + 1]` (k + 1,)."""
    beside: NDArray[np.int64] | None
    """The job whose GPUs each job shares (k,); None if jobs do not share GPUs."""
    lost: NDArray[np.int64]
    """Run time that each job must redo if it is stopped or moved [ms]."""
    share: int
    """Number of jobs that a GPU may have."""
    keep: bool
    """Whether jobs that are not named continue."""
    any_model: bool
    """Whether a named model may differ from the one that the job requests."""
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
        """Allocate the defaults for a plan of `count` jobs; most plans use them, and no plan writes to them."""
        if count > self._room:
            self._room = 2 * count
            self._full, self._none, self._zeros = (np.full(self._room, usual) for usual in (_FULL_SPEED, -1, 0))
            self._sure, self._places = np.zeros(self._room, np.uint8), np.arange(self._room + 1)

    def read(self, plan: Plan) -> PlanArrays:
        """Return a plan's arrays, grouped by domain."""
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
        """Return the named nodes as sorted rows (place, node, GPUs, GPU); None if the planner names no nodes."""
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
        """Raise an error if rows name unknown nodes, a GPU twice, or another number of GPUs than the plan gives."""
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
        """Return the exception for an error that apply_plan.pxi found."""
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
