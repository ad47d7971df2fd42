"""tracekit replay."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tracekit.cli.display import TerminalProgress, print_assumptions, print_frame, print_table
from tracekit.cli.needs import say_need
from tracekit.cli.options import TraceFolder, Where, part_of
from tracekit.errors import UsageError
from tracekit.places import refuse_remote
from tracekit.settings import Flag, ForceReplay, OutFolder, ReplaySettings

if TYPE_CHECKING:
    from tracekit.trace import Trace


def replay(
    trace: TraceFolder,
    out: OutFolder,
    policies: Annotated[
        tuple[str, ...],
        Flag(
            "-p --policy POLICY[,key=value...]",
            "Policy with its parameters; may be repeated. The default is a standard set; all-of-the-literature runs "
            "every policy that can replay this Trace. See 'tracekit policies'.",
        ),
    ] = (),
    *,
    settings: ReplaySettings,
    twin: Annotated[
        Path | None,
        Flag(
            "--twin FILE.toml",
            "Replay in the twin from 'tracekit calibrate'. Each policy replaces the twin's job order. OUT/twin is "
            "the twin itself.",
        ),
    ] = None,
    inflate: Annotated[
        float | None,
        Flag(
            "--inflate X",
            "Run a placement study instead: tasks arrive, including those that never ran, until they request X "
            "times the GPUs, and none leaves. -p names placement rules.",
        ),
    ] = None,
    bracket: Annotated[
        bool,
        Flag(
            "--bracket",
            "Also compare each policy's means with the first policy's under other assumptions, at both ends of "
            "their ranges in models.toml: shared GPUs, spread gangs, resizing, lost work, links and switched nodes.",
        ),
    ] = False,
    where: Where = None,
    log: Annotated[bool, Flag("--log", "Keep the event log of each policy (log.parquet).")] = False,
    force: ForceReplay = False,
) -> None:
    """Replay a Trace under other policies, or on another cluster, and compare the results.

    OUT contains the comparison as Parquet, CSV and SVG, and a folder for each policy with summary.json, jobs.parquet
    and timeline.parquet.

    Example: tracekit replay my-trace -p fifo -p srtf,overhead=helios -o out
    """
    from tracekit.calibration.twins import scenario_in_twin
    from tracekit.replay.api import scenario_of
    from tracekit.replay.bracket import bracket_of_policies
    from tracekit.replay.panels import meant_by
    from tracekit.replay.results.comparison import comparison_rows
    from tracekit.replay.results.effects import effect_sentences
    from tracekit.replay.run_policies import left_out_sentences, run_policies
    from tracekit.report.replay_pictures import comparison_svg

    refuse_remote(out)
    if inflate is not None:
        if twin is not None:
            raise UsageError("a placement study does not model time, so it cannot use a twin", hint="omit --twin")
        _inflate(part_of(trace, where), out, policies, inflate, settings, force=force)
        return
    say_need(trace, "replay", limit=settings.limit, runs=max(len(policies), 1))
    source = part_of(trace, where)
    with TerminalProgress() as progress:
        progress.stage("reading the Trace")
        if twin is None:
            scenario, of_log = scenario_of(source, settings, force=force), None
        else:
            scenario, of_log = scenario_in_twin(source, twin, settings)
        for sentence in () if scenario.feasibility is None else scenario.feasibility.sentences:
            progress.note(f"warning: {sentence}")
        for sentence in left_out_sentences(scenario):
            progress.note(sentence)
        brackets = bracket_of_policies(scenario, meant_by(policies)[0] if policies else []) if bracket else []
        found = run_policies(
            scenario, policies or None, out, twin=of_log, force=force, log=log, draw=comparison_svg, progress=progress
        )
        progress.note("engine: " + "; ".join(f"{label} {speed}" for label, speed in found.speeds.items()))
    for name, why in found.skipped.items():
        progress.note(f"{name} is not in the comparison: {why}")
    print_table(*comparison_rows(found.comparison))
    for why in effect_sentences(found.comparison):
        typer.echo(f"No comparison: {why}.")
    print_assumptions(found.assumptions)
    for headline in brackets:
        typer.echo("\n".join(headline.lines()))
    typer.echo(f"replays: {Path(out)}")


def _inflate(
    trace: Trace | str, out: Path, rules: tuple[str, ...], load: float, settings: ReplaySettings, *, force: bool
) -> None:
    from tracekit.replay.native import kernel

    kernel()  # reports a missing engine
    from tracekit.replay.fractions.placement_study import placement_study, write_study

    with TerminalProgress() as progress:
        progress.stage("reading the Trace")
        study = placement_study(trace, rules or None, load, settings=settings, progress=progress)
        for sentence in study.notes:
            progress.note(sentence)
        write_study(study, out, force=force)
    print_frame(study.headline())
