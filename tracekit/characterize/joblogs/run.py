"""Classify the logs of many jobs, giving one reason per failed trial, and write the failures."""

from __future__ import annotations

import os
import shutil
from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

import polars as pl

from tracekit import schema
from tracekit.characterize.joblogs.classify import Classifier, Hit
from tracekit.characterize.joblogs.logs import LogNames, find_logs, open_log
from tracekit.characterize.joblogs.rules import NO_SIGNATURE, Reason, load_rules
from tracekit.damage import explain_damage
from tracekit.errors import OutputError, SourceError, UsageError
from tracekit.manifest import Capability
from tracekit.outputs import StagedFiles, check_files, output_errors, real_path
from tracekit.progress import Progress
from tracekit.spreadsheets import csv_safe
from tracekit.trace import Trace
from tracekit.trace_writer import TraceWriter

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from tracekit.characterize.joblogs.classify import LogFinding
    from tracekit.characterize.joblogs.logs import LogFile, Owner
    from tracekit.characterize.joblogs.rules import RuleBook

_EVIDENCE = ("job_id", "attempt", "reason", "log_file", "line", "text")


def evidence_file(out: Path) -> Path:
    """Return the path, next to `out`, of the file with the evidence line of each reason.

    Examples
    --------
    >>> from pathlib import Path
    >>> evidence_file(Path("out/failures.parquet")).name
    'failures.lines.csv'
    """
    return out.with_suffix(".lines.csv")


def write_failures(frame: pl.DataFrame, out: Path, *, force: bool = False) -> None:
    """Write the failures table as Parquet, and next to it a CSV file with the evidence line of each reason.

    Parameters
    ----------
    frame : DataFrame
        From `Classification.frame`.
    out : Path
        The Parquet file.
    force : bool
        Whether to replace existing files.

    Raises
    ------
    UsageError
        The name does not end in .parquet.
    OutputError
        A file exists already, or cannot be written.
    """
    check_target(out, force=force)
    table = schema.common("failures")
    evidence = evidence_file(out)
    with output_errors(out):
        out.parent.mkdir(parents=True, exist_ok=True)
        with StagedFiles(out, evidence, force=force) as staged:
            csv_safe(frame.select(_EVIDENCE)).write_csv(staged.part(evidence))
            table.conform(frame.select(table.names)).write_parquet(staged.part(out), compression="zstd")
            staged.commit()


def check_target(out: Path, *, force: bool) -> None:
    """Check before long-running work that `out` can be written.

    Raises
    ------
    UsageError
        The name does not end in .parquet.
    OutputError
        A file exists already and must not be replaced.
    """
    if out.suffix != ".parquet":
        raise UsageError(f"'{out.name}' does not end in .parquet", where="-o", hint="write it like -o failures.parquet")
    check_files(out, evidence_file(out), force=force)


def add_to_trace(trace: Trace | str | Path, frame: pl.DataFrame, *, force: bool = False) -> Trace:
    """Add the failures table to a Trace and return the Trace. An existing table is replaced completely or not at all.

    Parameters
    ----------
    trace : Trace, str or Path
        The Trace, or its folder.
    frame : DataFrame
        Result of `Classification.frame`, for logs that were read with this Trace.
    force : bool
        Whether to replace an existing failures table.

    Raises
    ------
    OutputError
        The Trace already has a failures table or cannot be written.
    """
    trace = Trace.of(trace)
    if trace.has("failures") and not force:
        raise OutputError("already has a failures table", where=trace.path, hint="add --force to replace it")
    folder = real_path(trace.path)
    columns = list(schema.common("failures").names)
    times = frame["time"].drop_nulls()
    window = (times.min().isoformat(), times.max().isoformat()) if len(times) else None  # type: ignore[union-attr]  # of a datetime column
    found = Capability(
        available=frame.height > 0, coverage=1.0 if frame.height else 0.0, window=window, note="why attempts failed"
    )
    with TraceWriter(folder, force=True) as writer:
        if Trace.open(folder).manifest != trace.manifest:
            raise OutputError("changed while this command ran", where=folder, hint="classify the logs again")
        with output_errors(folder):
            for old in sorted(folder.iterdir()):
                if old.name not in ("manifest.json", "failures.parquet", "failures"):
                    _take_over(old, writer.folder / old.name)
        writer.write("failures", frame.select(columns))
        writer.drain()
        jobs = trace.manifest.tables.get("jobs")
        if jobs is not None and jobs.partitions is not None:
            with trace.connect() as con:
                writer.cut(con, ["failures"])
        manifest = replace(
            trace.manifest,
            # The other tables keep their checksums, so earlier damage is still detected.
            tables={
                name: info
                for name, info in {**trace.manifest.tables, "failures": writer.tables().get("failures")}.items()
                if info is not None
            },
            capabilities={**trace.manifest.capabilities, "failures": found},
        )
        return writer.commit(manifest)


def _take_over(old: Path, new: Path) -> None:
    """Give a file or folder a second name; copy it if the file system has no links."""
    if old.is_dir() and not old.is_symlink():
        shutil.copytree(old, new, symlinks=True, copy_function=_take_over_file)
        return
    _take_over_file(old, new)


def _take_over_file(old: str | Path, new: str | Path) -> None:
    try:
        os.link(old, new, follow_symlinks=False)
    except OSError:
        shutil.copy2(old, new, follow_symlinks=False)


# Match logs to the trials of a Trace.

FAILED = (*schema.UNSUCCESSFUL, "preempted")
"""Statuses with which a trial counts as failed."""

_NOT_FAILED = frozenset({"completed", "cancelled", "running", "pending"})


class _Attempt(NamedTuple):
    end: dt.datetime | None
    status: str | None


@dataclass
class TrialLogs:
    """One attempt of a job, with its logs."""

    job_id: str
    attempt: int | None = None
    end: dt.datetime | None = None
    status: str | None = None
    """The status in the Trace, or None if it is unknown or there is no Trace."""
    files: list[LogFile] = field(default_factory=list)

    @property
    def failed(self) -> bool | None:
        """Whether the trial failed according to the Trace, or None if only its log can show this."""
        if self.status in FAILED:
            return True
        return False if self.status in _NOT_FAILED else None


def trials_by_name(files: Iterable[LogFile]) -> tuple[list[TrialLogs], int]:
    """Return the trials that logs name, and the number of logs that name no trial."""
    return _grouped(files, lambda owner: TrialLogs(owner.job_id, owner.attempt))


def _grouped(files: Iterable[LogFile], trial_of: Callable[[Owner], TrialLogs | None]) -> tuple[list[TrialLogs], int]:
    """Return the trials of logs, each with its most likely owner, and the number of logs without a trial."""
    found: dict[tuple[str, int | None], TrialLogs] = {}
    without = 0
    for file in files:
        trial = next((trial for trial in map(trial_of, file.owners) if trial is not None), None)
        if trial is None:
            without += 1
        else:
            found.setdefault((trial.job_id, trial.attempt), trial).files.append(file)
    return list(found.values()), without


class KnownJobs:
    """The jobs of a Trace to which the logs may belong."""

    def __init__(self, trace: Trace, files: Iterable[LogFile]) -> None:
        self._trace = trace
        names = pl.Series("job_id", sorted({o.job_id for f in files for o in f.owners}), dtype=pl.String)
        wanted = names.to_frame().lazy()
        jobs = trace.scan("jobs").join(wanted, on="job_id", how="semi").select("job_id", "end_time", "status")
        self._jobs = {str(job): _Attempt(end, status) for job, end, status in jobs.collect().iter_rows()}
        self._attempts: dict[str, dict[int, _Attempt]] = {}
        if trace.has("attempts"):
            attempts = trace.scan("attempts").join(wanted, on="job_id", how="semi")
            rows = attempts.select("job_id", "attempt", "end_time", "status").sort("job_id", "attempt").collect()
            for job, number, end, status in rows.iter_rows():
                self._attempts.setdefault(str(job), {})[number] = _Attempt(end, status)

    def trials(self, files: Iterable[LogFile]) -> tuple[list[TrialLogs], int]:
        """Return the trials that logs belong to, and the number of logs that belong to no trial of the Trace.

        A log whose name has no attempt number belongs to the last attempt.
        """
        return _grouped(files, self._trial)

    def failed_without_log(self, trials: Iterable[TrialLogs]) -> int:
        """Count the Trace's failed jobs without a log."""
        with_log = {trial.job_id for trial in trials}
        failed = self._trace.scan("jobs").filter(pl.col("status").is_in(list(FAILED))).select(pl.len()).collect().item()
        return int(failed) - sum(self._jobs[job].status in FAILED for job in with_log)

    def _trial(self, owner: Owner) -> TrialLogs | None:
        if owner.job_id not in self._jobs:
            return None
        job = self._jobs[owner.job_id]
        attempts = self._attempts.get(owner.job_id, {})
        if not attempts:
            # If a job never started, or the source has no attempts, the log belongs to the job.
            return None if owner.attempt else TrialLogs(owner.job_id, None, job.end, job.status)
        last = max(attempts)
        number = last if owner.attempt is None else owner.attempt
        if number not in attempts:
            return None
        status = attempts[number].status
        # Without its own status, the last attempt ended like the job. An earlier attempt is judged by its log.
        return TrialLogs(
            owner.job_id, number, attempts[number].end, job.status if status is None and number == last else status
        )


@dataclass(frozen=True)
class Failure:
    """One failed trial and its reason."""

    trial: TrialLogs
    reason: Reason
    signature: str | None
    """The rule that matched, or None if no rule matched."""
    log_file: str | None = None
    """The log with the line that matched."""
    line: int | None = None
    """Line number, from 1."""
    text: str | None = None
    """That line, shortened."""


class ReasonCount(NamedTuple):
    """The frequency of a reason."""

    reason: Reason
    trials: int
    share: float
    """Share of all failed trials [0..1]."""
    jobs: int


@dataclass
class Classification:
    """The failures found in logs, and counts of the logs read and skipped."""

    failures: list[Failure] = field(default_factory=list)
    logs: int = 0
    """Logs read."""
    bytes: int = 0
    """Total size of the logs after decompression [bytes]."""
    trials: int = 0
    """Number of trials with a log."""
    not_failed: int = 0
    """Trials that did not fail according to the Trace; their logs are not read."""
    without_sign: int = 0
    """Trials of unknown status whose logs show no failure."""
    unknown_logs: int = 0
    """Logs that belong to no trial of the Trace, or whose name does not match the pattern; they are not read."""
    failed_without_log: int | None = None
    """Number of the Trace's failed jobs without a log, or None if there is no Trace."""
    passed_over: Counter[str] = field(default_factory=Counter)
    """Number of files skipped, by reason in words."""
    damaged: list[str] = field(default_factory=list)
    """Logs that could not be read to the end, each with the error."""

    def counts(self) -> list[ReasonCount]:
        """Return the reasons found, most frequent first."""
        trials = Counter(failure.reason for failure in self.failures)
        jobs: dict[Reason, set[str]] = {}
        for failure in self.failures:
            jobs.setdefault(failure.reason, set()).add(failure.trial.job_id)
        total = len(self.failures)
        ordered = sorted(trials, key=lambda reason: (-trials[reason], reason.name))
        return [ReasonCount(r, trials[r], trials[r] / total, len(jobs[r])) for r in ordered]

    def frame(self) -> pl.DataFrame:
        """Return one row per failed trial, with the columns of the failures table, then log_file, line and text."""
        types = {**schema.common("failures").polars, "log_file": pl.String(), "line": pl.Int64(), "text": pl.String()}
        rows = [
            (f.trial.job_id, f.trial.attempt, f.trial.end, f.reason.name, f.reason.category, f.signature,
             f.log_file, f.line, f.text)
            for f in self.failures
        ]  # fmt: skip
        return pl.DataFrame(rows, schema=types, orient="row")


@explain_damage()
def classify_logs(
    sources: Iterable[Path],
    *,
    rules: RuleBook | None = None,
    trace: Trace | str | Path | None = None,
    names: LogNames | None = None,
    progress: Progress | None = None,
) -> Classification:
    """Read logs and find out why each failed trial failed.

    With a Trace, every trial that failed according to the Trace gets a reason, and a trial of unknown status gets one
    if its log shows a failure. Without a Trace, every trial whose log shows a failure gets a reason.

    Parameters
    ----------
    sources : iterable of Path
        Logs, or folders with logs.
    rules : RuleBook, optional
        Rules from `load_rules`; by default tracekit's own.
    trace : Trace, str or Path, optional
        The jobs that the logs belong to.
    names : LogNames, optional
        Rules for reading log names.
    progress : Progress, optional
        Display for the number of bytes read.

    Raises
    ------
    SourceError
        A source does not exist or cannot be read.
    MissingTableError
        The Trace has no jobs.
    """
    names = names or LogNames()
    progress = progress or Progress()
    result = Classification()
    files: list[LogFile] = []
    for source in sources:
        found = find_logs(source, names)
        files += found.files
        result.passed_over += found.passed_over
    if trace is None:
        trials, result.unknown_logs = trials_by_name(files)
    else:
        known = KnownJobs(Trace.of(trace), files)
        trials, result.unknown_logs = known.trials(files)
        result.failed_without_log = known.failed_without_log(trials)
    result.trials = len(trials)
    result.not_failed = sum(trial.failed is False for trial in trials)
    wanted = [trial for trial in trials if trial.failed is not False]
    reader = _Reader(Classifier(rules or load_rules()), result, progress, alone=len(files) == 1)
    progress.stage("reading logs", sum(file.bytes for trial in wanted for file in trial.files))
    for trial in sorted(wanted, key=lambda t: (t.job_id, -1 if t.attempt is None else t.attempt)):
        failure = reader.failure(trial)
        if failure is not None:
            result.failures.append(failure)
    return result


class _Reader:
    def __init__(self, classifier: Classifier, result: Classification, progress: Progress, *, alone: bool) -> None:
        self._classifier = classifier
        self._result = result
        self._progress = progress
        self._alone = alone
        self._by_status = {s: rule.reason for rule in reversed(classifier.book.rules) for s in rule.status}

    def failure(self, trial: TrialLogs) -> Failure | None:
        """Read all logs of a trial and return its failure, if any."""
        best: tuple[Hit, LogFile] | None = None
        sign = False
        read = 0
        for file in trial.files:
            finding = self._read(file)
            if finding is None:
                continue
            read += 1
            sign = sign or finding.failure_sign
            if finding.hit is not None and (best is None or finding.hit.rank < best[0].rank):
                best = finding.hit, file
        if best is not None:
            hit, file = best
            reason = self._classifier.book.rules[hit.rank].reason
            return Failure(trial, reason, hit.signature, file.name, hit.line, hit.text)
        if trial.failed and trial.status in self._by_status:
            return Failure(trial, self._by_status[trial.status], f"status {trial.status}")
        if trial.failed or sign:
            return Failure(trial, NO_SIGNATURE, None)
        self._result.without_sign += bool(read)
        return None

    def _read(self, file: LogFile) -> LogFinding | None:
        try:
            stream = open_log(file.path)
            if stream is None:
                self._result.passed_over["files that are not text"] += 1
                return None
            with stream:
                finding = self._classifier.classify(stream)
        except (OSError, SourceError) as error:
            what = error.what if isinstance(error, SourceError) else error.strerror or str(error)
            if self._alone:
                raise SourceError(f"cannot be read: {what}", where=file.path) from error
            self._result.damaged.append(f"{file.name}: {what}")
            return None
        finally:
            self._progress.advance(file.bytes)
        self._result.logs += 1
        self._result.bytes += finding.bytes
        return finding
