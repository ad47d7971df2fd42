"""tracekit generate."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tracekit.cli.options import Force

__all__ = ["generate"]


def generate(
    model: Annotated[
        Path, typer.Argument(metavar="WORKLOAD.json", help="Model made by 'tracekit fit'.", show_default=False)
    ],
    out: Annotated[Path, typer.Option("-o", "--output", metavar="TRACE", help="Folder of the synthetic Trace.")],
    jobs: Annotated[int | None, typer.Option("--jobs", metavar="N", help="How many jobs.")] = None,
    days: Annotated[float | None, typer.Option("--days", metavar="D", help="Or how many days of jobs.")] = None,
    seed: Annotated[int, typer.Option("--seed", metavar="S", help="The same seed gives the same tables.")] = 0,
    scale_load: Annotated[float, typer.Option("--scale-load", metavar="X", help="Factor on the arrivals.")] = 1.0,
    scale_gpus: Annotated[
        float, typer.Option("--scale-gpus", metavar="X", help="Factor on the machines and quotas.")
    ] = 1.0,
    force: Force = False,
) -> None:
    """Draw a synthetic Trace from a workload model: jobs, attempts, nodes, capacity.

    Queue times are not invented: jobs have no start before a replay gives them one.

    Example: tracekit generate workload.json --jobs 100000 --seed 1 -o synthetic
    """
    from tracekit.cli.display import TerminalProgress
    from tracekit.fit.generate import generate as draw

    with TerminalProgress() as progress:
        trace = draw(
            model,
            out,
            jobs=jobs,
            days=days,
            seed=seed,
            scale_load=scale_load,
            scale_gpus=scale_gpus,
            force=force,
            progress=progress,
        )
    rows = ", ".join(f"{trace.manifest.tables[t].rows:,} {t}" for t in trace.tables)
    typer.echo(f"Trace: {out} ({rows})")
