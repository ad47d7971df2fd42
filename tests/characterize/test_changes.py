"""What changed between two periods: point estimates worked by hand, planted changes, and what must not be found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest

from tests.characterize.periods import attempts, job, planted, population
from tracekit.characterize import run_query
from tracekit.characterize.changes import changes, changes_since, compare_periods, compare_since
from tracekit.characterize.changes.compare import changes_between
from tracekit.errors import QueryError, UsageError
from tracekit.manifest import Capability

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.reviewed import Golden
    from tracekit.trace import Trace

    MakeTrace = Callable[..., Trace]

BEFORE = [
    job("a", "2017-10-02 08:00", wait_s=0, run_s=3600, gpu_count=1, user="x"),
    job("b", "2017-10-02 09:00", wait_s=660, run_s=7200, gpu_count=4, user="y", status="failed"),
    job("c", "2017-10-04 09:00", wait_s=60, run_s=1800, gpu_count=0, user="x", status="cancelled"),
]
AFTER = [
    job("d", "2017-10-05 08:00", wait_s=1200, run_s=7200, gpu_count=2, user="x"),
    job("e", "2017-10-06 23:00", wait_s=0, run_s=3600, gpu_count=1, user="x", status="preempted"),
]


def trace_of(make_trace: MakeTrace, rows: list[dict[str, Any]], **more: Any) -> Trace:
    return make_trace(jobs=rows, attempts=attempts(rows), **more)


def of_all(frame: pl.DataFrame) -> dict[str, dict[str, Any]]:
    return {row["measure"]: row for row in frame.filter(pl.col("of") == "all").iter_rows(named=True)}


def test_values_worked_by_hand(make_trace: MakeTrace) -> None:
    frame = changes_since(trace_of(make_trace, BEFORE + AFTER), "2017-10-05")
    found = [
        (m, r["before"], r["after"], r["n_before"], r["n_after"], r["days_before"], r["days_after"])
        for m, r in of_all(frame).items()
    ]
    # Before are 3 days, two of them without a GPU job: 1 h and 8 GPU-hours; the CPU job and its user's day count for
    # users alone. After are 2 days: 4 GPU-hours and 1.
    assert set(frame.filter(pl.col("of") == "all")["scope"]) == {"GPU jobs", "all jobs"}
    assert (
        found
        == [
            ("jobs a day", pytest.approx(2 / 3), 1.0, 2, 2, 3, 2),
            ("GPU-hours a day", pytest.approx(9 / 3), pytest.approx(5 / 2), 2, 2, 3, 2),
            ("users active a day", pytest.approx((2 + 0 + 1) / 3), pytest.approx((1 + 1) / 2), 3, 2, 3, 2),
            ("median run time", 5400.0, 5400.0, 2, 2, 1, 2),
            ("median wait", 330.0, 600.0, 2, 2, 1, 2),
            # Nine tenths of the way from 0 to 660, and from 0 to 1200.
            ("90th percentile of waits", pytest.approx(594.0), pytest.approx(1080.0), 2, 2, 1, 2),
            ("jobs that waited more than 10 min", 0.5, 0.5, 2, 2, 1, 2),
            ("jobs completed", 0.5, 0.5, 2, 2, 1, 2),
            ("jobs failed", 0.5, 0.0, 2, 2, 1, 2),
            ("jobs cancelled", 0.0, 0.0, 2, 2, 1, 2),
            ("GPU-hours in jobs that did not complete", pytest.approx(8 / 9), pytest.approx(1 / 5), 2, 2, 1, 2),
            ("mean GPU utilization", None, None, 0, 0, 0, 0),
        ][:11]
    )
    wait = of_all(frame)["median wait"]
    assert (wait["difference"], wait["relative_change"], wait["unit"]) == (270.0, pytest.approx(270 / 330), "s")
    assert (wait["difference_low"], wait["p_value"], wait["verdict"]) == (None, None, "too little data")


def test_failures_and_limits_of_time_are_distinguished(make_trace: MakeTrace) -> None:
    status = ("failed", "timeout", "timeout", "node_fail", *["completed"] * 6)
    rows = [
        job(f"{d}/{k}", f"2017-10-{d:02} 10:{k:02}", status=status[k] if d < 8 else "completed")
        for d in range(1, 15)
        for k in range(10)
    ]
    found = of_all(changes_since(trace_of(make_trace, rows), "2017-10-08"))
    assert (found["jobs failed"]["before"], found["jobs timed out"]["before"]) == pytest.approx((0.2, 0.2))
    assert {found[name]["scope"] for name in found} == {"all jobs"}
    none = of_all(changes_since(trace_of(make_trace, [r for r in rows if r["status"] != "timeout"]), "2017-10-08"))
    assert "jobs timed out" not in none


def test_the_values_are_those_of_the_queries(make_trace: MakeTrace) -> None:
    rng = np.random.default_rng(5)
    before, after = (trace_of(make_trace, planted(rng, first, 6, each=20)) for first in ("2017-10-02", "2017-11-06"))
    found = of_all(changes(before, after))
    for side, trace in (("before", before), ("after", after)):
        summary = dict(run_query(trace, "overview/summary").select("metric", "value").rows())
        status = {row["status"]: row for row in run_query(trace, "overview/status").iter_rows(named=True)}
        by_hour = run_query(trace, "overview/arrivals_by_hour")
        expected = {
            "median run time": summary["median_run_s"],
            "median wait": summary["median_queue_s"],
            "jobs completed": summary["completed_share"],
            "jobs failed": status["failed"]["jobs_share"],
            "GPU-hours in jobs that did not complete": status["failed"]["gpu_hours_share"],
            "GPU-hours a day": summary["gpu_hours"] / 6,
            "jobs a day": by_hour["mean_jobs_per_day"].sum(),
        }
        assert {name: found[name][side] for name in expected} == pytest.approx(expected)


@pytest.mark.parametrize("number", [3, pytest.param(10, marks=pytest.mark.thorough)])
def test_planted_changes_are_found_with_intervals_that_hold_them(make_trace: MakeTrace, number: int) -> None:
    held = np.zeros(3, dtype=int)
    for seed in range(number):
        rng = np.random.default_rng([11, seed])
        before = planted(rng, "2017-10-02", 21)
        after = planted(rng, "2017-10-23", 21, slower=2, later_s=1800, failed=0.2)
        found = of_all(changes_since(trace_of(make_trace, before + after), "2017-10-23"))
        run, wait, failed = (found[m] for m in ("median run time", "median wait", "jobs failed"))
        assert [r["verdict"] for r in (run, wait, failed)] == ["changed"] * 3
        assert [found[m]["verdict"] for m in ("jobs a day", "jobs cancelled")] == ["noise", "noise"]
        held += [
            run["relative_change_low"] <= 1 <= run["relative_change_high"],
            wait["difference_low"] <= 1800 <= wait["difference_high"],
            failed["difference_low"] <= 0.1 <= failed["difference_high"],
        ]
    assert held.min() >= 0.8 * number - 0.5  # 9.5 expected of 10 each


def null_splits(number: int, days: int, before: int) -> tuple[int, int, int]:
    """Return splits with a false change, false changes, and comparisons, over random splits of one population."""
    with_false = false = compared = 0
    for k in range(number):
        rng = np.random.default_rng([7, k])
        whole = population(rng, days)
        chosen = rng.permutation(whole.days.to_numpy())[:before].tolist()
        sides = whole.restricted(lambda d: d.is_in(chosen)), whole.restricted(lambda d: ~d.is_in(chosen))  # noqa: B023 -- called at once
        verdicts = changes_between(*sides, seed=k).frame["verdict"]
        changed = int((verdicts == "changed").sum())
        with_false += changed > 0
        false += changed
        compared += int((verdicts != "too little data").sum())
    return with_false, false, compared


@pytest.mark.parametrize(("number", "most"), [(10, 2), pytest.param(30, 4, marks=pytest.mark.thorough)])
def test_days_split_at_random_seldom_differ(number: int, most: int) -> None:
    with_false, false, compared = null_splits(number, days=42, before=21)
    assert compared > 33 * number
    assert with_false <= most  # of thirty 1.5 expected at 5 %; five or more have a chance of 2 %
    assert false <= 0.02 * compared


@pytest.mark.slow
@pytest.mark.parametrize(("days", "before"), [(60, 30), (60, 8), (20, 8), (180, 90)])
def test_many_days_split_at_random_seldom_differ(days: int, before: int) -> None:
    with_false, false, compared = null_splits(200, days, before)
    assert with_false <= 18  # 10 expected at 5 %
    assert false <= 0.01 * compared


def test_a_trace_against_itself_shows_no_change(make_trace: MakeTrace) -> None:
    trace = trace_of(make_trace, planted(np.random.default_rng(2), "2017-10-02", 8))
    found = compare_periods(trace, trace)
    assert set(found.frame["verdict"]) == {"noise"}
    assert set(found.frame["difference"]) == {0.0}
    assert set(found.frame["p_value"]) == {1.0}
    assert "the two periods share days" in found.notes


def test_the_same_seed_gives_the_same_rows(make_trace: MakeTrace) -> None:
    trace = trace_of(make_trace, planted(np.random.default_rng(3), "2017-10-02", 14))
    first, again, other = (changes_since(trace, "2017-10-09", seed=seed) for seed in (1, 1, 2))
    assert first.equals(again)
    assert not first.equals(other)


def test_equal_shares_do_not_differ_by_rounding(make_trace: MakeTrace) -> None:
    status = ("failed", "failed", "failed", *["completed"] * 7)
    rows = [
        job(f"{d}/{k}", f"2017-10-{d:02} 10:{k:02}", status=status[k % 10])
        for d in range(1, 15)
        for k in range(10 if d < 8 else 30)
    ]
    failed = of_all(changes_since(trace_of(make_trace, rows), "2017-10-08"))["jobs failed"]
    assert (failed["before"], failed["after"]) == pytest.approx((0.3, 0.3))
    assert (failed["difference"], failed["verdict"]) == (0, "noise")


def test_from_ten_a_day_to_thirty_on_every_day_is_certain(make_trace: MakeTrace) -> None:
    rows = [job(f"{d}/{k}", f"2017-10-{d:02} 10:{k:02}") for d in range(1, 15) for k in range(10 if d < 8 else 30)]
    jobs = of_all(changes_since(trace_of(make_trace, rows), "2017-10-08"))["jobs a day"]
    assert (jobs["before"], jobs["after"], jobs["relative_change"]) == (10, 30, 2)
    assert (jobs["difference_low"], jobs["difference_high"]) == (20, 20)
    assert (jobs["p_value"], jobs["verdict"]) == (0, "changed")


def test_size_classes_and_tenants_need_thirty_jobs_on_both_sides(make_trace: MakeTrace) -> None:
    rows = []
    for d in range(1, 15):
        after = d >= 8
        rows += [job(f"one/{d}/{k}", f"2017-10-{d:02} 10:{k:02}", vc="v") for k in range(5)]
        # 35 jobs of 8 GPUs that nobody submits any more, and 28 of 2 GPUs on each side.
        rows += [] if after else [job(f"8/{d}/{k}", f"2017-10-{d:02} 11:{k:02}", gpu_count=8, vc="w") for k in range(5)]
        rows += [job(f"2/{d}/{k}", f"2017-10-{d:02} 12:{k:02}", gpu_count=2, vc=None) for k in range(4)]
    frame = changes_since(trace_of(make_trace, rows), "2017-10-08")
    classes = frame.filter(pl.col("of") == "gpu_class")
    assert classes.filter(pl.col("measure") == "share of all jobs").select(
        "scope", "before", "after", "verdict"
    ).rows() == [
        ("1", pytest.approx(5 / 14), pytest.approx(5 / 9), "changed"),
        ("5-8", pytest.approx(5 / 14), 0.0, "changed"),
    ]
    assert set(classes.filter(pl.col("measure") == "median wait")["scope"]) == {"1"}
    assert set(frame.filter(pl.col("of") == "vc")["scope"]) == {"v"}


def test_jobs_without_gpus_have_no_gpu_hours_to_compare(make_trace: MakeTrace) -> None:
    rows = [job(f"{d}/{k}", f"2017-10-{d:02} 10:{k:02}", gpu_count=0) for d in range(1, 15) for k in range(5)]
    frame = changes_since(trace_of(make_trace, rows), "2017-10-08").filter(pl.col("scope") == "0")
    assert "jobs a day" in frame["measure"]
    assert not frame.filter(pl.col("measure").str.starts_with("GPU-hours")).height


def test_telemetry_counts_by_its_own_time(make_trace: MakeTrace) -> None:
    samples = [
        {"time": f"2017-10-{d:02} 10:{m:02}", "node_id": "n", "gpu_index": 0, "utilization_pct": u}
        for d in range(1, 15)
        for m, u in enumerate([20, 40, None] * 3 if d < 8 else [80, 70] * 4)
    ]
    rows = [job(f"{d}", f"2017-10-{d:02} 10:00") for d in (1, 14)]
    found = of_all(changes_since(trace_of(make_trace, rows, gpu_utilization=samples), "2017-10-08"))
    use = found["mean GPU utilization"]
    assert (use["before"], use["after"], use["n_before"], use["n_after"]) == (30.0, 75.0, 42, 56)
    assert (use["days_before"], use["days_after"], use["verdict"]) == (7, 7, "changed")


def test_use_that_jobs_report_is_compared_where_both_sides_have_it(make_trace: MakeTrace, golden: Golden) -> None:
    rows = [job(str(k), f"2017-10-{1 + k:02} 10:00", gpu_count=2) for k in range(4)]
    usage = [{"job_id": str(k), "gpu_util_pct": 50.0 * (k + 1)} for k in range(4)]
    with_use = trace_of(make_trace, rows, job_usage=usage)
    found = of_all(changes_since(with_use, "2017-10-03"))["mean GPU utilization that jobs report"]
    # Two GPUs each: 25 and 50 %, then 75 and 100 %.
    assert (found["before"], found["after"], found["n_before"]) == (37.5, 87.5, 2)
    lacking = compare_periods(with_use, trace_of(make_trace, rows)).notes
    golden(n for n in lacking if "mean GPU utilization that jobs report" in n)


@pytest.mark.parametrize("day", ["2017-10-02", "2017-09-30", "2017-10-07", "2030-01-01"])
def test_a_day_outside_is_refused_with_the_period(make_trace: MakeTrace, day: str) -> None:
    trace = trace_of(make_trace, BEFORE + AFTER)
    with pytest.raises(
        UsageError, match=rf"{day}: the day does not split .* from 2017-10-02 to 2017-10-06; "
    ) as caught:
        changes_since(trace, day)
    assert "\n" not in str(caught.value)


def test_no_such_day_is_refused(make_trace: MakeTrace) -> None:
    with pytest.raises(UsageError, match=r"2017-13-40: this day does not exist; write it like 2017-10-31"):
        changes_since(trace_of(make_trace, BEFORE), "2017-13-40")


@pytest.mark.parametrize("rows", [[], [{"job_id": "a"}]])
def test_a_side_without_jobs_is_named(make_trace: MakeTrace, rows: list[dict[str, Any]]) -> None:
    empty, full = make_trace(jobs=rows), trace_of(make_trace, AFTER)
    with pytest.raises(QueryError, match="the trace before has no job"):
        changes(empty, full)
    with pytest.raises(QueryError, match="the trace after has no job"):
        changes(full, empty)


def test_days_are_those_of_the_zone(make_trace: MakeTrace, golden: Golden) -> None:
    # 23:00 UTC of 6 October is 7 October in Shanghai.
    there = trace_of(make_trace, AFTER, manifest_overrides={"timezone": "Asia/Shanghai"})
    found = compare_since(there, "2017-10-07")
    assert of_all(found.frame)["jobs a day"]["n_before"] == 1
    notes = compare_periods(trace_of(make_trace, BEFORE), there).notes
    golden([found.notes[0], *(n for n in notes if "days are in the time zone" in n)])


def test_what_a_time_base_does_not_tell_is_said(make_trace: MakeTrace, golden: Golden) -> None:
    rows = planted(np.random.default_rng(4), "1970-01-01", 42, each=3)
    relative = trace_of(make_trace, rows, manifest_overrides={"time_base": "relative"})
    notes = compare_since(relative, "1970-01-22").notes
    assert not [n for n in notes if "weekend" in n or "Saturdays" in n]
    shifted = trace_of(make_trace, rows, manifest_overrides={"time_base": "shifted"})
    both = compare_periods(relative, shifted).notes
    golden(n for n in (*notes, *both) if n.startswith(("times count", "which of the two periods", "dates are shifted")))


def test_weekends_are_resampled_apart_where_both_sides_have_as_many(make_trace: MakeTrace, golden: Golden) -> None:
    trace = trace_of(make_trace, planted(np.random.default_rng(4), "2017-10-02", 56, each=3))
    apart = "days are resampled within weekdays and within weekends"
    assert apart in compare_since(trace, "2017-10-30").notes
    # 13 weekdays and 2 days of weekends make 13.3 %, the rest has 14 of 41.
    mixed = compare_since(trace, "2017-10-17").notes
    assert apart not in mixed
    golden(n for n in mixed if n.startswith("Saturdays and Sundays"))


def test_a_later_before_is_said(make_trace: MakeTrace, golden: Golden) -> None:
    notes = compare_periods(trace_of(make_trace, AFTER), trace_of(make_trace, BEFORE)).notes
    golden(n for n in notes if "called before" in n)


def test_what_a_trace_cannot_tell_is_left_out_with_the_reason(make_trace: MakeTrace, golden: Golden) -> None:
    no_waits = {"capabilities": {"queueing": Capability(available=False, note="the log has no start times.")}}
    found = compare_periods(trace_of(make_trace, BEFORE), trace_of(make_trace, AFTER, manifest_overrides=no_waits))
    waits = ("median wait", "90th percentile of waits", "jobs that waited more than 10 min")
    assert not set(waits) & set(found.frame["measure"])
    golden(n for n in found.notes if n.startswith("left out: median wait"))
