"""tracekit replay."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tracekit.cli.options import TraceFolder
from tracekit.cli.replay_options import ForceReplay, OutFolder, show_assumptions, show_before
from tracekit.cli.settings import takes
from tracekit.settings import ReplaySettings

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(replay)


@takes(ReplaySettings)
def replay(
    trace: TraceFolder,
    out: OutFolder,
    policy: Annotated[
        list[str] | None,
        typer.Option(
            "-p",
            "--policy",
            metavar="POLICY[,key=value...]",
            help="A policy and its parameters; may be repeated. A standard panel by default. See 'tracekit policies'.",
        ),
    ] = None,
    *,
    settings: ReplaySettings,
    inflate: Annotated[
        float | None,
        typer.Option(
            metavar="X",
            help="Placement study instead: tasks only arrive, up to X times the GPUs; -p names placement rules.",
        ),
    ] = None,
    bracket: Annotated[
        bool,
        typer.Option(
            "--bracket",
            help="Tell too how the means compare with the first policy's under other interference and memory of shared "
            "GPUs.",
        ),
    ] = False,
    log: Annotated[bool, typer.Option("--log", help="Keep the event log of each policy (log.parquet).")] = False,
    force: ForceReplay = False,
) -> None:
    """Replay a Trace under other policies, or on another cluster, and compare what each does to the jobs.

    OUT holds a folder for each policy with summary.json, jobs.parquet and timeline.parquet, and the comparison as
    Parquet, CSV and SVG.

    Example: tracekit replay my-trace -p fifo -p srtf,overhead=helios -o out
    """
    from tracekit.cli.display import TerminalProgress, print_frame, print_table
    from tracekit.replay.api import scenario_of
    from tracekit.replay.bracket import bracket_of_policies
    from tracekit.replay.results.comparison import comparison_rows
    from tracekit.replay.results.effects import effect_sentences
    from tracekit.replay.run_policies import run_policies
    from tracekit.report.replay_charts import comparison_svg

    progress = TerminalProgress()
    try:
        progress.stage("reading the Trace")
        scenario = scenario_of(trace, settings, force=force or inflate is not None)
        if inflate is not None:
            from tracekit.replay.fractions.study import run_inflation

            table = run_inflation(scenario, policy, inflate, out, force=force, progress=progress)
            progress.close()
            print_frame(table)
            return
        show_before(scenario, progress)
        brackets = bracket_of_policies(scenario, policy or []) if bracket else []
        study = run_policies(scenario, policy, out, force=force, log=log, draw=comparison_svg, progress=progress)
    finally:
        progress.close()
    for name, why in study.skipped.items():
        progress.note(f"{name} is left out of the panel: {why}")
    headers, rows = comparison_rows(study.comparison)
    print_table(headers, rows)
    for why in effect_sentences(study.comparison):
        typer.echo(f"No comparison: {why}.")
    show_assumptions(study.assumptions)
    for found in brackets:
        typer.echo("\n".join(found.lines()))
    typer.echo(f"replays: {Path(out)}")
