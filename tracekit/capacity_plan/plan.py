"""The plan of one cluster: waits against nodes, load and policy, and how many nodes a target takes."""

from __future__ import annotations

import math
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tracekit.calibration.score import GRADES, NEAR_S
from tracekit.calibration.twin import Twin, twin_text
from tracekit.capacity_plan.basis import PlanBasis, quantile
from tracekit.capacity_plan.days import DAY_MS, DayPool
from tracekit.capacity_plan.growth import load_growth, weekly_gpu_hours
from tracekit.capacity_plan.nodes import NodeAxis, gpus_up, resized, settled_nodes
from tracekit.capacity_plan.replays import PlanReplays
from tracekit.capacity_plan.result import TWIN, CapacityPlan
from tracekit.capacity_plan.search import (
    WaitCurve,
    default_numbers,
    figure,
    interval,
    interval_share,
    paired_change,
    steps_up,
    target_waits,
)
from tracekit.errors import UsageError
from tracekit.progress import Progress
from tracekit.text import counted, duration, percent, shorten

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tracekit.calibration.api import ClusterCalibration
    from tracekit.capacity_plan.question import PlanQuestion
    from tracekit.capacity_plan.search import NodesAnswer
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.shards.items import SharedItems


# One capacity as plan.json tells it.

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.capacity_plan.question import HourlyCosts, PlanQuestion

    Floats = NDArray[np.float64]


def capacity_row(
    policy: str, growth: float, axis: NodeAxis, number: int, values: Floats, gpus: int, question: PlanQuestion
) -> dict[str, Any]:
    """Return the row of a capacity.

    Keys: policy, growth, nodes, gpus, by_model (NULL with one model); mean, p50, p90 and p99_wait_s,
    within_target_share, held_share, each the mean over resamples, with the ends of its interval (_low_s and _high_s,
    _low and _high); meets_target; jobs_per_day; gpus_up (GPUs of nodes that are not away, in the mean); offered_share
    (GPU time asked for / that of the GPUs up; NULL where none is); never_start_share; owning_cost_per_day,
    waiting_cost_per_day (of all jobs) and cost_per_day, their sum. A wait is
    NULL where jobs that decide it never start.

    Parameters
    ----------
    values : array of float, shape (R, figures)
        The `FIGURES` by resample.
    """
    capacity = axis.at(number)
    row: dict[str, Any] = {"policy": policy, "growth": growth, "nodes": sum(capacity), "gpus": gpus}
    row["by_model"] = dict(zip(axis.models, capacity, strict=True)) if len(axis.models) > 1 else None
    for name in ("mean_wait_s", "p50_wait_s", "p90_wait_s", "p99_wait_s"):
        row |= _spread(figure(values, name), name.removesuffix("_s"), "_s")
    for name in ("within_target_share", "held_share"):
        row |= _spread(figure(values, name), name, "")
    target = question.target
    meets = target is not None and bool(target_waits(values, target).mean() <= target.limit_s)
    row["meets_target"] = None if target is None else meets
    row["jobs_per_day"] = _mean(values, "jobs_per_day")
    row["gpus_up"] = up = float(figure(values, "gpus_up").mean())
    row["offered_share"] = float(figure(values, "offered_gpus").mean()) / up if up > 0 else None
    row["never_start_share"] = _mean(values, "never_start_share")
    return row | _costs(sum(capacity), _mean(values, "waiting_hours_per_day"), question.costs)


def _mean(values: Floats, name: str) -> float | None:
    found = figure(values, name)
    return float(found.mean()) if len(found) and np.isfinite(found).all() else None


def _spread(values: Floats, stem: str, unit: str) -> dict[str, float | None]:
    keys = (f"{stem}{unit}", f"{stem}_low{unit}", f"{stem}_high{unit}")
    if not len(values):
        return dict.fromkeys(keys)
    found = (float(values.mean()), *interval(values))
    return {key: value if math.isfinite(value) else None for key, value in zip(keys, found, strict=True)}


def _costs(nodes: int, waiting_hours: float | None, costs: HourlyCosts) -> dict[str, float | None]:
    owning = None if costs.node is None else costs.node * nodes * 24
    waiting = None if costs.wait is None or waiting_hours is None else costs.wait * waiting_hours
    whole = None if owning is None or waiting is None else owning + waiting
    return {"owning_cost_per_day": owning, "waiting_cost_per_day": waiting, "cost_per_day": whole}


_FEWEST_JOBS = 20
"""Jobs whose wait counts that a log needs, so that drawn days nearly always have some."""
_APART = 0.1
"""A mean wait with drawn days is worth a word where it is off by so much of the log's own order [1]; our choice."""


def no_plan(found: ClusterCalibration) -> str | None:
    """Return why no plan can be made from a twin, a sentence without its full stop; None where one can."""
    if found.score.carries:
        return None
    whole, (_, alike, unexplained) = found.score.whole, GRADES["fair"]
    missing = []
    if whole["agreeing_share"] < alike:
        missing.append(f"{percent(whole['agreeing_share'])} of the jobs wait alike, {percent(alike)} are needed")
    if (whole["unexplained_share"] or 0.0) > unexplained:
        missing.append(
            f"{percent(whole['unexplained_share'])} of the waiting hours are unexplained, {percent(unexplained)} may be"
        )
    lacks = f"; {'; '.join(missing)}" if missing else ""
    return (
        f"a replay does not reproduce the log of {shorten(found.name, 40)} (grade {found.score.grade}: it waits "
        f"{duration(whole['twin_mean_s'])} in the mean, the log {duration(whole['recorded_mean_s'])}{lacks}), so it "
        "cannot tell how many nodes are enough"
    )


def plan_cluster(
    found: ClusterCalibration,
    question: PlanQuestion,
    progress: Progress | None = None,
    shared: SharedItems | None = None,
) -> CapacityPlan | str:
    """Return the plan of a cluster, or why there is none, a sentence without its full stop.

    Parameters
    ----------
    found : ClusterCalibration
        The twin.
    question : PlanQuestion
    progress : Progress, optional
        Told of every resample.
    shared : SharedItems, optional
        Shards that share out the resamples; these have the Trace and the program in common.

    Raises
    ------
    UsageError
        No job is of the group; the log is shorter than five days; there is no such GPU model; a policy cannot run here.
    """
    reason = no_plan(found)
    if reason is not None:
        return reason
    bench, settings = found.bench, found.settings
    jobs = bench.jobs
    starts = ~np.isnan(found.twin_s)
    group = question.group.among(jobs) & starts
    if int(group.sum()) < _FEWEST_JOBS:
        what = f"the twin starts {int(group.sum())} of {question.group.words}; a plan needs at least {_FEWEST_JOBS}"
        raise UsageError(what, where="--for", hint="choose other jobs")
    cluster, settled = settled_nodes(bench.cluster(settings))
    axis = NodeAxis.of(cluster, question.model)
    pool = DayPool.of(jobs, bench.held_ms, bench.startup if settings.delays else {}, group, starts)
    limit = None if question.target is None else question.target.limit_s
    basis = PlanBasis(pool, cluster, settings.rules.placement, bench.models, question.seed, limit)
    own = settings.rules.policy
    if shared is not None:
        twin = twin_text(Twin("", {found.name: found.twin}))
        shared = shared.among(twin=twin, group=asdict(question.group), limit_s=limit, seed=question.seed)
    with PlanReplays(basis, question.resamples, question.workers, progress or Progress(), shared) as replays:
        curves = {
            (name, growth): WaitCurve(replays, axis, policy, growth)
            for name, policy in ((TWIN, own), *((p, p) for p in question.policies))
            for growth in question.growths
        }
        for (_, growth), curve in curves.items():
            curve.look(_numbers(question, axis, pool, cluster, growth))
        here = WaitCurve(replays, axis, own, 1.0)
        here.look([axis.now, *(axis.now + k for k in steps_up(axis.now))])
        if question.numbers is None and (TWIN, 1.0) in curves:
            curves[TWIN, 1.0].look(here.tried)
        more = _more(replays, axis, own)
        answers = _answers(curves, question)
    rows: dict[tuple[str, float, int | None], dict[str, Any]] = {
        (name, growth, number): capacity_row(
            name, growth, axis, number, values, resized(cluster, axis.at(number)).total_gpus, question
        )
        for (name, growth), curve in curves.items()
        for number, values in sorted(curve.tried.items())
    }
    recorded = _recorded(found, group, cluster, axis, gpus_up(cluster, 0, pool.days * DAY_MS))
    return CapacityPlan(
        found.name,
        question,
        recorded,
        list(rows.values()),
        more,
        tuple(replace(one, full=_filled(rows.get((one.policy, one.growth, one.nodes)))) for one in answers),
        load_growth(weekly_gpu_hours(jobs), recorded["gpus_up"]),
        _assumptions(found, question, pool, settled, recorded),
        tuple(_caveats(here, axis, recorded, jobs_left=int((~starts).sum()))),
    )


def _answers(curves: Mapping[tuple[str, float], WaitCurve], question: PlanQuestion) -> list[NodesAnswer]:
    target = question.target
    if target is None:
        return []
    refine = question.numbers is None
    return [replace(curve.answer(target, refine=refine), policy=name) for (name, _), curve in curves.items()]


def _filled(row: Mapping[str, Any] | None) -> bool:
    return row is not None and row["offered_share"] is not None and bool(row["offered_share"] >= 1)


def _numbers(question: PlanQuestion, axis: NodeAxis, pool: DayPool, cluster: Cluster, growth: float) -> Sequence[int]:
    if question.numbers is not None:
        return question.numbers
    per_node = cluster.total_gpus / cluster.nodes
    others = sum(axis.nodes) - axis.now
    return default_numbers(axis, pool.offered_gpus * growth / per_node - others)


def _more(replays: PlanReplays, axis: NodeAxis, policy: str) -> list[dict[str, Any]]:
    """Return what more nodes give: of all models in proportion, or of the one that varies; and of each alone."""
    axes = [axis]
    if axis.model is None and len(axis.models) > 1:
        axes += [NodeAxis(axis.models, axis.nodes, model) for model in axis.models]
    rows = []
    for one in axes:
        curve = WaitCurve(replays, one, policy, 1.0)
        steps = steps_up(one.now)
        curve.look([one.now, *(one.now + k for k in steps)])
        rows += [
            {"model": one.model, "more_nodes": k, "nodes": sum(axis.nodes) + k}
            | paired_change(curve.tried[one.now], curve.tried[one.now + k], "mean_wait_s")
            | paired_change(curve.tried[one.now], curve.tried[one.now + k], "p90_wait_s")
            for k in steps
        ]
    return rows


def _recorded(found: ClusterCalibration, group: Any, cluster: Cluster, axis: NodeAxis, up: float) -> dict[str, Any]:
    row: dict[str, Any] = {"nodes": cluster.nodes, "gpus": cluster.total_gpus, "gpus_up": up, "varied": axis.now}
    row["availability_share"] = up / cluster.total_gpus if cluster.total_gpus else None
    row["by_model"] = dict(zip(axis.models, axis.nodes, strict=True)) if len(axis.models) > 1 else None
    known = group & ~np.isnan(found.recorded_s)
    row["jobs"] = int(known.sum())
    for who, waits in (("", found.recorded_s[known]), ("twin_", found.twin_s[known])):
        row[f"{who}mean_wait_s"] = float(waits.mean()) if len(waits) else None
        for name, share in (("p50", 0.5), ("p90", 0.9), ("p99", 0.99)):
            row[f"{who}{name}_wait_s"] = quantile(waits, share) if len(waits) else None
    return row


def _caveats(here: WaitCurve, axis: NodeAxis, recorded: Mapping[str, Any], *, jobs_left: int) -> list[str]:
    found = []
    waits = figure(here.tried[axis.now], "mean_wait_s")
    twin = recorded["twin_mean_wait_s"]
    if twin is not None and len(waits):
        low, high = interval(waits)
        apart = abs(float(waits.mean()) - twin)
        if not low <= twin <= high and apart > max(NEAR_S, _APART * twin):
            found.append(
                f"with the days of the log in their own order the twin waits {duration(twin)} in the mean, with drawn "
                f"days {duration(float(waits.mean()))} ({duration(low)} to {duration(high)}): what lasts over days in "
                "the log, such as a long queue or a rise of the load, is not in the plan"
            )
    if jobs_left:
        found.append(f"left out of the plan: {counted(jobs_left, 'jobs')} that the twin never starts")
    return found


def _assumptions(
    found: ClusterCalibration, question: PlanQuestion, pool: DayPool, settled: int, recorded: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    whole, rules = found.score.whole, found.settings.rules
    place = "a day of the same place in the week" if pool.weekly else "any day"
    means = f"{duration(whole['twin_mean_s'])} where the log has {duration(whole['recorded_mean_s'])}"
    there = f"; {counted(settled, 'nodes')} that joined or left for good are there all the time" if settled else ""
    stated = {
        "twin": f"{rules.words}; grade {found.score.grade}, mean wait {means}",
        "days": (
            f"each of {pool.days} days takes the submissions of {place} of the log, drawn with replacement, after "
            f"{counted(pool.lead, 'days')} that fill the cluster and are not measured"
        ),
        "nodes": (
            "nodes more are like those there are, over racks and VCs in proportion, and away when their originals are; "
            f"quotas grow with the GPUs, limits of users and VCs stay{there}"
        ),
        "outages": _lost_to_outages(recorded),
        "intervals": (
            f"{percent(interval_share(question.resamples))} of such months lie inside: {question.resamples} are drawn; "
            "which days the log happened to hold is in them, how far the twin is from the log is not"
        ),
    }
    if question.growths != (1.0,):
        stated["growth"] = (
            "with g times the jobs each day takes floor(g) days of the log, and of one more each user's jobs with "
            "probability g - floor(g)"
        )
    sources = {"twin": "tracekit calibrate", "nodes": found.bench.cluster(found.settings).origin}
    return {key: {"title": key, "value": v, "source": sources.get(key, "the plan")} for key, v in stated.items()}


def _lost_to_outages(recorded: Mapping[str, Any]) -> str:
    gpus, up = recorded["gpus"], recorded["gpus_up"]
    if up >= gpus:
        return "the log tells of no time in which a node was away, so that all GPUs count as up"
    return (
        f"of {counted(gpus, 'GPUs')} the log has {up:,.1f} up in the mean ({percent(up / gpus)}): nodes that are down, "
        "drained or in maintenance take no new job, and what is offered and held is compared with the GPUs that are up"
    )
