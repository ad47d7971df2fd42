"""tracekit analyze."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypedDict

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
    from tracekit.progress import Progress

__all__ = ["register"]


class _Settings(TypedDict):
    """What one and several sources are analyzed with."""

    format_name: str | None
    force: bool
    options: dict[str, str]
    max_reject_share: float
    max_inflation: float
    capacity: str
    memory_limit: str | None
    progress: Progress


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
) -> None:
    """Read logs, answer every question that they can answer, and write a report.

    OUT holds report.html (one file, works offline), report.json, workload.json (the fitted workload), tables/ with
    every result as CSV and Parquet, and trace/.

    Example: tracekit analyze sample_traces/philly -o out
    """
    from tracekit.analysis import analyze as analyze_one
    from tracekit.analysis import analyze_many
    from tracekit.cli.display import TerminalProgress

    format_name, options = with_map(map_file, format_name, pairs(option, "--option"))
    progress = TerminalProgress()
    settings: _Settings = {
        "format_name": format_name,
        "force": force,
        "options": options,
        "max_reject_share": max_reject_share,
        "max_inflation": max_inflation,
        "capacity": capacity,
        "memory_limit": memory_limit,
        "progress": progress,
    }
    try:
        if len(sources) == 1:
            page = analyze_one(sources[0], out, **settings).report
        else:
            page = analyze_many(sources, out, **settings)
    finally:
        progress.close()
    typer.echo(f"report: {page}")
