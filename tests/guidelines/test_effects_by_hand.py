"""Effects worked by hand, on clusters whose times in the log, in the twin and with each change are given."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import numpy as np
import pytest

from tests.guidelines.planted import Log
from tests.replay.builders import make_jobs
from tracekit.calibration.losses import LossChange, LossEffect
from tracekit.calibration.rules import Rules
from tracekit.calibration.twins import Change, TwinReplays, Twins
from tracekit.calibration.workbench import UNNAMED, JobTimes, MoreNodes
from tracekit.guidelines.effects import Effect, Losses, Untold, UntoldEffect, effect_of, losses_of
from tracekit.guidelines.evidence import Evidence, LackingError
from tracekit.guidelines.interface import Assumption, Finding, LossTrial, NodeChange, RuleChange, Trial
from tracekit.progress import Progress
from tracekit.replay.assumptions.models import load_models
from tracekit.replay.results.effects import Support
from tracekit.tenant import VC

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tracekit.calibration.api import ClusterCalibration
    from tracekit.calibration.losses import RecordedLosses
    from tracekit.calibration.twins import Assumed
    from tracekit.trace import Trace

    MakeTrace = Callable[..., Trace]

NAN = float("nan")
CANNOT = "; the effect cannot be estimated"


def times(queue_s: Sequence[float], jct_s: Sequence[float] | None = None, stopped: int = 0) -> JobTimes:
    """Return the times of jobs; by default each job ends 1000 s after its start."""
    queue = np.array(queue_s)
    return JobTimes(queue, queue + 1000 if jct_s is None else np.array(jct_s), stopped)


class Known(TwinReplays):
    """The twin of a cluster of 8 nodes whose times are given.

    They are given by change (the relaxation [s] of the rules, the words for more nodes, or 'twin') and by assumption.
    """

    def __init__(
        self,
        name: str,
        gpus: Sequence[int],
        recorded: JobTimes,
        known: Mapping[tuple[float | str, str], JobTimes | str],
        why: str | None = None,
        waiting_share: float | None = None,
    ) -> None:
        jobs = make_jobs([(3600.0 * k, devices, 1000.0) for k, devices in enumerate(gpus)])
        found = SimpleNamespace(
            name=name,
            waiting_share=waiting_share,
            bench=SimpleNamespace(
                jobs=jobs,
                recorded=recorded,
                models=load_models(None),
                more_nodes=lambda _, share: MoreNodes(round(8 * share), 1 + share),
            ),
            unseen=np.ones(len(gpus), np.bool_),
            times=known["twin", ""],
            settings=SimpleNamespace(rules=Rules()),
            why_no_effect=why,
            sentences=[f"{name} is as it is."],
        )
        trace = cast("Trace", SimpleNamespace(ingested_tenant=VC))
        super().__init__(cast("ClusterCalibration", found), trace, Progress())
        self._known = known

    def times(self, change: Change | None = None, assumed: Assumed | None = None) -> JobTimes | str:
        what: float | str = "twin"
        if isinstance(change, Rules):
            what = change.relax_s
        elif isinstance(change, MoreNodes):
            what = change.words()
        return self._known[what, assumed.name if assumed else ""]


def relaxed(seconds: float) -> RuleChange:
    return RuleChange(f"relax {seconds:g}", lambda rules: replace(rules, relax_s=seconds))


def twins(*clusters: TwinReplays, **left_out: str) -> Twins:
    return cast("Twins", SimpleNamespace(reason=None, clusters=clusters, left_out=left_out))


def told(trial: Trial, *clusters: TwinReplays) -> Effect:
    effect = effect_of(trial, twins(*clusters))
    assert isinstance(effect, Effect), effect
    return effect


LOW, HIGH = (Assumption(name, lambda models: models) for name in ("low", "high"))


def test_the_best_by_size_is_of_the_first_assumption_and_of_jobs_that_start_with_all_changes() -> None:
    gpus, recorded = [1, 1, 8, 8], times([100, 300, 50, NAN])
    twin = times([100, 200, 60, 10])
    known: dict[tuple[float | str, str], JobTimes | str] = {
        ("twin", ""): twin,
        ("twin", "low"): twin,
        ("twin", "high"): twin,
        (1, "low"): times([50, 150, 70, 10]),
        (2, "low"): times([60, 100, 70, NAN]),
        (1, "high"): times([0, 0, 0, 0]),
        (2, "high"): "this change cannot be replayed here: no.",
    }
    earth = known | {(2, "low"): "not here.", (2, "high"): "not here."}
    clusters = (Known("Venus", gpus, recorded, known), Known("Earth", gpus, recorded, earth))
    found = told(Trial((relaxed(1), relaxed(2)), headline="queue", bracket=(LOW, HIGH)), *clusters)
    assert [(one.change, one.assumption, len(one.clusters)) for one in found.changes] == [
        ("relax 1", "low", 2),
        ("relax 2", "low", 1),
        ("relax 1", "high", 2),
    ]
    assert [(one.cluster, one.assumption, one.reason) for one in found.untold] == [
        ("Earth", "low", "not here"),
        ("Venus", "high", "this change cannot be replayed here: no"),
        ("Earth", "high", "not here"),
    ]
    # Small jobs wait 150 s in the twin, and 100 s or 80 s with a change. The fourth job never starts with the second.
    assert [(one.gpu_class, one.policy, one.jobs, one.diff_s) for one in found.best_by_class] == [
        ("1", "relax 2", 2, -70.0),
        ("5-8", "twin", 1, 0.0),
    ]
    # The fourth job has no recorded wait.
    assert found.changes[0].support == Support(6, 150, 1150, 120, 90, None)
    assert found.assumptions == ("Venus is as it is.", "Earth is as it is.")


@pytest.mark.parametrize(("in_twin", "changed"), [(0, 0), (1, 0), (0, 1)])
def test_one_job_that_is_stopped_makes_the_completion_time_count(in_twin: int, changed: int) -> None:
    recorded = times([100, 300])
    one = Known(
        UNNAMED,
        [1, 1],
        recorded,
        {("twin", ""): times([100, 300], stopped=in_twin), (1, ""): times([50, 9], None, changed)},
    )
    found = told(Trial((relaxed(1),), headline="queue"), one)
    assert found.main.headline == ("jct" if in_twin or changed else "queue")
    assert found.best_by_class == ()  # one change is no choice


@pytest.mark.parametrize(("ends_s", "mean_s"), [([1000, NAN, 3000, NAN], 1000), ([NAN, NAN, 3000, NAN], None)])
def test_what_no_twin_supports_is_reported_with_the_means_of_the_first_cluster(
    ends_s: list[float], mean_s: float | None
) -> None:
    # Only the first and the last job wait a known time in the log and in the twin.
    recorded = times([100, NAN, 300, 500], ends_s)
    first = Known("Venus", [1] * 4, recorded, {("twin", ""): times([130, 50, NAN, 490])}, f"it is odd{CANNOT}")
    second = Known("Earth", [1], times([7]), {("twin", ""): times([7])}, f"it is even{CANNOT}")
    trial = Trial((relaxed(1), relaxed(2)), bracket=(LOW, HIGH))
    found = effect_of(trial, twins(first, second))
    assert isinstance(found, UntoldEffect)
    assert found.untold == (
        Untold("Venus", "relax 1", "low", f"it is odd{CANNOT}"),
        Untold("Earth", "relax 1", "low", f"it is even{CANNOT}"),
    )
    assert found.sentence == "Cannot tell for Venus: it is odd. Cannot tell for Earth: it is even."
    assert found.support == Support(2, 300, mean_s, 310, None, f"it is odd{CANNOT}")


def test_more_nodes_are_for_clusters_with_at_least_so_much_of_the_waiting() -> None:
    known: dict[tuple[float | str, str], JobTimes | str] = {
        ("twin", ""): times([100]),
        ("2 more nodes", ""): times([50]),
    }
    shares = {"A": None, "B": 0.5, "C": 0.49}
    clusters = [Known(name, [1], times([100]), known, waiting_share=share) for name, share in shares.items()]
    found = effect_of(Trial((NodeChange(0.25, 0.5),), headline="queue"), twins(*clusters, Moon="46 jobs are too few"))
    assert isinstance(found, Effect)
    assert (found.main.cluster, found.main.changed_s, found.untold) == ("B", 50, ())
    nowhere = effect_of(Trial((NodeChange(0.25, 0.01),)), twins(clusters[0]))
    assert nowhere == "Cannot tell: there is no simulation of the part of the cluster where most of the waiting is."


def test_what_a_log_lacks_for_a_change_is_the_reason_in_its_cluster() -> None:
    def lacking(rules: Rules) -> Rules:
        raise LackingError("No quotas.", "No limits.")

    one = Known(UNNAMED, [1], times([9]), {("twin", ""): times([9])})
    found = effect_of(Trial((RuleChange("lend", lacking),)), twins(one))
    assert isinstance(found, UntoldEffect)
    assert found.sentence == "Cannot tell: no quotas. No limits."


def loss(change: str, changed: float, ettr: float | None = None, changed_ettr: float | None = None) -> LossEffect:
    return LossEffect("Venus", change, "lost", 1000, changed, changed - 9, changed + 9, ettr, changed_ettr, 9, 9)


def test_the_change_that_saves_most_is_put_into_words_with_both_ratios_or_none() -> None:
    words = "often: GPU-hours lost to outages and checkpoints 1,000 -> 700 (691 to 709)"
    others = (loss("seldom", 800, 0.1, 0.2), loss("never", 900, 0.1, 0.2))
    assert Losses((loss("often", 700, 0.5, 0.75), *others)).words == (
        f"{words}; in the simulation, the effective training time ratio changes from 50.0 % to 75.0 %"
    )
    for ratios in ((None, None), (0.5, None), (None, 0.75)):
        assert Losses((loss("often", 700, *ratios), *others)).words == words


def test_effects_on_losses_are_sorted_by_what_they_save_and_the_others_are_named(
    make_trace: MakeTrace, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = Log()
    log.job(0, 60)
    trace = make_trace(**log.tables)
    known: dict[tuple[str, str], LossEffect | str] = {
        ("Venus", "seldom"): loss("seldom", 900),
        ("Venus", "often"): loss("often", 700),
        ("Earth", "seldom"): loss("seldom", 800),
        ("Earth", "often"): f"it is odd{CANNOT}",
        (UNNAMED, "seldom"): "it is even",
        (UNNAMED, "often"): "it is even",
    }

    def effect(one: TwinReplays, of: Trace, recorded: RecordedLosses, change: LossChange) -> LossEffect | str:
        assert (of, recorded.stopped) == (trace, {"j0": 0})
        return known[one.found.name, change.name]

    monkeypatch.setattr("tracekit.guidelines.effects.loss_effect", effect)

    def found(
        *names: str, changes: Sequence[str] = ("seldom", "often", "often"), why: str | None = None
    ) -> Losses | str:
        clusters = tuple(SimpleNamespace(found=SimpleNamespace(name=name)) for name in names)
        trial = LossTrial(lambda finding: tuple(LossChange(name) for name in changes))
        given = cast("Twins", SimpleNamespace(reason=why, clusters=clusters))
        return losses_of(trial, Finding({}), Evidence(trace), given)

    both = found("Venus", "Earth")
    assert isinstance(both, Losses)
    assert [one.changed_gpu_h for one in both.effects] == [700, 700, 800, 900]
    assert both.untold == ("Cannot tell the gain in cluster Earth, often: it is odd.",)
    where = "Cannot tell the gain in the cluster"
    assert found(UNNAMED) == f"{where}, seldom: it is even. {where}, often: it is even."
    assert found("Venus", changes=()) == "There is nothing to try."
    assert found("Venus", why="it is too small") == "Cannot tell: it is too small."
