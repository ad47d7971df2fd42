"""The first screen: what the cluster is, what to change first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

from tests.report.answering import answers_of, told
from tracekit.report.summary import summary

if TYPE_CHECKING:
    from tests.reviewed import Golden
    from tracekit.answer import Answer
    from tracekit.report.structure import CapacityInfo, ReplayInfo, TimeInfo


def _answers(**metrics: float | None) -> dict[str, Answer]:
    return answers_of(overview__summary=[{"metric": name, "value": value} for name, value in metrics.items()])


def _entry(name: str, verdict: str = "holds", effect: tuple[str, float] | None = None) -> dict[str, Any]:
    told = None
    if effect is not None:
        told = {
            "verdict": effect[0],
            "headline": "jct",
            "changes": [{"saved_h": -100 * effect[1]}],
            "text": f"{effect[1]:+.0%}",
        }
    more = {"effect": told, "losses": None, "no_effect": None, "record": None}
    return {"id": name, "title": name.upper(), "verdict": verdict, "finding": {"text": f"found {name}"}, **more}


def test_the_cluster_is_reported_as_far_as_the_trace_knows_it(golden: Golden) -> None:
    cases: list[tuple[dict[str, float], tuple[str, ...]]] = [
        ({}, ()),
        ({"jobs": 1}, ("1",)),
        ({"jobs": 9, "users": 1}, ("1", "9")),
        ({"jobs": 1200, "clusters": 2}, ("2", "1,200")),
    ]
    golden([told(summary(_answers(**metrics), None)["about"], *facts) for metrics, facts in cases])


CAPACITY: CapacityInfo = {
    "requested": "observed",
    "used": "observed",
    "gpus": 172.0,
    "alternatives": {"listed": 138.0},
    "note": "",
    "word": "observed",
}


def test_gpus_and_days_are_those_of_the_whole_page(golden: Golden) -> None:
    metrics = {"jobs": 797, "users": 41, "nodes": 30, "gpus_listed": 138, "vcs": 6, "clusters": 1, "days_covered": 28.0}
    when = cast("TimeInfo", {"span_s": 33.6 * 86400})
    golden(told(summary(_answers(**metrics), None, (), CAPACITY, when)["about"], "30", "172", "6", "41", "797", "34"))


def test_outages_are_one_clause_of_the_opening(golden: Golden) -> None:
    def about(**changed: float | None) -> str:
        known = {"nodes": 24.0, "outages": 72.0, "nodes_hit": 22.0, "availability_share": 0.9871, **changed}
        answers = _answers(jobs=709, users=13, nodes=24) | answers_of(
            failures__cluster_availability=[
                {"metric": metric, "value": value, "unit": ""} for metric, value in known.items()
            ]
        )
        return str(summary(answers, None, when=cast("TimeInfo", {"span_s": 58 * 86400}))["about"])

    none = about(outages=0.0, nodes_hit=0.0, availability_share=1.0)
    golden(
        [
            told(about(), "24", "13", "709", "58", "98.7 %", "72 outages", "22 nodes"),
            told(about(outages=1, nodes_hit=1), "1 outage", "1 node"),
            told(none, "24", "13", "709", "58"),
        ]
    )
    assert about(availability_share=None) == none
    assert "outage" not in none


def _replay(*without_effects: str) -> ReplayInfo:
    info = {"cluster": {"nodes": 1, "gpus": 8}, "without_effects": dict.fromkeys(without_effects, "why")}
    return cast("ReplayInfo", info)


def test_nothing_to_change_is_said_of_what_was_replayed_only(golden: Golden) -> None:
    entries = {"guidelines": [_entry("absent", "does not hold")]}

    def heading(replay: ReplayInfo | None) -> str:
        return summary({}, entries, replay=replay)["heading"]

    golden(
        [
            told(heading(_replay())),
            told(heading(_replay("Earth", "Venus")), "Earth or Venus"),
            told(heading(_replay(*"abcd")), "4 clusters"),
            told(heading(_replay("all")), "the log"),
            told(heading(None)),
            told(heading(cast("ReplayInfo", {"cluster": None}))),
        ]
    )


def test_nothing_to_change_does_not_appear_next_to_a_problem_that_was_found(golden: Golden) -> None:
    found = summary({}, {"guidelines": [_entry("vain", effect=("no change", 0.0))]}, replay=_replay())
    assert "1 found" in found["verdict"]
    golden(told(found["heading"], "1"))
    more = summary({}, {"guidelines": [_entry(name) for name in "ab"]}, replay=_replay())
    assert more["heading"] == "Two things to change first"


def test_advice_whose_effect_the_log_does_not_carry_says_so_and_is_ranked_by_nothing() -> None:
    why = "A replay does not reproduce this log (19.4 h against 0.40 h waited); the effect cannot be estimated."
    untold = {**_entry("untold"), "no_effect": why, "record": {"carried": False}}
    untried = {**_entry("untried"), "no_effect": "Not replayed, since no policy decides."}
    changes = summary({}, {"guidelines": [untried, untold]})["changes"]
    assert [(c["id"], c["effect"], c["no_effect"]) for c in changes] == [
        ("untold", None, why),
        ("untried", None, None),
    ]


def test_what_replays_confirm_comes_first_and_the_larger_gain_before_the_smaller() -> None:
    entries = [
        _entry("untried"),
        _entry("little", effect=("better", -0.05)),
        _entry("much", effect=("better", -0.4)),
        _entry("unsure", effect=("undecided", -0.9)),
        _entry("absent", "does not hold"),
    ]
    found = summary({}, {"guidelines": entries})
    assert [(c["id"], c["effect"]) for c in found["changes"]] == [
        ("much", "-40%"),
        ("little", "-5%"),
        ("unsure", "-90%"),
    ]
    assert [c["id"] for c in summary({}, {"guidelines": entries[:1] + entries[3:]})["changes"]] == ["unsure", "untried"]


@pytest.mark.parametrize("verdict", ["worse", "no change"])
def test_advice_that_the_replays_speak_against_is_not_on_the_first_screen(golden: Golden, verdict: str) -> None:
    entries = [_entry("vain", effect=(verdict, 0.1)), _entry("absent", "does not hold"), _entry("who", "cannot tell")]
    found = summary({}, {"guidelines": entries})
    assert found["changes"] == []
    golden(told(found["verdict"], "3", "1"))


def test_a_trace_that_was_not_judged_says_so(golden: Golden) -> None:
    golden(told(summary({}, None)["verdict"]))
