"""tracekit replay."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tracekit.cli.options import TraceFolder
from tracekit.cli.replay_options import (
    ClusterName,
    ClusterPlace,
    ForceReplay,
    From,
    GpuFactor,
    Limit,
    Load,
    ModelsFile,
    OutFolder,
    Partitions,
    Placement,
    Seed,
    Switch,
    To,
    moment,
    show_assumptions,
    show_before,
)

__all__ = ["register"]


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command()(replay)


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
    placement: Placement = "consolidate",
    cluster: ClusterPlace = None,
    cluster_name: ClusterName = None,
    vc_partitions: Partitions = None,
    start: From = None,
    end: To = None,
    load: Load = 1.0,
    gpus: GpuFactor = None,
    limit: Limit = None,
    seed: Seed = 0,
    models: ModelsFile = None,
    measure_from: Annotated[
        str | None, typer.Option(metavar="TIME", help="Take the figures over jobs submitted from this time on only.")
    ] = None,
    measure_to: Annotated[
        str | None, typer.Option(metavar="TIME", help="Take the figures over jobs submitted before this time only.")
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
    from tracekit.replay.fractions.study import run_inflation
    from tracekit.replay.results.comparison import comparison_rows
    from tracekit.replay.results.told import effect_sentences
    from tracekit.replay.study import run_study
    from tracekit.report.replay_charts import comparison_svg

    progress = TerminalProgress()
    try:
        progress.stage("reading the Trace")
        scenario = scenario_of(
            trace,
            cluster=cluster,
            cluster_name=cluster_name,
            placement=placement,
            partitioned=None if vc_partitions is None else vc_partitions is Switch.on,
            start=moment(start, "--from"),
            end=moment(end, "--to"),
            load=load,
            gpus=gpus,
            limit=limit,
            models=models,
            seed=seed,
            force=force or inflate is not None,
            measure_from=moment(measure_from, "--measure-from"),
            measure_to=moment(measure_to, "--measure-to"),
        )
        if inflate is not None:
            table = run_inflation(scenario, policy, inflate, out, force=force, progress=progress)
            progress.close()
            print_frame(table)
            return
        show_before(scenario, progress)
        brackets = bracket_of_policies(scenario, policy or []) if bracket else []
        study = run_study(scenario, policy, out, force=force, log=log, draw=comparison_svg, progress=progress)
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
