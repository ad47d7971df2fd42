"""tracekit analyze."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tracekit.cli.display import TerminalProgress
from tracekit.cli.needs import say_need, say_need_of_files
from tracekit.cli.options import with_map
from tracekit.settings import AnalysisSettings, Flag, Force, MapFile


def analyze(
    sources: Annotated[
        list[str],
        typer.Argument(
            metavar="SRC...",
            help=(
                "Raw logs (folder, file or archive) or a Trace, also in a bucket (docs/buckets.md). Each source "
                "gets its own report."
            ),
        ),
    ],
    out: Annotated[Path, Flag("-o --output OUT", "Folder for the report and its tables.")],
    settings: AnalysisSettings,
    map_file: MapFile = None,
    force: Force = False,
) -> None:
    """Read logs, run every analysis that they allow, and write a report.

    OUT contains report.html (one file that works offline), report.json, report.md, guidelines.md (recommended changes
    with their expected effects), workload.json (the fitted workload), tables/ (every result as CSV and Parquet), and
    trace/.

    If a part such as a chart fails, the report and a note say why. All other parts are written, and the exit code is 1.

    Example: tracekit analyze sample_traces/philly -o out
    """
    from tracekit.analysis import analyze as analyze_one
    from tracekit.analysis import analyze_many

    settings = with_map(map_file, settings)
    for source in sources:
        say_need_of_files(source, settings.memory_limit)
        say_need(source, "analyze", settings.memory_limit)
    with TerminalProgress() as progress:
        if len(sources) == 1:
            page = analyze_one(sources[0], out, settings, force=force, progress=progress).report
        else:
            page = analyze_many(sources, out, settings, force=force, progress=progress)
    typer.echo(f"report: {page}")
    if progress.failed:
        raise typer.Exit(1)
