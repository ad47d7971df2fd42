"""The numbers of the first screen, with their course and what they say together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.report.answering import answers_of, told
from tracekit.report.first_numbers import first_numbers, state

if TYPE_CHECKING:
    from tests.reviewed import Golden


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
