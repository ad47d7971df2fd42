"""A verdict needs the threshold crossed, enough observations, and an interval on one side."""

from __future__ import annotations

from dataclasses import replace
from importlib import metadata
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tracekit
from tests.guidelines.planted import Log
from tracekit.calibration.twins import Twins
from tracekit.errors import DamagedTraceError, QueryError, TracekitError, UsageError
from tracekit.faults import Faults
from tracekit.guidelines.evidence import Evidence
from tracekit.guidelines.interface import (
    GUIDELINES,
    Finding,
    Guideline,
    LackingError,
    LossTrial,
    Measure,
    Number,
    Practice,
    Threshold,
    Trial,
)
from tracekit.guidelines.intervals import over_days, ratio, share_of
from tracekit.guidelines.run import Advice, guidelines, judge, judge_all
from tracekit.progress import Progress
from tracekit.tenant import VC

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.reviewed import Golden
    from tracekit.guidelines.document import Judgement
    from tracekit.trace import Trace

    MakeTrace = Callable[..., Trace]

NAMES = [
    "backfill",
    "cap-wide-gangs",
    "checkpoint-interval",
    "checkpoint-long",
    "drain-nodes",
    "keep-spares",
    "lend-quota",
    "limit-interference",
    "order-by-service",
    "power-down",
    "pre-run-pool",
    "reclaim-idle",
    "repair-lemons",
    "restart-automatically",
    "right-size-gangs",
    "share-gpus",
    "spread-submissions",
    "stop-retries",
    "wait-for-locality",
]

PLAIN = Guideline(
    id="plain",
    title="Plain",
    question="Is it?",
    measures=(Measure("share", "the share", "share", "jobs"), Measure("wait_s", "the wait", "s", "waits")),
    thresholds=(Threshold("share", "at least", 0.5, "ours"), Threshold("wait_s", "at most", 60, "ours")),
    finding="It is {share} after {wait_s}.",
    find=lambda evidence: Finding({}),
    advice="Do it.",
    cost="Little.",
    risk="None.",
    practice=Practice("a", "b", "c"),
    sources=("nobody",),
    no_trial="It cannot be tried.",
)


@pytest.fixture(scope="module")
def trace(make_trace: MakeTrace) -> Trace:
    log = Log()
    log.job(0, 60)
    return make_trace(**log.tables)


def judged(trace: Trace, share: Number, wait: Number) -> Judgement:
    guideline = replace(PLAIN, find=lambda evidence: Finding({"share": share, "wait_s": wait}))
    return judge(guideline, Evidence(trace))


def test_it_holds_when_all_thresholds_are_crossed_by_whole_intervals(trace: Trace) -> None:
    found = judged(trace, Number(0.7, 40, 0.5, 0.9), Number(60, 1))
    assert (found.verdict, found.why, found.no_effect) == ("holds", (), "It cannot be tried.")


@pytest.mark.parametrize(
    ("share", "wait", "verdict", "why"),
    [
        (Number(0.4, 40, 0.3, 0.6), Number(5, 1), "does not hold", "The share: 40.0 % (needed: at least 50.0 %)."),
        (Number(0.7, 40), Number(61, 1), "does not hold", "The wait: 1.02 min (needed: at most 1 min)."),
        (
            Number(0.7, 40, 0.4, 0.9),
            Number(5, 1),
            "cannot tell",
            "The share: 40.0 to 90.0 % (95 %), which may be chance (needed: at least 50.0 %).",
        ),
        (Number(0.9, 29), Number(5, 1), "cannot tell", "29 jobs are too few: 30 are needed."),
        (Number(0.9, 40), Number(None, 0), "cannot tell", "The wait cannot be computed."),
        # One threshold that is surely missed decides, whatever is unknown beside it.
        (Number(0.1, 40), Number(None, 0), "does not hold", "The share: 10.0 % (needed: at least 50.0 %)."),
    ],
)
def test_what_decides_is_said(trace: Trace, share: Number, wait: Number, verdict: str, why: str) -> None:
    found = judged(trace, share, wait)
    assert (found.verdict, found.why, found.no_effect) == (verdict, (why,), "")  # only what holds is tried


@pytest.mark.parametrize(("covers", "verdict"), [(None, "does not hold"), (0.5, "does not hold"), (0.2, "cannot tell")])
def test_a_problem_is_not_absent_where_nobody_looked(
    trace: Trace, covers: float | None, verdict: str, golden: Golden
) -> None:
    numbers = {"share": Number(0.1, 40), "wait_s": Number(5, 1)}
    found = judge(replace(PLAIN, find=lambda evidence: Finding(numbers, covers=covers)), Evidence(trace))
    assert found.verdict == verdict
    assert len(found.why) == (2 if verdict == "cannot tell" else 1)
    golden(found.why)


def test_a_problem_that_was_found_stands_however_little_was_looked_at(trace: Trace) -> None:
    numbers = {"share": Number(0.9, 40), "wait_s": Number(5, 1)}
    found = judge(replace(PLAIN, find=lambda evidence: Finding(numbers, covers=0.01)), Evidence(trace))
    assert found.verdict == "holds"


NUMBERS = st.builds(
    lambda value, away, n: Number(value, n, *((None, None) if away is None else (value - away, value + away))),
    st.floats(0, 100),
    st.none() | st.floats(0, 50),
    st.integers(0, 60),
)


@given(share=NUMBERS, wait=NUMBERS)
def test_no_advice_without_every_threshold_crossed(trace: Trace, share: Number, wait: Number) -> None:
    found = judged(trace, share, wait)
    least = share.value if share.low is None else share.low
    most = wait.value if wait.high is None else wait.high
    assert least is not None
    assert most is not None
    assert (found.verdict == "holds") == (least >= 0.5 and most <= 60 and share.n >= 30)
    assert (found.verdict == "holds") == (not found.why)


def test_a_capability_that_is_lacking_is_reported_before_anything_is_computed(
    make_trace: MakeTrace, golden: Golden
) -> None:
    from tracekit.manifest import Capability

    log = Log()
    log.job(0, 60)
    lacking = {"utilization": Capability(available=False, coverage=0.0, note="no telemetry.")}
    trace = make_trace(**log.tables, manifest_overrides={"capabilities": lacking})
    found = judge(replace(PLAIN, needs=("utilization",), tables=("nodes",)), Evidence(trace))
    other = judge(replace(PLAIN, tables=("nodes",)), Evidence(trace))
    assert [found.verdict, other.verdict] == ["cannot tell"] * 2
    golden([*found.why, *other.why])


def test_a_function_may_say_what_is_lacking(trace: Trace) -> None:
    def find(evidence: Evidence) -> Finding:
        raise LackingError("There is no sun.")

    found = judge(replace(PLAIN, find=find), Evidence(trace))
    assert (found.verdict, found.why, found.finding) == ("cannot tell", ("There is no sun.",), None)


@pytest.mark.parametrize("module", ["plug_in", "tracekit.guidelines.rules.waits"])
def test_a_function_that_fails_is_reported_and_stops_nothing(trace: Trace, golden: Golden, module: str) -> None:
    def broken(evidence: Evidence) -> Finding:
        raise KeyError("x\ny")

    broken.__module__ = module

    golden([*judge(replace(PLAIN, find=broken), Evidence(trace)).why, *judge(PLAIN, Evidence(trace)).why])


@pytest.mark.parametrize(
    "changes",
    [
        {"id": "Not An Id"},
        {"measures": ()},
        {"thresholds": ()},
        {"thresholds": (Threshold("other", "at least", 1, "ours"),)},
        {"no_trial": ""},
        {"trial": Trial(("srtf",))},
    ],
)
def test_a_guideline_that_cannot_be_judged_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"needs|is not a guideline id"):
        replace(PLAIN, **changes)


@pytest.mark.parametrize(
    ("side", "value", "crossed"),
    [("at least", 1.0, True), ("at most", 1.0, True), ("more than", 1.0, False), ("at most", 1.5, False)],
)
def test_a_threshold_knows_its_side(side: Any, value: float, crossed: bool) -> None:
    assert Threshold("k", side, 1.0, "ours").crossed(value) is crossed


def test_all_guidelines_are_there_and_each_is_complete() -> None:
    found = GUIDELINES.all()
    assert [name for name in found if name in NAMES] == NAMES
    for guideline in found.values():
        texts = (guideline.title, guideline.question, guideline.advice, guideline.cost, guideline.risk)
        how = (guideline.practice.slurm, guideline.practice.kubernetes, guideline.practice.yarn)
        assert all(texts)
        assert all(how)
        assert guideline.sources
        assert all(threshold.source for threshold in guideline.thresholds)
        numbers = {measure.key: "1" for measure in guideline.measures}
        assert "{" not in guideline.of(VC).finding.format(**numbers)


def test_every_policy_of_a_trial_exists() -> None:
    from tracekit.policies import parse_policy

    trials = [g.trial for g in GUIDELINES.all().values() if isinstance(g.trial, Trial)]
    policies = [change for trial in trials for change in trial.changed if isinstance(change, str)]
    assert [parse_policy(policy).label for policy in policies] == policies


@pytest.fixture
def plugins(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Install four plug-ins: a good one, one of a name that is taken, one that is none, one that is not there."""
    entries = [
        metadata.EntryPoint("plain", f"{__name__}:PLAIN", GUIDELINES.group),
        metadata.EntryPoint("taken", f"{__name__}:TAKEN", GUIDELINES.group),
        metadata.EntryPoint("nothing", f"{__name__}:NAMES", GUIDELINES.group),
        metadata.EntryPoint("gone", "no_such_module_at_all:X", GUIDELINES.group),
    ]
    members = {"plain": PLAIN, "taken": replace(PLAIN, id="backfill"), "nothing": NAMES}

    def load(entry: metadata.EntryPoint) -> object:
        if entry.name in members:
            return members[entry.name]
        raise ModuleNotFoundError("No module named 'no_such_module_at_all'")

    monkeypatch.setattr(metadata, "entry_points", lambda group: entries if group == GUIDELINES.group else [])
    monkeypatch.setattr(metadata.EntryPoint, "load", load)
    vars(GUIDELINES).pop("_known", None)
    yield
    vars(GUIDELINES).pop("_known", None)


@pytest.mark.usefixtures("plugins")
def test_a_plugin_is_a_guideline_like_any_other_and_broken_ones_are_reported() -> None:
    assert GUIDELINES.find("plain") is PLAIN
    broken = GUIDELINES.broken()
    assert "called 'backfill'" in broken["taken"]
    assert "tracekit.guidelines.interface.Guideline" in broken["nothing"]
    assert "ModuleNotFoundError" in broken["gone"]


def test_a_twin_that_cannot_be_used_is_refused_even_if_nothing_holds(trace: Trace, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"none\.toml"):
        guidelines(trace, twin=tmp_path / "none.toml", only=["backfill"])


def test_advice_is_equal_if_its_judgements_are(trace: Trace) -> None:
    assert Advice(trace, ()) == Advice(trace, ())


def test_an_unknown_guideline_is_reported_with_the_nearest(trace: Trace) -> None:
    with pytest.raises(UsageError, match="unknown guideline 'backfil'; did you mean 'backfill'"):
        tracekit.guidelines(trace, only=["backfil"])


def test_effects_come_from_one_place(trace: Trace) -> None:
    with pytest.raises(UsageError, match="give only one"):
        guidelines(trace, replay="out", try_jobs=5)
    with pytest.raises(UsageError, match="at least one job"):
        guidelines(trace, try_jobs=0)
    assert guidelines(trace, only=["backfill"], try_jobs=1).judged[0].verdict == "cannot tell"


@pytest.mark.parametrize("error", [DamagedTraceError("a hole"), UsageError("--memory-limit is no size")])
def test_what_no_guideline_is_to_blame_for_ends_it_all(trace: Trace, error: TracekitError) -> None:
    def find(evidence: Evidence) -> Finding:
        raise error

    with pytest.raises(type(error)):
        judge(replace(PLAIN, find=find), Evidence(trace))


@pytest.mark.parametrize(("length", "cut"), [(300, False), (301, True)])
def test_a_query_that_fails_is_reported_in_short(trace: Trace, length: int, cut: bool) -> None:
    def find(evidence: Evidence) -> Finding:
        raise QueryError("x" * length)

    (why,) = judge(replace(PLAIN, find=find), Evidence(trace)).why
    assert why == f"Could not be made: {'x' * (299 if cut else 300)}{'…' if cut else ''}."


@pytest.mark.parametrize(("length", "cut"), [(300, False), (301, True)])
def test_what_a_plug_in_says_of_its_failure_is_cut(trace: Trace, length: int, cut: bool) -> None:
    def find(evidence: Evidence) -> Finding:
        raise ValueError("x" * (length - len("ValueError: ")))

    (why,) = judge(replace(PLAIN, find=find), Evidence(trace)).why
    told = "ValueError: " + "x" * ((299 if cut else 300) - len("ValueError: ")) + ("…" if cut else "")
    assert why.endswith(f" made: {told}.")


def test_a_guideline_that_holds_says_why_there_is_no_effect(trace: Trace, golden: Golden) -> None:
    numbers = {"share": Number(0.9, 40), "wait_s": Number(5, 1)}
    tried = replace(PLAIN, find=lambda evidence: Finding(numbers), trial=Trial(("srtf",)), no_trial="")
    without = judge(tried, Evidence(trace))
    found = judge(tried, Evidence(trace), Twins(trace, 100))
    assert (found.verdict, found.effect) == ("holds", None)
    golden([without.no_effect, found.no_effect])


def test_losses_that_no_twin_tells_are_no_effect(trace: Trace) -> None:
    numbers = {"share": Number(0.9, 40), "wait_s": Number(5, 1)}
    tried = replace(PLAIN, find=lambda evidence: Finding(numbers), trial=LossTrial(lambda finding: ()), no_trial="")
    found = judge(tried, Evidence(trace), cast("Twins", SimpleNamespace(reason="the log is too short")))
    assert (found.no_effect, found.losses) == ("Cannot tell: the log is too short.", None)


@pytest.mark.usefixtures("plugins")
def test_a_guideline_that_fails_is_recorded_in_the_given_faults_or_in_new_ones(
    trace: Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Evidence, "lacks", lambda *_: 1 / 0)
    faults = Faults()
    assert judge_all(Evidence(trace), None, only=["plain"], faults=faults).faults is faults
    other = judge_all(Evidence(trace), None, only=["plain"]).faults
    assert [len(one.found) for one in (faults, other)] == [1, 1]


def test_each_guideline_is_announced_before_it_is_judged(trace: Trace) -> None:
    class Told(Progress):
        def __init__(self) -> None:
            self.stages: list[str] = []

        def stage(self, what: str, total: int | None = None) -> None:
            self.stages.append(what)

    told = Told()
    found = guidelines(trace, only=["reclaim-idle", "backfill"], progress=told)
    assert [j.guideline.id for j in found.judged] == ["backfill", "reclaim-idle"]
    assert told.stages == [j.guideline.title for j in found.judged]


def test_thirty_observations_are_enough(trace: Trace) -> None:
    assert judged(trace, Number(0.9, 30), Number(5, 1)).verdict == "holds"


def test_a_ratio_over_days_has_the_interval_of_its_days() -> None:
    frame = pl.DataFrame({"day": [0, 0, 1, 2, 3, 4], "a": [1, 0, 1, 1, 0, 0], "b": [1, 1, 1, 1, 1, 1]})
    found = over_days(frame, ratio("a", "b"), n=6)
    assert found.value == pytest.approx(0.5)
    assert found.low is not None
    assert found.high is not None
    assert 0 <= found.low < 0.5 < found.high <= 1
    assert over_days(frame, ratio("a", "b"), n=6) == found


def test_days_that_are_alike_leave_nothing_to_chance() -> None:
    frame = pl.DataFrame({"day": [0, 1, 2, 3, 4], "a": [1] * 5, "b": [4] * 5})
    assert over_days(frame, ratio("a", "b"), n=5) == Number(0.25, 5, 0.25, 0.25)


def test_few_days_and_empty_sums_have_no_interval() -> None:
    frame = pl.DataFrame({"day": [0, 1, 2, 3], "a": [1] * 4, "b": [4] * 4})
    assert over_days(frame, ratio("a", "b"), n=4) == Number(0.25, 4)
    nothing = pl.DataFrame({"day": list(range(9)), "a": [0] * 9, "b": [0] * 9})
    assert over_days(nothing, ratio("a", "b"), n=9) == Number(None, 9)


def test_an_exact_share_is_that_of_clopper_and_pearson() -> None:
    # 0 of 10: the upper end is 1 - 0.025^(1/10).
    found = share_of(0, 10)
    assert (found.value, found.low) == (0, 0)
    assert found.high == pytest.approx(1 - 0.025**0.1)
    assert share_of(0, 0) == Number(None, 0)
