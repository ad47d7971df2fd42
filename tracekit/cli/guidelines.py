"""tracekit guidelines."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tracekit.cli.options import MemoryLimit, TraceFolder
from tracekit.errors import OutputError

__all__ = ["register"]


class _Form(StrEnum):
    md = "md"
    json = "json"
    html = "html"


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(guidelines)


def guidelines(
    trace: TraceFolder,
    replay: Annotated[
        Path | None,
        typer.Option(metavar="OUT", help="Read expected effects from the output of 'tracekit replay' of this Trace."),
    ] = None,
    try_jobs: Annotated[
        int | None,
        typer.Option("--try", metavar="N", min=1, help="Replay the first N jobs now where advice can be tried."),
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="ID", help="One guideline; may be repeated. All by default.")
    ] = None,
    form: Annotated[_Form, typer.Option("-f", "--output-format", help="How to write the result.")] = _Form.md,
    out: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Write to a file; '-' is stdout.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file that -o names.")] = False,
    memory_limit: MemoryLimit = None,
) -> None:
    """Say what to change on the cluster, where the Trace carries the evidence.

    Each guideline has a finding with its 95 % interval, a threshold and where that comes from, and a verdict: holds,
    does not hold, or cannot tell and why. Advice, its cost and how to do it appear only where a guideline holds.

    Example: tracekit guidelines my-trace -o guidelines.md
    """
    from tracekit.cli.display import TerminalProgress
    from tracekit.guidelines.registry import broken_plugins
    from tracekit.guidelines.run import guidelines as judge_all

    file = None if out is None or str(out) == "-" else out
    if file is not None and file.exists() and not force:
        raise OutputError("exists already", where=file, hint="choose another -o, or add --force to replace it")
    progress = TerminalProgress()
    try:
        advice = judge_all(
            trace, replay=replay, try_jobs=try_jobs, only=only or (), memory_limit=memory_limit, progress=progress
        )
    finally:
        progress.close()
    for fault in broken_plugins().values():
        typer.echo(f"note: {fault}", err=True)
    text = {_Form.md: advice.markdown, _Form.json: advice.json, _Form.html: advice.html}[form]()
    if file is None:
        typer.echo(text.rstrip("\n"))
    else:
        _write(file, text.rstrip("\n") + "\n")
        typer.echo(f"guidelines: {file} ({len(advice.holding)} of {len(advice.judged)} hold)")


def _write(file: Path, text: str) -> None:
    """Write the file whole or not at all."""
    import os

    from tracekit.trace_writer import output_errors

    part = file.with_name(f".{file.name[:200]}.partial-{os.getpid()}")
    try:
        with output_errors(file):
            part.write_text(text, encoding="utf-8")
            part.replace(file)
    finally:
        part.unlink(missing_ok=True)
