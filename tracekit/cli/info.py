"""tracekit info."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

from tracekit.cli.display import print_table
from tracekit.cli.options import TraceFolder
from tracekit.cli.streams import print_data
from tracekit.settings import ListForm

if TYPE_CHECKING:
    from tracekit.trace import Trace


def info(trace: TraceFolder, form: ListForm = "table") -> None:
    """Show a Trace's origin, tables, answerable questions and data quality."""
    from tracekit.trace import Trace

    opened = Trace.open(trace)
    if form == "json":
        print_data(opened.manifest.to_json().decode())
    else:
        _show(opened)


def _show(trace: Trace) -> None:
    manifest = trace.manifest
    typer.echo(f"{trace.path}: {manifest.format}, times {manifest.time_base}, hours read in {manifest.timezone}")
    files = [(f.path, f.bytes, f.records, f.kept, f.rejected) for f in manifest.files]
    print_table(("source file", "bytes", "records", "kept", "rejected"), files)
    print_table(("table", "rows", "bytes"), [(n, t.rows, t.bytes) for n, t in manifest.tables.items()])
    able = [
        (name, c.available, c.coverage, " to ".join(c.window) if c.window else None, c.note)
        for name, c in manifest.capabilities.items()
    ]
    window = "window (UTC)" if manifest.time_base == "absolute" else f"window ({manifest.time_base} times)"
    print_table(("can answer", "", "coverage", window, "note"), able)
    found = [(name, c.count, c.of, c.meaning) for name, c in manifest.checks.items() if c.count]
    if found:
        print_table(("check", "found", "of", "meaning"), found)
    if manifest.additions:
        added = [
            (a.created, ", ".join(a.files[:3]) + (" ..." if len(a.files) > 3 else ""), a.jobs_added, a.jobs_replaced,
             a.jobs_older)
            for a in manifest.additions
        ]  # fmt: skip
        print_table(("added (UTC)", "files", "jobs added", "replaced", "known further"), added)
    for note in manifest.notes:
        typer.echo(f"note: {note}")
