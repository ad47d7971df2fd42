"""tracekit export."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from tracekit.cli.display import TerminalProgress, print_list, print_notes, print_table
from tracekit.cli.needs import say_need
from tracekit.cli.options import OptionalTrace
from tracekit.cli.streams import print_json
from tracekit.errors import UsageError
from tracekit.settings import Flag, Force, MemoryLimit

if TYPE_CHECKING:
    from tracekit.export.interface import Target


def export(
    trace: OptionalTrace = None,
    to: Annotated[str | None, Flag("--to NAME", "A simulator or format shown by --list.")] = None,
    out: Annotated[Path | None, Flag("-o --output FILE", "Output file, or a folder for some formats.")] = None,
    options: Annotated[
        Mapping[str, str] | None, Flag("--option NAME=VALUE", "Option of the format; may be repeated.")
    ] = None,
    machines: Annotated[int | None, Flag("--machines N", "Number of nodes to use instead of the Trace's.")] = None,
    target_load: Annotated[
        float | None,
        Flag(
            "--target-load X",
            "Choose the number of nodes for this load: GPU time of the jobs divided by GPU time of the cluster, "
            "from the first to the last submission.",
        ),
    ] = None,
    shift_to: Annotated[
        str | None,
        Flag(
            "--shift-to DATE",
            "Move the first submission to this date in the file's time zone, and shift all other times with it (for "
            "simulators with a fixed start date).",
        ),
    ] = None,
    list_targets: Annotated[
        bool, Flag("--list", "List the formats, or the fields of the format given by --to, and exit.")
    ] = False,
    form: Annotated[Literal["table", "json"], Flag("-f --output-format", "Format of the list.")] = "table",
    force: Force = False,
    memory_limit: MemoryLimit = None,
) -> None:
    """Write the jobs of a Trace in the format of another simulator.

    Jobs that the simulator cannot read are skipped and counted. Values missing from the Trace get defaults, and each
    default is reported with the option that changes it. The last lines of the output show the settings that the
    simulator needs.

    Example: tracekit export my-trace --to gavel -o my.trace --target-load 0.9
    """
    from tracekit.export.api import export as write
    from tracekit.export.interface import TARGETS

    if list_targets:
        if to is None:
            _list(form)
        else:
            _show(TARGETS.find(to), form)
        return
    if to is None:
        raise UsageError("no format is given", where="--to", hint="'tracekit export --list' shows them")
    if trace is None:
        raise UsageError("no Trace is given", hint="tracekit export TRACE --to NAME -o FILE")
    if out is None:
        raise UsageError("no output is given", where="-o", hint="add -o FILE")
    say_need(trace, "export", memory_limit)
    with TerminalProgress() as progress:
        done = write(
            trace,
            to,
            out,
            options=options,
            machines=machines,
            target_load=target_load,
            shift_to=shift_to,
            force=force,
            memory_limit=memory_limit,
            progress=progress,
        )
    typer.echo(f"{done.jobs:,} of {done.log.jobs:,} jobs exported to {done.target}")
    for file in done.files:
        typer.echo(f"{done.target}: {file}")
    for setting in done.log.settings:
        typer.echo(f"to run: {setting}")


def _list(form: str) -> None:
    from tracekit.export.interface import TARGETS

    targets = TARGETS.all().values()
    heads = ("--to", "what it is", "writes", "required per job", "options")
    rows = [(t.name, t.title, "folder" if t.folder else "file", t.needs, ", ".join(t.options)) for t in targets]
    print_list([_facts(target) for target in targets], heads, rows, form)
    if form == "table":
        typer.echo(
            "tracekit export --list --to NAME shows the fields, the options with their defaults, and the sources"
        )
    print_notes(TARGETS.broken().values())


def _facts(target: Target) -> dict[str, Any]:
    return {
        "target": target.name,
        "title": target.title,
        "reads": target.reads,
        "needs": target.needs,
        "folder": target.folder,
        "files_beside": dict(target.companions),
        "fields": [{"name": f.name, "meaning": f.meaning, "filled_from": f.filled_from} for f in target.fields],
        "options": [
            {"name": name, "default": o.default, "meaning": o.meaning, "values": list(o.choices)}
            for name, o in target.options.items()
        ],
        "lost": target.lost,
        "sources": list(target.sources),
    }


def _show(target: Target, form: str) -> None:
    if form == "json":
        print_json(_facts(target))
        return
    typer.echo(f"{target.name}: {target.title}\n\nRead by: {target.reads}")
    for end, what in target.companions.items():
        typer.echo(f"Also written: *{end}, {what}")
    typer.echo(f"Required per job: {target.needs}\nNot exported: {target.lost}\n")
    print_table(("field", "content", "filled from"), [(f.name, f.meaning, f.filled_from) for f in target.fields])
    rows = [
        (name, o.default or "(empty)", ", ".join(o.choices) or "any", o.meaning) for name, o in target.options.items()
    ]
    print_table(("option", "default", "values", "meaning"), rows)
    typer.echo("Sources:")
    for source in target.sources:
        typer.echo(f"  - {source}")
