"""The command line, with one module per command and no logic of its own.

The exit code is 0 on success and 130 after an interruption. It is 1 if `validate` found problems or some parts of
`analyze` or `guidelines` failed, and 2 if the input, an option or the output location is invalid.
"""

from __future__ import annotations

import os
import sys
from importlib import import_module
from typing import TYPE_CHECKING, Annotated

import typer

from tracekit.cli.options import with_options
from tracekit.cli.streams import ReaderGoneError, standard_streams
from tracekit.damage import explain_damage
from tracekit.errors import TracekitError
from tracekit.interruption import handle_signals
from tracekit.text import visible
from tracekit.version import __version__

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    app: typer.Typer
    """The program with all its commands."""

__all__ = ["app", "main"]

_LONGEST_LINE = 300
"""Maximum length of an error line [characters], unless its hint takes up more than half of it."""
_LONGEST_HINT = 600
"""Maximum length of a hint in a shortened line [characters]. A longer hint is omitted; hints are never cut."""

_GROUPS = {
    "Start": ("analyze", "digest"),
    "Look": ("info", "validate", "query", "serve", "efficiency", "wait", "compare"),
    "What if": ("calibrate", "replay", "plan", "guidelines", "sweep", "policies"),
    "Workloads": ("fit", "generate", "export"),
    "Data": ("ingest", "classify-logs", "formats", "schema", "datasets"),
}
"""The commands, grouped and ordered as in the help. Each is a function in the module of the same name."""

_COMMANDS = tuple(name for names in _GROUPS.values() for name in names)

_RENAMED = {"queries": ("query", "-o"), "fidelity": ("calibrate", "--report"), "plot": ("fit", "--plots")}
"""Renamed commands, each with its new name and the option that replaces -o."""

_HELP = (
    "Turn GPU-cluster logs into answers: why jobs wait, which GPUs idle, what fails.\n\n"
    "Start with **tracekit analyze LOGS -o out** and open out/report.html. "
    "LOGS is a folder, file or archive with raw scheduler logs. **tracekit formats** lists the known formats, and "
    "**tracekit datasets** fetches public traces.\n\n"
    "You can also run the steps one by one. **ingest** makes a Trace (a folder of Parquet tables) from raw logs, "
    "**info** and **validate** check it, **query** lists and answers questions about it, and **serve** shows the "
    "report as a live page. "
    "**efficiency** shows who uses GPU-hours, how many are idle or lost, and what they cost. **wait** predicts how "
    "long a job will wait. **digest** sums up a week on one page for the operator and for each user. "
    "**compare** shows several traces side by side, with published numbers for public traces.\n\n"
    "**calibrate** finds the replay that best reproduces the log, and grades it. **replay** runs the same jobs "
    "under another policy or on another cluster. **plan** finds how many nodes keep waits below a target. "
    "**policies** lists the policies, and **sweep** tries many combinations. "
    "**guidelines** recommends changes that the trace supports. "
    "**fit** fits a workload model and plots it, **generate** makes synthetic traces from it, and **export** writes "
    "the jobs in the formats of other simulators."
)


def _show_version(value: bool) -> None:
    if value:
        typer.echo(f"tracekit {__version__}")
        raise typer.Exit


def _set_debug(value: bool) -> None:
    if value:
        os.environ["TRACEKIT_DEBUG"] = "1"


def _global_options(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", is_eager=True, callback=_show_version)
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error.", callback=_set_debug)
    ] = False,
) -> None:
    """Define the options that apply to every command."""


def _app_of(commands: Collection[str]) -> typer.Typer:
    """Return the program with the given commands, importing only their modules."""
    made = typer.Typer(
        name="tracekit", no_args_is_help=True, pretty_exceptions_enable=False, rich_markup_mode="markdown", help=_HELP
    )
    made.callback()(_global_options)
    for panel, names in _GROUPS.items():
        for name in names:
            if name not in commands:
                continue
            function = name.replace("-", "_")
            module = import_module(f"tracekit.cli.{function}")
            if hasattr(module, "group"):
                made.add_typer(module.group, name=name, rich_help_panel=panel)
            else:
                made.command(rich_help_panel=panel)(with_options(getattr(module, function)))
    return made


def __getattr__(name: str) -> typer.Typer:
    if name != "app":
        raise AttributeError(f"module 'tracekit.cli' has no attribute '{name}'")
    return _app_of(_COMMANDS)


def main() -> None:
    """Run the command line. A user error prints one line and ends with exit code 2."""
    with handle_signals(), standard_streams():
        code = _exit_code()
    sys.exit(code)


def _exit_code() -> int:
    """Run the command, print an error in one line, and return the exit code."""
    try:
        try:
            with explain_damage(by_warnings=True):
                arguments = _as_today(sys.argv[1:])
                _app_of(_named(arguments))(arguments)
        finally:
            sys.stdout.flush()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except ReaderGoneError:
        return 0
    except (TracekitError, UnicodeEncodeError, MemoryError, OSError) as error:
        if os.environ.get("TRACEKIT_DEBUG"):
            raise
        typer.echo(_line(*_words(error)), err=True)
        return 2
    return 0


def _as_today(arguments: Sequence[str]) -> list[str]:
    """Replace an old command name in the arguments with the current one, and print a note."""
    place = next((i for i, word in enumerate(arguments) if not word.startswith("-")), None)
    if place is None or arguments[place] not in _RENAMED:
        return list(arguments)
    command, out = _RENAMED[arguments[place]]
    shown = "" if out == "-o" else f" {out} OUT"
    typer.echo(f"note: 'tracekit {arguments[place]}' is 'tracekit {command}{shown}' now", err=True)
    rest = []
    for word in arguments[place + 1 :]:
        name, equals, value = word.partition("=")
        rest.append(f"{out}{equals}{value}" if name in ("-o", "--output") else word)
    return [*arguments[:place], command, *rest]


def _named(arguments: Sequence[str]) -> Collection[str]:
    """Return the command named in the arguments, or all commands if there is none (for the help or an error)."""
    first = next((word for word in arguments if not word.startswith("-")), None)
    return (first,) if first in _COMMANDS else _COMMANDS


def _words(error: Exception) -> tuple[str, str | None]:
    """Return an error's message in one line, and its hint."""
    if isinstance(error, TracekitError):
        return str(error), error.hint
    hint = None
    if isinstance(error, UnicodeEncodeError):
        text = f"{error.object[max(error.start - 80, 0) : error.end + 40]}: is not text in {error.encoding}"
        hint = "rename the files and folders"
    elif isinstance(error, MemoryError):
        text, hint = "out of memory", "set a smaller --memory-limit, or use a larger machine"
    elif isinstance(error, OSError):
        text = f"{error.filename or 'operating system'}: {error.strerror or error}"
    else:
        text = str(error)
    return visible(f"{text}; {hint}" if hint else text), hint


def _line(text: str, hint: str | None) -> str:
    """Return the error line. A long line is cut before its hint and names the option that shows all of it."""
    line = f"tracekit: error: {text}"
    advice = f"; {hint}" if hint and len(hint) <= _LONGEST_HINT else ""
    what = line.removesuffix(advice)
    cut = " (cut short; 'tracekit --debug ...' shows all of it)"
    most = _LONGEST_LINE - len(f"…{cut}") - (len(advice) if len(advice) <= _LONGEST_LINE // 2 else 0)
    if len(line) <= _LONGEST_LINE or (advice and len(what) <= most):
        return line
    return f"{what[:most]}…{advice}{cut}"
