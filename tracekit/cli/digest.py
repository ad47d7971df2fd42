"""tracekit digest."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tracekit.cli.needs import say_need_of_use
from tracekit.cli.options import Anonymize, Force, MemoryLimit, SaltFile

__all__ = ["digest"]


class _By(StrEnum):
    user = "user"
    account = "account"


def digest(
    history: Annotated[
        str,
        typer.Argument(
            metavar="HISTORY", help="Trace that you extend with 'ingest --append'.", show_default=False, path_type=str
        ),
    ],
    out: Annotated[Path, typer.Option("-o", "--output", metavar="OUT", help="Folder of the digest.")],
    week: Annotated[
        str | None, typer.Option("--week", metavar="2026-W47", help="ISO week; by default the last full week.")
    ] = None,
    by: Annotated[
        _By, typer.Option("--by", help="Write a page for each user or each account, in addition to the operator's.")
    ] = _By.user,
    anonymize: Anonymize = False,
    salt_file: SaltFile = None,
    force: Force = False,
    memory_limit: MemoryLimit = None,
) -> None:
    """Sum up a week on one page for the operator, and on a short one for each user or account.

    It covers usage, waits, GPU utilization and failures, and changes that exceed the usual differences between the 8
    weeks before. OUT contains index.html, index.md and digest.json, and users/ or accounts/ with an HTML and a Markdown
    file each. No mail is sent. docs/digest.md has the rules and a script for cron.

    If a page fails, it and a note say why, all other pages are made, and the exit code is 1.

    Example: tracekit digest history -o digest
    """
    from tracekit.cli.display import TerminalProgress
    from tracekit.digests.make import digest as make

    say_need_of_use(history, memory_limit)
    with TerminalProgress() as progress:
        made = make(
            history,
            out,
            week=week,
            by=by.value,
            anonymize=anonymize,
            salt_file=salt_file,
            force=force,
            memory_limit=memory_limit,
            progress=progress,
        )
    for note in made["notes"]:
        typer.echo(f"note: {note}", err=True)
    typer.echo(f"digest of {made['week']}: {out / 'index.html'} ({len(made['parts']):,} {by.value}s)")
    if progress.failed:
        raise typer.Exit(1)
