"""tracekit guidelines."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from tracekit.cli.display import TerminalProgress, file_of, print_notes
from tracekit.cli.needs import say_need
from tracekit.cli.options import TraceFolder, Where, part_of
from tracekit.cli.streams import print_data
from tracekit.outputs import StagedFiles, output_errors
from tracekit.settings import Flag, ForceFile, MemoryLimit, OutFile, TenantColumn


def guidelines(
    trace: TraceFolder,
    twin: Annotated[
        Path | None,
        Flag(
            "--twin FILE.toml",
            "Estimate how the advice would change the recorded waits, with the twin from 'tracekit calibrate'.",
        ),
    ] = None,
    replay: Annotated[
        Path | None,
        Flag("--replay OUT", "Like --twin, but take the twin from the output of 'tracekit replay --twin'."),
    ] = None,
    try_jobs: Annotated[
        int | None, Flag("--try N", "Like --twin, but calibrate one now on the first N jobs.", 1)
    ] = None,
    only: Annotated[tuple[str, ...], Flag("--only ID", "Assess only this guideline; may be repeated.")] = (),
    where: Where = None,
    by: TenantColumn = None,
    form: Annotated[Literal["md", "json", "html"], Flag("-f --output-format", "Format of the result.")] = "md",
    out: OutFile = None,
    force: ForceFile = False,
    memory_limit: MemoryLimit = None,
) -> None:
    """Recommend changes to the cluster that the Trace supports.

    Each guideline has a finding with its 95 % interval, a threshold with its source, and a verdict with the reason:
    holds, does not hold, or cannot tell. Guidelines that hold also give advice, its cost and how to follow it.

    Example: tracekit guidelines my-trace --twin twin.toml -o guidelines.md
    """
    from tracekit.guidelines.interface import GUIDELINES
    from tracekit.guidelines.run import guidelines as judge_all

    file = file_of(out, force=force)
    say_need(trace, "queries", memory_limit)
    with TerminalProgress() as progress:
        advice = judge_all(
            part_of(trace, where),
            twin=twin,
            replay=replay,
            try_jobs=try_jobs,
            only=only,
            by=by,
            memory_limit=memory_limit,
            progress=progress,
        )
    print_notes(GUIDELINES.broken().values())
    text = {"md": advice.markdown, "json": advice.json, "html": advice.html}[form]().rstrip("\n") + "\n"
    if file is None:
        print_data(text)
    else:
        with StagedFiles(file, force=force) as staged, output_errors(file):
            staged.part(file).write_text(text, encoding="utf-8")
            staged.commit()
        typer.echo(f"guidelines: {file} ({len(advice.holding)} of {len(advice.judged)} hold)")
    if progress.failed:
        raise typer.Exit(1)
