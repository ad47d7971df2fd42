"""tracekit compare."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tracekit.cli.display import TerminalProgress
from tracekit.cli.needs import say_need
from tracekit.errors import UsageError
from tracekit.places import is_remote
from tracekit.settings import Flag, Force, MemoryLimit


def compare(
    traces: Annotated[
        list[str],
        typer.Argument(
            metavar="TRACE...",
            help="Two or more Traces or raw logs. NAME=TRACE sets a name; the default is the folder's name.",
        ),
    ],
    out: Annotated[Path, Flag("-o --output OUT", "Folder for the page and its tables.")],
    queries: Annotated[
        tuple[str, ...], Flag("--query NAME", "Run only this query; may be repeated. All by default.")
    ] = (),
    force: Force = False,
    memory_limit: MemoryLimit = None,
) -> None:
    """Show several traces side by side, with published numbers for public traces.

    OUT contains compare.html (one file that works offline), compare.json, and tables/ with every result as CSV, where
    the first column names the trace.

    If a part such as a query fails, the page and a note say why. All other parts are written, and the exit code is 1.

    Example: tracekit compare philly-trace helios-trace ours=my-trace -o out
    """
    from tracekit.comparison import compare as compare_traces

    given = _named(traces)
    for one in given:
        say_need(one[1] if isinstance(one, tuple) else one, "queries", memory_limit)
    with TerminalProgress() as progress:
        done = compare_traces(
            given, out, queries=queries or None, force=force, memory_limit=memory_limit, progress=progress
        )
    typer.echo(f"comparison: {done.page}")
    if progress.failed:
        raise typer.Exit(1)


def _named(given: list[str]) -> list[str | Path | tuple[str, str]]:
    """Return each argument as a path, or as a name and a path if it has the form NAME=TRACE and no such file exists."""
    found: list[str | Path | tuple[str, str]] = []
    for word in given:
        name, equals, path = word.partition("=")
        if not equals or is_remote(word) or Path(word).exists():
            found.append(word)
        elif not name or not path:
            raise UsageError(f"'{word}' is not NAME=TRACE", where="TRACE")
        else:
            found.append((name, path))
    return found
