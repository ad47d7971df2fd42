"""The numbers of the first screen, with their course and what they say together and beside themselves."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, cast

import pytest

from tests.report.answering import answers_of, told
from tracekit.report.headline import first_numbers, headline, state

if TYPE_CHECKING:
    from tests.reviewed import Golden
    from tracekit.report.structure import CapacityInfo


def _row(period: str, number: int = 1, **values: Any) -> dict[str, Any]:
    rest = dict.fromkeys(("mean_wait_s", "p90_wait_s", "waited_h", "held_share", "used_share", "completed_share"))
    return {"period": period, "number": number, **rest, **values}


def test_a_number_has_its_value_its_halves_and_its_course(golden: Golden) -> None:
    rows = [
        _row("whole", mean_wait_s=1800.0, p90_wait_s=7200.0, waited_h=12.34),
        _row("half", 1, mean_wait_s=600.0, waited_h=2.0),
        _row("half", 2, mean_wait_s=3600.0, waited_h=None),
        _row("span", 1, mean_wait_s=600.0),
        _row("span", 2),
        _row("span", 3, mean_wait_s=3600.0),
    ]
    wait, hours = first_numbers(answers_of(overview__through_time=rows), {}, gpu_jobs=False)
    assert (wait["label"], wait["text"], wait["change"]) == ("mean wait", "30 min", "10 min → 1 h")
    golden(told(wait["note"], "2 h"))
    assert wait["series"] == [600.0, None, 3600.0]
    assert (hours["text"], hours["change"]) == ("12 h", None)


def test_numbers_that_the_trace_lacks_are_left_out() -> None:
    assert first_numbers({}, {}, gpu_jobs=False) == []
    assert first_numbers(answers_of(overview__through_time=[_row("whole")]), {}, gpu_jobs=False) == []


def test_a_remark_is_next_to_its_number_and_gpu_jobs_are_named(golden: Golden) -> None:
    answers = answers_of(overview__through_time=[_row("whole", mean_wait_s=0.0, p90_wait_s=0.0, held_share=0.5)])
    wait, held = first_numbers(
        answers, {"mean_wait_s": "3 jobs never started", "held_share": "of 8 GPUs"}, gpu_jobs=True
    )
    assert wait["label"] == "mean wait of GPU jobs"
    golden(told(wait["note"], "3"))
    assert (held["note"], held["series"]) == ("of 8 GPUs", [])


def test_the_state_is_one_sentence(golden: Golden) -> None:
    cases: list[tuple[float, float, float | None, tuple[str, ...]]] = [
        (10.0, 59.0, None, ()),
        (10.0, 59.0, 0.25, ("75.0 %",)),
        (900.0, 30.0, None, ("15 min",)),
        (900.0, 600.0, None, ("10 min", "15 min")),
        (900.0, 1800.0, 0.9, ("15 min", "30 min", "90.0 %")),
    ]
    said = []
    for mean, p90, held, facts in cases:
        row = _row("whole", mean_wait_s=mean, p90_wait_s=p90, held_share=held)
        said.append(told(state(answers_of(overview__through_time=[row])), *facts))
    golden(said)


def test_where_waits_are_unknown_nothing_is_said() -> None:
    assert state({}) == ""
    assert state(answers_of(overview__through_time=[_row("whole", held_share=0.5)])) == ""


def test_what_may_be_lost_is_said_at_once_from_a_third_of_the_time_on(golden: Golden) -> None:
    quiet = [_row("whole", mean_wait_s=0.0, p90_wait_s=0.0, held_share=0.25)]

    def said(*shares: float | None) -> str:
        rows = [{"lost_share": share} for share in shares]
        return str(state(answers_of(overview__through_time=quiet, failures__lost_work=rows)))

    golden([told(said(0.3, 0.1, None), "75.0 %", "40.0 %"), told(said(), "75.0 %")])
    assert said(0.2, 0.1) == said()


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
