"""The twins of a Trace, calibrated now or read from a file, and replays in them that show the effect of policies."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import fields, replace
from functools import cached_property, partial
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from tracekit.calibration.api import calibrate, recall
from tracekit.calibration.effect import effect_of_times, jobs_of
from tracekit.calibration.rules import Rules
from tracekit.calibration.twin import read_twin, twin_text
from tracekit.calibration.workbench import UNNAMED, MoreNodes, clusters_by_waiting, in_twin, lifted_limits
from tracekit.damage import explain_damage
from tracekit.errors import DamagedTraceError, EngineMissingError, TracekitError, UsageError, nearest
from tracekit.progress import Progress
from tracekit.replay.api import failing
from tracekit.replay.clusters.feasibility import check_feasibility
from tracekit.replay.jobs import RECORDED, TWIN
from tracekit.replay.part import part_of
from tracekit.replay.registry import named_policy
from tracekit.replay.results.effects import TwinOfLog
from tracekit.replay.scenario import Scenario
from tracekit.settings import ReplaySettings, flags_of
from tracekit.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Hashable, Iterator, Sequence
    from pathlib import Path

    from tracekit.calibration.api import Calibration, ClusterCalibration
    from tracekit.calibration.effect import Headline, TwinEffect, TwinJobs
    from tracekit.calibration.twin import Twin
    from tracekit.calibration.workbench import JobTimes
    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.results.comparison import ReplayResult
    from tracekit.runs.ledger import Ledger


Change: TypeAlias = str | Rules | MoreNodes
"""A change of a twin: a policy that replaces its order, other rules, or more nodes."""


class Assumed(NamedTuple):
    """Assumptions other than those of a twin."""

    name: str
    models: Models


class TwinReplays:
    """Replays in the twin of one cluster.

    Parameters
    ----------
    found : ClusterCalibration
        The twin.
    trace : Trace
        The Trace that contains the twin's jobs.
    progress : Progress
        Reports each replay.
    """

    def __init__(self, found: ClusterCalibration, trace: Trace, progress: Progress) -> None:
        self.found = found
        self._trace, self._progress = trace, progress
        self._results: dict[str, ReplayResult | str] = {}
        self.failing: dict[Hashable, ReplayResult] = {}
        """Replays with the recorded outages, by change."""
        self._times: dict[tuple[Change | None, str], JobTimes | str] = {}

    @property
    def rules(self) -> Rules:
        """The rules that the log's scheduler seems to follow."""
        return self.found.settings.rules

    @cached_property
    def scenario(self) -> Scenario:
        """The scenario for policies: the twin's jobs as they compete for GPUs, its capacity and its placement."""
        found, bench = self.found, self.found.bench
        jobs, _ = bench.held_back(found.settings)
        cluster = bench.cluster(found.settings)
        # A recorded run time already includes any slowdown from spreading, so none is added.
        models = replace(bench.models, spread=replace(bench.models.spread, level="none", levels={"none": 0.0}))
        scenario = Scenario.make(jobs, cluster, models=models, placement=self.rules.placement, seed=bench.seed)
        return replace(
            scenario,
            feasibility=check_feasibility(jobs, cluster, scenario.assignment),
            trace=self._trace,
            part=part_of(self._trace, None if found.name == UNNAMED else found.name),
        )

    def of_log(self, twin: Twin) -> TwinOfLog:
        """Return this twin in the form that replay comparisons use. `twin` covers all clusters."""
        rules, tenant = self.rules, self._trace.ingested_tenant
        return TwinOfLog(
            rules.policy,
            rules.words(tenant),
            twin_text(replace(twin, cluster={self.found.name: self.found.twin})),
            partial(in_twin, rules=rules),
            self.found.why_no_effect,
            lambda policy: None if policy in {TWIN, RECORDED} else lifted_limits(policy, rules, tenant),
        )

    def times_of(self, result: ReplayResult) -> JobTimes:
        """Return the wait and the completion time of each job in a schedule of `scenario`."""
        bench = self.found.bench
        _, order = bench.held_back(self.found.settings)
        return bench.times_of(result.outcome, order)

    @cached_property
    def own(self) -> ReplayResult:
        """The schedule of the twin itself."""
        return replace(self.scenario.run(self.rules.policy), policy=TWIN)

    def result(self, policy: str) -> ReplayResult | str:
        """Replay a policy that replaces the twin's order; return its schedule, or why the policy cannot run."""
        if policy not in self._results:
            self._progress.stage(f"replaying {policy}")
            try:
                self._results[policy] = self.scenario.run(in_twin(policy, self.rules))
            except UsageError as error:
                self._results[policy] = f"{policy} cannot be replayed here: {error}."
        return self._results[policy]

    def times(self, change: Change | None = None, assumed: Assumed | None = None) -> JobTimes | str:
        """Return the wait and the completion time of each job, or why they are unknown.

        Parameters
        ----------
        change : str, Rules or MoreNodes, optional
            A policy that replaces the twin's order, other rules, or more nodes; None for the twin itself.
        assumed : Assumed, optional
            Assumptions other than the twin's.
        """
        key = (change, assumed.name if assumed else "")
        if key not in self._times:
            self._times[key] = self._timed(change, assumed)
        return self._times[key]

    def _timed(self, change: Change | None, assumed: Assumed | None) -> JobTimes | str:
        bench, settings = self.found.bench, self.found.settings
        if change is None and assumed is None:
            return self.found.times
        if isinstance(change, str) and assumed is None:
            result = self.result(change)
            return result if isinstance(result, str) else self.times_of(result)
        models = assumed.models if assumed else None
        try:
            if isinstance(change, Rules):
                self._progress.stage(f"replaying: {change.words()}")
                return bench.times(settings._replace(rules=change), models=models)
            if isinstance(change, MoreNodes):
                self._progress.stage(f"replaying with {change.words()}")
                return bench.times(settings._replace(size=change.size), models=models)
            self._progress.stage(f"replaying {change or 'the twin'} under other assumptions")
            return bench.times(settings, change, models)
        except UsageError as error:
            return f"{change if isinstance(change, str) else 'this change'} cannot be replayed here: {error}."

    def jobs(self, assumed: Assumed | None = None) -> TwinJobs | str:
        """Return the jobs in the log and in the twin, under other assumptions if given."""
        times = self.times(None, assumed)
        return times if isinstance(times, str) else jobs_of(self.found)._replace(twin=times)

    def why_not(self, change: Change) -> str | None:
        """Return why a change cannot be estimated, before any replay; None if it can.

        If a policy also lifts a limit in the log, the separate effect of its order cannot be estimated.
        """
        if self.found.why_no_effect is not None:
            return self.found.why_no_effect
        rules = self.rules
        if isinstance(change, MoreNodes):
            return None
        if isinstance(change, Rules):
            return "the log behaves like this already" if change == rules else change.fault()
        if named_policy(in_twin(change, rules)).label == named_policy(rules.policy).label:
            return f"the log behaves like {change} already"
        if not named_policy(change).keeps_partitions and len(self.scenario.cluster.partition_sets) > 1:
            return f"{change} does not know partitions, so its effect cannot be estimated where they share nodes"
        return lifted_limits(change, rules, self._trace.ingested_tenant)

    def effect(self, change: Change, headline: Headline, assumed: Assumed | None = None) -> TwinEffect | str:
        """Return the effect of a change on the recorded times, or the reason why it is unknown.

        Both the twin and the change are replayed under the assumptions in `assumed`.
        """
        reason = self.why_not(change)
        if reason is not None:
            return reason
        jobs, changed = self.jobs(assumed), self.times(change, assumed)
        if isinstance(jobs, str) or isinstance(changed, str):
            return jobs if isinstance(jobs, str) else str(changed)
        what = change if isinstance(change, str) else change.words()
        return effect_of_times(self.found.name, what, headline, jobs, changed)


class Twins:
    """The twins of the clusters of a Trace, calibrated when first requested.

    Parameters
    ----------
    trace : Trace
        The Trace.
    jobs : int
        Maximum total number of jobs for the calibration, split among the clusters. Ignored if `file` is given.
    file : path, optional
        A twin.toml to use instead of a calibration.
    progress : Progress, optional
        Reports each candidate and replay.
    name : str
        The user's name for the Trace, shown in messages. If empty, messages show the path.
    """

    def __init__(
        self, trace: Trace, jobs: int, *, file: Path | None = None, progress: Progress | None = None, name: str = ""
    ) -> None:
        self.trace, self.limit, self.file = trace, jobs, file
        self.progress, self._name = progress or Progress(), name or str(trace.path)

    @cached_property
    def given(self) -> Twin | None:
        """The twin in the file, or None if no file is given. Raises UsageError if the file cannot be used."""
        if self.file is None:
            return None
        with self._errors_of_file():
            return read_twin(self.file, self.trace)

    @cached_property
    def _calibrated(self) -> Calibration | str:
        given = self.given
        try:
            if given is not None:
                with self._errors_of_file():
                    return recall(self.trace, given)
            return calibrate(self.trace, budget=self.limit, progress=self.progress)
        except DamagedTraceError:
            raise
        except EngineMissingError as error:
            self.progress.note(f"there are no replays: {error}")
            return f"there are no replays: {error}"
        except TracekitError as error:
            if self.file is not None:
                raise
            return self._named(error.what)

    @contextmanager
    def _errors_of_file(self) -> Iterator[None]:
        """Re-raise errors in the user's file as UsageErrors that use the user's name for the Trace."""
        try:
            yield
        except (DamagedTraceError, EngineMissingError):
            raise
        except TracekitError as error:
            where = None if error.where is None else self._named(error.where)
            raise UsageError(self._named(error.what), where=where, line=error.line, hint=error.hint) from None

    def named(self, error: TracekitError) -> str:
        """Return an error message that uses the user's name for the Trace."""
        return self._named(str(error))

    def _named(self, text: str) -> str:
        return text.replace(str(self.trace.path), self._name)

    def of_log(self, one: TwinReplays) -> TwinOfLog:
        """Return one of `clusters` in the form that replay comparisons use."""
        assert not isinstance(self._calibrated, str)  # noqa: S101 -- otherwise `clusters` is empty
        return one.of_log(self._calibrated.twin)

    def check(self) -> None:
        """Calibrate the twins, or read them from the file.

        Raises
        ------
        TracekitError
            The file cannot be used.
        """
        _ = self._calibrated

    @property
    def reason(self) -> str | None:
        """Why there is no twin, in lower case and without a full stop, or None if the log has a twin."""
        return self._calibrated if isinstance(self._calibrated, str) else None

    @cached_property
    def clusters(self) -> tuple[TwinReplays, ...]:
        """The twins, in descending order of the clusters' waiting hours."""
        found = self._calibrated
        if isinstance(found, str):
            return ()
        order = list(clusters_by_waiting(self.trace))
        ranked = sorted(found.clusters, key=lambda one: order.index(one.name))
        return tuple(TwinReplays(one, self.trace, self.progress) for one in ranked)

    @property
    def left_out(self) -> dict[str, str]:
        """Clusters without a twin, each with the reason as a sentence without a full stop."""
        if not isinstance(self._calibrated, str):
            missing = [n for n in clusters_by_waiting(self.trace) if n not in self._calibrated.twin.cluster]
            return {name: self._calibrated.left_out.get(name, "the twin file does not contain it") for name in missing}
        return {UNNAMED: self._calibrated}


def clusters_of_twin(trace: Trace, twin: Twin, file: Path) -> list[str]:
    """Return the clusters that a twin contains, in descending order of waiting hours.

    Raises
    ------
    UsageError
        None of these clusters has GPU jobs. `file` is the path of the twin.
    """
    shares = clusters_by_waiting(trace)
    found = [name for name in shares if name in twin.cluster]
    if not found:
        raise UsageError(
            "has no cluster with GPU jobs", where=file, hint=f"clusters of the log with GPU jobs: {', '.join(shares)}"
        )
    return found


def chosen_cluster(names: Sequence[str], asked: str | None, where: Path) -> str:
    """Return the requested cluster, or the first one by default.

    Raises
    ------
    UsageError
        The cluster does not exist. `where` is the file or Trace that lists the clusters.
    """
    if asked is None:
        return names[0]
    if asked not in names:
        raise UsageError(f"has no cluster '{asked[:60]}'", where=where, hint=nearest(asked[:60], names))
    return asked


def twin_of_cluster(
    trace: Trace,
    file: Path | None,
    cluster: str | None,
    *,
    limit: int | None = None,
    seed: int = 0,
    shared: Ledger | None = None,
    progress: Progress | None = None,
) -> tuple[Calibration, list[str]]:
    """Return the calibration of one cluster, and the other clusters of the Trace.

    Parameters
    ----------
    trace : Trace
    file : Path, optional
        A twin.toml. It is used unchanged, except that its grade is computed again.
    cluster : str, optional
        By default, the cluster with the most waiting hours, chosen among the clusters in the file if a file is given.
    limit : int, optional
        If no file is given, use only this many of the first jobs.
    seed : int
        Random seed for the start-up delays.
    shared : Ledger, optional
        Folder in which shards share the calibration if no file is given.
    progress : Progress, optional
        Reports every candidate of a calibration.

    Raises
    ------
    UsageError
        The file cannot be used, or the cluster does not exist or cannot be calibrated.
    """
    shares = clusters_by_waiting(trace)
    if file is None:
        name = chosen_cluster(list(shares), cluster, trace.path)
        found = calibrate(trace, clusters=[name], limit=limit, seed=seed, shared=shared, progress=progress)
    else:
        twin = read_twin(file, trace)
        name = chosen_cluster(clusters_of_twin(trace, twin, file), cluster, file)
        found = recall(trace, twin, clusters=[name], seed=seed)
    return found, [other for other in shares if other != name]


@explain_damage()
def scenario_in_twin(trace: Trace | str | Path, file: Path, settings: ReplaySettings) -> tuple[Scenario, TwinOfLog]:
    """Return the scenario for trying policies in the twin from a file, and that twin with a new grade.

    Parameters
    ----------
    trace : Trace or path
    file : Path
        The twin.toml of the Trace.
    settings : ReplaySettings
        The cluster's name, the seed, and outages with their checkpoints and spares. All other settings come from the
        twin and must not be given.

    Raises
    ------
    UsageError
        A setting is given that the twin determines, the file cannot be used, or it does not contain the cluster.
    """
    given = ReplaySettings(
        cluster_name=settings.cluster_name,
        seed=settings.seed,
        force=settings.force,
        outages=settings.outages,
        checkpoint=settings.checkpoint,
        spares=settings.spares,
        lend_spares=settings.lend_spares,
    )
    if settings != given:
        other = next(f.name for f in fields(ReplaySettings) if getattr(settings, f.name) != getattr(given, f.name))
        flag = flags_of(ReplaySettings)[other][1].name
        raise UsageError("cannot be combined with a twin, which sets it", where=flag, hint=f"edit '{file}' instead")
    opened = Trace.of(trace).ingested.divided
    made, _ = twin_of_cluster(opened, file, settings.cluster_name, seed=settings.seed)
    replays = TwinReplays(made.clusters[0], opened, Progress())
    return failing(replays.scenario, opened, settings), replays.of_log(made.twin)
