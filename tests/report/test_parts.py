"""The sums that a page carries: they are those of the query, at any size, and names are numbers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pytest

from tracekit.characterize import answer_query
from tracekit.report import parts as of_parts
from tracekit.report.parts import parts_info

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.answer import Answer
    from tracekit.report.structure import PartsInfo
    from tracekit.trace import Trace


@pytest.fixture
def answers(sample_trace: Callable[[str], Trace]) -> tuple[Answer, Answer]:
    trace = sample_trace("helios")
    return answer_query(trace, "overview/parts"), answer_query(trace, "overview/through_time")


def _info(answers: tuple[Answer, Answer]) -> PartsInfo:
    found = parts_info(*answers)
    assert found is not None
    return found


def _total(info: PartsInfo, name: str, *, vc: str | None = None) -> float:
    place = None if vc is None else info["names"]["vc"].index(vc)
    chosen = [place is None or code == place for code in info["sums"].get("vc", [0] * len(info["sums"]["span"]))]
    return float(sum(value for value, fits in zip(info["sums"][name], chosen, strict=True) if fits))


def test_sums_of_a_tenant_are_those_of_the_query(answers: tuple[Answer, Answer]) -> None:
    info, rows = _info(answers), answers[0].frame.filter(~pl.col("by_user"))
    for vc in info["names"]["vc"]:
        mine = rows.filter(pl.col("vc") == vc)
        for name, kind in (("wait_s", "waits"), ("held", "held"), ("waiting", "waiting"), ("ended", "ended")):
            expected = mine.filter(pl.col("kind") == kind)["amount"].sum()
            assert _total(info, name, vc=vc) == pytest.approx(expected, rel=1e-5)
    assert info["names"]["gpu_class"] == ["1", "2-4", "5-8", ">8"]
    assert len(info["edges"]) == 1 + answers[1].frame.filter(pl.col("period") == "span").height


def test_what_is_too_large_is_joined_and_nothing_is_lost(
    answers: tuple[Answer, Answer], monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = _info(answers)
    monkeypatch.setattr(of_parts, "_CELLS", 60)
    small = _info(answers)
    assert len(small["sums"]["span"]) <= 60
    assert len(small["edges"]) < len(whole["edges"])
    assert small["edges"][0] == whole["edges"][0]
    assert small["edges"][-1] == whole["edges"][-1]
    # The dimension with most values goes first.
    assert "vc" in whole["names"]
    assert "vc" not in small["names"]
    assert small["user_sums"]["span"] == [] == small["user_waits"]
    for name in ("jobs", "started", "wait_s", "held", "waiting", "owned", "completed", "ended", "time_s"):
        assert _total(small, name) == pytest.approx(_total(whole, name), rel=1e-4)
    for block in (*small["waits"], *whole["waits"]):
        assert sum(block["jobs"]) == sum(whole["sums"]["started"])
        assert len(set(map(len, block.values()))) == 1


def test_without_the_answers_there_are_no_parts(answers: tuple[Answer, Answer]) -> None:
    assert parts_info(None, answers[1]) is None
    assert parts_info(answers[0], None) is None
