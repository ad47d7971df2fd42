"""What the numbers of the first screen say beside themselves."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, cast

import pytest

from tests.report.answering import answers_of, told
from tracekit.report.headline import headline

if TYPE_CHECKING:
    from tests.reviewed import Golden
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


@pytest.mark.parametrize(("unknown", "share"), [(0.01, "1.0 %"), (0.0101, "1.0 %"), (0.25, "25.0 %")])
def test_from_one_percent_on_unknown_statuses_are_named(unknown: float, share: str) -> None:
    label, note = completed_card(unknown)
    assert label == "known to have completed"
    assert note == f"{share} have no known status"


@pytest.mark.parametrize("unknown", [0.0, 0.005, 0.0099])
def test_below_one_percent_they_are_not(unknown: float) -> None:
    label, note = completed_card(unknown)
    assert label == "of jobs completed"
    assert "%" not in note


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


def test_gpu_jobs_come_first_and_cpu_jobs_are_next_to_them(golden: Golden) -> None:
    cards = _cards(**ALL, **GPU, cpu_jobs=90, cpu_median_queue_s=0, cpu_completed_share=0.9)
    texts, notes = zip(
        *(cards[name] for name in ("median wait of GPU jobs", "of GPU jobs completed", "GPU jobs")), strict=True
    )
    assert texts == ("2 min", "50.0 %", "10")
    golden([told(notes[0], "4 min", "0 s"), told(notes[1], "30.0 %", "20.0 %", "90.0 %"), told(notes[2], "90")])


def test_where_all_jobs_have_gpus_no_kind_is_named() -> None:
    cards = _cards(**ALL, **GPU | {"gpu_jobs": 100.0}, cpu_jobs=0)
    assert cards["median wait"] == ("2 min", "4 min on average")
    text, note = cards["of jobs completed"]
    assert (text, re.findall(r"[\d.]+ %", note)) == ("50.0 %", ["30.0 %", "20.0 %"])
    assert cards["jobs"] == ("100", "submitted")


def test_without_gpu_jobs_the_numbers_are_those_of_all() -> None:
    cards = _cards(**ALL, gpu_jobs=0, cpu_jobs=100)
    assert cards["median wait"] == ("7 s", "9 s on average")
    assert cards["of jobs completed"][0] == "80.0 %"
