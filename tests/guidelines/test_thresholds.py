"""From what size on each guideline speaks: a limit that moves is a change that users notice."""

from __future__ import annotations

import pytest

from tracekit.guidelines.interface import GUIDELINES, Number, Threshold

# By guideline: the fewest observations, and what each measure must reach.
LIMITS: dict[str, tuple[int, list[tuple[str, str, float]]]] = {
    "backfill": (30, [("placeable_share", "at least", 0.2), ("placeable_wait_s", "at least", 60)]),
    "cap-wide-gangs": (10, [("hit_share", "more than", 0.5), ("ettr_gap", "at least", 0.05)]),
    "checkpoint-interval": (
        30,
        [("cost_share", "at least", 0.02), ("stops", "at least", 5), ("gain_share", "at least", 0.005)],
    ),
    "checkpoint-long": (30, [("lost_share", "at least", 0.05), ("long_failures", "at least", 10)]),
    "drain-nodes": (2, [("suspect_nodes", "at least", 1), ("excess_failures", "at least", 3)]),
    "keep-spares": (
        30,
        [("stalled_share", "at least", 0.01), ("stopped", "at least", 5), ("median_wait_s", "at least", 600)],
    ),
    "lend-quota": (
        30,
        [("quota_wait_share", "at least", 0.2), ("quota_wait_s", "at least", 60), ("unused_share", "at least", 0.1)],
    ),
    "limit-interference": (30, [("drop_pct", "at least", 5), ("shared_share", "at least", 0.05)]),
    "overloaded-partition": (
        30,
        [
            ("wait_share", "at least", 0.5),
            ("wait_s", "at least", 600),
            ("allocated_share", "at least", 0.75),
            ("others_share", "at most", 0.75),
        ],
    ),
    "order-by-service": (30, [("waited_longer_share", "at least", 0.1), ("spread", "at least", 10)]),
    "power-down": (24, [("idle_share", "at least", 0.1)]),
    "pre-run-pool": (30, [("early_share", "at least", 0.05), ("saved_share", "at least", 0.01)]),
    "reclaim-idle": (30, [("idle_share", "at least", 0.05)]),
    "repair-lemons": (2, [("lemons", "at least", 1), ("excess_failures", "at least", 3)]),
    "restart-automatically": (30, [("cost_share", "at least", 0.01), ("left", "at least", 5)]),
    "right-size-gangs": (30, [("low_share", "at least", 0.3)]),
    "share-gpus": (30, [("low_share", "at least", 0.2)]),
    "spread-submissions": (
        30,
        [("busy_share", "at least", 0.5), ("calm_ratio", "at most", 0.5), ("busy_wait_s", "at least", 60)],
    ),
    "stop-retries": (30, [("repeat_share", "at least", 0.1), ("factor", "at least", 2)]),
    "wait-for-locality": (30, [("drop_pct", "at least", 5), ("extra_wait_share", "at most", 0.1)]),
}


def test_the_limits_of_every_guideline() -> None:
    ours = {name: g for name, g in GUIDELINES.all().items() if g.find.__module__.startswith("tracekit.")}
    found = {name: (g.least_n, [(t.key, t.side, t.value) for t in g.thresholds]) for name, g in ours.items()}
    assert found == LIMITS


@pytest.mark.parametrize(
    ("side", "below", "on", "above"),
    [("at least", False, True, True), ("more than", False, False, True), ("at most", True, True, False)],
)
def test_what_a_limit_takes_in(side: str, below: bool, on: bool, above: bool) -> None:
    limit = Threshold("x", side, 0.2, "ours")  # type: ignore[arg-type]  # one of its words
    assert (limit.crossed(0.199), limit.crossed(0.2), limit.crossed(0.201)) == (below, on, above)


def test_chance_does_not_decide_when_both_ends_are_on_one_side() -> None:
    limit = Threshold("x", "at least", 0.2, "ours")
    for low, high, settled in ((0.2, 0.3, True), (0.1, 0.199, True), (0.199, 0.2, False), (None, None, True)):
        assert limit.settled(Number(0.2, 9, low, high)) == settled
