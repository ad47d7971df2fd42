"""One run of a sweep: its digest and its summary. In a twin, the summary includes the effect on recorded times."""

from __future__ import annotations

import datetime as dt
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tracekit.calibration.api import ClusterCalibration, recall
from tracekit.calibration.effect import HEADLINES, TwinEffect, effect_of_times, jobs_of
from tracekit.calibration.twin import Twin, read_twin
from tracekit.calibration.twins import TwinReplays, chosen_cluster, clusters_of_twin
from tracekit.calibration.workbench import in_twin
from tracekit.damage import explain_damage
from tracekit.errors import DamagedTraceError, TracekitError, UsageError
from tracekit.progress import Progress
from tracekit.replay.api import scenario_of
from tracekit.replay.clusters.cluster import moved_cluster, moved_times
from tracekit.replay.facts import content_of_trace, policy_facts, replay_facts
from tracekit.replay.jobs import RECORDED, TWIN
from tracekit.replay.scenario import placement_named
from tracekit.runs.ledger import content_of, digest_of_facts
from tracekit.trace import Trace

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.calibration.workbench import JobTimes, Workbench
    from tracekit.replay.jobs import Jobs
    from tracekit.replay.scenario import Scenario
    from tracekit.sweeps.file import SweepRun

    Ints = NDArray[np.int64]

_MS = dt.timedelta(milliseconds=1)
_LARGEST_ERROR = 500
_SCENARIO_SETTINGS = ("cluster", "cluster_name", "partitioned", "load", "gpus", "limit", "models", "force")


def digest_of(run: SweepRun) -> str:
    """Return a digest of everything that a run depends on: its parameters and the content of all files it reads.

    The files are the Trace's manifest, and the cluster, models, twin and policy files. The digest also covers the
    program itself. File locations do not matter.
    """
    rooms = ("sweeps",) if run.twin is None else ("calibration", "sweeps")
    facts = {**asdict(run), **replay_facts("sweep", run.trace, *rooms)}
    facts["policy"] = policy_facts(run.policy)
    for key in ("cluster", "models", "twin"):
        if facts[key] not in (None, "auto"):
            facts[key] = content_of(facts[key])
    return digest_of_facts(facts)


def kind_of(run: SweepRun) -> str:
    """Return a run's kind, which is its policy and Trace. Runs of one kind take about equally long."""
    return digest_of_facts({"policy": policy_facts(run.policy)[0], "trace": content_of_trace(run.trace)})


def stated_by_twins(runs: list[SweepRun]) -> list[SweepRun]:
    """Return the runs with the values that their twin sets: capacity, placement and, if not given, the cluster.

    The default cluster is the one with the most waiting hours.

    Raises
    ------
    TracekitError
        A twin or Trace cannot be read, they do not belong together, or a cluster is missing from the twin.
    """
    stated: dict[tuple[str, str | None], dict[str, Any]] = {}
    for trace in dict.fromkeys(run.trace for run in runs):
        own = [run for run in runs if run.trace == trace]
        opened, file = Trace.of(trace).ingested.divided, Path(str(own[0].twin))
        twin = read_twin(file, opened)
        names = clusters_of_twin(opened, twin, file)
        for cluster in dict.fromkeys(run.cluster_name for run in own):
            stated[trace, cluster] = _stated(twin, chosen_cluster(names, cluster, file))
    return [replace(run, **stated[run.trace, run.cluster_name]) for run in runs]


class RunMaker:
    """Performs runs. It keeps the last scenario and twin, because runs that share them are adjacent.

    A `RunMaker` is pickled for the processes of a pool.
    """

    def __init__(self) -> None:
        self._scenarios: dict[SweepRun, Scenario] = {}
        self._recalled: dict[tuple[str | None, ...], ClusterCalibration] = {}
        self._replays: dict[SweepRun, TwinReplays] = {}

    def summary_or_error(self, run: SweepRun) -> dict[str, Any]:
        """Return the summary of a run, or {'error': the reason} if it failed.

        Raises
        ------
        DamagedTraceError
            The Trace cannot be read, so no run on it can succeed.
        """
        try:
            return self.summary(run)
        except DamagedTraceError:
            raise
        except TracekitError as error:
            return {"error": str(error)[:_LARGEST_ERROR]}
        except MemoryError:
            return {"error": "memory ran out; use fewer workers or a smaller window"}
        except Exception as error:  # noqa: BLE001 -- a policy may raise anything; the other runs continue
            text = f"{type(error).__name__}: {error}".splitlines()[0]
            return {"error": f"the policy failed: {text}"[:_LARGEST_ERROR]}

    def summary(self, run: SweepRun) -> dict[str, Any]:
        """Return the summary of a run. In a twin, it includes the effect on recorded times as 'effect'.

        Raises
        ------
        TracekitError
            The run cannot be replayed.
        """
        if run.twin is not None:
            return self._in_twin(run)
        return dict(self._scenario(run).run(run.policy).summary)

    def _scenario(self, run: SweepRun) -> Scenario:
        key = run.scenario_key()
        if key not in self._scenarios:
            self._scenarios = {}  # free the old one before the new one is made
            settings: dict[str, Any] = {name: getattr(run, name) for name in _SCENARIO_SETTINGS}
            settings |= {"start": _time(run.start), "end": _time(run.end)}
            self._scenarios[key] = scenario_of(run.trace, **settings)
        return replace(self._scenarios[key], placement=placement_named(run.placement), seed=run.seed)

    @explain_damage()
    def _in_twin(self, run: SweepRun) -> dict[str, Any]:
        key = run.scenario_key()
        if key not in self._replays:
            found = self._recalled_of(run)
            self._replays = {
                key: TwinReplays(
                    replace(found, bench=_part_of(found, run)), Trace.of(run.trace).ingested.divided, Progress()
                )
            }
        replays = self._replays[key]
        found, rules = replays.found, replays.rules
        result = replays.scenario.run(rules.policy if run.policy == TWIN else in_twin(run.policy, rules))
        changed = _changed(run, found, self._recalled_of(run))
        effect = {"reason": changed} if changed else _effect(replays, run.policy, replays.times_of(result))
        return {**result.summary, "effect": effect}

    def _recalled_of(self, run: SweepRun) -> ClusterCalibration:
        key = (run.trace, run.cluster_name, run.twin, str(run.seed))
        if key not in self._recalled:
            self._replays, self._recalled = {}, {}  # free the old one before the new one is made
            trace = Trace.of(run.trace).ingested.divided
            twin = read_twin(Path(str(run.twin)), trace)
            (self._recalled[key],) = recall(trace, twin, clusters=[str(run.cluster_name)], seed=run.seed).clusters
        return self._recalled[key]


def _time(text: str | None) -> dt.datetime | None:
    return None if text is None else dt.datetime.fromisoformat(text)


def _stated(twin: Twin, name: str) -> dict[str, Any]:
    """Return the values, by field of `SweepRun`, that a twin sets for runs in one of its clusters."""
    one = twin.cluster[name]
    return {
        "cluster_name": name,
        "cluster": "auto" if one.capacity == "observed" else None,
        "partitioned": one.rules.partitioned,
        "placement": one.placement,
    }


def _changed(run: SweepRun, found: ClusterCalibration, whole: ClusterCalibration) -> str | None:
    """Return why a run cannot be compared with the log, without a full stop, or None if it can."""
    if run.load != 1:
        return "the log records no such load; compare the run with the twin's own"
    if len(found.bench.jobs) < len(whole.bench.jobs):
        return "the log ran these jobs among others; compare the run with the twin's own"
    return None


def _effect(replays: TwinReplays, policy: str, times: JobTimes) -> dict[str, Any]:
    """Return the recorded means, and the expected means with intervals or the reason why these are unknown.

    All means cover the jobs that start (or end) in the log, in the twin and in this run.
    """
    found, jobs = replays.found, jobs_of(replays.found)
    effect: dict[str, Any] = {}
    reasons = [_why_not(replays, policy)]
    for what in HEADLINES:
        one = effect_of_times(found.name, policy, what, jobs, times)
        if not isinstance(one, TwinEffect):
            reasons.append(one)
            continue
        effect[f"recorded_{what}_s"] = one.recorded_s
        if reasons[0] is None:
            effect |= {f"expected_{what}_s": one.changed_s, f"expected_{what}_low_s": one.low_s}
            effect |= {f"expected_{what}_high_s": one.high_s, "jobs": one.jobs}
    return effect | {"reason": next((reason for reason in reasons if reason is not None), None)}


def _why_not(replays: TwinReplays, policy: str) -> str | None:
    if policy in {TWIN, RECORDED}:
        return "this is the twin itself" if policy == TWIN else "this is the log's own schedule"
    return replays.why_not(policy)


def _part_of(found: ClusterCalibration, run: SweepRun) -> Workbench:
    """Return a run's jobs and the twin's cluster at their time, or the whole twin if the run changes neither.

    Raises
    ------
    UsageError
        No job was submitted in the window.
    """
    bench = found.bench
    submit = bench.jobs.submit_ms
    low, high = (_since_origin(bench.jobs, text) for text in (run.start, run.end))
    rows = np.flatnonzero((submit >= (-np.inf if low is None else low)) & (submit < (np.inf if high is None else high)))
    if not len(rows):
        first, last = (bench.jobs.origin + int(submit[end]) * _MS for end in (0, -1))
        what = "none of the twin's jobs was submitted in the window"
        raise UsageError(what, where=run.trace, hint=f"submissions run from {first} to {last}")
    rows = rows[: run.limit]
    if len(rows) == len(submit) and run.load == 1:
        return bench
    begin = int(submit[rows[0]])
    jobs = _moved_jobs(bench.jobs.rows(rows), begin, run.load)
    key = (found.settings.capacity, found.settings.rules.partitioned, found.settings.size)
    made = {key: moved_cluster(bench.cluster(found.settings), begin, run.load)}
    return replace(bench.rows(rows), jobs=jobs, made=made)


def _since_origin(jobs: Jobs, text: str | None) -> float | None:
    """Convert a time in a sweep file to milliseconds after the first submission."""
    return None if text is None else (dt.datetime.fromisoformat(text) - jobs.origin) / _MS


def _moved_jobs(jobs: Jobs, begin_ms: int, load: float) -> Jobs:
    """Return jobs whose times count from `begin_ms` and are divided by the load. Their recorded times are dropped."""
    unknown = np.full(len(jobs), -1, np.int64)
    return replace(
        jobs,
        origin=jobs.origin + begin_ms * _MS,
        submit_ms=moved_times(jobs.submit_ms, begin_ms, load),
        recorded_start_ms=unknown,
        recorded_end_ms=unknown,
    )
