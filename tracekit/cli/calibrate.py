"""tracekit calibrate."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tracekit.cli.display import TerminalProgress, print_frame, print_shard, print_table
from tracekit.cli.needs import say_need
from tracekit.cli.options import TraceFolder, Where, part_of, shared_work
from tracekit.errors import UsageError
from tracekit.places import refuse_remote
from tracekit.settings import CalibrateSettings, Collect, Flag, ForceReplay, Shard

if TYPE_CHECKING:
    from tracekit.calibration.api import Calibration
    from tracekit.calibration.fidelity import FidelityStudy

_SHOWN = 8
"""Number of candidates per cluster shown on the terminal."""
_INTERVALS = ("ratio_", "agreeing_")
"""Columns whose intervals are shown on the terminal. fidelity.parquet has all intervals."""


def calibrate(
    trace: TraceFolder,
    out: Annotated[Path | None, Flag("-o --output FILE.toml", "File for the twin.")] = None,
    report: Annotated[
        Path | None,
        Flag("--report OUT", "Folder for the scores, which show how far to trust the twin or the --policy."),
    ] = None,
    *,
    settings: CalibrateSettings,
    where: Where = None,
    force: ForceReplay = False,
    shard: Shard = None,
    collect: Collect = False,
) -> None:
    """Find the replay settings that best reproduce the log: the twin of each cluster.

    tracekit chooses the settings on the first 60 % of the log, and grades how well the replay reproduces the waits in
    the rest: close, fair, rough or poor. Effects of changes are reported only for close and fair twins. You can read
    and edit FILE.toml, and pass it to replay, sweep, guidelines, plan and analyze with --twin.

    With --report, OUT contains twin.toml, fidelity.json (grades, scores and the tested candidates), fidelity.parquet
    (scores by gang size and VC), and quantiles.parquet and queue.parquet with plots of both for each cluster. Only jobs
    that the calibration did not use are compared.

    With --shard I/N, N processes on machines that share FILE.toml.runs divide the candidates in each search stage. A
    stage needs all results of the previous one, so a shard that has finished its part takes over unfinished work from
    the others. --collect then writes FILE.toml.

    Example: tracekit calibrate my-trace -o twin.toml
    """
    from tracekit.calibration.api import calibrate as search
    from tracekit.calibration.twin import write_twin

    _check_outputs(out, report, settings, shard, collect=collect)
    say_need(trace, "calibrate", limit=settings.limit)
    shared = None if out is None else shared_work(out, shard, collect=collect)
    jobs: dict[str, Any] = {"clusters": settings.clusters or None, "limit": settings.limit, "seed": settings.seed}
    study, source = None, part_of(trace, where)
    with TerminalProgress() as progress:
        if report is None:
            found = search(source, **jobs, shared=shared, progress=progress)
        else:
            from tracekit.calibration.fidelity import fidelity, write_fidelity
            from tracekit.report.replay_pictures import fidelity_pictures

            study = fidelity(source, settings.twin, settings.policy, **jobs, progress=progress)
            write_fidelity(study, report, force=force, draw=fidelity_pictures)
            found = study.calibration
        if out is not None and shard is None:
            write_twin(found.twin, out)
    if shared is not None and shard is not None:
        print_shard(shared, "candidates")
        return
    if study is None:
        _show_candidates(found)
    else:
        _show_scores(study)
        typer.echo(f"fidelity: {report}")
    if out is not None:
        typer.echo(f"twin: {out}")


def _check_outputs(
    out: Path | None, report: Path | None, settings: CalibrateSettings, shard: str | None, *, collect: bool
) -> None:
    """Reject options that cannot be combined."""
    twin = settings.twin
    if out is None and report is None:
        raise UsageError("no output is given", hint="give -o FILE.toml, --report OUT or both")
    if report is None and (twin is not None or settings.policy is not None):
        raise UsageError(
            "works only with --report", where="--policy" if twin is None else "--twin", hint="add --report OUT"
        )
    if report is not None and (shard is not None or collect):
        raise UsageError(
            "cannot be combined with --report",
            where="--collect" if collect else "--shard",
            hint="write the twin first, then score it with --twin FILE.toml --report OUT",
        )
    if report is not None and twin is not None and out is not None:
        raise UsageError(
            "cannot be combined with --twin",
            where="-o",
            hint="with --twin, tracekit only scores that twin and writes no new twin",
        )
    if out is not None:
        refuse_remote(out)


def _show_scores(study: FidelityStudy) -> None:
    for one in study.clusters:
        shown = [c for c in one.score.table.columns if not c.endswith(("_low", "_high")) or c.startswith(_INTERVALS)]
        print_frame(one.score.table.select(shown))
    for sentence in study.sentences:
        typer.echo(sentence)


def _show_candidates(found: Calibration) -> None:
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
