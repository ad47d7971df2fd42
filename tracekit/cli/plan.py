"""tracekit plan."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tracekit.cli.needs import say_need_of_jobs
from tracekit.cli.options import Collect, Force, Shard, TraceFolder
from tracekit.cli.replay_options import OutFolder, show_assumptions
from tracekit.cli.shards import asked_work, echo_shard
from tracekit.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tracekit.shards.work import SharedWork

__all__ = ["plan"]


def plan(
    trace: TraceFolder,
    out: OutFolder,
    target: Annotated[
        str | None,
        typer.Option(
            "--target", metavar="'p90<=1h'", help="Longest acceptable wait: mean, p50, p90 or p99; in s, min, h or d."
        ),
    ] = None,
    jobs_for: Annotated[
        list[str] | None,
        typer.Option(
            "--for",
            metavar="size=8|vc=NAME|cluster=NAME",
            help="Jobs whose wait counts; may be repeated. All by default.",
        ),
    ] = None,
    twin: Annotated[
        Path | None, typer.Option("--twin", metavar="FILE.toml", help="The twin to use; calibrated now by default.")
    ] = None,
    nodes: Annotated[
        str | None, typer.Option("--nodes", metavar="N,N,...", help="Test only these numbers of nodes.")
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", metavar="NAME", help="Vary only the nodes of this GPU model.")
    ] = None,
    growth: Annotated[
        str, typer.Option("--growth", metavar="X,X,...", help="Jobs per day, as multiples of the log.")
    ] = "1",
    policies: Annotated[
        list[str] | None,
        typer.Option("-p", "--policy", metavar="POLICY[,key=value...]", help="Also try this policy; may be repeated."),
    ] = None,
    node_cost: Annotated[
        float | None, typer.Option("--node-cost", metavar="X", help="Cost of owning a node for an hour.")
    ] = None,
    wait_cost: Annotated[
        float | None, typer.Option("--wait-cost", metavar="X", help="Cost of an hour that a job waits.")
    ] = None,
    gang: Annotated[
        str | None,
        typer.Option(
            "--gang", metavar="N|Nnodes", help="Find spare nodes instead, for a large job (gang) of N GPUs or N nodes."
        ),
    ] = None,
    ettr: Annotated[
        float | None,
        typer.Option(
            "--ettr",
            metavar="X",
            help="With --gang: target share of time spent on useful work (ETTR); 0.95 by default.",
        ),
    ] = None,
    checkpoint: Annotated[
        str | None,
        typer.Option(
            "--checkpoint",
            metavar="interval=S|daly|none,cost=S,restart=S",
            help="With --gang: checkpoint times in seconds; interval=3600,cost=0,restart=300 by default.",
        ),
    ] = None,
    resamples: Annotated[
        int, typer.Option("--resamples", metavar="N", help="Number of random months, or of random sets of nodes.")
    ] = 40,
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", min=1, help="Without --twin: use only the first N jobs.")
    ] = 100_000,
    seed: Annotated[int, typer.Option("--seed", metavar="N", min=0, help="Random seed.")] = 0,
    workers: Annotated[
        int | None, typer.Option("--workers", metavar="N", min=1, help="Processes; by default one per processor.")
    ] = None,
    shard: Shard = None,
    collect: Collect = False,
    force: Force = False,
) -> None:
    """Find how many nodes keep waits below a target, or how many spare nodes a large job needs.

    The command resamples the days of the log many times, and replays them in the twin of the cluster on more and fewer
    nodes. Without --nodes it searches for the answer. OUT contains plan.json and plan.svg. If the twin does not
    reproduce the log well enough, no plan is made.

    With --gang the command replays one long job on its nodes and 0, 1, 2 and more spares, with the recorded outages and
    with outages sampled from them. It reports the share of time with useful work, and how many spares reach the target
    of --ettr. It needs the table node_events, but no jobs.

    With --shard I/N, N processes on machines that share OUT.runs divide the resamples of each step. The next step needs
    all earlier results. So a shard that has finished its part takes over unfinished work of the others, and each shard
    runs to the end. --collect then writes OUT.

    Example: tracekit plan my-trace --target 'p90<=1h' -o out
    """
    from tracekit.capacity_plan.output import plan_folder

    if gang is not None:
        waits: dict[str, object] = {"--target": target, "--twin": twin, "--nodes": nodes, "--policy": policies}
        waits |= {"--growth": None if growth == "1" else growth, "--node-cost": node_cost, "--wait-cost": wait_cost}
        _left_out(waits, "asks for nodes, but --gang asks for spares")
        unused = {"--limit": None if limit == 100_000 else limit, "--workers": workers}
        _left_out(unused, "has no effect with --gang, which replays one job")
        shared = asked_work(out, shard, collect=collect)
        _plan_spares(trace, out, gang, ettr, checkpoint, model, jobs_for or (), resamples, seed, shared, force=force)
        return
    _left_out({"--ettr": ettr, "--checkpoint": checkpoint}, "works only with --gang", "add --gang N or leave it out")
    from tracekit.capacity_plan.api import plan as make
    from tracekit.capacity_plan.output import table_rows, write_plan
    from tracekit.cli.display import TerminalProgress, print_table
    from tracekit.report.replay_pictures import plan_svg

    say_need_of_jobs(trace, "calibrate", limit=limit)
    shared = asked_work(out, shard, collect=collect)
    progress = TerminalProgress()
    staged = None if _is_shard(shared) else plan_folder(out, force=force)
    try:
        made = make(
            trace,
            target,
            jobs_for=jobs_for or (),
            twin=twin,
            nodes=None if nodes is None else [int(n) for n in _numbers(nodes, "--nodes", whole=True)],
            model=model,
            growth=_numbers(growth, "--growth"),
            policies=policies or (),
            node_cost=node_cost,
            wait_cost=wait_cost,
            resamples=resamples,
            limit=limit,
            seed=seed,
            workers=workers or os.cpu_count() or 1,
            shared=shared,
            progress=progress,
        )
        if staged is not None:
            write_plan(made, staged, plan_svg)
    finally:
        if staged is not None:
            staged.discard()
        progress.close()
    if shared is not None and staged is None:
        echo_shard(shared, "resamples")
        return
    print_table(*table_rows(made))
    for sentence in made.sentences:
        typer.echo(sentence)
    show_assumptions(made.assumptions)
    typer.echo(f"plan: {out}")


def _plan_spares(
    trace: str,
    out: Path,
    gang: str,
    ettr: float | None,
    checkpoint: str | None,
    model: str | None,
    jobs_for: Sequence[str],
    resamples: int,
    seed: int,
    shared: SharedWork | None,
    *,
    force: bool,
) -> None:
    from tracekit.capacity_plan.output import plan_folder, write_plan
    from tracekit.capacity_plan.spares.plan import plan_spares
    from tracekit.capacity_plan.target import job_group
    from tracekit.cli.display import TerminalProgress, print_table
    from tracekit.report.replay_pictures import spares_svg

    group = job_group(jobs_for)
    if group.size is not None or group.vc is not None:
        raise UsageError("size=... and vc=... do not apply to --gang", where="--for", hint="use only cluster=NAME")
    progress = TerminalProgress()
    staged = None if _is_shard(shared) else plan_folder(out, force=force)
    try:
        made = plan_spares(
            trace,
            gang,
            0.95 if ettr is None else ettr,
            checkpoint=checkpoint,
            model=model,
            cluster=group.cluster,
            resamples=resamples,
            seed=seed,
            shared=shared,
            progress=progress,
        )
        if staged is not None:
            write_plan(made, staged, spares_svg)
    finally:
        if staged is not None:
            staged.discard()
        progress.close()
    if shared is not None and staged is None:
        echo_shard(shared, "runs")
        return
    print_table(*made.table())
    for sentence in made.sentences:
        typer.echo(sentence)
    show_assumptions(made.assumptions)
    typer.echo(f"plan: {out}")


def _is_shard(shared: SharedWork | None) -> bool:
    """Return whether this process makes results for others, and writes no plan."""
    return shared is not None and shared.shard is not None


def _left_out(options: Mapping[str, object], why: str, hint: str = "leave one of them out") -> None:
    """Refuse options that say nothing here."""
    for option, value in options.items():
        if value is not None and value != []:
            raise UsageError(why, where=option, hint=hint)


def _numbers(text: str, option: str, *, whole: bool = False) -> list[float]:
    """Return the numbers of a list with commas."""
    try:
        return [int(part) if whole else float(part) for part in text.split(",")]
    except ValueError:
        hint = f"write it like {'10,12,16' if whole else '1,1.2,1.5'}"
        raise UsageError(f"'{text[:60]}' is not a list of numbers", where=option, hint=hint) from None
