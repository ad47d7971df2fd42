"""tracekit plan."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

import typer

from tracekit.cli.display import TerminalProgress, print_assumptions, print_shard, print_table
from tracekit.cli.needs import say_need
from tracekit.cli.options import TraceFolder, Where, part_of, shared_work
from tracekit.errors import UsageError
from tracekit.settings import Collect, Force, OutFolder, PlanSettings, Shard, flags_of

if TYPE_CHECKING:
    from tracekit.capacity_plan.result import CapacityPlan
    from tracekit.capacity_plan.spare_plan import SparePlan
    from tracekit.progress import Progress
    from tracekit.runs.ledger import Ledger
    from tracekit.trace import Trace

_OF_GANGS = ("ettr", "checkpoint")
_OF_WAITS = ("target", "twin", "nodes", "policies", "growth", "node_cost", "wait_cost")


def plan(
    trace: TraceFolder,
    out: OutFolder,
    settings: PlanSettings,
    where: Where = None,
    shard: Shard = None,
    collect: Collect = False,
    force: Force = False,
) -> None:
    """Find how many nodes keep waits below a target, or how many spare nodes a large job needs.

    The command replays the log in the cluster's twin with more and fewer nodes. Without --nodes, it searches for the
    answer. The intervals come from months resampled from the log's days. OUT contains plan.json and plan.svg. If the
    twin does not reproduce the log well enough, there is no plan.

    With --gang, the command replays one long job on its nodes with 0, 1, 2 and more spares, under the recorded outages
    and under resampled ones. It reports the share of time spent on useful work, and how many spares reach the --ettr
    target. It needs the node_events table, but no jobs.

    With --shard I/N, N processes on machines that share OUT.runs divide the resamples of each step. A step needs all
    earlier results, so a shard that has finished its part takes over unfinished work from the others. --collect then
    writes OUT.

    Example: tracekit plan my-trace --target 'p90<=1h' -o out
    """
    from tracekit.capacity_plan.result import plan_folder, write_plan
    from tracekit.report.replay_pictures import plan_svg, spares_svg

    if settings.gang is None:
        _refuse(settings, _OF_GANGS, "works only with --gang", "add --gang N or omit the option")
        say_need(trace, "calibrate", limit=settings.limit)
    else:
        _refuse(settings, _OF_WAITS, "does not apply to --gang, which plans spares")
        _refuse(settings, ("limit", "workers"), "has no effect with --gang, which replays one job")
    shared, source = shared_work(out, shard, collect=collect), part_of(trace, where)
    with TerminalProgress() as progress:
        # A shard computes results for the others and writes no plan.
        staged = None if shard is not None else plan_folder(out, force=force)
        try:
            if settings.gang is None:
                made: CapacityPlan | SparePlan = _nodes(source, settings, shared, progress)
            else:
                made = _spares(source, settings, shared, progress)
            if staged is not None:
                write_plan(made.to_dict(), staged, plan_svg if settings.gang is None else spares_svg)
        finally:
            if staged is not None:
                staged.discard()
    if shared is not None and staged is None:
        print_shard(shared, "resamples" if settings.gang is None else "runs")
        return
    print_table(*made.table())
    for sentence in made.sentences:
        typer.echo(sentence)
    print_assumptions(made.assumptions)
    typer.echo(f"plan: {out}")


def _nodes(trace: Trace | str, settings: PlanSettings, shared: Ledger | None, progress: Progress) -> CapacityPlan:
    from tracekit.capacity_plan.plan import plan as make

    asked = {name: value for name, value in vars(settings).items() if name not in ("gang", *_OF_GANGS)}
    asked["nodes"] = (
        None if settings.nodes is None else [int(n) for n in _numbers(settings.nodes, "--nodes", whole=True)]
    )
    asked["growth"] = _numbers(settings.growth, "--growth")
    asked["workers"] = settings.workers or os.cpu_count() or 1
    return make(trace, **asked, shared=shared, progress=progress)


def _spares(trace: Trace | str, settings: PlanSettings, shared: Ledger | None, progress: Progress) -> SparePlan:
    from tracekit.capacity_plan.question import job_group
    from tracekit.capacity_plan.spare_plan import plan_spares

    group = job_group(settings.jobs_for)
    if group.size is not None or group.vc is not None:
        raise UsageError("size=... and vc=... do not apply to --gang", where="--for", hint="use only cluster=NAME")
    return plan_spares(
        trace,
        settings.gang or "",
        0.95 if settings.ettr is None else settings.ettr,
        checkpoint=settings.checkpoint,
        model=settings.model,
        cluster=group.cluster,
        resamples=settings.resamples,
        seed=settings.seed,
        shared=shared,
        progress=progress,
    )


def _refuse(settings: PlanSettings, names: Iterable[str], why: str, hint: str = "omit one of them") -> None:
    """Reject settings that have no effect on this plan."""
    for name in names:
        if getattr(settings, name) != getattr(PlanSettings, name):
            raise UsageError(why, where=flags_of(PlanSettings)[name][1].name, hint=hint)


def _numbers(text: str, option: str, *, whole: bool = False) -> list[float]:
    """Return the numbers in a comma-separated list."""
    try:
        return [int(part) if whole else float(part) for part in text.split(",")]
    except ValueError:
        hint = f"write it like {'10,12,16' if whole else '1,1.2,1.5'}"
        raise UsageError(f"'{text[:60]}' is not a list of numbers", where=option, hint=hint) from None
