"""The schedules behind an effect: the output of `tracekit replay`, or replays made on demand."""

from __future__ import annotations

import datetime as dt
from abc import ABC, abstractmethod
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import orjson
import polars as pl

from tracekit.errors import DamagedTraceError, EngineMissingError, TracekitError, UsageError
from tracekit.outputs import recover
from tracekit.replay.part import part_of
from tracekit.replay.results.recorded_times import recorded_times
from tracekit.replay.results.tables import SUMMARY_NAME, jobs_table
from tracekit.text import shorten

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tracekit.guidelines.interface import Assumption, Trial
    from tracekit.progress import Progress
    from tracekit.replay.part import Part
    from tracekit.replay.results.comparison import ReplayResult
    from tracekit.replay.scenario import Scenario
    from tracekit.trace import Trace

__all__ = ["FolderReplays", "LiveReplays", "Replays"]


class Replays(ABC):
    """Schedules of the same jobs under several policies."""

    origin: str
    """Description for people."""
    can_assume: bool
    """Whether assumptions other than the default can be tried."""
    part: Part | None = None
    """Which cluster of several was replayed."""

    @abstractmethod
    def jobs(self, policy: str, assumption: Assumption | None = None) -> pl.DataFrame | str:
        """Return the table of jobs.parquet under a policy, or the sentence that says why there is none."""

    @abstractmethod
    def variants(self, trial: Trial) -> list[str]:
        """Return the policies to compare with the baseline of a trial, the one that is meant first."""

    @abstractmethod
    def record(self) -> pl.DataFrame:
        """Return what the log recorded of these jobs: job_id, recorded_queue_s, recorded_jct_s [s], NULL unknown."""

    @abstractmethod
    def assumptions(self, policies: Iterable[str]) -> tuple[str, ...]:
        """Return what the replays of these policies assumed."""


class FolderReplays(Replays):
    """The output of `tracekit replay`.

    Raises
    ------
    UsageError
        The folder is no such output, or of another trace.
    """

    can_assume = False

    def __init__(self, folder: Path, trace: Trace) -> None:
        self._tables: dict[str, pl.DataFrame] = {}
        self._summaries: dict[str, dict[str, Any]] = {}
        self._places: dict[str, Path] = {}
        hint = "give the OUT of 'tracekit replay TRACE -o OUT'"
        recover(folder, "comparison.parquet")
        if not (folder / "comparison.parquet").is_file():
            raise UsageError("is no output of 'tracekit replay'", where=folder, hint=hint)
        for file in sorted(folder.glob(f"*/{SUMMARY_NAME}")):
            try:
                summary = orjson.loads(file.read_bytes())
                label = str(summary["policy"])
            except (OSError, ValueError, KeyError, TypeError) as error:
                raise UsageError("is damaged", where=file, hint="make the replay again") from error
            self._summaries[label], self._places[label] = summary, file.parent
        if not self._places:
            raise UsageError("holds no replayed policy", where=folder, hint=hint)
        self._trace = trace
        self.origin = f"the replays in {shorten(folder.name)}"
        self._check(trace, folder)

    def _check(self, trace: Trace, folder: Path) -> None:
        found = self._read(next(iter(self._places)))
        known = trace.scan("jobs").select("job_id", "cluster").collect()
        strangers = len(found) - len(found.join(known, on="job_id", how="semi"))
        if strangers or not len(found):
            what = f"{strangers:,} of {len(found):,} jobs are not in the Trace" if len(found) else "holds no job"
            raise UsageError(what, where=folder, hint="give the replays of this Trace")
        self.origin += f" ({len(found):,} of {len(known):,} jobs)"
        clusters = known.join(found, on="job_id", how="semi")["cluster"].unique().to_list()
        self.part = part_of(trace, clusters[0]) if len(clusters) == 1 else None
        self.origin += f" of {self.part.words}" if self.part else ""

    def _read(self, label: str) -> pl.DataFrame:
        if label not in self._tables:
            file = self._places[label] / "jobs.parquet"
            columns = ["job_id", "gpu_count", "submit_time", "queue_s", "jct_s"]
            try:
                self._tables[label] = pl.read_parquet(file, columns=columns)
            except (pl.exceptions.PolarsError, OSError) as error:
                what = f"cannot be read: {str(error).splitlines()[0]}"
                raise UsageError(what, where=file, hint="make the replay again") from error
        return self._tables[label]

    def jobs(self, policy: str, assumption: Assumption | None = None) -> pl.DataFrame | str:
        """Return the table of a policy whose name and parameters are these, whatever their order."""
        if assumption is not None:
            return "Replays that were made cannot be given other assumptions."
        for label in self._places:
            if _parts(label) == _parts(policy):
                return self._read(label)
        there = ", ".join(shorten(label) for label in self._places)
        return f"The replays hold {there}, not {policy}."

    def record(self) -> pl.DataFrame:
        """Return what the Trace says; NULL where the replays moved the submissions, as a changed load does."""
        names = {"submit_time": "recorded_submit_time", "start_time": "recorded_start", "end_time": "recorded_end"}
        replayed = self._read(next(iter(self._places))).select("job_id", "submit_time")
        recorded = self._trace.scan("jobs").select("job_id", **{new: pl.col(old) for old, new in names.items()})
        beside = replayed.join(recorded.collect(), on="job_id", how="left")
        apart = (beside["submit_time"] - beside["recorded_submit_time"]).abs() > _ROUNDING
        submit, start, end = (pl.col(name) for name in names.values())
        started = start >= submit if not apart.any() else pl.lit(value=False)
        return beside.select(
            "job_id",
            recorded_queue_s=pl.when(started).then(_seconds(start - submit)),
            recorded_jct_s=pl.when(started & (end >= start)).then(_seconds(end - submit)),
        )

    def variants(self, trial: Trial) -> list[str]:
        """Return the policies of the trial that were replayed, and the same policies with other parameters."""
        heads = {_head(policy) for policy in trial.changed}
        named = [p for p in trial.changed if any(_parts(label) == _parts(p) for label in self._places)]
        taken = [_parts(policy) for policy in (trial.baseline, *named)]
        return named + [p for p in self._places if _head(p) in heads and _parts(p) not in taken]

    def assumptions(self, policies: Iterable[str]) -> tuple[str, ...]:
        """Return what the summaries say."""
        wanted = [_parts(policy) for policy in policies]
        return _sentences(s["assumptions"] for label, s in self._summaries.items() if _parts(label) in wanted)


class LiveReplays(Replays):
    """Replays made when they are asked for, each once.

    Parameters
    ----------
    trace : Trace
        Whose jobs to replay.
    limit : int
        The first so many jobs.
    progress : Progress
        Told of each replay.
    name : str
        What the user calls the Trace, for reasons why it cannot be replayed; its path when empty.
    """

    can_assume = True

    def __init__(self, trace: Trace, limit: int, progress: Progress, name: str = "") -> None:
        self.limit = limit
        self._trace, self._progress, self._name = trace, progress, name or str(trace.path)
        self._scenario: Scenario | str | None = None
        self._tables: dict[tuple[str, str], pl.DataFrame | str] = {}
        self._results: dict[str, ReplayResult | str] = {}
        self.origin = f"replays of at most the first {limit:,} jobs"

    def scenario(self) -> Scenario | str:
        """Return the jobs on their cluster, or why they cannot be replayed."""
        if self._scenario is None:
            from tracekit.replay.api import scenario_of

            try:
                self._scenario = scenario_of(self._trace, limit=self.limit)
                self.part = self._scenario.part
                self.origin = f"replays of the first {len(self._scenario.jobs):,} jobs"
                self.origin += f" of {self.part.words}" if self.part else ""
            except DamagedTraceError:
                raise
            except EngineMissingError as error:
                self._scenario = f"Replays are left out: {error}."
                self._progress.note(f"replays are left out: {error}")
            except TracekitError as error:
                reason = str(error).replace(str(self._trace.path), self._name)
                self._scenario = f"The trace cannot be replayed: {reason}."
        return self._scenario

    def result(self, policy: str) -> ReplayResult | str:
        """Return the schedule of a policy, or why there is none."""
        if policy not in self._results:
            self._results[policy] = self._run(policy, None)
        return self._results[policy]

    def jobs(self, policy: str, assumption: Assumption | None = None) -> pl.DataFrame | str:
        """Return the table under a policy, replayed now."""
        key = (policy, assumption.name if assumption else "")
        if key not in self._tables:
            result = self.result(policy) if assumption is None else self._run(policy, assumption)
            table = result if isinstance(result, str) else jobs_table(result.jobs, result.outcome)
            keep = ("job_id", "gpu_count", "submit_time", "queue_s", "jct_s")
            self._tables[key] = table if isinstance(table, str) else table.select(keep)
        return self._tables[key]

    def record(self) -> pl.DataFrame:
        """Return what the log recorded of the replayed jobs."""
        scenario = self.scenario()
        if isinstance(scenario, str):
            return pl.DataFrame(
                schema={"job_id": pl.String, "recorded_queue_s": pl.Float64, "recorded_jct_s": pl.Float64}
            )
        found = recorded_times(scenario.jobs)
        times = {"recorded_queue_s": found.queue_ms, "recorded_jct_s": found.jct_ms}
        frame = pl.DataFrame({"job_id": scenario.jobs.job_id, **times})
        return frame.select("job_id", *(pl.when(pl.col(c) >= 0).then(pl.col(c) / 1000).alias(c) for c in times))

    def _run(self, policy: str, assumption: Assumption | None) -> ReplayResult | str:
        scenario = self.scenario()
        if isinstance(scenario, str):
            return scenario
        if assumption is not None:
            scenario = replace(scenario, models=assumption.change(scenario.models))
        self._progress.stage(f"replaying {policy}")
        try:
            return scenario.run(policy)
        except UsageError as error:
            return f"{policy} cannot be replayed here: {error}."

    def variants(self, trial: Trial) -> list[str]:
        """Return the policies of the trial."""
        return list(trial.changed)

    def assumptions(self, policies: Iterable[str]) -> tuple[str, ...]:
        """Return what the replays say."""
        found = (self._results.get(policy) for policy in policies)
        return _sentences(r.summary["assumptions"] for r in found if r is not None and not isinstance(r, str))


_ROUNDING = dt.timedelta(milliseconds=2)
"""Replays keep times to the millisecond, from the first submission on."""


def _seconds(span: pl.Expr) -> pl.Expr:
    return span.dt.total_microseconds() / 1e6


def _head(policy: str) -> str:
    return policy.partition(",")[0]


def _parts(policy: str) -> tuple[str, frozenset[str]]:
    head, *parameters = policy.split(",")
    return head, frozenset(parameters)


def _sentences(found: Iterable[dict[str, Any]]) -> tuple[str, ...]:
    """Return each assumption once, as 'title: value'."""
    sentences: dict[str, None] = {}
    for assumptions in found:
        for name, what in assumptions.items():
            if isinstance(what, dict) and "value" in what:
                sentences[f"{name}, {what.get('title', '')}: {shorten(str(what['value']), 600)}"] = None
    return tuple(sentences)
