"""tracekit formats."""

from __future__ import annotations

import inspect
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tracekit.cli.display import print_table
from tracekit.cli.streams import print_data, print_json
from tracekit.errors import UsageError
from tracekit.settings import Flag, ListForm

if TYPE_CHECKING:
    from tracekit.ingest.interface import Format


def formats(
    name: Annotated[
        str | None,
        typer.Argument(metavar="NAME", help="Show this format in full, with its files, options and assumptions."),
    ] = None,
    form: ListForm = "table",
    template: Annotated[
        str | None, Flag("--template NAME", "Print a commented mapping file for the csv format.")
    ] = None,
) -> None:
    """List the log formats and the extra files that tracekit can read, or show one format's files and options."""
    from tracekit.ingest import all_formats, find_format
    from tracekit.ingest.companion import all_companions

    if template is not None:
        _print_template(template)
        return
    if name is not None:
        _show(find_format(name), form)
        return
    rows = [_row(member) for member in all_formats().values()]
    if form == "json":
        beside = [{"format": kind.name, "kind": "beside a log", "source": kind.title} for kind in all_companions()]
        print_json(sorted([{"kind": "log"} | row for row in rows] + beside, key=lambda row: str(row["format"])))
        return
    print_table(("format", "source"), [(r["format"], r["source"]) for r in rows])
    print_table(("format", "", "name", "meaning"), [detail for row in rows for detail in _details(row)])
    print_table(("files that add to a log", "what they are"), [(kind.name, kind.title) for kind in all_companions()])


def _row(member: Format) -> dict[str, Any]:
    return {
        "format": member.name,
        "source": member.title,
        "raw files": {kind.key: kind.title for kind in member.raw_files},
        "options": {name: f"{o.meaning} (default {o.default})" for name, o in member.options.items()},
    }


def _details(row: dict[str, Any]) -> list[tuple[str, str, str, str]]:
    return [
        (row["format"], kind, name, text)
        for kind, entries in (("file", row["raw files"]), ("option", row["options"]))
        for name, text in entries.items()
    ]


def _show(member: Format, form: str) -> None:
    """Print a format's files and options, its module's description, and a command that reads it."""
    about = inspect.getdoc(sys.modules[type(member).__module__]) or inspect.getdoc(type(member)) or ""
    example = f"tracekit ingest LOGS -o TRACE --format {member.name}"
    if any(option.file for option in member.options.values()):
        example = "tracekit ingest LOGS -o TRACE --map my.toml"
    elif member.options:
        first, option = next(iter(member.options.items()))
        example += f" --option {first}={option.default or 'VALUE'}"
    row = _row(member)
    found = {
        kind.key: "on request" if not member.detected else f"by name, {kind.pattern}" if kind.pattern else "by content"
        for kind in member.raw_files
    }
    if form == "json":
        choices = {name: list(option.choices) for name, option in member.options.items() if option.choices}
        print_json(row | {"found": found, "choices": choices, "about": about, "example": example})
        return
    print_table(("format", "source"), [(row["format"], row["source"])])
    files = [(key, text, found[key]) for key, text in row["raw files"].items()]
    print_table(("file", "what it is", "how it is found"), files)
    if member.options:
        listed = [(n, o.default, ", ".join(o.choices), o.meaning) for n, o in member.options.items()]
        print_table(("option", "default", "values", "meaning"), listed)
    print_data(f"\n{about}\n\nExample:\n    {example}\n")


def _print_template(name: str) -> None:
    from tracekit.ingest import find_format, mapping

    if find_format(name).name != "csv":
        raise UsageError(
            f"the format {name} needs no mapping file", where="--template", hint="only the csv format has a template"
        )
    print_data(mapping.template())
