"""overview/parts: its rows add up to the numbers of overview/through_time, and each part has its own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from tests.characterize.asking import Asking
from tracekit.characterize import answer_query

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.trace import Trace

_DAY = "2024-01-01 "


def _job(name: str, user: str, gpus: float, times: tuple[str, str | None, str | None], **more: Any) -> dict[str, Any]:
    keys = ("submit_time", "start_time", "end_time")
    found = {key: None if time is None else _DAY + time for key, time in zip(keys, times, strict=True)}
    return {"job_id": name, "cluster": "c", "user": user, "gpu_count": gpus, "status": "completed", **found, **more}


@pytest.fixture
def three_hours(make_trace: Callable[..., Trace]) -> Trace:
    """Return three hours of four GPUs: a waits 30 min for two, b fails at once on one, c waits in vain for four."""
    jobs = [
        _job("a", "ann", 2.0, ("00:00", "00:30", "01:30"), vc="x", queue_s=1800.0),
        _job("b", "bob", 1.0, ("01:15", "01:15", "02:15"), vc="y", queue_s=0.0, status="failed"),
        _job("c", "ann", 4.0, ("02:00", None, None), vc="x", status="pending"),
        _job("late", "bob", 0.0, ("03:00", "03:00", "03:00"), vc="y", queue_s=0.0),
    ]
    attempts = [
        {key: j[key] for key in ("job_id", "status", "gpu_count", "start_time", "end_time")}
        | {"attempt": 1, "wait_s": j["queue_s"], "run_s": {"late": 0.0}.get(j["job_id"], 3600.0)}
        for j in jobs
        if j["start_time"]
    ]  # fmt: skip
    nodes = [{"node_id": "n", "cluster": "c", "gpu_count": 4}]
    samples = [{"time": _DAY + "00:10", "node_id": "n", "gpu_index": 0, "utilization_pct": 40.0}]
    return make_trace(jobs=jobs, attempts=attempts, nodes=nodes, gpu_utilization=samples)


def test_each_row_by_hand(three_hours: Trace) -> None:
    rows = answer_query(three_hours, "overview/parts", {"step_s": 3600}).frame
    columns = ("kind", "span", "vc", "gpu_class", "bin", "status", "jobs", "amount")
    found = set(rows.filter(~pl.col("by_user")).select(columns).iter_rows())
    # 1,800 s are 20 * 3.255 twentieths of a decade above a second.
    assert found == {
        ("waits", 1, "x", "2-4", 65, None, 1, 1800.0),
        ("waits", 2, "y", "1", -1, None, 1, 0.0),
        ("waits", 3, "x", "2-4", None, None, 1, None),
        ("ended", 2, "x", "2-4", None, "completed", 1, 7200.0),
        ("ended", 3, "y", "1", None, "other", 1, 3600.0),
        ("ended", 4, "y", "0", None, "completed", 1, 0.0),
        ("held", 1, "x", "2-4", None, None, None, 3600.0),
        ("held", 2, "x", "2-4", None, None, None, 3600.0),
        ("held", 2, "y", "1", None, None, None, 2700.0),
        ("held", 3, "y", "1", None, None, None, 900.0),
        ("waiting", 1, "x", "2-4", None, None, None, 3600.0),
        ("waiting", 3, "x", "2-4", None, None, None, 14400.0),
        *(("owned", span, None, None, None, None, None, 14400.0) for span in (1, 2, 3)),
        *(("time", span, None, None, None, None, None, 3600.0) for span in (1, 2, 3)),
        ("used", 1, None, None, None, None, 1, 40.0),
    }
    by_user = rows.filter("by_user", pl.col("kind") == "held").select("user", "span", "amount").sort("user", "span")
    assert by_user.rows() == [("ann", 1, 3600.0), ("ann", 2, 3600.0), ("bob", 2, 2700.0), ("bob", 3, 900.0)]


def test_users_beyond_the_first_have_no_rows(three_hours: Trace) -> None:
    rows = answer_query(three_hours, "overview/parts", {"users": 1}).frame
    assert rows.filter("by_user")["user"].unique().to_list() == ["ann"]


def _numbers(rows: pl.DataFrame) -> dict[str, float | None]:
    def of(kind: str, column: str = "amount", *where: pl.Expr) -> float:
        return float(rows.filter(pl.col("kind") == kind, *where)[column].sum())

    started = of("waits", "jobs", pl.col("bin").is_not_null())
    return {
        "jobs": of("waits", "jobs"),
        "mean_wait_s": of("waits") / started if started else None,
        "held_share": of("held") / of("owned") if of("owned") else None,
        "used_share": of("used") / 100 / of("used", "jobs") if of("used", "jobs") else None,
        "completed_share": of("ended", "amount", pl.col("status") == "completed") / of("ended")
        if of("ended")
        else None,
    }


@pytest.mark.parametrize(
    "name",
    [
        "slurm",
        "kubernetes",
        *(pytest.param(n, marks=pytest.mark.thorough) for n in ("philly", "helios", "slurm-outages")),
    ],
)
def test_the_parts_add_up_to_the_whole_and_to_each_span(sample_trace: Callable[[str], Trace], name: str) -> None:
    trace = sample_trace(name)
    ask = Asking(trace)
    answer = ask("overview/parts")
    rows = answer.filter(~pl.col("by_user"))
    periods = ask("overview/through_time").to_dicts()
    for period in (p for p in periods if p["period"] != "half"):
        mine = rows if period["period"] == "whole" else rows.filter(pl.col("span") == period["number"])
        found = _numbers(mine)
        assert found == {key: pytest.approx(period[key]) for key in found}, period
    # Where all users have rows of their own, these count the same jobs.
    named = trace.scan("jobs").filter(pl.col("user").is_not_null()).select("user").collect()["user"]
    if named.n_unique() <= 30 and not trace.scan("jobs").select(pl.col("user").null_count()).collect().item():
        held = [
            answer.filter(pl.col("kind") == "held", pl.col("by_user") == by)["amount"].sum() for by in (True, False)
        ]
        assert held[0] == pytest.approx(held[1])
