"""tracekit analyze."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tracekit.cli.options import (
    Force,
    FormatName,
    FormatOptions,
    MapFile,
    MaxInflation,
    MaxRejectShare,
    MemoryLimit,
    pairs,
    with_map,
)

if TYPE_CHECKING:
    from tracekit.analysis.settings import Given

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(analyze)


def analyze(
    sources: Annotated[
        list[Path],
        typer.Argument(
            metavar="SRC...",
            help="Raw logs (folder, file or archive) or a Trace; several give a report each.",
            show_default=False,
        ),
    ],
    out: Annotated[Path, typer.Option("-o", "--output", metavar="OUT", help="Folder for the report and its tables.")],
    format_name: FormatName = None,
    map_file: MapFile = None,
    option: FormatOptions = None,
    force: Force = False,
    max_reject_share: MaxRejectShare = 0.5,
    max_inflation: MaxInflation = 200,
    capacity: Annotated[
        str,
        typer.Option(
            metavar="SOURCE", help="Where GPU counts come from: listed, observed, or a CSV file (node_id, gpu_count)."
        ),
    ] = "listed",
    memory_limit: MemoryLimit = None,
    no_fit: Annotated[bool, typer.Option("--no-fit", help="Do not fit the workload.")] = False,
    replay_jobs: Annotated[
        int,
        typer.Option(
            metavar="N", min=0, help="Replay the first N jobs under other policies, to tell what changes would do."
        ),
    ] = 100_000,
    compare: Annotated[
        str | None,
        typer.Option(
            metavar="OTHER",
            help="Tell what changed: against logs or a Trace of another time, or since a day (2017-10-31) of SRC.",
            show_default=False,
        ),
    ] = None,
    pdf: Annotated[
        bool, typer.Option("--pdf", help="Print the page to report.pdf too; needs Chromium or Chrome.")
    ] = False,
) -> None:
    """Read logs, answer every question that they can answer, and write a report.

    OUT holds report.html (one file, works offline), report.json, report.md, guidelines.md (what to change, with the
    effect that replays of the jobs expect), workload.json (the fitted workload), tables/ with every result as CSV and
    Parquet, and trace/.

    Example: tracekit analyze sample_traces/philly -o out
    """
    from tracekit.analysis import analyze as analyze_one
    from tracekit.analysis import analyze_many
    from tracekit.cli.display import TerminalProgress

    format_name, options = with_map(map_file, format_name, pairs(option, "--option"))
    progress = TerminalProgress()
    settings: Given = {
        "format_name": format_name,
        "options": options,
        "max_reject_share": max_reject_share,
        "max_inflation": max_inflation,
        "capacity": capacity,
        "memory_limit": memory_limit,
        "fit": not no_fit,
        "replay_jobs": replay_jobs,
        "compare": compare,
        "pdf": pdf,
    }
    try:
        if len(sources) == 1:
            page = analyze_one(sources[0], out, force=force, progress=progress, **settings).report
        else:
            page = analyze_many(sources, out, force=force, progress=progress, **settings)
    finally:
        progress.close()
    typer.echo(f"report: {page}")
