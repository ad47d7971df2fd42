"""When a week counts as changed: by hand, and how often when nothing has changed and when something has."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy.stats import binom, t

from tracekit.digests.document import JUDGED, LEVEL, changes


def week(jobs: int, **more: float) -> dict[str, float | None]:
    return {"jobs": jobs, "started": jobs, "ended": jobs, "held_gpu_h": 10.0 * jobs, **more}


def verdict(figure: str, now: Any, before: Any) -> str:
    return next(c["verdict"] for c in changes(now, before) if c["figure"] == figure)


def test_range_by_hand() -> None:
    before = [week(n) for n in (99, 109, 119, 129)]
    found = {c["figure"]: c for c in changes(week(100), before)}["jobs"]
    logs = [math.log(n + 1) for n in (99, 109, 119, 129)]
    scatter = max(float(np.std(logs, ddof=1)), 1 / math.sqrt(114))
    # Two figures can be judged, jobs and GPU-hours: the level is 2.5 %, half of it on each side.
    reach = float(t.ppf(1 - 0.0125, 3)) * scatter * math.sqrt(1 + 1 / 4)
    assert found["usual_low"] == pytest.approx(math.exp(np.mean(logs) - reach) - 1)
    assert found["usual_high"] == pytest.approx(math.exp(np.mean(logs) + reach) - 1)
    assert found["before"] == pytest.approx(114)
    assert found["verdict"] == "usual"


def test_equal_weeks_scatter_by_chance_alone() -> None:
    before = [week(100)] * 8
    assert verdict("jobs", week(110), before) == "usual"
    assert verdict("jobs", week(160), before) == "above"
    assert verdict("jobs", week(60), before) == "below"


def test_few_weeks_or_jobs_tell_nothing() -> None:
    assert verdict("jobs", week(1000), [week(100)] * 3) == "too few"
    assert verdict("jobs", week(1000), [week(4)] * 8) == "too few"
    assert verdict("jobs", week(1000), [week(100)] * 4) == "above"


def test_week_without_anything_is_below() -> None:
    assert verdict("held_gpu_h", {}, [week(100)] * 8) == "below"
    assert verdict("failed_share", {}, [week(100, failed_share=0.1)] * 8) == "too few"


def test_use_is_compared_where_telemetry_covers_half() -> None:
    before = [week(100, used_share=0.8, coverage_share=0.9)] * 8
    assert verdict("used_share", week(100, used_share=0.2, coverage_share=0.9), before) == "below"
    assert verdict("used_share", week(100, used_share=0.2, coverage_share=0.4), before) == "too few"
    some = [week(100, used_share=0.8, coverage_share=0.4)] * 5 + before[:3]
    assert verdict("used_share", week(100, used_share=0.2, coverage_share=0.9), some) == "too few"


def test_week_within_the_others_is_never_a_change() -> None:
    before = [week(100)] * 7 + [week(100_000)]
    assert verdict("jobs", week(99_000), before) == "usual"


WORLDS = {"cluster": (200, 0.2), "steady": (60, 0.0), "user": (12, 0.6), "moody": (30, 1.0), "quiet": (6, 0.0)}
"""Mean jobs a week, and how much their logarithm scatters beyond chance."""


def drawn(draw: np.random.Generator, world: str, times: float = 1, failing: float = 0.12) -> dict[str, float | None]:
    mean, scatter = WORLDS[world]
    n = int(draw.poisson(times * mean * math.exp(draw.normal(0, scatter))))
    if not n:
        return {}
    return {
        **week(n),
        "held_gpu_h": float(draw.lognormal(0, 1.5, n).sum()),
        "wait_p50_s": float(np.median(draw.lognormal(5, 1.5, n)) * math.exp(draw.normal(0, 0.3))),
        "failed_share": float(draw.binomial(n, failing)) / n,
        "used_share": float(np.clip(draw.normal(0.5, 0.4 / math.sqrt(n)), 0, 1)),
        "coverage_share": 1.0,
    }


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("weeks", [4, 8])
def test_pages_without_a_change_name_none(world: str, weeks: int) -> None:
    draw, pages = np.random.default_rng(17), 400
    named = 0
    for _ in range(pages):
        found = changes(drawn(draw, world), [drawn(draw, world) for _ in range(weeks)])
        named += any(c["verdict"] in {"above", "below"} for c in found)
    # At a true rate of the level, 999 of 1000 such runs stay within this.
    assert named <= binom.ppf(0.999, pages, LEVEL)


@pytest.mark.parametrize(
    ("world", "figure", "planted"),
    [
        ("cluster", "failed_share", {"failing": 0.4}),
        ("cluster", "jobs", {"times": 4}),
        ("steady", "jobs", {"times": 3}),
        ("steady", "jobs", {"times": 0.3}),
        ("steady", "failed_share", {"failing": 0.6}),
    ],
)
def test_planted_changes_are_named(world: str, figure: str, planted: dict[str, float]) -> None:
    draw, pages = np.random.default_rng(23), 100
    side = "below" if planted.get("times", 1) < 1 else "above"
    found = sum(
        verdict(figure, drawn(draw, world, **planted), [drawn(draw, world) for _ in range(8)]) == side
        for _ in range(pages)
    )
    assert found >= 90


def test_each_figure_is_judged_once() -> None:
    assert len({figure.name for figure in JUDGED}) == len(JUDGED) == 5
