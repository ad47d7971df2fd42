"""Which results tell how sure they are, and what a user's own file needs for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tracekit.characterize import answer_query, list_queries
from tracekit.errors import QueryError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tracekit.trace import Trace

    MakeTrace = Callable[..., Trace]


def jobs(number: int) -> list[dict[str, Any]]:
    return [
        {"job_id": f"j{i}", "gpu_count": 1, "run_s": i, "status": "failed" if i % 4 == 0 else "completed"}
        for i in range(number)
    ]


def test_the_shares_and_medians_that_readers_compare_have_intervals() -> None:
    told = {query.name: {i.column for i in query.intervals} for query in list_queries() if query.intervals}
    assert told == {
        "overview/status": {"jobs_share"},
        "overview/job_size": {"jobs_share"},
        "queuing/run_time": {"p50_s"},
        "queuing/queue_delay": {"p50_s"},
        "queuing/delay_causes": {"fair_share_share", "fragmentation_share"},
        "queuing/out_of_order": {"out_of_order_share", "harmless_share"},
        "queuing/started_by": {"backfill_share"},
        "queuing/wait_reasons": {"p50_s"},
        "queuing/expected_wait_backtest": {"inside_share"},
        "locality/delay_by_spread": {"p50_s"},
        "failures/status_by_size": {"jobs_share"},
        "failures/retries": {"unsuccessful_share"},
        "failures/run_time_to_failure": {"p50_s"},
        "failures/ettr": {"median_ettr"},
        "workload/gpu_request": {"jobs_share"},
        "workload/gangs": {"jobs_share"},
    }


def test_a_share_with_its_exact_interval(make_trace: MakeTrace) -> None:
    answer = answer_query(make_trace(jobs=jobs(100)), "overview/status")
    assert answer.frame.select("status", "jobs_share").rows() == [("completed", 0.75), ("failed", 0.25)]
    assert answer.intervals is not None
    # 25 of 100 by Clopper and Pearson: 0.1688 to 0.3466.
    assert answer.intervals.rows()[1] == (pytest.approx(0.1688, abs=5e-5), pytest.approx(0.3466, abs=5e-5))


def test_a_median_with_its_interval(make_trace: MakeTrace) -> None:
    answer = answer_query(make_trace(jobs=jobs(101)), "queuing/run_time")
    assert answer.frame["p50_s"].to_list() == [50.0]
    assert answer.intervals is not None
    # The quantiles at 0.5 -+ 0.98 / sqrt(101) of 0, 1, ..., 100.
    (ends,) = answer.intervals.rows()
    assert ends == (pytest.approx(50 - 9.751, abs=0.01), pytest.approx(50 + 9.751, abs=0.01))


def test_hidden_columns_stay_hidden(make_trace: MakeTrace) -> None:
    answer = answer_query(make_trace(jobs=jobs(40)), "failures/retries")
    assert answer.frame.columns == ["gpu_class", "jobs", "mean_retries", "unsuccessful_share", "timeout_share"]


def test_a_users_file_may_ask_for_intervals(make_trace: MakeTrace, tmp_path: Path) -> None:
    own = tmp_path / "own.sql"
    head = "-- title: mine\n-- column share: share | of them\n-- column n: jobs | all\n"
    body = "\n-- rule:\nSELECT 0.5 AS share, 10 AS n FROM jobs LIMIT 1"
    own.write_text(f"{head}-- interval share: proportion of n{body}")
    answer = answer_query(make_trace(jobs=jobs(1)), own)
    assert answer.intervals is not None
    assert answer.intervals.row(0) == (pytest.approx(0.1871, abs=5e-5), pytest.approx(0.8129, abs=5e-5))
    own.write_text(f"{head}-- interval share: median of n{body}")
    with pytest.raises(QueryError, match="the interval of 'share' needs a column '_share'"):
        answer_query(make_trace(jobs=jobs(1)), own)
