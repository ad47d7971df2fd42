"""How many nodes a cluster needs: waits by number of nodes, load and policy, and the number that meets a target."""

from __future__ import annotations

from contextlib import closing
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tracekit.calibration.effect import effect_of_times, jobs_of
from tracekit.calibration.score import GRADES, NEAR_S
from tracekit.calibration.twin import Twin, twin_text
from tracekit.calibration.twins import twin_of_cluster
from tracekit.capacity_plan.days import DAY_MS, DayPool
from tracekit.capacity_plan.growth import load_growth, weekly_gpu_hours
from tracekit.capacity_plan.nodes import NodeAxis, gpus_up, resized, settled_nodes
from tracekit.capacity_plan.question import HourlyCosts, PlanQuestion, job_group, wait_target
from tracekit.capacity_plan.replays import (
    PlanBasis,
    PlannedRun,
    PlanReplays,
    figure,
    lost_process,
    quantile,
    target_wait,
)
from tracekit.capacity_plan.result import TWIN, CapacityPlan, NodesAnswer, capacity_row
from tracekit.capacity_plan.search import Curve, interval, interval_share, rules_of
from tracekit.damage import explain_damage
from tracekit.errors import UsageError
from tracekit.progress import Progress
from tracekit.replay.facts import replay_facts
from tracekit.replay.native import kernel
from tracekit.runs.ledger import Ledger
from tracekit.runs.pool import ProcessPool
from tracekit.text import counted, duration, percent, shorten
from tracekit.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from numpy.typing import NDArray

    from tracekit.calibration.api import ClusterCalibration
    from tracekit.calibration.effect import TwinEffect
    from tracekit.capacity_plan.nodes import Capacity
    from tracekit.capacity_plan.question import WaitTarget
    from tracekit.capacity_plan.search import Answer, Ends
    from tracekit.replay.clusters.cluster import Cluster

    Bools = NDArray[np.bool_]
    Floats = NDArray[np.float64]

_FEWEST_JOBS = 20
"""Minimum number of counted jobs in a log. With fewer, drawn days might contain none."""
_APART = 0.1
"""Difference between the mean waits with drawn days and in recorded order from which a note appears [1] (our
choice)."""
_FURTHER = (4, 8)
"""Multiples of the existing nodes to try if no capacity of the grid meets the target."""
_FINE = 0.01
"""Precision of the answer: this share of the nodes [1], or one node."""
_GRID = 8


@explain_damage()
def plan(
    trace: Trace | str | Path,
    target: str | None = None,
    *,
    jobs_for: Sequence[str] = (),
    twin: str | Path | None = None,
    nodes: Sequence[int] | None = None,
    model: str | None = None,
    growth: Sequence[float] = (1.0,),
    policies: Sequence[str] = (),
    node_cost: float | None = None,
    wait_cost: float | None = None,
    resamples: int = 40,
    limit: int | None = 100_000,
    seed: int = 0,
    workers: int = 1,
    shared: Ledger | None = None,
    progress: Progress | None = None,
) -> CapacityPlan:
    """Find waits by number of nodes in a cluster's twin, and how many nodes a target needs.

    >>> import tracekit
    >>> found = tracekit.plan("my-trace", "p90<=1h", jobs_for=["size=8"])  # doctest: +SKIP
    >>> found.sentences  # doctest: +SKIP

    Parameters
    ----------
    trace : Trace or path
        A Trace of at least five days whose jobs have submission, start, end and number of GPUs.
    target : str, optional
        The longest acceptable wait: mean, p50, p90 or p99, then '<=' and a number with the unit s, min, h or d.
    jobs_for : sequence of str
        Jobs whose wait counts, such as 'size=8', 'vc=NAME' or 'cluster=NAME'. By default, all jobs of the cluster with
        the most waiting hours.
    twin : path, optional
        A twin.toml. By default, the twin is calibrated now.
    nodes : sequence of int, optional
        Numbers of nodes to try, by default the most informative ones.
    model : str, optional
        Vary only the nodes of this GPU model.
    growth : sequence of float
        Jobs per day as multiples of the log's.
    policies : sequence of str
        Policies to try in addition to the twin's own.
    node_cost, wait_cost : float, optional
        Hourly cost of a node, and of a waiting job [currency/h].
    resamples : int
        Number of months to draw.
    limit : int, optional
        If no twin is given, calibrate on this many of the first jobs, or on all jobs if None.
    seed : int
        Random seed for all draws.
    workers : int
        Number of processes. If it is more than one, a script needs the guard ``if __name__ == "__main__"``.
    shared : Ledger, optional
        Folder in which shards share the resamples, or from which the resamples are gathered (see docs/howto/shards.md).
        If no twin is given, the shards first calibrate one together.
    progress : Progress, optional
        Reports every step.

    Raises
    ------
    EngineMissingError
        This installation cannot replay.
    UnfinishedError
        `shared` only gathers results, and some results are missing.
    TracekitError
        The Trace, the twin or an option cannot be used, or the twin does not reproduce the log well enough for a plan.
    """
    kernel()  # fail before reading the Trace
    opened, progress = Trace.of(trace).ingested.divided, progress or Progress()
    question = PlanQuestion(
        None if target is None else wait_target(target),
        job_group(jobs_for),
        None if nodes is None else tuple(sorted(set(nodes))),
        model,
        tuple(dict.fromkeys(float(g) for g in growth)),
        tuple(dict.fromkeys(policies)),
        HourlyCosts(node_cost, wait_cost),
        resamples,
        seed,
        workers,
    )
    file = None if twin is None else Path(twin)
    calibrated, others = twin_of_cluster(
        opened, file, question.group.cluster, limit=limit, seed=seed, shared=shared, progress=progress
    )
    (found,) = calibrated.clusters
    if others:
        progress.note(
            f"the plan covers cluster {found.name}; choose another with --for cluster=NAME: {', '.join(others)}"
        )
    ledger = (shared or Ledger()).about(**replay_facts("plan", opened, "calibration", "capacity_plan"))
    made = plan_cluster(found, question, progress, ledger)
    if isinstance(made, str):
        raise UsageError(made, where=opened.path)
    return made


def no_plan(found: ClusterCalibration) -> str | None:
    """Return why a twin cannot be used for a plan, as a sentence without a full stop, or None if it can."""
    if found.score.carries:
        return None
    whole, (_, alike, unexplained) = found.score.whole, GRADES["fair"]
    missing = []
    if whole["agreeing_share"] < alike:
        missing.append(f"{percent(whole['agreeing_share'])} of the waits agree, but {percent(alike)} are needed")
    if (whole["unexplained_share"] or 0.0) > unexplained:
        missing.append(
            f"{percent(whole['unexplained_share'])} of the waiting hours are unexplained, but at most "
            f"{percent(unexplained)} may be"
        )
    lacks = f"; {'; '.join(missing)}" if missing else ""
    return (
        f"a replay does not reproduce the log of {shorten(found.name, 40)} (grade {found.score.grade}: mean wait "
        f"{duration(whole['twin_mean_s'])}, in the log {duration(whole['recorded_mean_s'])}{lacks}), so it "
        "cannot show how many nodes are enough"
    )


def plan_cluster(
    found: ClusterCalibration,
    question: PlanQuestion,
    progress: Progress | None = None,
    ledger: Ledger | None = None,
) -> CapacityPlan | str:
    """Return the plan for a cluster, or why there is no plan, as a sentence without a full stop.

    Parameters
    ----------
    found : ClusterCalibration
        The twin.
    question : PlanQuestion
    progress : Progress, optional
        Reports every resample.
    ledger : Ledger, optional
        Ledger in which shards share the resamples. It already identifies the Trace and the program.

    Raises
    ------
    UsageError
        The group has no jobs, the log is shorter than five days, the GPU model does not exist, or a policy cannot run.
    """
    reason = no_plan(found)
    if reason is not None:
        return reason
    bench, settings = found.bench, found.settings
    jobs = bench.jobs_under(settings)
    starts = ~np.isnan(found.twin_s) & bench.own
    group = question.group.among(jobs) & starts
    cluster, settled = settled_nodes(bench.cluster(settings))
    axis = NodeAxis.of(cluster, question.model)
    days = DayPool.of(jobs, bench.held_ms, bench.startup if settings.delays else {}, group, starts)
    if int(days.group.sum()) < _FEWEST_JOBS:
        what = (
            f"the twin starts {int(days.group.sum())} of {question.group.words}; a plan needs at least {_FEWEST_JOBS}"
        )
        raise UsageError(what, where="--for", hint="choose other jobs")
    limit = None if question.target is None else question.target.limit_s
    basis = PlanBasis(days, cluster, settings.rules.placement, bench.models, question.seed, limit)
    own = settings.rules.policy
    ledger = (ledger or Ledger()).about(
        twin=twin_text(Twin("", {found.name: found.twin})),
        group=asdict(question.group),
        limit_s=limit,
        seed=question.seed,
    )
    workers = min(question.workers, question.resamples)
    with closing(ProcessPool(basis.figures, workers, lost_process)) as pool:
        replays = PlanReplays(pool, ledger, question.resamples, progress or Progress())
        curves = {
            (name, growth): wait_curve(replays, axis, policy, growth)
            for name, policy in ((TWIN, own), *((p, p) for p in question.policies))
            for growth in question.growths
        }
        fixed = {
            (TWIN, growth): wait_curve(replays, axis, own, growth, quotas_grow=False)
            for growth in (question.growths if settings.rules.pooled and question.target is not None else ())
        }
        for (_, growth), curve in (*curves.items(), *fixed.items()):
            curve.look(_numbers(question, axis, days, cluster, growth))
        here = wait_curve(replays, axis, own, 1.0)
        here.look([axis.now])
        if question.numbers is None and (TWIN, 1.0) in curves:
            curves[TWIN, 1.0].look([axis.now + k for k in (0, *steps_up(axis.now))])
        more = _more(found, group, axis, lambda one: wait_curve(replays, one, own, 1.0))
        answers, unchanged = (_answers(some, axis, question) for some in (curves, fixed))
    rows: dict[tuple[str, float, int | None], dict[str, Any]] = {
        (name, growth, number): capacity_row(
            name, growth, axis, number, values, resized(cluster, axis.at(number)).total_gpus, question
        )
        for (name, growth), curve in curves.items()
        for number, values in sorted(curve.tried.items())
    }
    recorded = _recorded(found, group, cluster, axis, gpus_up(cluster, 0, days.days * DAY_MS))
    left = int((~starts).sum())
    caveats = (
        [] if question.target is None else _contradictions(here.tried[axis.now], recorded, question.target, settled)
    )
    caveats += [f"excluded from the plan: {counted(left, 'jobs')} that the twin never starts"] if left else []
    return CapacityPlan(
        found.name,
        question,
        recorded,
        list(rows.values()),
        more,
        tuple(
            NodesAnswer(*key, one, _filled(rows.get((*key, one.number))), unchanged.get(key))
            for key, one in answers.items()
        ),
        load_growth(weekly_gpu_hours(jobs), recorded["gpus_up"]),
        _assumptions(found, question, days, settled, recorded),
        tuple(caveats),
        _lasting(here.tried[axis.now]),
    )


def _answers(
    curves: Mapping[tuple[str, float], Curve], axis: NodeAxis, question: PlanQuestion
) -> dict[tuple[str, float], Answer]:
    if question.target is None:
        return {}
    refine = question.numbers is None
    return {key: nodes_answer(curve, axis.now, question.target, refine=refine) for key, curve in curves.items()}


def _filled(row: Mapping[str, Any] | None) -> bool:
    return row is not None and row["offered_share"] is not None and bool(row["offered_share"] >= 1)


def _numbers(question: PlanQuestion, axis: NodeAxis, pool: DayPool, cluster: Cluster, growth: float) -> Sequence[int]:
    if question.numbers is not None:
        return question.numbers
    per_node = cluster.total_gpus / cluster.nodes
    others = sum(axis.nodes) - axis.now
    return default_numbers(axis, pool.offered_gpus * growth / per_node - others)


def _more(
    found: ClusterCalibration, group: Bools, axis: NodeAxis, curve_of: Callable[[NodeAxis], Curve]
) -> list[dict[str, Any]]:
    """Return the effect of additional nodes on the log: all models in proportion or the varying one, then each model.

    The twin is replayed with the log's nodes at each time and copies of some of them. The effect on the mean wait comes
    from `effect_of_times`, as in guidelines, with an interval from drawn months. If quotas make jobs wait, the interval
    also covers unchanged quotas.
    """
    bench, settings = found.bench, found.settings
    base, jobs = bench.cluster(settings), jobs_of(found)
    recorded = jobs.recorded._replace(queue_s=np.where(group, jobs.recorded.queue_s, np.nan))
    jobs = jobs._replace(recorded=recorded)

    def effect(capacity: Capacity, months: Floats | None, *, quotas_grow: bool) -> TwinEffect | str:
        made = resized(base, capacity, quotas_grow=quotas_grow)
        own = replace(bench, clusters={settings.capacity: lambda *_: made}, made={}, delays=bench.startup)
        return effect_of_times(found.name, "more nodes", "queue", jobs, own.times(settings), months)

    axes = [axis]
    if axis.model is None and len(axis.models) > 1:
        axes += [NodeAxis(axis.models, axis.nodes, model) for model in axis.models]
    grows = (True, False) if settings.rules.pooled else (True,)
    rows = []
    for one in axes:
        curve, steps, now = curve_of(one), steps_up(one.now), NodeAxis.of(base, one.model)
        curve.look([one.now, *(one.now + more for more in steps)])
        for more in steps:
            months = month_ratios(curve.tried[one.now], curve.tried[one.now + more])
            effects = [effect(now.at(now.now + more), months, quotas_grow=grow) for grow in grows]
            known = [each for each in effects if not isinstance(each, str)]
            row: dict[str, Any] = {"model": one.model, "more_nodes": more, "nodes": sum(one.nodes) + more}
            row |= dict.fromkeys(("recorded_mean_wait_s", "mean_wait_s", "mean_wait_low_s", "mean_wait_high_s"))
            if len(known) == len(grows):
                row |= {"recorded_mean_wait_s": known[0].recorded_s, "mean_wait_s": known[0].changed_s}
                row["mean_wait_low_s"] = min(each.low_s for each in known)
                row["mean_wait_high_s"] = max(each.high_s for each in known)
            rows.append(row)
    return rows


def month_ratios(here: Floats, there: Floats) -> Floats | None:
    """Return the log ratio of mean waits with more nodes and today, for each drawn month, or None if none is known.

    A mean below one second counts as one second, as in `effect_of_times`.
    """
    before, after = (np.maximum(figure(values, "mean_wait_s")[1:], 1.0) for values in (here, there))
    known = np.isfinite(before) & np.isfinite(after)
    return np.log(after[known] / before[known]) if known.any() else None


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


def _lasting(here: Floats) -> str | None:
    """Return why no interval covers a further month, given the `FIGURES` with today's nodes (1 + R, figures)."""
    log, *drawn = figure(here, "mean_wait_s").tolist()
    months = np.array([wait for wait in drawn if not np.isnan(wait)])
    if not len(months) or not np.isfinite(months).all():
        return None
    low, high = interval(months)
    if low <= log <= high or abs(months.mean() - log) <= max(NEAR_S, _APART * log):
        return None
    return (
        f"all intervals cover only the sampling of this log, because drawn days lose effects that last several "
        f"days, such as a long queue or a rising load: the twin's mean wait is {duration(float(months.mean()))} "
        f"({duration(low)} to {duration(high)}) with drawn days, and {duration(log)} with the days in recorded order"
    )


def _contradictions(here: Floats, recorded: Mapping[str, Any], target: WaitTarget, settled: int) -> list[str]:
    """Return why the plan and the log disagree on whether today's nodes meet the target, or nothing if they agree."""
    column = f"{target.metric}_wait_s"
    log, twin, planned = recorded[column], recorded[f"twin_{column}"], target_wait(here, target).value
    if log is None or (log <= target.limit_s) == (planned <= target.limit_s):
        return []
    keeps, misses = ("the log", "the plan") if log <= target.limit_s else ("the plan", "the log")
    if (twin <= target.limit_s) == (planned <= target.limit_s):
        short = "less" if twin < log else "more"
        why = (
            f"in the twin jobs wait {short} than in the log, so the answer may be too {'low' if twin < log else 'high'}"
        )
    elif settled:
        why = f"in the plan, nodes that joined late or left for good ({settled:,}) are always available"
    else:
        why = "the plan excludes jobs of an incomplete last day and jobs that the twin never starts"
    waits = " and ".join(
        f"{duration(s) if np.isfinite(s) else 'endless'} in {of}" for of, s in (("the log", log), ("the plan", planned))
    )
    return [f"with today's nodes, {keeps} keeps the target and {misses} misses it ({waits}): {why}"]


def _assumptions(
    found: ClusterCalibration, question: PlanQuestion, pool: DayPool, settled: int, recorded: Mapping[str, Any]
) -> dict[str, dict[str, Any]]:
    whole, rules = found.score.whole, found.settings.rules
    place = "a day at the same position in the week" if pool.weekly else "any day"
    means = f"{duration(whole['twin_mean_s'])} (in the log {duration(whole['recorded_mean_s'])})"
    there = f"; {counted(settled, 'nodes')} that joined late or left for good are always available" if settled else ""
    stated = {
        "twin": f"{rules.words()}; grade {found.score.grade}, mean wait {means}",
        "days": (
            f"waits are those of the log's {pool.days} days in recorded order; in further months, each day gets the "
            f"submissions of {place} in the log, drawn twice with replacement, after "
            f"{counted(pool.lead, 'warm-up days')} that fill the cluster and are not measured"
        ),
        "nodes": (
            "additional nodes are copies of existing ones, in proportion over racks and VCs, with the same outages; "
            f"quotas grow with the GPUs, limits of users and VCs do not{there}"
        ),
        "outages": _lost_to_outages(recorded),
        "intervals": (
            f"{percent(interval_share(question.resamples))} of the {question.resamples} drawn months lie inside; "
            f"the intervals by number of nodes do not include the twin's error; those of more nodes do"
        ),
    }
    if question.growths != (1.0,):
        stated["growth"] = (
            "with g times the jobs, each day gets floor(g) days of the log and from one more day each user's jobs with "
            "probability g - floor(g)"
        )
    sources = {"twin": "tracekit calibrate", "nodes": found.bench.cluster(found.settings).origin}
    return {key: {"title": key, "value": v, "source": sources.get(key, "the plan")} for key, v in stated.items()}


def _lost_to_outages(recorded: Mapping[str, Any]) -> str:
    gpus, up = recorded["gpus"], recorded["gpus_up"]
    if up >= gpus:
        return "the log records no outage of a node, so all GPUs count as up"
    return (
        f"on average, {up:,.1f} of {counted(gpus, 'GPUs')} are up in the log ({percent(up / gpus)}); nodes that are "
        "down, drained or in maintenance take no new jobs, so load and allocated GPUs are compared with the GPUs up"
    )


# Waits by number of nodes.


def default_numbers(axis: NodeAxis, offered_nodes: float) -> list[int]:
    """Return the numbers of nodes to try by default.

    These are eight numbers in equal ratios, plus the existing number. The first is the number that the load fills,
    between a quarter and all of the existing nodes. The last is twice the existing nodes or twice the number that the
    load fills, whichever is larger.

    Parameters
    ----------
    axis : NodeAxis
    offered_nodes : float
        Number of nodes that the offered load fills.
    """
    now, filled = max(axis.now, 1), max(int(np.ceil(offered_nodes)), 1)
    low, high = min(max(filled, -(-now // 4)), now), 2 * max(now, filled)
    return sorted({round(n) for n in np.geomspace(low, high, _GRID).tolist()} | {now})


def steps_up(now: int) -> list[int]:
    """Return the numbers of additional nodes to try: 1, 10 % of the nodes or 2, and 25 % of the nodes or 4."""
    return [1, max(round(0.1 * now), 2), max(round(0.25 * now), 4)]


def wait_curve(replays: PlanReplays, axis: NodeAxis, policy: str, growth: float, *, quotas_grow: bool = True) -> Curve:
    """Return an empty curve that measures the `FIGURES` by number of nodes, under one policy and at one load."""

    def measure(numbers: list[int]) -> dict[int, Floats]:
        runs = {number: PlannedRun(policy, growth, axis.at(number), quotas_grow) for number in numbers}
        found = replays.of(runs.values())
        return {number: found[run] for number, run in runs.items()}

    return Curve(measure)


def nodes_answer(curve: Curve, now: int, target: WaitTarget, *, refine: bool) -> Answer:
    """Return the number of nodes that a target needs.

    Parameters
    ----------
    curve : Curve
        The curve, on which some numbers have already been tried.
    now : int
        Number of existing nodes.
    target : WaitTarget
    refine : bool
        Try more numbers of nodes near the answer: higher ones if none meets the target, lower ones if all do, otherwise
        those in between.
    """

    def waits(values: Floats) -> Ends:
        return target_wait(values, target)

    rules = rules_of(waits, target.limit_s)
    if refine:
        expected = rules[0]
        for times in _FURTHER:
            if curve.first(expected) is None:
                curve.look([times * max(now, 1)])
        while (least := min(curve.tried)) > 1 and curve.first(expected) == least:
            curve.look([least // 2])
        curve.narrow(rules, _FINE)
    return curve.answer(waits, target.limit_s)
