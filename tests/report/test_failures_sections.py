"""What the report says and draws about failures that come together, lemons, gangs, lost work and goodput."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.report.answering import told
from tracekit.report.sections.interface import charts, finding

if TYPE_CHECKING:
    from tests.reviewed import Golden


def _rows(columns: str, *rows: tuple[Any, ...]) -> list[dict[str, Any]]:
    return [dict(zip(columns.split(), row, strict=True)) for row in rows]


def _values(query: str, rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    (chart,) = charts(query, rows)
    (values,) = chart.to_dict()["datasets"].values()
    found: list[dict[str, Any]] = values
    return found


def test_time_between_says_which_law_the_times_speak_for(golden: Golden) -> None:
    columns = "cause nodes failed_nodes failures mean_h weibull_shape preferred"

    def said(law: str | None, shape: float | None) -> str:
        rows = _rows(columns, ("all", 9, 4, 21, 240.0, shape, law), ("fan", 9, 1, 1, 9.0, None, None))
        assert finding("failures/time_between", [{**rows[0], "mean_h": None}]) is None
        return told(finding("failures/time_between", rows), "10 d", "21", "4", "9")

    laws = [("exponential", 1.1), ("weibull", 0.4), ("weibull", 1.4), ("two_kinds", None), (None, 1.1)]
    found = [said(*law) for law in laws]
    assert len(set(found)) == len(laws)
    golden(found)


LEMONS = "node_id failures expected_failures shrunk_per_1000_d shrunk_low shrunk_high probability lemon"


def test_lemons_are_named_with_what_was_expected_of_them(golden: Golden) -> None:
    bad, good = ("m", 14, 1.42, 28.0, 16.0, 44.0, 0.999, True), ("n", 2, 1.4, 5.0, 1.0, 9.0, 0.1, False)
    rows = _rows(LEMONS, bad, good, ("o", 0, 1.4, 4.0, 0.5, 8.0, 0.0, False))
    golden(
        [
            told(finding("failures/lemon_nodes", rows), "m", "1", "14", "1.4"),
            told(finding("failures/lemon_nodes", rows[1:])),
        ]
    )
    assert finding("failures/lemon_nodes", rows[2:]) is None
    (chart,) = charts("failures/lemon_nodes", rows)
    assert [words for words, _ in chart.legend] == ["lemon", "may be chance"]
    assert [v["label"] for v in _values("failures/lemon_nodes", rows)] == ["m", "n"]
    assert charts("failures/lemon_nodes", rows[2:]) == []


AT_ONCE = "cause nodes_of chance pairs ratio p_value largest_group"


def test_failures_that_come_together_are_held_against_chance(golden: Golden) -> None:
    times, racks = ("all", "any", "times", 40, 9.27, 0.005, 19), ("all", "rack", "racks", 30, 4.0, 0.01, 19)
    alone = told(finding("failures/at_once", _rows(AT_ONCE, times)), "40", "9.3", "0.005", "19")
    golden(
        [
            alone,
            told(finding("failures/at_once", _rows(AT_ONCE, times, racks)), "4"),
            told(finding("failures/at_once", _rows(AT_ONCE, times, (*racks[:5], 0.4, 2)))),
            told(finding("failures/at_once", _rows(AT_ONCE, (*times[:3], 1, 1.2, 0.4, 2))), "1"),
        ]
    )
    assert finding("failures/at_once", _rows(AT_ONCE, (*times[:3], 0, 0.0, 1.0, 0))) is None


def test_gangs_are_held_against_independent_nodes(golden: Golden) -> None:
    columns = "nodes hit_share independent_share"
    rows = _rows(columns, (1, 0.01, 0.01), (4, 0.03, 0.04), (16, 0.1, 0.15), (32, None, None))
    golden(
        [
            told(finding("failures/by_gang", rows), "3.0 %", "4", "10.0 %", "16", "15.0 %"),
            told(finding("failures/by_gang", rows[:1]), "1.0 %", "1"),
        ]
    )
    assert finding("failures/by_gang", rows[3:]) is None
    (chart,) = charts("failures/by_gang", rows)
    drawn, *names = chart.to_dict()["datasets"].values()
    # Ends at 198 and 187 of 220 px; 42 px of three lines and 14 px would lie over each other.
    assert [(row["name"], round(220 * (1 - row["at"]), 3)) for (row,) in names] == [
        (["measured"], 206.5),
        (["if nodes", "failed", "independently"], 178.5),
    ]
    assert [(v["nodes"], v["share"]) for v in drawn if v["what"] == "measured"] == [(1, 0.01), (4, 0.03), (16, 0.1)]
    assert charts("failures/by_gang", rows[:1]) == []


LOST = "status cause attempts gpu_hours lost_gpu_hours lost_share"


def test_lost_work_says_whether_anything_was_saved(golden: Golden) -> None:
    rows = _rows(LOST, ("node_fail", "nic", 2, 60.0, 60.0, 0.3), ("failed", None, 1, 20.0, 20.0, 0.1))
    saved = [{**r, "lost_gpu_hours": r["lost_gpu_hours"] / 2} for r in rows]
    golden(
        [
            told(finding("failures/lost_work", rows), "3", "80", "40.0 %", "75.0 %", "(nic)"),
            told(finding("failures/lost_work", saved), "40"),
        ]
    )
    assert finding("failures/lost_work", [{**rows[0], "lost_gpu_hours": None}]) is None
    assert [v["lost_gpu_hours"] for v in _values("failures/lost_work", rows)] == [60.0, 20.0]


PARTS = "queued_gpu_hours start_up_gpu_hours lost_gpu_hours idle_gpu_hours useful_gpu_hours"
GOODPUT = f"gpu_class held_gpu_hours {PARTS} goodput_share idle_known_share end_unknown_share"


def test_goodput_is_at_most_what_is_not_known_to_be_otherwise(golden: Golden) -> None:
    known = ("all", 100.0, 0.0, 5.0, 20.0, 15.0, 60.0, 0.6, 1.0, 0.0)
    partly = ("all", 100.0, None, None, 20.0, 5.0, 75.0, 0.75, 0.1, 0.0)
    unseen = ("all", 100.0, 0.0, None, 20.0, None, 80.0, 0.8, 0.0, 0.0)
    said = finding("failures/goodput", _rows(GOODPUT, unseen)) or ""
    golden(
        [
            told(finding("failures/goodput", _rows(GOODPUT, known)), "100", "60.0 %", "20.0 %", "15.0 %", "5.0 %"),
            told(finding("failures/goodput", _rows(GOODPUT, partly)), "100", "75.0 %", "20.0 %", "5.0 %", "10.0 %"),
            told(said),
        ]
    )
    assert finding("failures/goodput", _rows(GOODPUT, ("all", 0.0, *known[2:]))) is None


def test_the_parts_of_a_bar_add_up_to_all_of_it() -> None:
    rows = _rows(
        GOODPUT,
        ("1", 40.0, 0.0, 5.0, 10.0, None, 25.0, 0.6, 0.0, 0.0),
        ("all", 100.0, 1.0, 5.0, 20.0, 15.0, 59.0, 0.6, 1.0, 0.0),
    )
    drawn = _values("failures/goodput", rows)
    for name in ("1", "all"):
        assert sum(v["share"] for v in drawn if v["gpu_class"] == name) == pytest.approx(1)
    (chart,) = charts("failures/goodput", rows)
    assert [words for words, _ in chart.legend] == [
        "useful",
        "idle",
        "lost",
        "start-up",
        "waiting for the rest of the gang",
    ]


def test_ettr_compares_the_widest_gangs_with_the_smallest(golden: Golden) -> None:
    columns = "gpus jobs ettr ettr_low ettr_high expected_ettr"
    one, many = (1, 50, 0.9, None, None, 0.95), (64, 40, 0.7, 0.6, 0.8, None)
    rows = _rows(columns, one, many, (128, 2, 0.1, 0.0, 0.5, None))
    golden(
        [
            told(finding("failures/ettr", rows), "33", "64", "70.0 %", "60.0 %", "80.0 %", "1", "90.0 %"),
            told(finding("failures/ettr", rows[2:]), "5"),
        ]
    )
    assert finding("failures/ettr", []) is None
    assert [v["label"] for v in _values("failures/ettr", rows)] == ["1 GPU", "33 to 64 GPUs", "65 to 128 GPUs"]
