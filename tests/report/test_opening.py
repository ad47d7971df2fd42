"""The first screen: what the cluster is, what to change first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

from tracekit.report.opening import opening

if TYPE_CHECKING:
    from tracekit.report.structure import Answer


def _answers(**metrics: float | None) -> list[Answer]:
    rows = [{"metric": name, "value": value, "unit": ""} for name, value in metrics.items()]
    return [cast("Answer", {"name": "overview/summary", "rows": rows})]


def _entry(name: str, verdict: str = "holds", effect: tuple[str, float] | None = None) -> dict[str, Any]:
    told = None
    if effect is not None:
        told = {
            "verdict": effect[0],
            "headline": "jct",
            "changes": [{"jct_diff_share": effect[1]}],
            "text": f"{effect[1]:+.0%}",
        }
    return {"id": name, "title": name.upper(), "verdict": verdict, "finding": {"text": f"found {name}"}, "effect": told}


@pytest.mark.parametrize(
    ("metrics", "about"),
    [
        ({}, "A cluster; no jobs were submitted."),
        ({"jobs": 1}, "A cluster; 1 job was submitted."),
        ({"jobs": 9, "users": 1, "days_covered": 0.25}, "A cluster; 1 user submitted 9 jobs within 0.2 days."),
        (
            {"jobs": 797, "users": 41, "nodes": 30, "gpus_listed": 138, "vcs": 6, "clusters": 1, "days_covered": 34.6},
            "A cluster of 30 nodes with 138 GPUs in 6 virtual clusters; 41 users submitted 797 jobs within 35 days.",
        ),
        ({"jobs": 1200, "gpus_observed": 8, "clusters": 2}, "2 clusters of 8 GPUs; 1,200 jobs were submitted."),
    ],
)
def test_the_cluster_is_told_as_far_as_the_trace_knows_it(metrics: dict[str, float], about: str) -> None:
    assert opening(_answers(**metrics), None)["about"] == about


def test_what_replays_confirm_comes_first_and_the_larger_gain_before_the_smaller() -> None:
    entries = [
        _entry("untried"),
        _entry("little", effect=("better", -0.05)),
        _entry("much", effect=("better", -0.4)),
        _entry("unsure", effect=("undecided", -0.9)),
        _entry("absent", "does not hold"),
    ]
    found = opening([], {"guidelines": entries})
    assert [(c["id"], c["effect"]) for c in found["changes"]] == [
        ("much", "-40%"),
        ("little", "-5%"),
        ("untried", None),
    ]


@pytest.mark.parametrize("verdict", ["worse", "no change"])
def test_advice_that_the_replays_speak_against_is_not_on_the_first_screen(verdict: str) -> None:
    entries = [_entry("vain", effect=(verdict, 0.1)), _entry("absent", "does not hold"), _entry("who", "cannot tell")]
    found = opening([], {"guidelines": entries})
    assert found["changes"] == []
    assert found["verdict"] == (
        "Of 3 problems that the guidelines look for, 1 was found in this trace, 1 is absent, and 1 cannot be decided,"
        " since the trace tells too little. The replays expect no gain from the advice of 1."
    )


def test_a_trace_that_was_not_judged_says_so() -> None:
    assert opening([], None)["verdict"] == "The trace was not judged by guidelines."
