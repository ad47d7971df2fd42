"""tracekit queries."""

from __future__ import annotations

from typing import Annotated

import typer

from tracekit.cli.options import TextFormat

__all__ = ["queries"]


def queries(
    trace: Annotated[
        str | None,
        typer.Argument(
            metavar="[TRACE]",
            help="Say for each query whether this Trace can answer it.",
            show_default=False,
            path_type=str,
        ),
    ] = None,
    form: Annotated[TextFormat, typer.Option("-f", "--output-format", help="How to write it.")] = TextFormat.table,
) -> None:
    """List the questions that tracekit answers, and whether a Trace holds what they need."""
    from tracekit.characterize import lacks, list_queries
    from tracekit.cli.display import print_rows
    from tracekit.trace import Trace

    opened = None if trace is None else Trace.open(trace)
    rows = []
    for query in list_queries():
        row = {"name": query.name, "question": query.question, "paper": query.paper}
        if opened is not None:
            missing = lacks(query, opened)
            row["can run here"] = "no, lacks " + "; ".join(missing) if missing else "yes"
        rows.append(row)
    print_rows(rows, form)
