"""tracekit replay."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tracekit.cli.options import TraceFolder
from tracekit.cli.replay_options import ForceReplay, OutFolder, show_assumptions, show_before
from tracekit.cli.settings import takes
from tracekit.settings import ReplaySettings

__all__ = ["replay"]


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
    twin: Annotated[
        Path | None,
        typer.Option(
            "--twin",
            metavar="FILE.toml",
            help="Replay in the twin that 'tracekit calibrate' wrote, each policy in place of its order. OUT/twin is "
            "the twin itself.",
        ),
    ] = None,
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
            help="Show as well how the means compare with the first policy's under other interference and memory of "
            "shared GPUs.",
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
    from tracekit.calibration.api import scenario_in_twin
    from tracekit.cli.display import TerminalProgress, print_frame, print_table
    from tracekit.replay.api import scenario_of
    from tracekit.replay.bracket import bracket_of_policies
    from tracekit.replay.results.comparison import comparison_rows
    from tracekit.replay.results.effects import effect_sentences
    from tracekit.replay.run_policies import run_policies
    from tracekit.report.replay_charts import comparison_svg

    with TerminalProgress() as progress:
        progress.stage("reading the Trace")
        if twin is None:
            scenario, of_log = scenario_of(trace, settings, force=force or inflate is not None), None
        else:
            scenario, of_log = scenario_in_twin(trace, twin, settings)
        if inflate is not None:
            from tracekit.replay.fractions.inflate import run_inflation

            table = run_inflation(scenario, policy, inflate, out, force=force, progress=progress)
        else:
            show_before(scenario, progress)
            brackets = bracket_of_policies(scenario, policy or []) if bracket else []
            found = run_policies(
                scenario,
                policy,
                out,
                twin=of_log,
                force=force,
                log=log,
                draw=comparison_svg,
                progress=progress,
            )
    if inflate is not None:
        print_frame(table)
        return
    for name, why in found.skipped.items():
        progress.note(f"{name} is left out of the panel: {why}")
    print_table(*comparison_rows(found.comparison))
    for why in effect_sentences(found.comparison):
        typer.echo(f"No comparison: {why}.")
    show_assumptions(found.assumptions)
    for headline in brackets:
        typer.echo("\n".join(headline.lines()))
    typer.echo(f"replays: {Path(out)}")
