"""Ask a planner and carry out what it says."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tracekit.errors import UsageError
from tracekit.replay.mechanisms import Plan, View, by_arrival
from tracekit.replay.planned import NOT_ACTIVE, TOO_MANY, apply_plan, gather, next_plan
from tracekit.replay.state import PPM, records

if TYPE_CHECKING:
    from collections.abc import Callable

    from numpy.typing import NDArray

    from tracekit.replay.mechanisms import Planner
    from tracekit.replay.state import State

__all__ = ["run_planned"]

_IDLE_PLANS = 1000
"""Plans in a row that start nothing, with nothing running and nothing to come, after which the rest waits for ever."""


def run_planned(state: State, planner: Planner, name: str, progress: Callable[[int], None]) -> None:
    """Run a planner to the end.

    Raises
    ------
    UsageError
        A plan names a job twice, or one that neither waits nor runs, or asks for more GPUs than there are.
    """
    g = state.g[0]
    n = len(state.jobs)
    rows = np.zeros(1024, records("VIEW"))
    wanted, wanted_rate = np.zeros(n, np.int64), np.zeros(n, np.int64)
    group_of = state.nodes["group"]
    models = _frozen(state.groups["model"].astype(np.int64))
    idle = 0
    plans = 0
    while next_plan(state, by_arrival, planner.round_ms):
        if g["active"] > len(rows):
            rows = np.zeros(2 * int(g["active"]), records("VIEW"))
        count = gather(state, rows)
        if count == 0:
            continue
        view = _view(state, rows[:count], int(g["now"]), group_of, models)
        plan = planner.plan(view)
        _apply(state, plan, wanted, wanted_rate, planner, name)
        idle = 0 if g["running"] or g["submitted"] < n else idle + 1
        if idle >= _IDLE_PLANS:
            return
        g["wake"] = max(plan.wake_ms, int(g["now"]) + 1) if plan.wake_ms >= 0 else -1
        plans += 1
        if plans % 1000 == 0:
            progress(int(g["submitted"]))


def _view(
    state: State, rows: NDArray[np.void], now: int, group_of: NDArray[np.int32], models: NDArray[np.int64]
) -> View:
    present = np.bincount(group_of, weights=state.nodes["gpus"] * state.nodes["up"], minlength=len(state.groups))
    return View(
        now_ms=now,
        job=_frozen(rows["job"]),
        running=_frozen(rows["running"]),
        held=_frozen(rows["held"]),
        remaining_ms=_frozen(rows["remaining_ms"]),
        attained_gpu_ms=_frozen(rows["attained"]),
        overhead_ms=_frozen(rows["overhead_ms"]),
        rate=_frozen(rows["rate"]),
        group=_frozen(rows["group"]),
        group_gpus=_frozen(present.astype(np.int64)),
        group_model=models,
    )


def _frozen(values: NDArray[Any]) -> NDArray[Any]:
    copy = np.ascontiguousarray(values)
    if copy is values or copy.base is not None:
        copy = copy.copy()
    copy.flags.writeable = False
    return copy


def _apply(
    state: State,
    plan: Plan,
    wanted: NDArray[np.int64],
    wanted_rate: NDArray[np.int64],
    planner: Planner,
    name: str,
) -> None:
    jobs = np.ascontiguousarray(plan.job, np.int64)
    gpus = np.ascontiguousarray(plan.gpus, np.int64)
    rates = np.full(len(jobs), PPM) if plan.rate is None else np.ascontiguousarray(plan.rate, np.int64)
    groups = np.full(len(jobs), -1) if plan.group is None else np.ascontiguousarray(plan.group, np.int64)
    if not len(jobs) == len(gpus) == len(rates) == len(groups):
        raise UsageError(f"the policy {name} made a plan whose columns differ in length", hint="mend the policy")
    if len(groups) and (groups.min() < -1 or groups.max() >= len(state.groups)):
        raise UsageError(f"the policy {name} asked for a group of nodes that does not exist", hint="mend the policy")
    wrong = apply_plan(state, by_arrival, jobs, gpus, rates, groups, wanted, wanted_rate, planner.resize_ms)
    if not wrong:
        return
    place = int(state.g["culprit"][0])
    about = f"job {jobs[place]} at {state.g['now'][0] / 1000:g} s"
    if wrong == TOO_MANY:
        what = f"asked for more GPUs than there are: {gpus[place]} for {about}"
    elif wrong == NOT_ACTIVE:
        what = f"planned {about}, which neither waits nor runs, is named twice, or has no speed"
    else:
        what = f"made a plan that cannot be carried out: {about}"
    raise UsageError(f"the policy {name} {what}", hint="mend the policy")
