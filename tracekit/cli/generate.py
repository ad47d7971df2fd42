"""tracekit generate."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tracekit.cli.display import TerminalProgress
from tracekit.cli.needs import say_need
from tracekit.settings import Flag, GenerateSettings


def generate(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="Model from 'tracekit fit', or a Trace.")],
    out: Annotated[Path, Flag("-o --output TRACE", "Folder for the synthetic Trace.")],
    settings: GenerateSettings,
) -> None:
    """Make a synthetic Trace (jobs, attempts, nodes and capacity) from a workload model, the days of a Trace, or both.

    Synthetic jobs have no queue times; they get start times only in a replay. A resampled Trace keeps the relations
    between jobs of the same day. Numbers replace user names.

    Example: tracekit generate workload.json --jobs 100000 --seed 1 -o synthetic

    Example: tracekit generate my-trace --days 365 --scale-load 1.2 -o year

    Example: tracekit generate my-trace --model workload.json --days 60 -o near
    """
    from tracekit.fit.generate import generate as draw

    say_need(source, "generate")
    with TerminalProgress() as progress:
        trace = draw(source, out, **vars(settings), progress=progress)
    rows = ", ".join(f"{trace.manifest.tables[t].rows:,} {t}" for t in trace.tables)
    typer.echo(f"Trace: {out} ({rows})")
