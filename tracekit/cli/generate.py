"""tracekit generate."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tracekit.cli.needs import say_need_of_jobs
from tracekit.cli.options import Force

__all__ = ["generate"]


class Method(StrEnum):
    """How to make jobs."""

    model = "model"
    resample = "resample"
    hybrid = "hybrid"


class Hybrid(StrEnum):
    """Which part of a hybrid comes from the log."""

    arrivals = "arrivals"
    jobs = "jobs"


class Rate(StrEnum):
    """Rates of arrivals."""

    mean = "mean"
    end = "end"
    fitted = "fitted"


def generate(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SOURCE", help="Model from 'tracekit fit', or a Trace.", show_default=False, path_type=str
        ),
    ],
    out: Annotated[Path, typer.Option("-o", "--output", metavar="TRACE", help="Folder of the synthetic Trace.")],
    jobs: Annotated[int | None, typer.Option("--jobs", metavar="N", help="How many jobs.")] = None,
    days: Annotated[float | None, typer.Option("--days", metavar="D", help="Or the number of days of jobs.")] = None,
    seed: Annotated[int, typer.Option("--seed", metavar="S", help="The same seed gives the same tables.")] = 0,
    scale_load: Annotated[
        float, typer.Option("--scale-load", metavar="X", help="Multiply the arrivals by this factor.")
    ] = 1.0,
    load: Annotated[
        float | None,
        typer.Option(
            "--load",
            metavar="X",
            help=(
                "Instead: choose the arrivals for this load, requested GPU-seconds per second over the GPUs of the "
                "cluster."
            ),
        ),
    ] = None,
    scale_gpus: Annotated[
        float, typer.Option("--scale-gpus", metavar="X", help="Multiply machines and quotas by this factor.")
    ] = 1.0,
    method: Annotated[
        Method | None,
        typer.Option(
            "--method",
            help=(
                "Sample every job from a model, resample whole days of a Trace, or combine both (hybrid). The "
                "default depends on SOURCE: for a Trace, the method that scored best in --model, or else its days."
            ),
        ),
    ] = None,
    model: Annotated[
        Path | None,
        typer.Option(
            "--model",
            metavar="FILE",
            help="With a Trace: its model, with scores. Without this option tracekit fits one if needed.",
        ),
    ] = None,
    hybrid: Annotated[
        Hybrid | None,
        typer.Option(
            "--hybrid", help="Which part of a hybrid comes from the log; by default the one that scored better."
        ),
    ] = None,
    rate: Annotated[
        Rate | None,
        typer.Option(
            "--rate",
            help=(
                "Arrivals of a model: at the mean rate of the log (the default), at its final rate, or following "
                "its changes and trend."
            ),
        ),
    ] = None,
    force: Force = False,
) -> None:
    """Make a synthetic Trace from a workload model, the days of a Trace, or both: jobs, attempts, nodes, capacity.

    Queue times are not invented: jobs get a start only in a replay. A resampled Trace keeps the relations between the
    jobs of a day; users are numbered instead of named.

    Example: tracekit generate workload.json --jobs 100000 --seed 1 -o synthetic

    Example: tracekit generate my-trace --days 365 --scale-load 1.2 -o year

    Example: tracekit generate my-trace --model workload.json --days 60 -o near
    """
    from tracekit.cli.display import TerminalProgress
    from tracekit.fit.generate import generate as draw

    say_need_of_jobs(source, "generate")
    with TerminalProgress() as progress:
        trace = draw(
            source,
            out,
            jobs=jobs,
            days=days,
            seed=seed,
            scale_load=scale_load,
            scale_gpus=scale_gpus,
            method=None if method is None else method.value,
            model=model,
            hybrid=None if hybrid is None else hybrid.value,
            rate=None if rate is None else rate.value,
            load=load,
            force=force,
            progress=progress,
        )
    rows = ", ".join(f"{trace.manifest.tables[t].rows:,} {t}" for t in trace.tables)
    typer.echo(f"Trace: {out} ({rows})")
