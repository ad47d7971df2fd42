"""Effects of a few jobs, worked by hand: means, shares and who is left out; the verdict at its limits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest

from tests.guidelines.planted import DAY, when
from tracekit.guidelines.effects import DEFAULTS, Effect, PolicyDifference, UnsupportedEffect, effect_of
from tracekit.guidelines.interface import Assumption, Trial
from tracekit.guidelines.replays import Replays
from tracekit.replay.results.comparison import day_intervals
from tracekit.replay.results.effects import Support

if TYPE_CHECKING:
    from collections.abc import Iterable

CARRIED = Support(1, 60.0, 61.0, 60.0, 60.0, None)
DEAR = Assumption("dear", lambda models: models)


class Schedules(Replays):
    """Schedules given job by job: (completion time, wait) [s] by policy, or by policy and assumption."""

    origin = "by hand"
    can_assume = True

    def __init__(
        self, schedules: dict[str, Any], *, gpus: list[float | None] | None = None, days: list[int] | None = None
    ) -> None:
        self.schedules = schedules
        self.gpus, self.days = gpus, days
        self.asked: list[str] = []

    def jobs(self, policy: str, assumption: Assumption | None = None) -> pl.DataFrame | str:
        told = self.schedules[policy if assumption is None else f"{policy}/{assumption.name}"]
        if isinstance(told, str):
            return told
        days = self.days or [0] * len(told)
        frame = pl.DataFrame(
            {
                "job_id": [str(k) for k in range(len(told))],
                "gpu_count": self.gpus or [1.0] * len(told),
                "submit_time": [when(DAY * day) for day in days],
                "jct_s": [jct for jct, _ in told],
                "queue_s": [wait for _, wait in told],
            },
            schema_overrides=dict.fromkeys(("gpu_count", "jct_s", "queue_s"), pl.Float64),
        )
        # The rows of a schedule stand in any order.
        return frame.reverse() if policy != "a" else frame

    def variants(self, trial: Trial) -> list[str]:
        return list(trial.changed)

    def record(self) -> pl.DataFrame:
        names = [str(k) for k in range(9)]
        return pl.DataFrame({"job_id": names, "recorded_queue_s": [60.0] * 9, "recorded_jct_s": [100.0] * 9})

    def assumptions(self, policies: Iterable[str]) -> tuple[str, ...]:
        self.asked = list(policies)
        return ("M1, as it is",)


def told(replays: Replays, *changed: str, bracket: tuple[Assumption, ...] = ()) -> Effect:
    found = effect_of(Trial("a", changed, bracket=bracket), replays)
    assert isinstance(found, Effect), found
    return found


def test_means_are_over_the_jobs_that_both_completed() -> None:
    base = [(100, 40), (200, 20), (300, 0), (None, 9), (9, None), (9, 9), (9, 9)]
    other = [(70, 10), (200, 20), (240, 0), (9, 9), (9, 9), (None, 9), (9, None)]
    replays = Schedules({"a": base, "b": other})
    effect = told(replays, "b")
    (change,) = effect.changes
    assert change == PolicyDifference(
        policy="b",
        assumption=DEFAULTS,
        jobs=3,
        jct_diff_s=-30.0,
        jct_diff_share=-0.15,
        jct_diff_share_low=None,
        jct_diff_share_high=None,
        queue_diff_s=-10.0,
        queue_diff_share=-0.5,
        queue_diff_share_low=None,
        queue_diff_share_high=None,
        support=Support(3, 60.0, 100.0, 20.0, 10.0, None),
    )
    assert (effect.origin, effect.baseline, effect.headline) == ("by hand", "a", "jct")
    assert (effect.best_by_class, effect.unsupported, effect.assumptions) == ((), (), ("M1, as it is",))
    assert replays.asked == ["a", "b"]


def test_there_is_no_share_of_waits_that_the_baseline_does_not_have() -> None:
    days = list(range(6))
    (change,) = told(Schedules({"a": [(100, 0)] * 6, "b": [(50, 0)] * 6}, days=days), "b").changes
    assert (change.jct_diff_share, change.jct_diff_share_low, change.jct_diff_share_high) == (-0.5, -0.5, -0.5)
    assert (change.queue_diff_s, change.queue_diff_share) == (0.0, None)
    assert (change.queue_diff_share_low, change.queue_diff_share_high) == (None, None)
    (change,) = told(Schedules({"a": [(100, 50)] * 6, "b": [(80, 20)] * 6}, days=days), "b").changes
    assert (change.queue_diff_share, change.queue_diff_share_low, change.queue_diff_share_high) == (-0.6, -0.6, -0.6)
    assert (change.jct_diff_share_low, change.jct_diff_share_high) == (-0.2, -0.2)


def test_intervals_are_those_of_the_table_of_a_replay() -> None:
    """The same 1,000 draws of days as in comparison.parquet, over sums of milliseconds."""
    base = [(100.5, 50), (80, 40), (70, 35), (90, 20), (60, 10), (50, 5), (400, 60)]
    other = [(50.25, 10), (80, 40), (75, 30), (40, 20), (65, 20), (45, 0), (100, 30)]
    days = [0, 0, 1, 2, 3, 4, 5]
    (change,) = told(Schedules({"a": base, "b": other}, days=days), "b").changes
    pairs = []
    for k in (0, 1):
        before = np.array([round(1000 * job[k]) for job in base])
        pairs.append((np.array([round(1000 * job[k]) for job in other]) - before, before))
    jct, queue = day_intervals(np.array(days), [], pairs, seed=0) or []
    assert (change.jct_diff_share_low, change.jct_diff_share_high) == jct
    assert (change.queue_diff_share_low, change.queue_diff_share_high) == queue
    assert jct[0] < (change.jct_diff_share or 0) < jct[1]


def test_what_is_not_there_is_left_out_or_named() -> None:
    base, better = [(100, 0)], [(50, 0)]
    some = Schedules({"a": base, "b": "Nobody made b.", "c": better})
    assert [change.policy for change in told(some, "b", "c").changes] == ["c"]
    assert some.asked == ["a", "c"]
    advice = " 'tracekit replay TRACE -p a -p b -o OUT' makes the replays that are needed."
    assert effect_of(Trial("a", ("b",)), some) == f"Nobody made b.{advice}"
    assert effect_of(Trial("a", ("b",)), Schedules({"a": "Nobody made a.", "b": better})) == f"Nobody made a.{advice}"
    neither = Schedules({"a": base, "b": "Nobody made b.", "c": "Nobody made c."})
    assert str(effect_of(Trial("a", ("b", "c")), neither)).startswith("Nobody made b. ")
    none = Schedules({"a": [(None, 0)], "b": better})
    assert effect_of(Trial("a", ("b",)), none) == "No job was completed under both policies."


def test_a_bracket_stands_behind_the_defaults_as_far_as_it_can_be_replayed() -> None:
    schedules = {"a": [(100, 0)], "b": [(50, 0)], "a/dear": [(100, 0)], "b/dear": [(80, 0)]}
    changes = told(Schedules(schedules), "b", bracket=(DEAR,)).changes
    assert [(c.assumption, c.jct_diff_s) for c in changes] == [(DEFAULTS, -50.0), ("dear", -20.0)]
    for lacking in ("a/dear", "b/dear"):
        changes = told(Schedules(schedules | {lacking: "No."}), "b", bracket=(DEAR,)).changes
        assert [c.assumption for c in changes] == [DEFAULTS]
    alone = Schedules(schedules)
    alone.can_assume = False
    assert [c.assumption for c in told(alone, "b", bracket=(DEAR,)).changes] == [DEFAULTS]


def test_the_best_of_equal_policies_is_the_baseline_or_the_first() -> None:
    gpus: list[float | None] = [1.0, 2.0, 8.0, 16.0, None, 4.0]
    schedules = {
        "a": [(10, 0), (10, 0), (10, 0), (10, 0), (10, 0), (10, 0)],
        "b": [(10, 0), (9, 0), (9, 0), (11, 0), (1, 0), (9, 0)],
        "c": [(10, 0), (9, 0), (8, 0), (12, 0), (1, 0), (None, 0)],
    }
    best = told(Schedules(schedules, gpus=gpus), "b", "c").best_by_class
    assert [(b.gpu_class, b.policy, b.jobs, b.diff_s) for b in best] == [
        ("1", "a", 1, 0.0),
        ("2-4", "b", 1, -1.0),
        ("5-8", "c", 1, -2.0),
        (">8", "a", 1, 0.0),
    ]


def changed(
    share: float | None, low: float | None = None, high: float | None = None, *, policy: str = "b", point: str = ""
) -> PolicyDifference:
    """Return a change of the completion time; the wait changes the other way."""
    other = None if share is None else -share
    return PolicyDifference(policy, point or DEFAULTS, 9, 0.0, share, low, high, 0.0, other, None, None, CARRIED)


@pytest.mark.parametrize(
    ("changes", "verdict"),
    [
        ([changed(-0.001)], "better"),
        ([changed(-0.00099)], "no change"),
        ([changed(0.00099)], "no change"),
        ([changed(0.001)], "worse"),
        ([changed(None)], "no change"),
        ([changed(-0.1, -0.2, -0.001)], "better"),
        ([changed(-0.1, -0.2, -0.0009)], "undecided"),
        ([changed(-0.1, -0.2, 0.1)], "undecided"),
        ([changed(0.1, 0.05, 0.2)], "worse"),
        ([changed(0.1, 0.0, 0.2)], "undecided"),
        # What counts as no change does so however wide the interval is.
        ([changed(0.0, -0.2, 0.2)], "no change"),
        # The first policy decides, under all assumptions.
        ([changed(-0.1), changed(0.1, policy="c")], "better"),
        ([changed(-0.1), changed(0.1, point="dear")], "undecided"),
        ([changed(-0.1), changed(0.0, point="dear")], "better"),
        ([changed(0.0), changed(0.1, point="dear")], "worse"),
    ],
)
def test_the_verdict_at_its_limits(changes: list[PolicyDifference], verdict: str) -> None:
    assert Effect("by hand", "a", "jct", tuple(changes), (), ()).verdict == verdict


def test_the_verdict_is_of_the_headline() -> None:
    assert Effect("by hand", "a", "queue", (changed(-0.1),), (), ()).verdict == "worse"


@pytest.mark.parametrize(("policy", "verdict"), [("b", "undecided"), ("c", "better")])
def test_what_cannot_be_told_of_the_first_policy_leaves_it_undecided(policy: str, verdict: str) -> None:
    unsupported = UnsupportedEffect("a", policy, "dear", Support(0, None, None, None, None, "no record"))
    assert unsupported.sentence == "No record."
    assert Effect("by hand", "a", "jct", (changed(-0.1),), (), (), (unsupported,)).verdict == verdict
    assert UnsupportedEffect("a", "b", "dear", CARRIED).sentence == ""
