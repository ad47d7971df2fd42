"""tracekit plan."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from tracekit.cli.options import Force, TraceFolder
from tracekit.cli.replay_options import OutFolder, show_assumptions
from tracekit.errors import UsageError

__all__ = ["plan"]


def plan(
    trace: TraceFolder,
    out: OutFolder,
    target: Annotated[
        str | None,
        typer.Option(
            "--target", metavar="'p90<=1h'", help="Longest wait accepted: mean, p50, p90 or p99; in s, min, h or d."
        ),
    ] = None,
    jobs_for: Annotated[
        list[str] | None,
        typer.Option(
            "--for", metavar="size=8|vc=NAME|cluster=NAME", help="Whose wait counts; may be repeated. All by default."
        ),
    ] = None,
    twin: Annotated[
        Path | None, typer.Option("--twin", metavar="FILE.toml", help="The twin; calibrated now by default.")
    ] = None,
    nodes: Annotated[
        str | None, typer.Option("--nodes", metavar="N,N,...", help="Numbers of nodes to look at, and no others.")
    ] = None,
    model: Annotated[
        str | None, typer.Option("--model", metavar="NAME", help="Vary the nodes of this GPU model only.")
    ] = None,
    growth: Annotated[
        str, typer.Option("--growth", metavar="X,X,...", help="Jobs a day as multiples of the log's.")
    ] = "1",
    policies: Annotated[
        list[str] | None,
        typer.Option("-p", "--policy", metavar="POLICY[,key=value...]", help="Try it too; may be repeated."),
    ] = None,
    node_cost: Annotated[
        float | None, typer.Option("--node-cost", metavar="X", help="Cost of owning a node for an hour.")
    ] = None,
    wait_cost: Annotated[
        float | None, typer.Option("--wait-cost", metavar="X", help="Cost of an hour that a job waits.")
    ] = None,
    resamples: Annotated[int, typer.Option("--resamples", metavar="N", help="How many months are drawn.")] = 40,
    limit: Annotated[
        int, typer.Option("--limit", metavar="N", min=1, help="Without --twin: look at the first N jobs only.")
    ] = 100_000,
    seed: Annotated[int, typer.Option("--seed", metavar="N", min=0, help="Seed of every draw.")] = 0,
    workers: Annotated[
        int | None, typer.Option("--workers", metavar="N", min=1, help="Processes; one a processor by default.")
    ] = None,
    force: Force = False,
) -> None:
    """Say how many nodes a wait takes: waits against nodes, load and policy, by the twin of the cluster.

    The days of the log are drawn again and again, and replayed on more and fewer nodes. Without --nodes the command
    looks where the answer is. OUT holds plan.json and plan.svg. A twin that is too far from the log gives no plan.

    Example: tracekit plan my-trace --target 'p90<=1h' -o out
    """
    from tracekit.capacity_plan.api import plan as make
    from tracekit.capacity_plan.output import plan_folder, table_rows, write_plan
    from tracekit.cli.display import TerminalProgress, print_table
    from tracekit.report.plan_chart import plan_svg

    progress = TerminalProgress()
    staged = plan_folder(out, force=force)
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
            progress=progress,
        )
        write_plan(made, staged, plan_svg)
    finally:
        staged.discard()
        progress.close()
    print_table(*table_rows(made))
    for sentence in made.sentences:
        typer.echo(sentence)
    show_assumptions(made.assumptions)
    typer.echo(f"plan: {out}")


def _numbers(text: str, option: str, *, whole: bool = False) -> list[float]:
    """Return the numbers of a list with commas."""
    try:
        return [int(part) if whole else float(part) for part in text.split(",")]
    except ValueError:
        hint = f"write it like {'10,12,16' if whole else '1,1.2,1.5'}"
        raise UsageError(f"'{text[:60]}' is not a list of numbers", where=option, hint=hint) from None
