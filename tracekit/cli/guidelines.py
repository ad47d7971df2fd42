"""tracekit guidelines."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from tracekit.cli.needs import say_need_of_queries
from tracekit.cli.options import MemoryLimit, TenantColumn, TraceFolder
from tracekit.cli.streams import print_data

__all__ = ["guidelines"]


class _Form(StrEnum):
    md = "md"
    json = "json"
    html = "html"


def guidelines(
    trace: TraceFolder,
    twin: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.toml",
            help="Estimate what the advice would change in the recorded waits, in the twin from 'tracekit calibrate'.",
        ),
    ] = None,
    replay: Annotated[
        Path | None,
        typer.Option(metavar="OUT", help="Like --twin, but take the twin from the output of 'tracekit replay --twin'."),
    ] = None,
    try_jobs: Annotated[
        int | None,
        typer.Option("--try", metavar="N", min=1, help="Like --twin, but calibrate one now on the first N jobs."),
    ] = None,
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="ID", help="One guideline; may be repeated. All by default.")
    ] = None,
    by: TenantColumn = None,
    form: Annotated[_Form, typer.Option("-f", "--output-format", help="How to write the result.")] = _Form.md,
    out: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Write to a file; '-' is stdout.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file that -o names.")] = False,
    memory_limit: MemoryLimit = None,
) -> None:
    """Recommend changes to the cluster that the Trace supports.

    Each guideline has a finding with its 95 % interval, a threshold with its source, and a verdict: holds, does not
    hold, or cannot tell and why. Only guidelines that hold show advice, its cost and how to follow it.

    Example: tracekit guidelines my-trace --twin twin.toml -o guidelines.md
    """
    from tracekit.cli.display import TerminalProgress
    from tracekit.guidelines.interface import GUIDELINES
    from tracekit.guidelines.run import guidelines as judge_all
    from tracekit.outputs import check_files

    file = None if out is None or str(out) == "-" else out
    if file is not None:
        check_files(file, force=force)
    say_need_of_queries(trace, memory_limit)
    with TerminalProgress() as progress:
        advice = judge_all(
            trace,
            twin=twin,
            replay=replay,
            try_jobs=try_jobs,
            only=only or (),
            by=by,
            memory_limit=memory_limit,
            progress=progress,
        )
    for fault in GUIDELINES.broken().values():
        typer.echo(f"note: {fault}", err=True)
    text = {_Form.md: advice.markdown, _Form.json: advice.json, _Form.html: advice.html}[form]()
    if file is None:
        print_data(text.rstrip("\n") + "\n")
    else:
        _write(file, text.rstrip("\n") + "\n", force=force)
        typer.echo(f"guidelines: {file} ({len(advice.holding)} of {len(advice.judged)} hold)")
    if progress.failed:
        raise typer.Exit(1)


def _write(file: Path, text: str, *, force: bool) -> None:
    """Write the file whole or not at all."""
    from tracekit.outputs import StagedFiles, output_errors

    with StagedFiles(file, force=force) as staged, output_errors(file):
        staged.part(file).write_text(text, encoding="utf-8")
        staged.commit()
