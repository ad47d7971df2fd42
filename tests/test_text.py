from __future__ import annotations

import datetime as dt
from decimal import Decimal

from hypothesis import given
from hypothesis import strategies as st

from tracekit import text


@given(st.text(max_size=300))
def test_a_shown_name_prints_on_one_line_and_stays_short(name: str) -> None:
    shown = text.shorten(name, 20)
    assert shown.isprintable()
    assert len(shown) <= 20


@given(st.lists(st.text(max_size=60), max_size=20))
def test_no_two_names_share_a_label(names: list[str]) -> None:
    shown = text.labels(names, 8)
    assert list(shown) == list(dict.fromkeys(names))
    assert len(set(shown.values())) == len(shown)


def test_direction_marks_are_spelled_out() -> None:
    assert text.visible("a\u202eb\u2066c\n") == "a\\u202eb\\u2066c\\n"


def test_a_duration_changes_its_unit_at_the_right_place() -> None:
    assert [text.duration(s) for s in (59.4, 59.99, 60, 3599.9, 86400, 864000)] == [
        "59 s",
        "1 min",
        "1 min",
        "1 h",
        "1 d",
        "10 d",
    ]


def test_a_clock_never_shows_sixty_seconds() -> None:
    assert [text.clock(s) for s in (9.96, 59.96, 3599.7, -61, 0)] == [
        "0:00:10",
        "0:01:00",
        "1:00:00",
        "\N{MINUS SIGN}0:01:01",
        "0:00:00",
    ]


def test_a_cell_is_printed_in_the_unit_of_its_heading() -> None:
    cells = [
        ("p50_s", "s", 3661, ("p50", "h:mm:ss"), "1:01:01"),
        ("jobs_share", "share", 0.123, ("jobs", "%"), "12.3"),
        ("mean_pct", "percent", 45.67, ("mean", "%"), "45.7"),
        ("gpu_hours", "GPU-hours", 1234.5, ("GPU hours", ""), "1,234"),
        ("jobs", "jobs", 1234, ("jobs", ""), "1,234"),
        ("vc", "text", "x" * 100, ("vc", ""), "x" * 47 + "…"),
        ("p50_s", "s", None, ("p50", "h:mm:ss"), "\N{EN DASH}"),
    ]
    for name, unit, value, head, shown in cells:
        assert text.heading(name, unit) == head
        assert text.quantity(value, unit, name) == shown


def test_any_cell_becomes_a_json_value() -> None:
    given_cells = [
        float("nan"),
        float("inf"),
        Decimal("1.5"),
        dt.datetime(2020, 1, 2, 3, 4),
        [1, "a"],
        None,
        True,
        {"k": 1},
    ]
    assert [text.plain(v) for v in given_cells] == [
        None,
        None,
        1.5,
        "2020-01-02T03:04:00",
        [1, "a"],
        None,
        True,
        {"k": 1},
    ]
    assert text.plain("x" * 1000) == "x" * 300 + "… (700 more characters)"


def test_one_thing_is_singular() -> None:
    assert [text.counted(n, "jobs") for n in (0, 1, 2, 1500)] == ["0 jobs", "1 job", "2 jobs", "1,500 jobs"]
