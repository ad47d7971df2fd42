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
