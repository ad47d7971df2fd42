"""Sweeps: every combination of policies, placements, clusters, loads, seeds and windows, in parallel processes.

Each finished run is a file of its own, named by the digest of all that it depends on. An interrupted sweep resumes,
after a change of its file only the new runs are made, and shards on many machines share one folder.
"""

from __future__ import annotations

import contextlib
import io
import os
from dataclasses import fields
from functools import partial
from multiprocessing import get_context
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from tracekit.errors import DamagedTraceError, OutputError, UnfinishedError, UsageError
from tracekit.interruption import end_process, register_cleanup, unregister_cleanup
from tracekit.outputs import lock_folder, output_errors
from tracekit.places import refuse_remote
from tracekit.progress import Progress
from tracekit.replay.sweeps.digests import digest_of, kind_of
from tracekit.replay.sweeps.file import SweepRun, read_sweep
from tracekit.replay.sweeps.run import carry_out, forget_files, work
from tracekit.replay.sweeps.table import table_of, told_of
from tracekit.shards.own_files import write_whole
from tracekit.shards.results import FinishedResults
from tracekit.shards.shard import Shard, dealt, numbers_in_words
from tracekit.shards.work import SharedWork, check_shard_options
from tracekit.text import counted, cut

if TYPE_CHECKING:
    from collections.abc import Mapping


# The processes of a sweep.

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from multiprocessing.context import SpawnProcess

    CarryOut = Callable[[SweepRun], dict[str, Any]]


def carried_out(
    pending: Iterable[tuple[str, SweepRun]], workers: int, perform: CarryOut
) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the digest and the summary of each run as it ends; a run is asked for when a process is free for it."""
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

    def __init__(self, perform: CarryOut) -> None:
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


# What is said of runs that no shard has made.

_NAMED = 10
"""Missing runs that are named one by one."""


def missing_text(shard: Shard) -> str:
    """Return what stands as the error of a run that is missing."""
    return f"missing: shard {shard} has not made it" if shard.of > 1 else "missing: it was not made"


def missing_error(
    missing: Mapping[str, SweepRun],
    owner: Mapping[str, int],
    runs: Mapping[str, SweepRun],
    shards: int,
    command: str,
    out: Path,
    progress: Progress,
) -> UnfinishedError:
    """Return the error that names the shards of missing runs; the first of the runs become notes.

    Parameters
    ----------
    missing, runs : mapping
        Those that are missing, and all, by digest.
    owner : mapping
        The number of each one's shard.
    shards : int
        How many shards there are; 1 where the work was not divided.
    command : str
        The command of the sweep in one piece.
    out : Path
        The sweep's folder.
    progress : Progress
        Receives the notes.
    """
    varied = [f.name for f in fields(SweepRun) if len({getattr(run, f.name) for run in runs.values()}) > 1]
    for digest, run in list(missing.items())[:_NAMED]:
        values = ", ".join(f"{name} {cut(str(getattr(run, name)), 60)}" for name in varied) or run.policy
        of = f" (shard {Shard(owner[digest], shards)})" if shards > 1 else ""
        progress.note(f"missing: {values}{of}")
    if len(missing) > _NAMED:
        progress.note(f"missing: {len(missing) - _NAMED:,} more")
    numbers = sorted({owner[digest] for digest in missing})
    if shards == 1:
        lacks, again = "", f"'{command}' makes them"
    else:
        lacks = f", of {'shard' if len(numbers) == 1 else 'shards'} {numbers_in_words(numbers)} of {shards:,}"
        again = f"run '{command} --shard {numbers[0]}/{shards}'"
        if len(numbers) > 1:
            again += f" and so on (Slurm: --array={numbers_in_words(numbers)})"
        again += ", then --collect again"
    return UnfinishedError(
        f"{len(missing):,} of {len(runs):,} runs are missing{lacks}",
        where=out,
        hint=f"{again}; --allow-missing writes the table without them",
    )


if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import polars as pl

    from tracekit.replay.sweeps.run import InTwin

    _CarryOut = Callable[[SweepRun], dict[str, Any]]

_RUNS = "runs"


def sweep(
    file: str | Path,
    out: str | Path,
    *,
    twin: Path | None = None,
    in_twin: InTwin | None = None,
    workers: int | None = None,
    shard: str | None = None,
    collect: bool = False,
    allow_missing: bool = False,
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
    shard : str, optional
        I/N, with I from 1 to N: make the runs of this shard alone, return their rows, and write no table. Shards may
        run at the same time, on machines that share OUT.
    collect : bool
        Make nothing: return, and write, the table of the runs that shards made.
    allow_missing : bool
        With `collect`: a run that is missing is a row without figures, whose error says so.
    draw : callable, optional
        Turns the table into an SVG, written as OUT/tradeoffs.svg.
    progress : Progress, optional
        Advances with every run.

    Raises
    ------
    UsageError
        The file cannot be used, `workers` is less than 1, or `shard` is no shard.
    UnfinishedError
        Runs are missing that are to be collected.
    OutputError
        OUT is something else, or cannot be written.
    """
    progress = progress or Progress()
    if workers is not None and workers < 1:
        raise UsageError(f"a sweep needs at least 1 worker, not {workers}", where="--workers")
    asked = check_shard_options(shard, collect=collect)
    if allow_missing and not collect:
        raise UsageError("works only with --collect", where="--allow-missing", hint="leave it out")
    forget_files()
    runs = read_sweep(Path(file), twin)
    perform: _CarryOut = carry_out
    if runs[0].twin is not None:
        if in_twin is None:
            raise UsageError("is a sweep in a twin", where=Path(file), hint="make it with tracekit.sweep")
        runs = in_twin.check(runs)
        perform = partial(carry_out, in_twin=in_twin)
    folder = Path(out)
    listed = [(digest_of(run), run) for run in runs]
    if collect:
        command = f"tracekit sweep {file} -o {out}" + ("" if twin is None else f" --twin {twin}")
        table = table_of(_collected(listed, folder, command, progress, allow_missing=allow_missing))
        _write_table(table, folder, draw)
        return table
    if asked is not None:
        _check_place(folder)
        results = FinishedResults(folder / _RUNS, folder)
        results.note_shards(asked.of)
        made = _made(listed, SharedWork(results, asked, helps=False), workers, perform, progress)
        return table_of([(digest, run, made[digest]) for digest, run in listed if digest in made])
    with _alone(folder) as results:
        made = _made(listed, SharedWork(results, Shard(1, 1), helps=False), workers, perform, progress)
        table = table_of([(digest, run, made[digest]) for digest, run in listed])
        _write_table(table, folder, draw)
        return table


def _made(
    listed: list[tuple[str, SweepRun]], work: SharedWork, workers: int | None, perform: _CarryOut, progress: Progress
) -> dict[str, dict[str, Any]]:
    """Make the missing runs of a shard; return the summaries of all of its runs, or why one failed, by digest."""
    assert work.shard is not None  # noqa: S101 -- who collects calls `_collected`
    runs = dict(listed)
    kinds = {digest: kind_of(run) for digest, run in runs.items()}
    owner = dealt(kinds, work.shard.of)
    own = [digest for digest in runs if owner[digest] == work.shard.number]
    missing = work.to_make(kinds)
    if len(missing) < len(own):
        progress.note(f"{len(own) - len(missing):,} of {len(own):,} runs already exist")
    progress.stage(f"sweep of {counted(len(missing), 'runs')}", total=len(missing))
    failed: dict[str, dict[str, Any]] = {}
    # Others may make one of these runs meanwhile: an unsharded sweep, or a shard that was started twice.
    pending = ((digest, runs[digest]) for digest in work.still_missing(missing))
    for digest, summary in carried_out(pending, min(workers or os.cpu_count() or 1, len(missing)), perform):
        if "error" in summary:
            progress.note(f"a run failed: {runs[digest].policy}: {summary['error']}")
            failed[digest] = summary
            work.results.write_failure(digest, summary["error"])
        else:
            work.keep(digest, orjson.loads(orjson.dumps(summary)))
        progress.advance(1)
    found = {digest: work.find(digest) for digest in own}
    return {digest: failed.get(digest, {}) if one is None else one for digest, one in found.items()}


def _collected(
    listed: list[tuple[str, SweepRun]], out: Path, command: str, progress: Progress, *, allow_missing: bool
) -> list[tuple[str, SweepRun, dict[str, Any]]]:
    """Return the summary of each run, or why it failed the last time.

    Raises
    ------
    UnfinishedError
        Runs are missing, and `allow_missing` is not given.
    """
    _check_place(out)
    results = FinishedResults(out / _RUNS, out, make=False)
    found: dict[str, dict[str, Any]] = {}
    missing: dict[str, SweepRun] = {}
    failures = 0
    for digest, run in dict(listed).items():
        summary = results.read(digest)
        if summary is None:
            error = results.failure(digest)
            if error is None:
                missing[digest] = run
                continue
            summary = {"error": error}
            failures += 1
        found[digest] = told_of(summary)
    shards = results.shards or 1
    owner = dealt({digest: kind_of(run) for digest, run in listed}, shards)
    if missing and not allow_missing:
        raise missing_error(missing, owner, dict(listed), shards, command, out, progress)
    if failures:
        progress.note(f"{counted(failures, 'runs')} failed; their shards try them again when they are run again")
    for digest in missing:
        found[digest] = {"error": missing_text(Shard(owner[digest], shards))}
    return [(digest, run, found[digest]) for digest, run in listed]


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
        It is something else.
    """
    refuse_remote(out)
    with output_errors(out):
        if out.exists() and not (out / _RUNS).is_dir() and (not out.is_dir() or any(out.iterdir())):
            raise OutputError("exists and is not a sweep", where=out, hint="choose another -o")


@contextlib.contextmanager
def _alone(out: Path) -> Iterator[FinishedResults]:
    """Yield OUT/runs to one unsharded sweep at a time.

    The lock keeps somebody from making everything twice by mistake; nothing else hangs on it, and shards take none.
    """
    _check_place(out)
    results = FinishedResults(out / _RUNS, out)
    with lock_folder(results.folder, shown=out):
        yield results
