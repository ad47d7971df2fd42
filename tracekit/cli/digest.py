"""tracekit digest."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tracekit.cli.display import TerminalProgress, print_notes
from tracekit.cli.needs import say_need
from tracekit.settings import DigestSettings, Flag


def digest(
    history: Annotated[str, typer.Argument(metavar="HISTORY", help="Trace extended with 'ingest --append'.")],
    out: Annotated[Path, Flag("-o --output OUT", "Folder for the digest.")],
    settings: DigestSettings,
) -> None:
    """Sum up a week on one page for the operator, and on a short page for each user or account.

    It covers usage, waits, GPU utilization and failures, and reports changes larger than the usual variation over the
    previous 8 weeks. OUT contains index.html, index.md and digest.json, and users/ or accounts/ with an HTML and a
    Markdown file each. tracekit does not send the digest by mail. docs/digest.md has the rules and a script for cron.

    If a page fails, it says why, and so does a note. All other pages are written, and the exit code is 1.

    Example: tracekit digest history -o digest
    """
    from tracekit.digests.make import digest as make

    say_need(history, "use", settings.memory_limit)
    with TerminalProgress() as progress:
        made = make(history, out, **vars(settings), progress=progress)
    print_notes(made["notes"])
    typer.echo(f"digest of {made['week']}: {out / 'index.html'} ({len(made['parts']):,} {settings.by}s)")
    if progress.failed:
        raise typer.Exit(1)
