"""tracekit calibrate."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tracekit.cli.needs import say_need_of_jobs
from tracekit.cli.options import Collect, Shard, TraceFolder
from tracekit.cli.replay_options import ForceReplay
from tracekit.cli.shards import asked_work, echo_shard
from tracekit.errors import UsageError
from tracekit.places import refuse_remote

if TYPE_CHECKING:
    from tracekit.calibration.api import Calibration
    from tracekit.calibration.fidelity import FidelityStudy

__all__ = ["calibrate"]

_SHOWN = 8
"""Candidates of each cluster that the terminal shows."""
_INTERVALS = ("ratio_", "agreeing_")
"""Columns whose intervals a terminal has room for; fidelity.parquet has all."""


def calibrate(
    trace: TraceFolder,
    out: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE.toml", help="Where to write the twin.")
    ] = None,
    report: Annotated[
        Path | None,
        typer.Option(
            "--report", metavar="OUT", help="Folder for the scores: how far to trust the twin, or the --policy."
        ),
    ] = None,
    twin: Annotated[
        Path | None,
        typer.Option(
            "--twin", metavar="FILE.toml", help="With --report: score this twin instead of searching for one."
        ),
    ] = None,
    policy: Annotated[
        str | None,
        typer.Option(
            "-p",
            "--policy",
            metavar="POLICY[,key=value...]",
            help="With --report: score this policy instead of the twin's rules.",
        ),
    ] = None,
    cluster: Annotated[
        list[str] | None,
        typer.Option("--cluster-name", metavar="NAME", help="Only this cluster; may be repeated. All by default."),
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", min=1, metavar="N", help="Use only the first N jobs of each cluster.")
    ] = 100_000,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the random start-up delays.")] = 0,
    force: ForceReplay = False,
    shard: Shard = None,
    collect: Collect = False,
) -> None:
    """Find the replay settings that best reproduce the log: the twin of each cluster.

    tracekit chooses the settings on the first 60 % of the time, and grades how well the replay reproduces the waits of
    the rest: close, fair, rough or poor. Effects of changes are reported for close and fair twins. You can read and
    edit FILE.toml, and pass it to replay, sweep, guidelines, plan and analyze with --twin.

    With --report, OUT contains fidelity.json (grades, scores, and the tested candidates), fidelity.parquet (by gang
    size and VC), quantiles.parquet and queue.parquet with plots of both for each cluster, and twin.toml. Only jobs held
    out from the calibration are compared.

    With --shard I/N N processes, on machines that share FILE.toml.runs, divide the candidates of each stage of the
    search. Each stage needs all results of the previous stage. So a shard that has finished its part takes over
    unfinished work of the others, and each shard runs to the end. --collect then writes FILE.toml.

    Example: tracekit calibrate my-trace -o twin.toml
    """
    from tracekit.calibration.api import calibrate as search
    from tracekit.calibration.twin import write_twin
    from tracekit.cli.display import TerminalProgress

    if out is None and report is None:
        raise UsageError("no output is named", hint="give -o FILE.toml, --report OUT or both")
    if report is not None:
        _check_report(twin, shard, out, collect=collect)
    elif twin is not None or policy is not None:
        raise UsageError(
            "works only with --report", where="--policy" if twin is None else "--twin", hint="add --report OUT"
        )
    if out is not None:
        refuse_remote(out)
    say_need_of_jobs(trace, "calibrate", limit=limit)
    if report is not None:
        _show_scores(_report(trace, report, twin, policy, cluster, limit, seed, force=force, also=out))
        typer.echo(f"fidelity: {report}")
    elif out is not None:
        shared = asked_work(out, shard, collect=collect)
        with TerminalProgress() as progress:
            found = search(trace, clusters=cluster or None, limit=limit, seed=seed, shared=shared, progress=progress)
            if shard is None:
                write_twin(found.twin, out)
        if shared is not None and shard is not None:
            echo_shard(shared, "candidates")
            return
        _show_candidates(found)
    if out is not None:
        typer.echo(f"twin: {out}")


def _check_report(twin: Path | None, shard: str | None, out: Path | None, *, collect: bool) -> None:
    """Refuse what does not go together with --report."""
    if shard is not None or collect:
        raise UsageError(
            "cannot be combined with --report",
            where="--collect" if collect else "--shard",
            hint="write the twin first, then score it with --twin FILE.toml --report OUT",
        )
    if twin is not None and out is not None:
        raise UsageError(
            "cannot be combined with --twin",
            where="-o",
            hint="with --twin, tracekit scores that twin and writes no other",
        )


def _report(
    trace: str,
    folder: Path,
    twin: Path | None,
    policy: str | None,
    cluster: list[str] | None,
    limit: int,
    seed: int,
    *,
    force: bool,
    also: Path | None,
) -> FidelityStudy:
    """Score twins, write the folder, and also the twins that were searched."""
    from tracekit.calibration.fidelity import fidelity, write_fidelity
    from tracekit.calibration.twin import write_twin
    from tracekit.cli.display import TerminalProgress
    from tracekit.report.replay_pictures import fidelity_pictures

    with TerminalProgress() as progress:
        study = fidelity(trace, twin, policy, clusters=cluster or None, limit=limit, seed=seed, progress=progress)
        write_fidelity(study, folder, force=force, draw=fidelity_pictures)
        if also is not None:
            write_twin(study.calibration.twin, also)
    return study


def _show_scores(study: FidelityStudy) -> None:
    from tracekit.cli.display import print_frame

    for one in study.clusters:
        shown = [c for c in one.score.table.columns if not c.endswith(("_low", "_high")) or c.startswith(_INTERVALS)]
        print_frame(one.score.table.select(shown))
    for sentence in study.sentences:
        typer.echo(sentence)


def _show_candidates(found: Calibration) -> None:
    from tracekit.cli.display import print_table

    for one in found.clusters:
        table = one.candidates().drop_nulls("distance").head(_SHOWN)
        headers = ["", "distance", "mean wait [s]", "capacity", "rules"]
        rows = [
            ["chosen" if r["chosen"] else "", r["distance"], r["mean_wait_s"], r["capacity"], r["rules"]]
            for r in table.iter_rows(named=True)
        ]
        typer.echo("")
        print_table(headers, rows)
        for line in one.sentences:
            typer.echo(line)
    for name, why in found.left_out.items():
        typer.echo(f"{name}: no twin: {why}")
