"""What a change would do: replays in the twins of worlds whose scheduler is known, added up over clusters."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import pytest

from tests.calibration.benches import bench_of, effect_of_change
from tests.calibration.worlds import make_world, simulate
from tests.command import run
from tests.guidelines.planted import DAY, Log
from tracekit.calibration.api import calibrate, calibrate_jobs
from tracekit.calibration.effect import TwinEffect
from tracekit.calibration.twin import write_twin
from tracekit.calibration.twins import TwinReplays, Twins
from tracekit.errors import UsageError
from tracekit.guidelines.document import Judgement, document_of
from tracekit.guidelines.effects import DEFAULTS, Effect, ExpectedChange, Untold, UntoldEffect, effect_of
from tracekit.guidelines.interface import GUIDELINES, Assumption, LackingError, NodeChange, RuleChange, Trial
from tracekit.guidelines.run import guidelines
from tracekit.progress import Progress
from tracekit.replay.results.effects import Support
from tracekit.report.guidelines import guidelines_view
from tracekit.tenant import VC
from tracekit.text import signed_percent

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.reviewed import Golden
    from tracekit.calibration.rules import Rules
    from tracekit.trace import Trace

    MakeTrace = Callable[..., Trace]

PASSING = RuleChange("later jobs may pass", lambda rules: replace(rules, scan="skip"))
TRIAL = Trial((PASSING,), headline="queue")

TRACE = cast("Trace", SimpleNamespace(ingested_tenant=VC))
"""All that the twin of one cluster asks of its Trace."""


def twin(kind: str, seed: int, name: str = "all", load: float = 0.85) -> TwinReplays:
    found = calibrate_jobs(bench_of(make_world(kind, seed, load)), name, 0.5)
    return TwinReplays(found, TRACE, Progress())


def twins(*clusters: TwinReplays, **left_out: str) -> Twins:
    return cast("Twins", SimpleNamespace(reason=None, clusters=clusters, left_out=left_out))


def told(trial: Trial, found: Twins) -> Effect:
    effect = effect_of(trial, found)
    assert isinstance(effect, Effect), effect
    return effect


@pytest.fixture(scope="module")
def venus() -> TwinReplays:
    return twin("strict", 1, "Venus")


@pytest.fixture(scope="module")
def mine() -> TwinReplays:
    """Return the twin of the only cluster of a log."""
    return twin("strict", 1)


@pytest.fixture(scope="module")
def earth() -> TwinReplays:
    return twin("strict", 3, "Earth", 1.0)


@pytest.fixture(scope="module")
def poor() -> TwinReplays:
    """Half of the jobs of Mars wait up to two days more than any rule says."""
    known = make_world("strict", 2, 0.7)
    late = np.array(known.start) + np.random.default_rng(0).choice([0, 172_800], len(known.start))
    found = calibrate_jobs(bench_of(replace(known, start=late.tolist(), end=[])), "Mars", 0.1)
    return TwinReplays(found, TRACE, Progress())


def test_the_effect_is_the_one_that_another_simulator_finds(mine: TwinReplays) -> None:
    known = make_world("strict", 1, 0.85)
    effect = told(TRIAL, twins(mine))
    submit = np.array([job.submit for job in known.jobs])
    before, after = (float(np.mean(np.array(simulate(known, rule)) - submit)) for rule in ("strict", "passing"))
    assert effect.main.recorded_s == pytest.approx(before, rel=1e-3)
    assert effect.main.changed_s == pytest.approx(after, rel=0.02)
    assert effect.verdict == "better"
    support = effect.changes[0].support
    assert support.recorded_queue_s == pytest.approx(before, rel=1e-3)
    assert support.reason is None
    assert support.policy_queue_s == pytest.approx(after, rel=0.02)


def test_more_nodes_shorten_the_waits_of_the_overloaded_cluster_as_another_simulator_finds(
    venus: TwinReplays, earth: TwinReplays
) -> None:
    little = TwinReplays(replace(earth.found, waiting_share=0.1), TRACE, Progress())
    effect = told(Trial((NodeChange(0.25, 0.5), NodeChange(0.2, 0.5)), headline="queue"), twins(venus, little))
    (change,) = effect.changes  # a fifth of 8 nodes are 2 nodes, too
    assert (change.change, [one.cluster for one in change.clusters], effect.untold) == ("2 more nodes", ["Venus"], ())
    known = make_world("strict", 1, 0.85)
    submit = np.array([job.submit for job in known.jobs])
    larger = replace(known, nodes=[*known.nodes, 8, 8])
    after = float(np.mean(np.array(simulate(larger, "strict")) - submit))
    assert effect.main.changed_s == pytest.approx(after, rel=0.05)
    assert effect.main.changed_s < effect.main.recorded_s / 2
    assert isinstance(effect_of(Trial((NodeChange(0.25, 0.5),)), twins(little)), str)


def test_effects_of_clusters_add_up_and_say_where_they_arise(
    venus: TwinReplays, earth: TwinReplays, golden: Golden
) -> None:
    effect = told(TRIAL, twins(venus, earth))
    (change,) = effect.changes
    assert [one.cluster for one in change.clusters] == ["Venus", "Earth"]
    alone = [effect_of_change(one.found, replace(one.rules, scan="skip")) for one in (venus, earth)]
    means = [(one.jobs, one.recorded_s, one.changed_s) for one in alone if isinstance(one, TwinEffect)]
    jobs = sum(n for n, _, _ in means)
    assert effect.main.recorded_s == pytest.approx(sum(n * mean for n, mean, _ in means) / jobs)
    assert effect.main.changed_s == pytest.approx(sum(n * mean for n, _, mean in means) / jobs)
    assert effect.main.words.endswith(f"over the {jobs:,} jobs of Venus and Earth")
    assert effect.untold == ()
    golden(effect.assumptions)


def test_a_cluster_whose_twin_carries_nothing_is_named_with_its_reason(
    venus: TwinReplays, poor: TwinReplays, golden: Golden
) -> None:
    assert poor.found.score.grade in {"rough", "poor"}
    effect = told(TRIAL, twins(poor, venus, Moon="46 jobs are too few"))
    assert [one.cluster for one in effect.changes[0].clusters] == ["Venus"]
    mars, moon = effect.untold
    assert (mars.cluster, mars.change, mars.assumption) == ("Mars", "later jobs may pass", DEFAULTS)
    assert moon.cluster == "Moon"
    golden([mars.reason, moon.reason])


def test_where_no_twin_carries_it_no_sentence_sounds_like_an_effect(poor: TwinReplays, golden: Golden) -> None:
    found = effect_of(TRIAL, twins(poor))
    assert isinstance(found, UntoldEffect)
    why = str(poor.found.why_no_effect).removesuffix("; the effect cannot be estimated")
    assert found.sentence == f"Cannot tell: {why}."
    both = effect_of(TRIAL, twins(poor, Moon="46 jobs are too few"))
    assert isinstance(both, UntoldEffect)
    assert (found.support.supported, found.support.policy_queue_s) == (False, None)
    waits = poor.found.recorded_s
    assert found.support.recorded_queue_s == pytest.approx(float(waits[~np.isnan(waits)].mean()), rel=0.01)
    none = cast("Twins", SimpleNamespace(reason="no job can be replayed", clusters=(), left_out={}))
    golden([both.sentence, str(effect_of(TRIAL, none))])


def test_what_leaves_nothing_to_change_says_so(venus: TwinReplays) -> None:
    def nothing(rules: Rules) -> Rules:
        raise LackingError("The log enforces no quotas that hold jobs back.")

    def same(rules: Rules) -> Rules:
        return rules

    no_quota, already = (
        "Cannot tell: the log enforces no quotas that hold jobs back.",
        "No: the log behaves like this already.",
    )
    for change, why in ((nothing, no_quota), (same, already)):
        found = effect_of(Trial((RuleChange("x", change),)), twins(venus))
        assert isinstance(found, UntoldEffect)
        assert found.sentence == why


def test_the_best_change_is_reported_by_size_of_job(mine: TwinReplays) -> None:
    effect = told(Trial((PASSING, "ssf,scan=skip"), headline="queue"), twins(mine))
    assert [c.change for c in effect.changes] == ["later jobs may pass", "ssf,scan=skip"]
    assert {best.policy for best in effect.best_by_class} <= {"twin", "later jobs may pass", "ssf,scan=skip"}
    assert sum(best.jobs for best in effect.best_by_class) == len(mine.found.bench.jobs)
    bench, settings = mine.found.bench, mine.found.settings
    times = {
        "twin": mine.found.times,
        "later jobs may pass": bench.times(settings._replace(rules=PASSING.change(mine.rules))),
        "ssf,scan=skip": bench.times(settings, "ssf,scan=skip"),
    }
    assert not any(one.stopped for one in times.values())
    gpus = np.array([job.gpus for job in make_world("strict", 1, 0.85).jobs])
    sizes = {"1": gpus == 1, "2-4": (gpus >= 2) & (gpus <= 4), "5-8": (gpus >= 5) & (gpus <= 8), ">8": gpus > 8}
    assert [best.gpu_class for best in effect.best_by_class] == list(sizes)
    for best in effect.best_by_class:
        which = sizes[best.gpu_class]
        means = {name: float(one.queue_s[which].mean()) for name, one in times.items()}
        assert best.jobs == which.sum()
        assert best.policy == min(means, key=means.__getitem__)
        assert best.diff_s == pytest.approx(means[best.policy] - means["twin"])
    assert any(best.diff_s < -3600 for best in effect.best_by_class)


STOPPING = "srtf,scan=skip"


def test_a_change_that_stops_jobs_is_reported_by_their_completion_time(mine: TwinReplays) -> None:
    """A first start comes soon where others are stopped for it; what they wait after that no first start tells."""
    found = told(Trial((PASSING, STOPPING), headline="queue"), twins(mine))
    passing, stopping = found.changes
    times = mine.times(STOPPING)
    assert not isinstance(times, str)
    outcome, _ = mine.found.bench.replay(mine.found.settings, STOPPING)
    assert times.stopped == outcome.preemptions.sum() > 0
    assert (passing.main.headline, stopping.main.headline) == ("queue", "jct")
    assert (passing.main, stopping.main) == (passing.queue, stopping.jct)
    assert (found.main.headline, found.verdict) == ("queue", passing.queue.verdict.replace("shorter", "better"))
    # The best by size is one of means that can be compared: of completion times.
    own = mine.times(PASSING.change(mine.rules))
    assert not isinstance(own, str)
    known = {"twin": mine.found.times.jct_s, "later jobs may pass": own.jct_s, STOPPING: times.jct_s}
    gpus = np.array([job.gpus for job in make_world("strict", 1, 0.85).jobs])
    means = {name: float(one[gpus == 1].mean()) for name, one in known.items()}
    assert found.best_by_class[0].gpu_class == "1"
    assert found.best_by_class[0].diff_s == pytest.approx(min(means.values()) - means["twin"])
    alone = told(Trial((STOPPING,), headline="queue"), twins(mine))
    assert alone.main == alone.changes[0].jct
    assert alone.verdict == {"shorter": "better", "longer": "worse"}.get(alone.main.verdict, alone.main.verdict)


def test_the_document_says_which_mean_each_change_is_reported_by(mine: TwinReplays) -> None:
    found = told(Trial((PASSING, STOPPING), headline="queue"), twins(mine))
    vc = {"path": Path("my-trace"), "manifest": SimpleNamespace(format="csv"), "tenant": VC}
    trace = cast("Trace", SimpleNamespace(ingested_tenant=VC, **vc))
    judged = Judgement(GUIDELINES.find("backfill"), "does not hold", (), effect=found)
    document = document_of(trace, [judged])["guidelines"][0]["effect"]
    assert document["headline"] == "queue"
    assert [(one["headline"], one["text"]) for one in document["changes"]] == [
        ("queue", found.changes[0].queue.words),
        ("jct", found.changes[1].jct.words),
    ]
    assert document["changes"][1]["saved_h"] == found.changes[1].jct.saved_h
    assert document["changes"][1]["clusters"][0]["recorded_s"] == found.changes[1].jct.recorded_s
    finding: dict[str, list[Any]] = {"numbers": [], "rows": []}
    entry = {"id": "x", "verdict": "holds", "finding": finding, "thresholds": [], "effect": document}
    entry["practice"] = dict.fromkeys(("slurm", "kubernetes", "yarn"))
    (shown,) = guidelines_view({"guidelines": [entry]})["holding"]
    assert [row["mean"] for row in shown["tried"]] == ["wait", "completion time"]
    assert shown["tried"][1]["change"] == signed_percent(found.changes[1].jct.share or 0)


def effect(*changes: tuple[str, str, float, float, float], untold: tuple[Untold, ...] = ()) -> Effect:
    """Return an effect on a recorded mean of 100 s: changes, assumptions, means and their intervals."""
    made = []
    for name, point, mean, low, high in changes:
        one = TwinEffect("all", name, "queue", 9, 100.0, mean, low, high, np.zeros(1))
        made.append(ExpectedChange(name, point, (one,), one, one, Support(9, 100.0, None, 100.0, mean, None)))
    return Effect(tuple(made), (), (), untold)


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ([("b", "low", 50, 40, 60)], "better"),
        ([("b", "low", 50, 40, 110)], "undecided"),
        ([("b", "low", 150, 140, 160)], "worse"),
        ([("b", "low", 100, 40, 160)], "no change"),
        # The first change decides, under all assumptions.
        ([("b", "low", 50, 40, 60), ("c", "low", 150, 140, 160)], "better"),
        ([("b", "low", 50, 40, 60), ("b", "high", 150, 140, 160)], "undecided"),
        ([("b", "low", 50, 40, 60), ("b", "high", 50, 40, 110)], "undecided"),
        ([("b", "low", 50, 40, 60), ("b", "high", 100, 100, 100)], "better"),
    ],
)
def test_the_verdict_at_its_limits(changes: list[tuple[str, str, float, float, float]], verdict: str) -> None:
    assert effect(*changes).verdict == verdict


def test_an_assumption_under_which_nothing_can_be_told_leaves_the_effect_undecided() -> None:
    change = ("b", "low", 50.0, 40.0, 60.0)
    assert effect(change, untold=(Untold("all", "b", "high", "why"),)).verdict == "undecided"
    assert effect(change, untold=(Untold("all", "c", "high", "why"),)).verdict == "better"


def test_assumptions_are_tried_in_the_twin_and_with_the_change(venus: TwinReplays) -> None:
    def level(name: str) -> Assumption:
        return Assumption(name, lambda models: replace(models, spread=replace(models.spread, level=name)))

    relaxed = RuleChange("relaxed", lambda rules: replace(rules, relax_s=60.0))
    found = told(Trial((relaxed,), bracket=(level("default"), level("low"))), twins(venus))
    assert [(c.change, c.assumption) for c in found.changes] == [("relaxed", "default"), ("relaxed", "low")]
    dear, cheap = (c.jct.changed_s for c in found.changes)
    assert dear >= cheap


@pytest.fixture(scope="module")
def helios_twin(sample_trace: Callable[[str], Trace], tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("twin") / "twin.toml"
    write_twin(calibrate(sample_trace("helios")).twin, file)
    return file


def test_advice_is_reported_against_the_record_of_the_log(
    sample_trace: Callable[[str], Trace], helios_twin: Path, tmp_path: Path, golden: Golden
) -> None:
    """Nodes of Helios are stated by VC; where VCs may use what others leave idle, hours of waiting become seconds."""
    trace = sample_trace("helios")
    (entry,) = guidelines(trace, twin=helios_twin, only=["lend-quota"]).document()["guidelines"]
    found = entry["effect"]
    assert (entry["verdict"], found["verdict"], found["baseline"]) == ("holds", "better", "twin")
    first = found["changes"][0]
    assert first["recorded_queue_s"] == pytest.approx(13_614, abs=1)
    assert first["expected_queue_s"] < 120
    assert first["queue_diff_s"] == pytest.approx(first["expected_queue_s"] - first["recorded_queue_s"])
    assert first["saved_h"] == pytest.approx(-first["queue_diff_s"] * first["jobs"] / 3600)
    assert [one["cluster"] for one in first["clusters"]] == ["Venus"]
    golden(found["text"])
    assert entry["record"]["carried"] is True
    out = tmp_path / "out"
    done = run("replay", trace.path, "--twin", helios_twin, "--cluster-name", "Venus", "-p", "kueue", "-o", out)
    assert done.returncode == 0, done.stderr
    again = run("guidelines", trace.path, "--replay", out, "--only", "lend-quota", "-f", "json")
    assert again.returncode == 0, again.stderr
    (other,) = json.loads(again.stdout)["guidelines"]
    assert other["effect"]["changes"][0] == first


@pytest.mark.thorough
def test_the_twin_that_is_made_for_a_trial_tells_what_the_calibrated_one_tells(
    sample_trace: Callable[[str], Trace], helios_twin: Path
) -> None:
    trace = sample_trace("helios")
    found, tried = (
        guidelines(trace, only=["lend-quota"], **given).document()["guidelines"][0]["effect"]
        for given in ({"twin": helios_twin}, {"try_jobs": 100_000})
    )
    assert tried["changes"] == found["changes"]


def test_the_document_of_an_effect_that_is_not_reported_names_why(make_trace: MakeTrace, golden: Golden) -> None:
    """By the log half of the small jobs wait two hours beside a free node; no replay knows why."""
    log = Log()
    for k in range(60):
        begin = k * DAY / 2
        log.job(begin, 600, node="n", queue_s=7200)
        log.job(begin + 10_000, 300, gpus=8, node="n")
        log.job(begin + 10_000, 600, node="n", queue_s=300)
    found = guidelines(make_trace(**log.tables), only=["backfill"], try_jobs=1000)
    (entry,) = found.document()["guidelines"]
    assert (entry["verdict"], entry["effect"]) == ("holds", None)
    golden(entry["no_effect"])
    record = entry["record"]
    assert (record["carried"], record["baseline"], record["policy"]) == (
        False,
        "twin",
        "EASY backfilling by time limits",
    )
    assert (record["recorded_jobs"], record["recorded_queue_s"], record["policy_queue_s"]) == (180, 2500.0, None)
    for text in (found.markdown(), found.html()):
        assert "Cannot tell: a replay" in text
        assert "Yes: " not in text
        assert "Likely: " not in text
        assert "Best by job size" not in text


def test_a_trace_without_a_twin_says_so(make_trace: MakeTrace, golden: Golden) -> None:
    log = Log()
    log.job(0, 60)
    found = effect_of(TRIAL, Twins(make_trace(**log.tables), 10))
    assert isinstance(found, str)
    golden(found)


def test_an_analysis_names_the_trace_as_the_user_does(make_trace: MakeTrace, golden: Golden) -> None:
    log = Log()
    log.job(0, 60)
    del log.tables["attempts"]
    for job in log.tables["jobs"]:
        job["gpu_count"] = None
    trace = make_trace(**log.tables)
    why = effect_of(TRIAL, Twins(trace, 10, name="my-logs"))
    assert isinstance(why, str)
    assert str(trace.path) not in why
    golden(why)


def test_replays_of_no_twin_tell_no_effect(make_trace: MakeTrace, tmp_path: Path) -> None:
    log = Log()
    log.nodes("n", 8)
    log.job(0, 60, node="n")
    trace = make_trace(**log.tables)
    done = run("replay", trace.path, "-p", "fifo", "-o", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    with pytest.raises(UsageError, match="contains replays without a twin"):
        guidelines(trace, replay=tmp_path / "out")
    with pytest.raises(UsageError, match="is not an output of 'tracekit replay --twin'"):
        guidelines(trace, replay=tmp_path)
    with pytest.raises(UsageError, match="only one twin is used for all effects"):
        guidelines(trace, replay=tmp_path, try_jobs=9)
    with pytest.raises(UsageError, match="at least one job"):
        guidelines(trace, try_jobs=0)


def test_a_twin_of_another_trace_is_refused(make_trace: MakeTrace, helios_twin: Path) -> None:
    log = Log()
    log.job(0, 60)
    with pytest.raises(UsageError, match="is a twin of the Trace"):
        effect_of(TRIAL, Twins(make_trace(**log.tables), 10, file=helios_twin))


def test_changes_of_the_guidelines_fit_the_rules_of_a_twin(venus: TwinReplays, golden: Golden) -> None:
    changes: dict[str, Any] = {}
    for name in ("backfill", "lend-quota", "wait-for-locality"):
        trial = GUIDELINES.find(name).trial
        assert isinstance(trial, Trial)
        for change in trial.changed:
            assert isinstance(change, RuleChange)
            try:
                changes[change.name] = change.change(venus.rules)
            except LackingError as error:
                changes[change.name] = error.sentences[0]
    golden(f"{name}: {getattr(change, 'policy', change)}" for name, change in changes.items())
