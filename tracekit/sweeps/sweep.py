"""Sweeps: every combination of policies, placements, clusters, loads, seeds and windows, in parallel processes.

Each finished run is a file, named by the digest of everything that it depends on. So an interrupted sweep resumes, and
after a change to the sweep file only new runs are performed. Shards on many machines can share one folder.
"""

from __future__ import annotations

import contextlib
import io
import os
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import polars as pl

from tracekit.errors import OutputError, UnfinishedError, UsageError
from tracekit.outputs import lock_folder, output_errors
from tracekit.places import refuse_remote
from tracekit.progress import Progress
from tracekit.runs.ledger import WHOLE, Ledger, RunFolder, Shard, dealt, forget_files, numbers_in_words, write_whole
from tracekit.runs.pool import ProcessPool
from tracekit.sweeps.file import SweepRun, read_sweep
from tracekit.sweeps.run import RunMaker, digest_of, kind_of, stated_by_twins
from tracekit.text import counted, cut

if TYPE_CHECKING:
    from collections.abc import Callable

FIGURES: dict[str, type[pl.DataType]] = {
    "jobs": pl.Int64,
    "completed": pl.Int64,
    "unschedulable": pl.Int64,
    **dict.fromkeys(
        (
            *("avg_jct_s", "median_jct_s", "p95_jct_s", "p99_jct_s", "avg_queue_s", "median_queue_s", "p95_queue_s"),
            *("p99_queue_s", "max_queue_s", "avg_bounded_slowdown", "makespan_s", "gpu_utilization_share"),
            "fragmentation_share",
        ),
        pl.Float64,
    ),
    "preemptions": pl.Int64,
    "migrations": pl.Int64,
    **dict.fromkeys(
        (
            *("gpu_hours_lost_to_overhead", "jain_fairness_vc", "max_finish_time_ratio", "late_share", "energy_kwh"),
            "energy_cost",
        ),
        pl.Float64,
    ),
}

_TYPES = {"str": pl.String, "bool": pl.Boolean, "float": pl.Float64, "int": pl.Int64}
PARAMETERS: dict[str, type[pl.DataType]] = {
    field.name: _TYPES[str(field.type).removesuffix(" | None")] for field in fields(SweepRun)
}
"""Columns that identify a run."""

EFFECTS: dict[str, type[pl.DataType]] = {
    f"{figure}_{what}{end}_s": pl.Float64
    for what in ("queue", "jct")
    for figure, end in (("recorded", ""), ("expected", ""), ("expected", "_low"), ("expected", "_high"))
}
"""Columns with the recorded means, and with the means expected under the policy of a run in a twin."""

_RUNS = "runs"
_NAMED = 10
"""Maximum number of missing runs that are listed individually."""


def sweep(
    file: str | Path,
    out: str | Path,
    *,
    twin: str | Path | None = None,
    workers: int | None = None,
    shard: str | None = None,
    collect: bool = False,
    allow_missing: bool = False,
    draw: Callable[[pl.DataFrame], str] | None = None,
    progress: Progress | None = None,
) -> pl.DataFrame:
    """Perform the runs of a file (see `file.TEMPLATE`) that are missing in OUT, and return one row per run.

    OUT contains runs/<digest>.json, the summary of each finished run, and sweep.parquet. The columns of sweep.parquet
    are digest, the parameters (trace, cluster_name, cluster, partitioned, start, end, load, gpus, limit, models, twin,
    force, placement, seed, policy), cluster_nodes, cluster_gpus, the single-number figures of summary.json, the effect
    on recorded times for runs in a twin, and error (NULL if the run succeeded). A failed run is a row with its error,
    and is retried the next time.

    For runs in a twin, recorded_queue_s and recorded_jct_s are the recorded mean wait and completion time.
    expected_queue_s, expected_queue_low_s and expected_queue_high_s (and _jct_) are the expected values and the bounds
    of their 95 % intervals [s], and effect_jobs is the number of jobs. If the effect is unknown, these columns are NULL
    and effect_reason gives the reason.

    Parameters
    ----------
    file : str or Path
        The sweep file (TOML).
    out : str or Path
        The output folder, new or from an earlier call.
    twin : path, optional
        The twin.toml to use instead of the twin named in the file.
    workers : int, optional
        Number of processes, or None for one per processor. With 1, everything runs in the current process.
    shard : str, optional
        I/N, with I from 1 to N. Perform only the runs of this shard, return their rows, and write no table. Shards may
        run at the same time on machines that share OUT.
    collect : bool
        Perform no runs, but return and write the table of the runs that shards performed.
    allow_missing : bool
        With `collect`, a missing run becomes a row without figures whose error says that the run is missing.
    draw : callable, optional
        Function that turns the table into an SVG, which is written as OUT/tradeoffs.svg.
    progress : Progress, optional
        Reports every run.

    Raises
    ------
    TracekitError
        The file or the twin cannot be used, `workers` is less than 1, or `shard` is invalid.
    UnfinishedError
        Runs to collect are missing.
    OutputError
        OUT is not a sweep's folder, or cannot be written.
    """
    progress = progress or Progress()
    if workers is not None and workers < 1:
        raise UsageError(f"a sweep needs at least 1 worker, not {workers}", where="--workers")
    asked = Shard.asked(shard, collect=collect)
    if allow_missing and not collect:
        raise UsageError("works only with --collect", where="--allow-missing", hint="leave it out")
    forget_files()
    listed = read_sweep(Path(file), None if twin is None else Path(twin))
    if listed[0].twin is not None:
        listed = stated_by_twins(listed)
    rows = [(digest_of(run), run) for run in listed]
    place = Path(out)
    _check_place(place)
    folder = RunFolder(place / _RUNS, place, make=not collect)
    if asked is not None:
        folder.note_shards(asked.of)
    # The lock keeps users from doing the work twice by mistake. Shards take no lock.
    with contextlib.nullcontext() if collect or asked else lock_folder(folder.folder, shown=place):
        if collect:
            command = f"tracekit sweep {file} -o {out}" + ("" if twin is None else f" --twin {twin}")
            found = _collected(dict(rows), folder, command, progress, allow_missing=allow_missing)
        else:
            found = _made(dict(rows), folder, asked or WHOLE, workers, progress)
        table = _table_of([(digest, run, found[digest]) for digest, run in rows if digest in found])
        if asked is None:
            _write_table(table, place, draw)
    return table


def _made(
    runs: dict[str, SweepRun], folder: RunFolder, shard: Shard, workers: int | None, progress: Progress
) -> dict[str, dict[str, Any]]:
    """Perform the missing runs of a shard. Return the summary or the error of each of its runs, by digest."""
    ledger = Ledger(folder, shard, helps=False)
    kinds = {digest: kind_of(run) for digest, run in runs.items()}
    own = [digest for digest, number in dealt(kinds, shard.of).items() if number == shard.number]
    missing = list(ledger.missing(kinds))
    if len(missing) < len(own):
        progress.note(f"{len(own) - len(missing):,} of {len(own):,} runs already exist")
    progress.stage(f"sweep of {counted(len(missing), 'runs')}", total=len(missing))
    failed: dict[str, dict[str, Any]] = {}
    # Another process may also perform some of these runs: an unsharded sweep, or a shard that was started twice.
    pending = ((digest, (runs[digest],)) for digest in ledger.missing(kinds))
    number = min(workers or os.cpu_count() or 1, len(missing))
    with contextlib.closing(ProcessPool(RunMaker().summary_or_error, number, _lost)) as pool:
        for digest, summary in pool.results(pending):
            if "error" in summary:
                progress.note(f"a run failed: {runs[digest].policy}: {summary['error']}")
                failed[digest] = summary
                folder.write(digest, summary, failed=True)
            else:
                ledger.put(digest, orjson.loads(orjson.dumps(summary)))
            progress.advance(1)
    return {digest: ledger.get(digest) or failed.get(digest, {}) for digest in own}


def _lost(code: int | None) -> dict[str, Any]:
    return {"error": f"its process ended with exit code {code}; memory may have run out, so use fewer workers"}


def _collected(
    runs: dict[str, SweepRun], folder: RunFolder, command: str, progress: Progress, *, allow_missing: bool
) -> dict[str, dict[str, Any]]:
    """Return the summary or the last error of each run, by digest.

    Raises
    ------
    UnfinishedError
        Runs are missing, and `allow_missing` is not given.
    """
    found: dict[str, dict[str, Any]] = {}
    missing: list[str] = []
    failures = 0
    for digest in runs:
        summary = folder.read(digest) or folder.read(digest, failed=True)
        if summary is None:
            missing.append(digest)
            continue
        found[digest] = _needed_of(summary)
        failures += "error" in summary
    shards = folder.shards or 1
    owner = dealt({digest: kind_of(run) for digest, run in runs.items()}, shards)
    of_shard = {digest: Shard(owner[digest], shards) for digest in missing}
    if missing and not allow_missing:
        raise _unfinished(runs, of_shard, command, folder.shown, progress)
    if failures:
        progress.note(f"{counted(failures, 'runs')} failed; run their shards again to retry them")
    for digest, shard in of_shard.items():
        what = f"shard {shard} has not performed it" if shard.of > 1 else "it was not performed"
        found[digest] = {"error": f"missing: {what}"}
    return found


def _unfinished(
    runs: dict[str, SweepRun], missing: dict[str, Shard], command: str, out: Path, progress: Progress
) -> UnfinishedError:
    """Return the error that names the shards of missing runs, and list the first missing runs as notes.

    Parameters
    ----------
    runs : dict
        All runs by digest.
    missing : dict
        The shard of each missing run.
    command : str
        The command for the whole sweep.
    out : Path
        The sweep's folder.
    progress : Progress
        Receives the notes.
    """
    varied = [f.name for f in fields(SweepRun) if len({getattr(run, f.name) for run in runs.values()}) > 1]
    for digest, shard in list(missing.items())[:_NAMED]:
        run = runs[digest]
        values = ", ".join(f"{name} {cut(str(getattr(run, name)), 60)}" for name in varied) or run.policy
        progress.note(f"missing: {values}" + (f" (shard {shard})" if shard.of > 1 else ""))
    if len(missing) > _NAMED:
        progress.note(f"missing: {len(missing) - _NAMED:,} more")
    numbers = sorted({shard.number for shard in missing.values()})
    of = next(iter(missing.values())).of
    if of == 1:
        lacks, again = "", f"run '{command}' to perform them"
    else:
        lacks = f", of {'shard' if len(numbers) == 1 else 'shards'} {numbers_in_words(numbers)} of {of:,}"
        again = f"run '{command} --shard {numbers[0]}/{of}'"
        if len(numbers) > 1:
            again += f" and so on (Slurm: --array={numbers_in_words(numbers)})"
        again += ", then --collect again"
    return UnfinishedError(
        f"{len(missing):,} of {len(runs):,} runs are missing{lacks}",
        where=out,
        hint=f"{again}; --allow-missing writes the table without them",
    )


def _needed_of(summary: dict[str, Any]) -> dict[str, Any]:
    """Return the part of a summary that the table needs, in order to save memory."""
    return {key: summary[key] for key in (*FIGURES, "cluster", "effect", "error") if key in summary}


def _table_of(rows: list[tuple[str, SweepRun, dict[str, Any]]]) -> pl.DataFrame:
    """Return the table of runs, given each run's digest and its summary, or {'error': the reason} if it failed."""
    return pl.DataFrame(
        [
            {
                "digest": digest,
                **asdict(run),
                "cluster_nodes": summary.get("cluster", {}).get("nodes"),
                "cluster_gpus": summary.get("cluster", {}).get("gpus"),
                **{key: summary.get(key) for key in FIGURES},
                **{key: summary.get("effect", {}).get(key) for key in EFFECTS},
                "effect_jobs": summary.get("effect", {}).get("jobs"),
                "effect_reason": summary.get("effect", {}).get("reason"),
                "error": summary.get("error"),
            }
            for digest, run, summary in rows
        ],
        schema={
            "digest": pl.String,
            **PARAMETERS,
            "cluster_nodes": pl.Int64,
            "cluster_gpus": pl.Int64,
            **FIGURES,
            **EFFECTS,
            "effect_jobs": pl.Int64,
            "effect_reason": pl.String,
            "error": pl.String,
        },
        orient="row",
    )


def _write_table(table: pl.DataFrame, out: Path, draw: Callable[[pl.DataFrame], str] | None) -> None:
    with output_errors(out):
        buffer = io.BytesIO()
        table.write_parquet(buffer)
        write_whole(out / "sweep.parquet", buffer.getvalue())
        if draw is not None and table["avg_jct_s"].is_not_null().any():
            write_whole(out / "tradeoffs.svg", draw(table).encode())


def _check_place(out: Path) -> None:
    """Check that a folder is a sweep's, or can become one.

    Raises
    ------
    OutputError
        The folder is not a sweep's folder.
    """
    refuse_remote(out)
    with output_errors(out):
        if out.exists() and not (out / _RUNS).is_dir() and (not out.is_dir() or any(out.iterdir())):
            raise OutputError("exists and is not a sweep", where=out, hint="choose another -o")
