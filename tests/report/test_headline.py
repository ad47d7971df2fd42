"""What the numbers of the first screen say beside themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

from tests.report.answering import answers_of
from tracekit.report.headline import headline

if TYPE_CHECKING:
    from tracekit.report.structure import CapacityInfo

NO_CAPACITY = cast("CapacityInfo", {"requested": "auto", "used": None, "gpus": None, "alternatives": {}, "note": ""})


def completed_card(unknown: float) -> tuple[str, str]:
    """Return label and note of the share of completed jobs where a share of the jobs has no known status."""
    answers = answers_of(
        overview__summary=[
            {"metric": "completed_share", "value": 0.5, "unit": "share"},
            {"metric": "unknown_status_share", "value": unknown, "unit": "share"},
        ],
    )
    (card,) = headline(answers, NO_CAPACITY)
    return card["label"], card["note"]


@pytest.mark.parametrize(("unknown", "note"), [(0.01, "1.0 % have"), (0.0101, "1.0 % have"), (0.25, "25.0 % have")])
def test_from_one_percent_on_unknown_statuses_are_named(unknown: float, note: str) -> None:
    assert completed_card(unknown) == ("known to have completed", f"{note} no known status")


@pytest.mark.parametrize("unknown", [0.0, 0.005, 0.0099])
def test_below_one_percent_they_are_not(unknown: float) -> None:
    assert completed_card(unknown) == ("of jobs completed", "of all jobs, whatever their size")


def _cards(**values: float) -> dict[str, tuple[str, str]]:
    """Return text and note of each card by label, of a summary with these metrics."""
    units = {"_s": "s", "share": "share"}
    rows = [
        {"metric": name, "value": value, "unit": next((u for end, u in units.items() if name.endswith(end)), "jobs")}
        for name, value in values.items()
    ]
    return {
        card["label"]: (card["text"], card["note"])
        for card in headline(answers_of(overview__summary=rows), NO_CAPACITY)
    }


ALL = {"jobs": 100.0, "median_queue_s": 7.0, "mean_queue_s": 9.0, "completed_share": 0.8, "median_run_s": 5.0}
GPU = {
    "gpu_jobs": 10.0,
    "gpu_median_queue_s": 120.0,
    "gpu_mean_queue_s": 240.0,
    "gpu_completed_share": 0.5,
    "gpu_failed_share": 0.3,
    "gpu_timeout_share": 0.2,
    "gpu_unknown_status_share": 0.0,
}


def test_gpu_jobs_come_first_and_cpu_jobs_stand_beside_them() -> None:
    cards = _cards(**ALL, **GPU, cpu_jobs=90, cpu_median_queue_s=0, cpu_completed_share=0.9)
    assert cards["median wait of GPU jobs"] == ("2 min", "4 min on average; median of CPU jobs: 0 s")
    assert cards["of GPU jobs completed"] == ("50.0 %", "30.0 % failed, 20.0 % timed out; CPU jobs: 90.0 % completed")
    assert cards["GPU jobs"] == ("10", "submitted, beside 90 CPU jobs")


def test_where_all_jobs_have_gpus_no_kind_is_named() -> None:
    cards = _cards(**ALL, **GPU | {"gpu_jobs": 100.0}, cpu_jobs=0)
    assert cards["median wait"] == ("2 min", "4 min on average")
    assert cards["of jobs completed"] == ("50.0 %", "30.0 % failed, 20.0 % timed out")
    assert cards["jobs"] == ("100", "submitted")


def test_without_gpu_jobs_the_numbers_are_those_of_all() -> None:
    cards = _cards(**ALL, gpu_jobs=0, cpu_jobs=100)
    assert cards["median wait"] == ("7 s", "9 s on average")
    assert cards["of jobs completed"] == ("80.0 %", "of all jobs, whatever their size")
