"""Resampled Traces: whole days in another order, jobs as they were, users under numbers, loads as asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tracekit
from tests.effort import examples
from tracekit.errors import UsageError
from tracekit.fit.log_jobs import block_length, course, drawn_days

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.reviewed import Golden
    from tracekit.trace import Trace

DAYS = 30


def log(**changes: Any) -> dict[str, list[dict[str, Any]]]:
    """Return a log from a Monday on, in which the jobs of day d run d hours; ann's two have two attempts each.

    The first and the last day, which are not taken, have jobs of their own.
    """
    jobs, attempts = [], []
    for day in range(DAYS):
        for number, user in enumerate(("ann", "ann", "bob", "cat")):
            job = f"{day}-{number}"
            at = f"2021-03-{day + 1:02} {8 + number:02}:{day:02}:{number:02}"
            run_s = 3600.0 * day + number
            who = {"user": user, "vc": f"vc of {user}", "account": user.upper(), "status": "completed"}
            jobs.append({"job_id": job, "submit_time": at, "run_s": run_s, "gpu_count": number + 1.0, **who})
            if user == "ann":
                attempts += [{"job_id": job, "attempt": k, "run_s": run_s / 2} for k in (0, 1)]
    return {"jobs": [{**job, **changes} for job in jobs], "attempts": attempts}


@pytest.fixture(scope="module")
def trace(make_trace: Callable[..., Trace]) -> Trace:
    nodes = [{"node_id": f"n{i}", "gpu_count": 8} for i in range(5)]
    capacity = [{"time": "2021-03-01", "vc": "vc of ann", "gpu_count": 20}]
    return make_trace(**log(), nodes=nodes, capacity=capacity)


def made(trace: Trace) -> pl.DataFrame:
    """Return the jobs with the new day, and the day of the log that their run time tells."""
    return (
        trace.scan("jobs")
        .collect()
        .with_columns(
            day=(pl.col("submit_time").dt.date() - pl.date(2021, 3, 2)).dt.total_days(),
            source=(pl.col("run_s") // 3600).cast(pl.Int64),
        )
    )


def test_days_are_taken_whole_on_their_weekday(trace: Trace, tmp_path: Path) -> None:
    found = tracekit.generate(trace, tmp_path / "t", days=100, seed=1)
    assert found.validate() == []
    jobs = made(found)
    assert jobs.height == 400  # four a day
    for day, part in jobs.group_by("day"):
        (source,) = part["source"].unique()
        assert 1 <= source <= 28  # not the first, not the last
        assert (source - 1 - day[0]) % 7 == 0  # both count from Tuesday, March 2
        times = part.sort("submit_time")["submit_time"].dt.strftime("%H:%M:%S").to_list()
        assert times == [f"{8 + n:02}:{source:02}:{n:02}" for n in range(4)]
        assert part.sort("submit_time")["gpu_count"].to_list() == [1, 2, 3, 4]
        assert part.sort("submit_time")["vc"].to_list() == ["vc of ann", "vc of ann", "vc of bob", "vc of cat"]
    order = jobs.group_by("day").agg(pl.col("source").first()).sort("day")["source"].to_list()
    assert order[:28] != order[28:56]  # longer than the log, and not the same again
    assert len(set(order)) > 14


def test_names_become_numbers_the_largest_first(trace: Trace, tmp_path: Path) -> None:
    jobs = made(tracekit.generate(trace, tmp_path / "t", days=50))
    assert set(jobs.select("user", "account", "vc").rows()) == {
        ("u1", "a1", "vc of ann"),
        ("u2", "a2", "vc of bob"),
        ("u3", "a3", "vc of cat"),
    }
    for column in ("start_time", "end_time", "queue_s", "name"):
        assert jobs[column].null_count() == jobs.height


def test_attempts_go_with_their_job(trace: Trace, tmp_path: Path) -> None:
    found = tracekit.generate(trace, tmp_path / "t", days=40, seed=5)
    jobs, attempts = made(found), found.scan("attempts").collect()
    sums = attempts.group_by("job_id").agg(pl.len().cast(pl.Int64).alias("count"), pl.col("run_s").sum().alias("sum"))
    both = jobs.join(sums, on="job_id", how="left")
    assert both.filter(pl.col("user") == "u1").select((pl.col("count") == 2).all()).item()
    assert both.filter(pl.col("user") == "u1").select(((pl.col("sum") - pl.col("run_s")).abs() < 1e-6).all()).item()
    assert both.filter(pl.col("user") != "u1")["count"].null_count() == both.filter(pl.col("user") != "u1").height
    assert both["attempt_count"].to_list() == both["count"].fill_null(0).to_list()


def test_a_larger_load_lays_logs_over_each_other(trace: Trace, tmp_path: Path) -> None:
    jobs = made(tracekit.generate(trace, tmp_path / "t", days=280, scale_load=2.5, seed=2))
    assert jobs["submit_time"].is_sorted()
    copies = jobs.with_columns(copy=pl.col("user").str.extract(r"\.(\d)$").fill_null("1"))
    count = dict(copies.group_by("copy").len().rows())
    assert (count["1"], count["2"]) == (1120, 1120)
    # Half of 840 user-days, two of the four jobs of a day being one user's: 560 jobs, within four standard deviations,
    # which is sqrt((4 + 1 + 1) * 280 / 4).
    assert abs(count["3"] - 560) < 4 * (6 * 280 / 4) ** 0.5
    # A user's jobs of a day stay together, or go together.
    third = copies.filter((pl.col("copy") == "3") & pl.col("user").str.starts_with("u1"))
    assert set(third.group_by("day").len()["len"]) == {2}
    assert 0 < third["day"].n_unique() < 280


def test_a_smaller_load_leaves_users_out(trace: Trace, tmp_path: Path) -> None:
    jobs = made(tracekit.generate(trace, tmp_path / "t", days=280, scale_load=0.25, seed=3))
    assert abs(jobs.height - 280) < 4 * (6 * 280 * 0.25 * 0.75) ** 0.5
    assert {user.partition(".")[0] for user in jobs["user"]} == {"u1", "u2", "u3"}


def test_jobs_can_be_counted_instead_of_days(trace: Trace, tmp_path: Path) -> None:
    found = tracekit.generate(trace, tmp_path / "t", jobs=1001, seed=4, scale_load=1.3, scale_gpus=2)
    assert found.scan("jobs").collect().height == 1001
    assert found.scan("nodes").collect().height == 10
    assert found.scan("capacity").collect()["gpu_count"].to_list() == [40]
    assert found.manifest.options["method"] == "resample"
    again = tracekit.generate(trace, tmp_path / "again", jobs=1001, seed=4, scale_load=1.3, scale_gpus=2)
    other = tracekit.generate(trace, tmp_path / "other", jobs=1001, seed=5, scale_load=1.3, scale_gpus=2)
    assert again.files("jobs")[0].read_bytes() == found.files("jobs")[0].read_bytes()
    assert other.files("jobs")[0].read_bytes() != found.files("jobs")[0].read_bytes()


def test_part_of_a_day_is_part_of_its_jobs(trace: Trace, tmp_path: Path) -> None:
    jobs = made(tracekit.generate(trace, tmp_path / "t", days=1.4))
    assert jobs.height == 4 + 2  # 1.4 days end at 9:36, after the jobs of 8 and 9 o'clock
    with pytest.raises(UsageError, match="no job arrives in such a short time"):
        tracekit.generate(trace, tmp_path / "none", days=0.1)
    assert not (tmp_path / "none").exists()


def test_the_time_of_day_stays_where_clocks_change(make_trace: Callable[..., Trace], tmp_path: Path) -> None:
    # Clocks of New York go forward on March 14, 2021: 2:30 there is none, and becomes 3:30.
    jobs = [
        {"job_id": str(day), "status": "completed", "run_s": 5, "gpu_count": 1, "submit_time": str(at)}
        for day, at in enumerate(
            pl.datetime_range(pl.datetime(2021, 2, 1, 7, 30), pl.datetime(2021, 3, 10, 7, 30), "1d", eager=True)
        )
    ]
    trace = make_trace(jobs=jobs, manifest_overrides={"timezone": "America/New_York"})
    found = tracekit.generate(trace, tmp_path / "t", days=60).scan("jobs").collect()["submit_time"]
    local = found.dt.replace_time_zone("UTC").dt.convert_time_zone("America/New_York")
    assert found.is_sorted()
    assert set(local.dt.strftime("%H:%M")) == {"02:30", "03:30"}
    late = local.filter(local.dt.hour() == 3).dt.strftime("%Y-%m-%d %Z").to_list()
    assert late == ["2021-03-14 EDT"]


def test_jobs_that_still_run_are_left_out_and_reported(
    make_trace: Callable[..., Trace], tmp_path: Path, golden: Golden
) -> None:
    tables = log()
    tables["jobs"][5] |= {"status": "running", "run_s": None}
    tables["jobs"].append({"job_id": "undated", "status": "completed", "run_s": 5})
    found = tracekit.generate(make_trace(**tables), tmp_path / "t", days=300)
    golden(found.manifest.notes)
    assert set(found.scan("jobs").collect()["status"]) == {"completed"}


def test_a_short_log_does_not_keep_weekdays_and_says_so(
    make_trace: Callable[..., Trace], tmp_path: Path, golden: Golden
) -> None:
    tables = log()
    tables["jobs"] = tables["jobs"][:20]  # five days, all of which are taken
    found = tracekit.generate(make_trace(**tables), tmp_path / "t", days=50)
    golden(found.manifest.notes)
    assert set(found.scan("jobs").collect()["run_s"] // 3600) == {0, 1, 2, 3, 4}


def test_a_log_without_dates_stays_without(make_trace: Callable[..., Trace], tmp_path: Path) -> None:
    jobs = [
        {"job_id": str(n), "status": "completed", "run_s": 5, "gpu_count": 1, "submit_time": f"1970-01-{n + 1:02}"}
        for n in range(20)
    ]
    found = tracekit.generate(
        make_trace(jobs=jobs, manifest_overrides={"time_base": "relative"}), tmp_path / "t", days=9
    )
    assert found.manifest.time_base == "relative"
    assert found.scan("jobs").collect().height == 9


@pytest.mark.parametrize(
    ("given", "what"),
    [
        ({"rate": "end", "days": 1}, "resampled days keep the rates of the log"),
        ({"method": "hybrids", "days": 1}, "'hybrids' is not one of model, resample, hybrid"),
        ({"hybrid": "users", "days": 1}, "'users' is not one of arrivals, jobs"),
        ({"method": "hybrid", "rate": "end", "days": 1}, "resampled days keep the rates of the log"),
        ({"rate": "median", "days": 1}, "'median' is not one of mean, end, fitted"),
        ({}, "give either --jobs or --days"),
        ({"days": 36_501}, "must be above 0 and at most 36,500"),
        ({"jobs": 200_000_000}, "would span more than 36,500 days"),
    ],
)
def test_what_cannot_be_is_refused(trace: Trace, tmp_path: Path, given: dict[str, Any], what: str) -> None:
    with pytest.raises(UsageError, match=what):
        tracekit.generate(trace, tmp_path / "t", **given)
    assert list(tmp_path.iterdir()) == []


def test_a_log_with_nothing_to_take_is_refused(make_trace: Callable[..., Trace], tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="no job has both a submission and an end"):
        tracekit.generate(make_trace(jobs=[{"job_id": "a", "status": "running"}]), tmp_path / "t", days=3)


# ---- blocks of days ----


def test_blocks_are_as_long_as_days_hang_together() -> None:
    rng = np.random.default_rng(0)
    assert block_length(np.full(60, 7.0)) == 1
    independent = [block_length(rng.poisson(100, 200).astype(float)) for _ in range(200)]
    # The first lag is within two standard errors with a probability of about 0.977, since only large values count:
    # 195 of 200, with a standard deviation of 2.1.
    assert 186 <= independent.count(1) <= 200
    hanging = []
    for _ in range(50):
        level = np.zeros(400)
        for day in range(1, 400):
            level[day] = 0.8 * level[day - 1] + rng.normal()
        hanging.append(block_length(np.expm1(level / 4 + 5)))
    # 0.8 ** k falls below 2 / sqrt(400) at the eleventh lag; estimates of it vary by some lags.
    assert 6 <= np.median(hanging) <= 16
    assert block_length(np.repeat([10.0, 1000.0], 40)) == 20  # a step: at most a quarter of the log


def test_weekdays_do_not_count_as_hanging_together() -> None:
    rng = np.random.default_rng(1)
    weeks = rng.poisson(np.tile([300, 300, 300, 300, 300, 20, 20], 30)).astype(float)
    assert block_length(weeks) <= 2


@settings(max_examples=examples(100))
@given(st.integers(1, 300), st.integers(1, 100), st.integers(1, 28), st.integers(0, 2**32 - 1))
def test_new_days_are_blocks_from_near_their_place(number: int, known: int, length: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    due = course(number, known, rng, longest=number)
    days = drawn_days(due, known, length, rng)
    for each in (due, days):
        assert each.size == number
        assert each.min() >= 0
        assert each.max() < known
        if known >= 14:
            assert ((each - np.arange(number)) % 7 == 0).all()
    assert np.abs(days - due).max() <= 7


def test_the_course_is_the_log_and_then_the_log_from_another_week() -> None:
    rng = np.random.default_rng(0)
    whole = course(28, 28, rng, longest=28 * 11)
    assert whole[:28].tolist() == list(range(28))
    passes = whole.reshape(11, 28)
    assert (np.sort(passes, axis=1) == np.arange(28)).all()  # each pass has each day once
    assert len({int(one[0]) for one in passes}) == 4  # and begins in any of the four weeks
    # A piece of a longer log is its last weeks that leave room for it, of a short one its last days.
    assert course(14, 35, rng, longest=14).tolist() == list(range(21, 35))
    assert course(12, 35, rng, longest=12).tolist() == list(range(21, 33))
    assert course(3, 9, rng, longest=3).tolist() == [6, 7, 8]


def test_a_hump_of_load_stays_where_it_was() -> None:
    """100 jobs a day in the third to sixth of eight weeks, 1 on other days."""
    daily = np.where((np.arange(56) >= 14) & (np.arange(56) < 42), 100, 1)
    for seed in range(20):
        rng = np.random.default_rng(seed)
        new = daily[drawn_days(course(56, 56, rng, longest=56), 56, 13, rng)]
        assert new[:7].sum() == 7
        assert (new[21:35] == 100).all()
        assert new[49:].sum() == 7
