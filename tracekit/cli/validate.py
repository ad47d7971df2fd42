"""tracekit validate."""

from __future__ import annotations

import typer

from tracekit.cli.options import TraceFolder

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(validate)


def validate(trace: TraceFolder) -> None:
    """Check a Trace: columns and types, keys and references, row counts, and records = kept + rejected.

    Exit code 0 when all holds, 1 when something does not.
    """
    from tracekit.trace import Trace

    opened = Trace.open(trace)
    problems = opened.validate()
    for problem in problems:
        typer.echo(problem)
    if problems:
        raise typer.Exit(1)
    typer.echo(f"{trace}: valid, {len(opened.tables)} tables, {opened.manifest.records:,} source records accounted for")
