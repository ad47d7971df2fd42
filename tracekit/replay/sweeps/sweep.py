"""Sweeps: every combination of policies, placements, clusters, loads, seeds and windows, in parallel processes.

Each finished run is a file of its own, named by the digest of all that it depends on. An
interrupted sweep resumes, and after a change of its file only the new runs are made.
"""

from __future__ import annotations

import contextlib
import io
import os
from dataclasses import asdict, fields
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import polars as pl

from tracekit.errors import DamagedTraceError, OutputError, UsageError
from tracekit.interruption import end_process, register_cleanup, unregister_cleanup
from tracekit.outputs import StagedFiles, lock_folder, output_errors
from tracekit.places import refuse_remote
from tracekit.progress import Progress
from tracekit.replay.sweeps.file import SweepRun, read_sweep
from tracekit.replay.sweeps.run import carry_out, digest_of, forget_files, work
from tracekit.text import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from multiprocessing.context import SpawnProcess

    from tracekit.replay.sweeps.run import InTwin

    _CarryOut = Callable[[SweepRun], dict[str, Any]]

__all__ = ["EFFECTS", "PARAMETERS", "sweep"]

_RUNS = "runs"

_FIGURES: dict[str, type[pl.DataType]] = {
    "jobs": pl.Int64,
    "completed": pl.Int64,
    "unschedulable": pl.Int64,
    **dict.fromkeys(
        (
            "avg_jct_s",
            "median_jct_s",
            "p95_jct_s",
            "p99_jct_s",
            "avg_queue_s",
            "median_queue_s",
            "p95_queue_s",
            "p99_queue_s",
            "max_queue_s",
            "avg_bounded_slowdown",
            "makespan_s",
            "gpu_utilization_share",
            "fragmentation_share",
        ),
        pl.Float64,
    ),
    "preemptions": pl.Int64,
    "migrations": pl.Int64,
    **dict.fromkeys(
        (
            "gpu_hours_lost_to_overhead",
            "jain_fairness_vc",
            "max_finish_time_ratio",
            "late_share",
            "energy_kwh",
            "energy_cost",
        ),
        pl.Float64,
    ),
}

_TYPES = {"str": pl.String, "bool": pl.Boolean, "float": pl.Float64, "int": pl.Int64}
PARAMETERS: dict[str, type[pl.DataType]] = {
    field.name: _TYPES[str(field.type).removesuffix(" | None")] for field in fields(SweepRun)
}
"""Columns of what a run is of."""

EFFECTS: dict[str, type[pl.DataType]] = {
    f"{figure}_{what}{end}_s": pl.Float64
    for what in ("queue", "jct")
    for figure, end in (("recorded", ""), ("expected", ""), ("expected", "_low"), ("expected", "_high"))
}
"""Columns of what the log recorded and of what a run in a twin would make of it."""


def sweep(
    file: str | Path,
    out: str | Path,
    *,
    twin: Path | None = None,
    in_twin: InTwin | None = None,
    workers: int | None = None,
    draw: Callable[[pl.DataFrame], str] | None = None,
    progress: Progress | None = None,
) -> pl.DataFrame:
    """Make the runs of a file (see `file.TEMPLATE`) that OUT does not hold yet; return one row a run.

    OUT holds runs/<digest>.json, the summary of each finished run, and sweep.parquet: digest, the parameters (trace,
    cluster_name, cluster, partitioned, start, end, load, gpus, limit, models, twin, force, placement, seed, policy),
    cluster_nodes, cluster_gpus, the figures of summary.json that are one number, what a run in a twin does to the
    recorded times, and error (NULL where the run is done). A run that fails is a row with its error; it is tried again
    the next time.

    Of a run in a twin, recorded_queue_s and recorded_jct_s are the mean wait and completion time by the log, and
    expected_queue_s, expected_queue_low_s, expected_queue_high_s (and _jct_) what they would be, with the ends of the
    95 % interval [s]; effect_jobs is how many jobs that is of. Where it is not known these are NULL, and effect_reason
    says why.

    Parameters
    ----------
    file : str or Path
        The sweep, TOML.
    out : str or Path
        The folder, new or of an earlier call.
    twin : Path, optional
        A twin.toml, in place of the one that the file names.
    in_twin : InTwin, optional
        Makes runs in a twin (see `tracekit.calibration.sweep`).
    workers : int, optional
        Processes; as many as there are processors when None. With 1 everything runs in this one.
    draw : callable, optional
        Turns the table into an SVG, written as OUT/tradeoffs.svg.
    progress : Progress, optional
        Advances with every run.

    Raises
    ------
    UsageError
        The file cannot be used, or `workers` is less than 1.
    OutputError
        OUT is something else, or cannot be written.
    """
    progress = progress or Progress()
    if workers is not None and workers < 1:
        raise UsageError(f"a sweep needs at least 1 worker, not {workers}", where="--workers")
    forget_files()
    runs = read_sweep(Path(file), twin)
    perform: _CarryOut = carry_out
    if runs[0].twin is not None:
        if in_twin is None:
            raise UsageError("is a sweep in a twin", where=Path(file), hint="make it with tracekit.sweep")
        runs = in_twin.check(runs)
        perform = partial(carry_out, in_twin=in_twin)
    with _opened(Path(out)) as folder:
        digests = [digest_of(run) for run in runs]
        found: dict[str, dict[str, Any]] = {}
        for digest in digests:
            finished = _read(folder / f"{digest}.json")
            if finished is not None:
                found[digest] = finished
        pending = {d: run for d, run in zip(digests, runs, strict=True) if d not in found}
        if found:
            progress.note(f"{len(found):,} of {len(set(digests)):,} runs are there already")
        progress.stage(f"sweep of {counted(len(pending), 'runs')}", total=len(pending))
        number = min(workers or os.cpu_count() or 1, len(pending))
        for digest, summary in _carried_out(list(pending.items()), number, perform):
            found[digest] = summary
            if "error" in summary:
                progress.note(f"a run failed: {pending[digest].policy}: {summary['error']}")
            else:
                _write(folder / f"{digest}.json", orjson.dumps(summary, option=orjson.OPT_INDENT_2))
            progress.advance(1)
        table = _table([(d, run, found[d]) for d, run in zip(digests, runs, strict=True)])
        with output_errors(folder.parent):
            buffer = io.BytesIO()
            table.write_parquet(buffer)
            _write(folder.parent / "sweep.parquet", buffer.getvalue())
            if draw is not None and table["avg_jct_s"].is_not_null().any():
                _write(folder.parent / "tradeoffs.svg", draw(table).encode())
        return table


@contextlib.contextmanager
def _opened(out: Path) -> Iterator[Path]:
    """Yield OUT/runs, made if absent, to one sweep at a time."""
    refuse_remote(out)
    with output_errors(out):
        if out.exists() and not (out / _RUNS).is_dir() and (not out.is_dir() or any(out.iterdir())):
            raise OutputError("exists and is not a sweep", where=out, hint="choose another -o")
        folder = out / _RUNS
        folder.mkdir(parents=True, exist_ok=True)
    with lock_folder(folder, shown=out):
        for part in folder.glob(".*.partial-*"):
            part.unlink(missing_ok=True)
        yield folder


def _read(path: Path) -> dict[str, Any] | None:
    """Return the summary of a finished run; None where there is none, or it is damaged."""
    try:
        found = orjson.loads(path.read_bytes())
    except (OSError, orjson.JSONDecodeError):
        return None
    return found if isinstance(found, dict) and set(_FIGURES) <= set(found) else None


def _write(path: Path, content: bytes) -> None:
    with StagedFiles(path, force=True) as staged, output_errors(path):
        staged.part(path).write_bytes(content)
        staged.commit()


def _table(rows: list[tuple[str, SweepRun, dict[str, Any]]]) -> pl.DataFrame:
    return pl.DataFrame(
        [
            {
                "digest": digest,
                **asdict(run),
                "cluster_nodes": summary.get("cluster", {}).get("nodes"),
                "cluster_gpus": summary.get("cluster", {}).get("gpus"),
                **{key: summary.get(key) for key in _FIGURES},
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
            **_FIGURES,
            **EFFECTS,
            "effect_jobs": pl.Int64,
            "effect_reason": pl.String,
            "error": pl.String,
        },
        orient="row",
    )


def _carried_out(
    pending: list[tuple[str, SweepRun]], workers: int, perform: _CarryOut
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the digest and the summary of each run as it ends."""
    if workers <= 1:
        for digest, run in pending:
            yield digest, perform(run)
        return
    pool = [_Worker(perform) for _ in range(workers)]
    try:
        waiting = iter(pending)
        busy = [worker for worker in pool if worker.next_of(waiting)]
        while busy:
            ready = wait([worker.link for worker in busy])
            for worker in [w for w in busy if w.link in ready]:
                yield worker.digest, worker.answer()
                if not worker.next_of(waiting):
                    busy.remove(worker)
    finally:
        for worker in pool:
            worker.stop()


class _Worker:
    """A process that carries out one run after the other; where it dies, a new one takes its place."""

    def __init__(self, perform: _CarryOut) -> None:
        self.digest = ""
        self._perform = perform
        self._start()

    def _start(self) -> None:
        # Spawned, not forked: threads of the libraries do not survive a fork.
        context = get_context("spawn")
        self.link: Connection
        self.link, other = context.Pipe()
        self._process: SpawnProcess = context.Process(target=work, args=(other, self._perform), daemon=True)
        self._process.start()
        self._key = register_cleanup(partial(end_process, self._process.pid or 0))
        other.close()

    def next_of(self, waiting: Iterator[tuple[str, SweepRun]]) -> bool:
        """Begin the next run; return whether there was one."""
        for digest, run in waiting:
            self.digest = digest
            with contextlib.suppress(OSError):  # a process that died meanwhile is noticed by its answer
                self.link.send(run)
            return True
        return False

    def answer(self) -> dict[str, Any]:
        """Return the summary of the run that ended."""
        try:
            found: dict[str, Any] | DamagedTraceError = self.link.recv()
        except (EOFError, OSError):
            self.stop()
            code = self._process.exitcode
            self._start()
            return {"error": f"its process ended (exit code {code}): memory may have run out; use fewer workers"}
        if isinstance(found, DamagedTraceError):
            raise found
        return found

    def stop(self) -> None:
        """End the process."""
        self._process.terminate()
        self._process.join(5)
        if self._process.is_alive():
            self._process.kill()
            self._process.join()
        unregister_cleanup(self._key)
        self.link.close()
