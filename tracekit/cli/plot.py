"""tracekit plot."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tracekit.cli.options import Force

__all__ = ["plot"]


def plot(
    model: Annotated[
        Path, typer.Argument(metavar="WORKLOAD.json", help="Model made by 'tracekit fit'.", show_default=False)
    ],
    out: Annotated[Path, typer.Option("-o", "--output", metavar="OUT", help="Folder for the pictures.")],
    png: Annotated[bool, typer.Option("--png", help="Also write PNG files.")] = False,
    force: Force = False,
) -> None:
    """Draw a workload model: observed against fitted run times, and arrivals through the week.

    OUT holds arrivals.svg and one file for each group of run times with a fit, VCs left out: distribution, survival on
    log axes, and observed against fitted quantiles. Size classes too small for a fit of their own have that of all
    jobs, moved to their median. Notes name what has no picture.

    Example: tracekit plot workload.json -o pictures
    """
    from tracekit.cli.display import TerminalProgress
    from tracekit.fit.model import WorkloadModel
    from tracekit.report.pictures import write_pictures
    from tracekit.report.workload_charts import undrawn, workload_pictures

    fitted = WorkloadModel.read(model)
    drawn = workload_pictures(fitted)
    write_pictures(out, drawn, png=png, force=force)
    with TerminalProgress() as progress:
        for note in undrawn(fitted):
            progress.note(note)
    typer.echo(f"pictures: {out} ({', '.join(drawn)})")
