"""tracekit fidelity."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tracekit.cli.options import TraceFolder
from tracekit.cli.replay_options import ForceReplay, OutFolder, show_assumptions, show_before
from tracekit.cli.settings import takes
from tracekit.settings import ReplaySettings

__all__ = ["fidelity"]


@takes(ReplaySettings, without=("load", "measure_from", "measure_to"))
def fidelity(
    trace: TraceFolder,
    out: OutFolder,
    policy: Annotated[
        str | None,
        typer.Option(
            "-p", "--policy", metavar="POLICY[,key=value...]", help="What the cluster ran; by source when left out."
        ),
    ] = None,
    *,
    settings: ReplaySettings,
    force: ForceReplay = False,
) -> None:
    """Measure how far to trust a replay: replay what the cluster really ran, and compare it with the log.

    OUT holds fidelity.json, fidelity.parquet (errors by size class and VC), quantiles.parquet and quantiles.svg, and
    the replay itself.

    Example: tracekit fidelity my-trace -o out
    """
    from tracekit.cli.display import TerminalProgress, print_frame
    from tracekit.replay.api import scenario_of
    from tracekit.replay.fidelity import measure_fidelity, write_fidelity
    from tracekit.report.replay_charts import fidelity_svg

    with TerminalProgress() as progress:
        progress.stage("reading the Trace")
        scenario = scenario_of(trace, settings, force=force)
        show_before(scenario, progress)
        found = measure_fidelity(scenario, policy, progress=progress)
        write_fidelity(found, out, force=force, draw=fidelity_svg)
    typer.echo(f"replayed {found.policy}: {found.why}")
    print_frame(found.groups)
    for sentence in found.sentences:
        typer.echo(sentence)
    show_assumptions(dict(found.result.summary["assumptions"]))
    typer.echo(f"fidelity: {Path(out)}")
