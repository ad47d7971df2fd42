"""tracekit formats."""

from __future__ import annotations

from typing import Annotated

import typer

from tracekit.cli.options import TextFormat
from tracekit.cli.streams import print_data, print_json
from tracekit.errors import UsageError

__all__ = ["formats"]


def formats(
    form: Annotated[TextFormat, typer.Option("-f", "--output-format", help="How to write it.")] = TextFormat.table,
    template: Annotated[
        str | None,
        typer.Option("--template", metavar="NAME", help="Print a commented mapping file; for the format csv."),
    ] = None,
) -> None:
    """List the source formats: their raw files and their options."""
    from tracekit.cli.display import print_table
    from tracekit.ingest import all_formats

    if template is not None:
        _print_template(template)
        return
    rows = [
        {
            "format": member.name,
            "source": member.title,
            "raw files": {kind.key: kind.title for kind in member.raw_files},
            "options": {name: f"{o.meaning} (default {o.default})" for name, o in member.options.items()},
        }
        for member in all_formats().values()
    ]
    if form is TextFormat.json:
        print_json(rows)
        return
    print_table(("format", "source"), [(r["format"], r["source"]) for r in rows])
    details = [
        (row["format"], kind, name, text)
        for row in rows
        for kind, entries in (("file", row["raw files"]), ("option", row["options"]))
        if isinstance(entries, dict)
        for name, text in entries.items()
    ]
    print_table(("format", "", "name", "meaning"), details)


def _print_template(name: str) -> None:
    from tracekit.ingest import find_format, mapping

    if find_format(name).name != "csv":
        raise UsageError(f"the format {name} needs no mapping file", where="--template", hint="only csv has a template")
    print_data(mapping.template())
