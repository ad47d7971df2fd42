"""Ask a planner and carry out what it says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tracekit.errors import TracekitError, UsageError
from tracekit.replay.mechanisms import Plan, by_arrival
from tracekit.replay.planned import (
    ASK,
    GROUP_UNKNOWN,
    NAMED_TWICE,
    NO_SPEED,
    NOT_ACTIVE,
    OVER,
    apply_plan,
    gather,
    next_plan,
    settle_running,
)
from tracekit.replay.state import PPM
from tracekit.replay.view import View

if TYPE_CHECKING:
    from collections.abc import Callable

    import polars as pl
    from numpy.typing import NDArray

    from tracekit.replay.mechanisms import Planner
    from tracekit.replay.state import State

__all__ = ["planner_steps"]

_IDLE_PLANS = 1000
"""Plans in a row that start nothing, with nothing running and nothing to come, after which the rest waits for ever."""
_PLANS = 1000
"""Plans between two looks at the world outside."""
_HINT = "mend the policy"


def planner_steps(state: State, planner: Planner, name: str, job_id: pl.Series) -> Callable[[int], bool]:
    """Return what runs a planner for at most so many instants and plans, and tells whether more are to come.

    Raises, when run
    ----------------
    UsageError
        The planner fails, or its plan names a job twice, or one that neither waits nor runs, or asks for more GPUs than
        there are, for a group of nodes or a GPU model that is not there, or for a speed that is no speed.
    """
    g = state.g[0]
    n = len(state.jobs)
    wanted, stopped = np.zeros(n, np.int64), np.zeros(len(state.events), np.int64)
    view = View(state, gather, settle_running)
    idle = 0
    # Nothing waits yet: these change nothing, but are compiled before the clock of the run starts.
    view.renew()
    nobody, _ = view.job, view.table
    _apply(state, Plan(nobody, nobody, keep=True), planner, name, wanted, stopped, job_id)

    def step(instants: int) -> bool:
        nonlocal idle
        left = min(instants, _PLANS)
        reason = next_plan(state, by_arrival, planner.round_ms, planner.gap_ms, left)
        while reason == ASK and left > 0:
            left -= 1
            if g["running"] or g["pending"]:
                view.renew()
                plan = _ask(planner, view, name)
                _apply(state, plan, planner, name, wanted, stopped, job_id)
                idle = 0 if g["running"] or g["submitted"] < n else idle + 1
                if idle >= _IDLE_PLANS:
                    return False
                g["wake"] = max(int(plan.wake_ms), view.now_ms + 1) if plan.wake_ms >= 0 else -1
            reason = next_plan(state, by_arrival, planner.round_ms, planner.gap_ms, left)
        return reason != OVER

    return step


def _ask(planner: Planner, view: View, name: str) -> Plan:
    try:
        plan = planner.plan(view)
    except TracekitError:
        raise
    except Exception as error:
        told = " ".join(f"{type(error).__name__}: {error}".split())[:200]
        raise UsageError(f"the policy {name} failed at {view.now_ms / 1000:g} s: {told}", hint=_HINT) from error
    if not isinstance(plan, Plan):
        raise UsageError(f"the policy {name} returned {type(plan).__name__} at {view.now_ms / 1000:g} s, not a Plan")
    return plan


def _whole(values: Any, what: str, name: str) -> NDArray[np.int64]:
    """Return a column of a plan as int64."""
    array = np.asarray(values)
    if array.ndim != 1 or (array.dtype.kind not in "iu" and len(array)):
        raise UsageError(f"the policy {name} made a plan whose {what} are no list of whole numbers", hint=_HINT)
    return np.ascontiguousarray(array, np.int64)


def _apply(
    state: State,
    plan: Plan,
    planner: Planner,
    name: str,
    wanted: NDArray[np.int64],
    stopped: NDArray[np.int64],
    job_id: pl.Series,
) -> None:
    jobs, gpus = _whole(plan.job, "jobs", name), _whole(plan.gpus, "gpus", name)
    count = len(jobs)
    rates = np.full(count, PPM) if plan.rate is None else _whole(plan.rate, "rates", name)
    groups = np.full(count, -1) if plan.group is None else _whole(plan.group, "groups", name)
    models = np.full(count, -1) if plan.model is None else _whole(plan.model, "models", name)
    if not count == len(gpus) == len(rates) == len(groups) == len(models) or not 0 <= plan.optional <= count:
        raise UsageError(f"the policy {name} made a plan whose columns differ in length", hint=_HINT)
    known = int(state.groups["model"].max(initial=-1))
    if count and (models.min() < -1 or models.max() > known):
        raise UsageError(f"the policy {name} asked for a GPU model that the cluster does not have", hint=_HINT)
    optional = np.arange(count) >= count - plan.optional
    if len(state.domains) > 1:
        inside = np.where((jobs >= 0) & (jobs < len(wanted)), jobs, 0)
        order = np.argsort(state.demands["domain"][state.jobs["demand"][inside]], kind="stable")
        jobs, gpus, rates, groups, models = jobs[order], gpus[order], rates[order], groups[order], models[order]
        optional = optional[order]
    wrong = apply_plan(
        state,
        by_arrival,
        jobs,
        gpus,
        rates,
        groups,
        models,
        optional,
        plan.keep,
        planner.any_model,
        planner.resize_ms,
        wanted,
        stopped,
    )
    if not wrong:
        return
    place = int(state.g["culprit"][0])
    what = {
        NOT_ACTIVE: "planned a job that neither waits nor runs",
        NAMED_TWICE: "named a job twice in a plan",
        NO_SPEED: f"gave a speed of {rates[place]} ppm",
        GROUP_UNKNOWN: f"asked for the group of nodes {groups[place]}, which is not in the job's domain",
    }.get(wrong, f"asked for more GPUs than there are, or fewer than none ({gpus[place]})")
    at = int(state.g["now"][0]) / 1000
    known_job = 0 <= jobs[place] < len(job_id)
    job = f"job {job_id[int(jobs[place])]}" if known_job else f"the job at {jobs[place]} of {len(job_id)}"
    raise UsageError(f"the policy {name} {what}: {job}, at {at:g} s", hint=_HINT)
