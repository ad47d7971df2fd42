"""tracekit schema."""

from __future__ import annotations

from typing import Annotated

import typer

from tracekit.cli.display import print_table


def schema(
    table: Annotated[str | None, typer.Argument(help="One table. The default is all tables, as Markdown.")] = None,
) -> None:
    """Show the columns of a Trace's tables with their types, units and meanings."""
    from tracekit import schema as schemas

    if table is None:
        typer.echo(schemas.reference(), nl=False)
        return

    found = schemas.common(table)
    typer.echo(found.description)
    rows = [(c.name, c.sql, c.unit, c.description) for c in found.columns]
    print_table(("column", "type", "unit", "meaning"), rows)
