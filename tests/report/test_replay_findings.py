"""What the part about replays says and draws, from rows made by hand."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.report.answering import told
from tracekit.replay.jobs import TWIN
from tracekit.replay.panels import short
from tracekit.report.replay_rows import axis_name
from tracekit.report.sections.interface import charts, finding

if TYPE_CHECKING:
    from tests.reviewed import Golden


def policy(name: str, completion: float = 3600.0, wait: float = 0.0, **more: Any) -> dict[str, Any]:
    """Return a row of replay/policies; what is not given is the same in all rows."""
    return {
        "policy": name,
        "what": f"what {name} is",
        "run_times": "not given",
        "quotas": "ignored",
        "jobs": 10,
        "completed": 10,
        "avg_jct_s": completion,
        "median_jct_s": completion,
        "p99_jct_s": completion,
        "avg_queue_s": wait,
        "median_queue_s": wait,
        "p99_queue_s": wait,
        "jct_diff_share": completion / 3600 - 1,
        "jct_diff_share_low": None,
        "jct_diff_share_high": None,
        "worse_share": 0.0,
        "jain_fairness_vc": 0.9,
        "gpu_utilization_share": 0.5,
        "beyond_share": None,
        "effect_told": True,
        "effect_reason": None,
        "recorded_queue_s": None,
        **more,
    }


def sentence(*rows: dict[str, Any]) -> str:
    return finding("replay/policies", list(rows)) or ""


RECORDED = policy("recorded", 7200.0, 60.0, beyond_share=0.02)


def test_where_nobody_waits_the_jobs_that_the_times_are_of_are_counted(golden: Golden) -> None:
    fewer = sentence(policy("fifo"), policy("sjf"), {**RECORDED, "completed": 8})
    golden(
        [
            told(sentence(policy("fifo"), policy("sjf"), RECORDED), "10", "1 h", "1 min"),
            told(fewer, "8", "10", "1 min"),
        ]
    )


def test_jobs_that_never_end_are_not_jobs_that_do_not_wait(golden: Golden) -> None:
    stuck = [policy(name, jobs=10, completed=8) for name in ("fifo", "sjf")]
    rows = class_rows(fifo=(0.0, 0.0), sjf=(0.0, 0.0))
    said = [told(sentence(*stuck), "2", "8", "10", "1 h"), told(finding("replay/by_gpu_class", rows))]
    rows[-1]["avg_queue_s"] = None
    golden([*said, told(finding("replay/by_gpu_class", rows))])


def test_a_first_policy_that_is_the_best_is_named_once(golden: Golden) -> None:
    rows = class_rows(fifo=(60.0, 0.0), sjf=(120.0, 0.0))
    golden(told(finding("replay/by_gpu_class", rows), "1-GPU", "1 min"))


def test_the_longest_times_have_their_interval(golden: Golden) -> None:
    worst = policy("hived", 4320.0, 720.0, jct_diff_share_low=0.05, jct_diff_share_high=0.4)
    golden(told(sentence(policy("fifo"), worst), "1.2 h", "+20.0 %", "95 %", "+5.0 %", "+40.0 %"))


def test_the_first_policy_is_named_with_what_it_is_and_the_longest_times_too(golden: Golden) -> None:
    text = sentence(policy("fifo"), policy("hived", 4320.0, 720.0))
    golden(told(text, "10", "1 h", "1.2 h", "+20.0 %", "FIFO"))


def test_the_fastest_policies_are_named_by_what_they_know(golden: Golden) -> None:
    text = sentence(
        policy("fifo", wait=1800.0, completed=9),
        policy("las", 3240.0, 1440.0, jct_diff_share_low=-0.2, jct_diff_share_high=-0.05, worse_share=0.25),
        policy("srtf", 2700.0, 900.0, run_times="given"),
    )
    golden(
        told(
            text,
            "9",
            "10",
            "1 h",
            "30 min",
            "54 min",
            "\N{MINUS SIGN}10.0 %",
            "95 %",
            "\N{MINUS SIGN}20.0 %",
            "\N{MINUS SIGN}5.0 %",
            "25.0 %",
            "45 min",
            "\N{MINUS SIGN}25.0 %",
        )
    )


def test_in_a_twin_no_policy_is_ranked_and_the_log_is_next_to_it(golden: Golden) -> None:
    """What other policies would give is told against the log, with an interval that knows how far the twin is off."""
    fast = policy("las", 1980.0, 60.0, jct_diff_share_low=-0.5, jct_diff_share_high=-0.4)
    log = policy("recorded", 3700.0, 660.0)
    untold = fast | {"effect_told": False, "effect_reason": "why", "jct_diff_share": None}
    fewer = log | {"completed": 9, "beyond_share": 0.5}
    text = sentence(policy("twin"), untold, fewer)
    golden(
        [
            told(sentence(policy("twin", wait=600.0), fast, log), "10", "1 h", "10 min", "1.03 h", "11 min"),
            told(text, "10", "1 h", "9", "1.03 h", "11 min", "50.0 %"),
        ]
    )
    assert "las" not in text


WHY = "a replay does not reproduce this log (0.50 h against 2.00 h waited); the effect cannot be estimated"
LONGER = "jobs wait longer under las than in the log (2.10 h against 2.00 h); the effect cannot be estimated"


def test_effects_that_the_log_does_not_carry_are_not_ranked(golden: Golden) -> None:
    base = policy("fifo", wait=1800.0, recorded_queue_s=7200.0)
    unreported = {"effect_told": False, "jct_diff_share": None, "worse_share": None}
    all_unreported = [
        {**base, "effect_told": False, "effect_reason": WHY},
        policy("las", 3240.0, 1440.0, **unreported, effect_reason=WHY),
        policy("recorded", 9000.0, 7200.0),
    ]
    some = [
        base,
        policy("las", 900.0, 7560.0, **unreported, effect_reason=LONGER),
        policy("srtf", 2700.0, 900.0, run_times="given", recorded_queue_s=7200.0),
    ]
    golden(
        [
            told(sentence(*all_unreported), "10", "1 h", "30 min", "2 h", "0.50 h", "2.00 h"),
            told(sentence(*some), "10", "1 h", "30 min", "45 min", "\N{MINUS SIGN}25.0 %", "2 h", "2.10 h", "2.00 h"),
        ]
    )


def test_sizes_and_vcs_are_compared_with_the_log_where_no_effect_is_carried(golden: Golden) -> None:
    rows = [
        {**r, "effect_told": False} for r in class_rows(fifo=(60.0, 3600.0), sjf=(0.0, 0.0), recorded=(5.0, 7200.0))
    ]
    waits = vc_rows(
        ("fifo", "ignored", "a", 0.0),
        ("sjf", "ignored", "a", 30.0),
        ("philly", "kept", "a", 600.0),
        ("hived", "kept", "a", 3600.0),
    )
    half = [r | {"effect_told": r["quotas"] == "kept"} for r in waits]
    text = finding("replay/by_vc", half) or ""
    none = [r | {"effect_told": False} for r in waits]
    golden(
        [
            told(finding("replay/by_gpu_class", rows), "1-GPU", "1 min", "5 s", "8", "1 h", "2 h"),
            told(text),
            told(finding("replay/by_vc", none)),
        ]
    )


@pytest.mark.parametrize("waits", [0.0, 720.0])
def test_a_log_that_holds_more_gpus_than_there_are_is_named_in_the_sentence(golden: Golden, waits: float) -> None:
    rows = [policy("fifo"), policy("hived", 4320.0, waits), {**RECORDED, "beyond_share": 0.42}]
    golden(told(sentence(*rows), "42.0 %"))
    assert "does not list" not in sentence(*rows[:2], {**RECORDED, "beyond_share": 0.05})


def vc_rows(*waits: tuple[str, str | None, str | None, float]) -> list[dict[str, Any]]:
    names = ("policy", "quotas", "vc", "avg_queue_s")
    return [dict(zip(names, row, strict=True)) | {"effect_told": True} for row in waits]


def test_policies_that_keep_quotas_are_compared_with_each_other_only(golden: Golden) -> None:
    rows = vc_rows(
        ("fifo", "ignored", "a", 0.0),
        ("fifo", "ignored", "b", 60.0),
        ("sjf", "ignored", "a", 30.0),
        ("sjf", "ignored", "b", 60.0),
        ("philly", "kept", "a", 600.0),
        ("philly", "kept", "b", 660.0),
        ("hived", "kept", "a", 600.0),
        ("hived", "kept", "b", 3600.0),
        ("recorded", None, "a", 99999.0),
    )
    equal = finding("replay/by_vc", [r for r in rows if r["policy"] not in {"sjf", "hived"}]) or ""
    golden(
        [
            told(finding("replay/by_vc", rows), "30 s", "0 s", "1 h", "11 min", "SJF", "VC a", "HiveD", "VC b"),
            told(equal),
        ]
    )


def test_where_all_keep_quotas_that_is_said_once(golden: Golden) -> None:
    rows = vc_rows(("fifo", "kept", None, 60.0), ("sjf", "kept", None, 120.0))
    golden(
        [
            told(finding("replay/by_vc", rows), "2 min", "1 min", "SJF"),
            told(finding("replay/by_vc", rows[:1])),
        ]
    )


def class_rows(**waits: tuple[float, float]) -> list[dict[str, Any]]:
    return [
        {"policy": name, "gpu_class": size, "jobs": 5, "avg_queue_s": wait, "effect_told": True}
        for name, pair in waits.items()
        for size, wait in zip(("1", ">8"), pair, strict=True)
    ]


def test_sizes_that_would_pay_are_named_where_none_waits_under_the_first_policy(golden: Golden) -> None:
    golden(
        [
            told(
                finding("replay/by_gpu_class", class_rows(fifo=(0.0, 0.0), hived=(60.0, 3600.0), recorded=(9e9, 9e9))),
                "8",
                "1 h",
            ),
            told(
                finding("replay/by_gpu_class", class_rows(fifo=(60.0, 120.0), sjf=(30.0, 0.0))),
                "1-GPU",
                "1 min",
                "30 s",
                "8",
                "2 min",
                "0 s",
            ),
        ]
    )


def test_charts_in_which_all_policies_look_alike_are_not_drawn() -> None:
    same = [policy("fifo"), policy("sjf", 3600.5), RECORDED]
    assert charts("replay/policies", same) == []
    assert charts("replay/by_gpu_class", class_rows(fifo=(9.0, 7.0), sjf=(9.0, 7.0), recorded=(1.0, 2.0))) == []
    assert len(charts("replay/by_gpu_class", class_rows(fifo=(9.0, 7.0), sjf=(9.0, 6.0)))) == 1


@pytest.mark.parametrize(
    ("other", "titles"),
    [
        ({"avg_queue_s": 60.0}, ["Waiting"]),
        ({"p99_jct_s": 9999.0}, ["Completion time"]),
        ({"jain_fairness_vc": 0.8}, ["Fairness between VCs"]),
        ({"gpu_utilization_share": 0.6}, ["GPUs allocated"]),
        ({"jain_fairness_vc": 0.8, "gpu_utilization_share": 0.6}, ["Fairness between VCs and GPUs allocated"]),
        ({"jain_fairness_vc": None, "gpu_utilization_share": 0.529}, []),
    ],
)
def test_charts_are_named_for_what_they_show(other: dict[str, Any], titles: list[str]) -> None:
    drawn = charts("replay/policies", [policy("fifo"), policy("sjf") | other, RECORDED])
    assert [chart.title for chart in drawn] == titles
    for chart in drawn:
        assert ("Jain's index" in chart.note) == ("Fairness" in chart.title)
        assert ("GPUs allocated: " in chart.note) == ("GPUs allocated" in chart.title)
        assert json.dumps(chart.to_dict())


ALIKE = [policy(name) for name in ("fifo", "fifo,scan=skip", "las")]
SLOW = policy("hived", 4320.0, 720.0)


def _drawn(query: str, rows: list[dict[str, Any]]) -> list[tuple[list[str], str, list[dict[str, Any]]]]:
    """Return the lines of each chart, its note and its data."""
    found = []
    for chart in charts(query, rows):
        spec = chart.to_dict()
        (values,) = spec["datasets"].values()
        found.append((list(dict.fromkeys(v["policy"] for v in values)), chart.note, values))
    return found


def test_policies_whose_numbers_are_alike_are_drawn_as_one_and_named(golden: Golden) -> None:
    same = [*ALIKE[:2], policy("las", 3601.0), SLOW, RECORDED]
    (lines, note, values), *others = _drawn("replay/policies", same)
    first, last = f"{short('fifo')} +2", short("hived")
    assert set(lines) == {first, last, "recorded"}
    golden(told(note, "99th", "+2", "2"))
    assert {v["policy"]: v["run_times"] for v in values} == {
        first: "not given",
        last: "not given",
        "recorded": "by the log",
    }
    assert [(names, "more alike" in text) for names, text, _ in others] == [(lines, False)]


def test_policies_that_know_different_things_are_grey_as_one(golden: Golden) -> None:
    ((_, note, values), *_) = _drawn("replay/policies", [*ALIKE[:2], policy("sjf", run_times="given"), SLOW])
    assert [v["run_times"] for v in values] == ["given to some", "not given"]
    assert "Orange" not in note
    golden(told(note))


def test_the_twin_keeps_its_name_and_mark_among_others(golden: Golden) -> None:
    twin = policy(TWIN)
    ((lines, note, values), *_) = _drawn("replay/policies", [*ALIKE[:2], twin, SLOW])
    golden(told(lines[0], "+1"))
    assert [v["mark"] for v in values] == [TWIN, "not given"]
    assert "Square: the simulation." in note


@pytest.mark.parametrize(
    "rows",
    [
        [*ALIKE[:2], SLOW],  # two alike are not many
        [*ALIKE[:2], policy("las", 3605.0), SLOW],  # 0.14 % apart
        [*ALIKE[:2], policy("las", p99_queue_s=1.0), SLOW],
        [*ALIKE[:2], policy("recorded"), SLOW],  # the log stays by itself
    ],
)
def test_others_are_drawn_by_themselves(rows: list[dict[str, Any]]) -> None:
    ((lines, note, _), *_) = _drawn("replay/policies", rows)
    assert set(lines) == {axis_name(r) for r in rows}
    assert "more alike" not in note


def test_sizes_of_one_policy_stand_below_each_other_in_a_chart_of_few_lines(golden: Golden) -> None:
    rows = class_rows(fifo=(0.0, 0.0), hived=(60.0, 60.0), sjf=(0.0, 0.0), ssf=(0.0, 0.0))
    ((lines, note, values),) = _drawn("replay/by_gpu_class", rows)
    assert lines == [f"{short('fifo')} +2", short("hived")]
    golden(told(note, "+2", "2"))
    assert len(values) == 4
    (chart,) = charts("replay/by_gpu_class", rows)
    assert chart.to_dict()["encoding"]["yOffset"]["scale"]["domain"] == ["1", ">8"]
    apart = class_rows(fifo=(0.0, 0.0), hived=(60.0, 60.0), sjf=(0.0, 0.0), ssf=(0.0, 9.0))
    assert [lines for lines, _, _ in _drawn("replay/by_gpu_class", apart)] == [
        list(map(short, ("fifo", "hived", "sjf", "ssf")))
    ]


def test_sentences_do_not_depend_on_the_order_of_the_policies() -> None:
    rows = class_rows(fifo=(60.0, 120.0), sjf=(30.0, 0.0))
    assert finding("replay/by_gpu_class", rows[::-1]) == finding("replay/by_gpu_class", rows)
    waits = [("fifo", "ignored", "a", 0.0), ("philly", "kept", "a", 6.0), ("hived", "kept", "a", 60.0)]
    assert finding("replay/by_vc", vc_rows(*waits[::-1])) == finding("replay/by_vc", vc_rows(*waits))


def test_assumptions_are_counted_once_for_all_their_values(golden: Golden) -> None:
    rows = [{"id": name, "what": "", "value": value} for name, value in (("M4", "x"), ("M9", "y"), ("M9", "z"))]
    golden(
        [
            told(finding("replay/assumptions", rows), "2"),
            told(finding("replay/assumptions", rows[:2]), "2"),
        ]
    )


def test_in_a_twin_no_policy_is_best_for_a_size_or_a_tenant(golden: Golden) -> None:
    def rows(key: str, name: str) -> list[dict[str, Any]]:
        waits = (("twin", 600.0), ("sjf", 60.0), ("recorded", 660.0))
        same = {"jobs": 10, "effect_told": True, "quotas": "ignored"}
        return [{"policy": policy, key: name, "avg_queue_s": wait, **same} for policy, wait in waits]

    by_size = finding("replay/by_gpu_class", rows("gpu_class", "1"))
    by_tenant = finding("replay/by_vc", rows("vc", "lab"))
    golden(
        [
            told(by_size, "1-GPU", "10 min", "11 min"),
            told(by_tenant, "VC lab", "10 min", "11 min"),
        ]
    )
