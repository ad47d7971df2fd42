"""What held jobs back and what started them, on a log that fits on paper."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tracekit.characterize import run_query
from tracekit.report.sections.interface import finding, why_empty

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.reviewed import Golden
    from tracekit.trace import Trace

    MakeTrace = Callable[..., Trace]

#     reason               GPUs  wait [s]  started by
PLAN: list[tuple[str | None, float | None, float | None, str | None]] = [
    ("AssocGrpGRES", 1, 100, "main"),
    ("QOSMaxGRESPerUser", 8, 300, "backfill"),
    ("QOSMaxGRESPerUser", 0, 200, None),
    ("Dependency", 1, 100, "backfill"),
    ("ReqNodeNotAvail, UnavailableNodes:n1", None, 50, "main"),
    ("Mystery", 1, 50, "main"),
    (None, 1, 0, "backfill"),
    (None, 0, 200, "backfill"),
    ("BeginTime", 1, None, None),  # has not started
]


def jobs(plan: list[tuple[str | None, float | None, float | None, str | None]]) -> list[dict[str, Any]]:
    names = ("wait_reason", "gpu_count", "queue_s", "started_by")
    return [{"job_id": str(i), **dict(zip(names, row, strict=True))} for i, row in enumerate(plan)]


def attempts(plan: list[tuple[str | None, float | None, float | None, str | None]]) -> list[dict[str, Any]]:
    return [{"job_id": str(i), "attempt": 0, "wait_s": row[2]} for i, row in enumerate(plan) if row[2] is not None]


def test_waits_are_grouped_by_what_held_the_job(make_trace: MakeTrace, golden: Golden) -> None:
    frame = run_query(make_trace(jobs=jobs(PLAN), attempts=attempts(PLAN)), "queuing/wait_reasons")
    # 1000 s in all, 550 s of GPU jobs.
    names = ("reason_group", "commonest_word", "jobs", "gpu_jobs", "mean_s", "p50_s", "p90_s", "wait_share")
    assert frame.select(names).rows() == [
        ("limit", "QOSMaxGRESPerUser", 3, 2, 200.0, 200.0, 280.0, 0.6),
        ("none", None, 2, 1, 100.0, 100.0, 180.0, 0.2),
        ("dependency", "Dependency", 1, 1, 100.0, 100.0, 100.0, 0.1),
        ("nodes", "ReqNodeNotAvail, UnavailableNodes:n1", 1, 0, 50.0, 50.0, 50.0, 0.05),
        ("unlisted", "Mystery", 1, 1, 50.0, 50.0, 50.0, 0.05),
    ]
    assert frame["gpu_wait_share"].to_list() == pytest.approx([400 / 550, 0.0, 100 / 550, 0.0, 50 / 550])
    told = finding("queuing/wait_reasons", frame.to_dicts())
    assert told is not None
    golden(told)


@pytest.mark.parametrize(
    ("word", "group"),
    [
        ("QOSGrpCpuLimit", "limit"),
        ("QOSMinGRES", "limit"),
        ("MaxGRESPerAccount", "limit"),
        ("JobArrayTaskLimit", "limit"),
        ("PartitionTimeLimit", "limit"),
        ("QOSNotAllowed", "other"),
        ("BeginTime", "begin time"),
        ("DependencyNeverSatisfied", "dependency"),
        ("JobHeldUser", "held"),
        ("Reservation", "nodes"),
        ("Licenses", "contention"),
        ("Priority", "contention"),
        ("TimeLimit", "other"),
        ("priority", "unlisted"),
        ("<script>", "unlisted"),
        ("'", "unlisted"),
    ],
)
def test_each_word_has_its_group(make_trace: MakeTrace, word: str, group: str) -> None:
    plan: list[tuple[str | None, float | None, float | None, str | None]] = [(word, 1, 10, None)]
    frame = run_query(make_trace(jobs=jobs(plan), attempts=attempts(plan)), "queuing/wait_reasons")
    assert frame["reason_group"].to_list() == [group]


def test_starts_by_backfill_are_reported_by_size(make_trace: MakeTrace) -> None:
    frame = run_query(make_trace(jobs=jobs(PLAN)), "queuing/started_by")
    assert frame.rows() == [
        ("0", 1, 0, 1, 1.0, None, 200.0),
        ("1", 4, 2, 2, 0.5, 75.0, 50.0),
        ("5-8", 1, 0, 1, 1.0, None, 300.0),
    ]
    assert finding("queuing/started_by", frame.to_dicts()) == "Backfill started 3 of 5 GPU jobs (60.0 %)."


def test_a_log_that_tells_neither_gives_no_rows_and_says_so(make_trace: MakeTrace) -> None:
    plan: list[tuple[str | None, float | None, float | None, str | None]] = [(None, 1, 10, None)]
    trace = make_trace(jobs=jobs(plan), attempts=attempts(plan))
    for name in ("queuing/wait_reasons", "queuing/started_by"):
        assert run_query(trace, name).is_empty()
        assert (why_empty(name, []) or "").startswith("The source does not record this")
