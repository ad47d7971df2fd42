"""The command line: one module a verb, no logic of its own.

Exit codes: 0 done; 1 `validate` found problems; 2 the input, an option or the output place was at fault;
130 interrupted.
"""

from __future__ import annotations

import atexit
import contextlib
import os
import signal
import sys
import threading
from typing import TYPE_CHECKING, Annotated, NoReturn, TextIO, cast

import typer

from tracekit import __version__
from tracekit.cli import (
    analyze,
    classify_logs,
    compare,
    datasets,
    export,
    fidelity,
    fit,
    formats,
    generate,
    guidelines,
    info,
    ingest,
    plot,
    policies,
    queries,
    query,
    replay,
    schema,
    sweep,
    validate,
)
from tracekit.damage import damage_told
from tracekit.errors import TracekitError

if TYPE_CHECKING:
    from types import FrameType

__all__ = ["app", "main"]

app = typer.Typer(
    name="tracekit",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    help=(
        "Turn GPU-cluster logs into answers: why jobs wait, where GPUs idle, what fails.\n\n"
        "Start with **tracekit analyze LOGS -o out** and open out/report.html. "
        "LOGS is a folder, file or archive with raw scheduler logs; **tracekit formats** tells which are known, and "
        "**tracekit datasets** fetches public ones.\n\n"
        "The steps one by one: **ingest** makes a Trace (a folder of Parquet tables) from raw logs, **info** and "
        "**validate** look at it, **queries** lists the questions it can answer, **query** answers one. "
        "**compare** puts several traces side by side, with the published numbers of the public ones.\n\n"
        "**replay** asks what would have been: the same jobs under another policy or on another cluster. **policies** "
        "lists the policies, **fidelity** tells how far to trust a replay, **sweep** tries many combinations. "
        "**guidelines** says what to change, where the trace carries the evidence. "
        "**fit** makes a model of the workload, **plot** draws pictures of it, **generate** synthetic traces from it, "
        "**export** writes the jobs as other simulators read them."
    ),
)

for _verb in (
    analyze,
    compare,
    classify_logs,
    ingest,
    info,
    validate,
    queries,
    query,
    replay,
    policies,
    fidelity,
    sweep,
    guidelines,
    fit,
    generate,
    plot,
    export,
    formats,
    datasets,
    schema,
):
    _verb.register(app)


def _show_version(value: bool) -> None:
    if value:
        typer.echo(f"tracekit {__version__}")
        raise typer.Exit


def _set_debug(value: bool) -> None:
    if value:
        os.environ["TRACEKIT_DEBUG"] = "1"


@app.callback()
def _global_options(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", is_eager=True, callback=_show_version)
    ] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Show the traceback of an error.", callback=_set_debug)
    ] = False,
) -> None:
    """Options that hold for every command."""


class _ReaderGoneError(BaseException):
    """Who read our output went away; not a BrokenPipeError, which the libraries between turn into exit code 1."""


class _Output:
    """Standard output that tells a reader who went away from every other failure."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write, or raise when nobody reads."""
        try:
            return self._stream.write(text)
        except BrokenPipeError:
            raise _ReaderGoneError from None

    def flush(self) -> None:
        """Flush, or raise when nobody reads."""
        try:
            self._stream.flush()
        except BrokenPipeError:
            raise _ReaderGoneError from None

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)


class _InterruptedRun(BaseException):
    """The run was told to stop; not a KeyboardInterrupt, which the command-line library would swallow."""


_told_to_stop = threading.Event()


def main() -> None:
    """Run the command line; a mistake of the user ends in one line and exit code 2."""
    # A killed run must clean up like an interrupted one.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _interrupt)
    sys.unraisablehook = _tell_unraisable
    stream = sys.stdout
    sys.stdout = cast("TextIO", _Output(stream))
    try:
        try:
            with damage_told(by_warnings=True):
                app()
        finally:
            sys.stdout.flush()
    except TracekitError as error:
        _fail(str(error))
    except _InterruptedRun:
        _tell_stopped()
    except SystemExit:
        # Some libraries notice the signal first and raise what they have for it.
        if _told_to_stop.is_set():
            _tell_stopped()
        raise
    except _ReaderGoneError:
        # What is still buffered would fail once more when Python closes the stream.
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        sys.exit(0)
    except MemoryError:
        _fail("memory ran out; give a smaller --memory-limit, or use a larger machine")
    except OSError as error:
        _fail(f"{error.filename or 'operating system'}: {error.strerror or error}")


def _fail(text: str) -> None:
    if os.environ.get("TRACEKIT_DEBUG"):
        raise  # noqa: PLE0704 -- called inside an except block
    typer.echo(f"tracekit: error: {text}", err=True)
    sys.exit(2)


def _tell_stopped() -> NoReturn:
    typer.echo("tracekit: interrupted; nothing was left half-written", err=True)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, _ReaderGoneError):
            stream.flush()
    # Everything is cleaned up, but threads of the libraries may still be at work: taking the interpreter down under
    # them can end in a crash.
    atexit._run_exitfuncs()  # noqa: SLF001 -- there is no public name
    os._exit(130)


def _interrupt(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 -- the signature of a handler
    _told_to_stop.set()
    raise _InterruptedRun


def _tell_unraisable(found: sys.UnraisableHookArgs) -> None:
    """Keep quiet about an interruption that met a generator being closed; the run is ending anyway."""
    if found.exc_type is not _InterruptedRun:
        sys.__unraisablehook__(found)
