"""tracekit fidelity."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tracekit.cli.needs import say_need_of_jobs
from tracekit.cli.options import TraceFolder
from tracekit.cli.replay_options import ForceReplay, OutFolder

__all__ = ["fidelity"]


_INTERVALS = ("ratio_", "agreeing_")
"""Columns whose intervals a terminal has room for; fidelity.parquet has all."""


def fidelity(
    trace: TraceFolder,
    out: OutFolder,
    twin: Annotated[
        Path | None, typer.Option("--twin", metavar="FILE.toml", help="The twin; searched now by default.")
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(
            "-p", "--policy", metavar="POLICY[,key=value...]", help="Try this policy in place of the twin's rules."
        ),
    ] = None,
    cluster: Annotated[
        list[str] | None,
        typer.Option("--cluster-name", metavar="NAME", help="Only this cluster; may be repeated. All by default."),
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", min=1, metavar="N", help="Without --twin: look at the first N jobs only.")
    ] = 100_000,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the start-up delays drawn.")] = 0,
    force: ForceReplay = False,
) -> None:
    """Measure how far to trust a replay: compare the twin of each cluster with its log.

    Only jobs held out from the calibration are compared. OUT holds fidelity.json (grades, scores, and the
    candidates that were tried), fidelity.parquet (by size of gang and VC), quantiles.parquet and queue.parquet with
    plots of both for each cluster, and twin.toml.

    Example: tracekit fidelity my-trace -o out
    """
    from tracekit.calibration.fidelity import fidelity as measure
    from tracekit.calibration.fidelity import write_fidelity
    from tracekit.cli.display import TerminalProgress, print_frame
    from tracekit.report.replay_charts import fidelity_pictures

    say_need_of_jobs(trace, "calibrate", limit=limit)
    with TerminalProgress() as progress:
        study = measure(trace, twin, policy, clusters=cluster or None, limit=limit, seed=seed, progress=progress)
        write_fidelity(study, out, force=force, draw=fidelity_pictures)
    for one in study.clusters:
        shown = [c for c in one.score.table.columns if not c.endswith(("_low", "_high")) or c.startswith(_INTERVALS)]
        print_frame(one.score.table.select(shown))
    for sentence in study.sentences:
        typer.echo(sentence)
    typer.echo(f"fidelity: {out}")
