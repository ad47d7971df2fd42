"""What sentences and charts of a report must know of the trace: virtual clusters, dates, telemetry, doubts."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import pytest

from tests.report.answering import answer_of, answers_of, told
from tracekit.characterize import find_query
from tracekit.report.caveats import caveats
from tracekit.report.data import capacity_label, gpu_totals, trace_facts
from tracekit.report.facts import TelemetryCoverage
from tracekit.report.headline import headline
from tracekit.report.sections.interface import TraceFacts, charts, finding, question_of, section_lead, why_empty
from tracekit.report.sections.queuing_load import submitting
from tracekit.report.table_view import table_view
from tracekit.report.telemetry import telemetry_note, telemetry_period
from tracekit.report.times import local, start_of_day
from tracekit.timezones import known_zone

if TYPE_CHECKING:
    from tests.reviewed import Golden
    from tracekit.answer import Answer
    from tracekit.report.structure import AnswerInfo, CapabilityInfo, CapacityInfo, Doubt, Quality, ReplayInfo, TimeInfo

WHOLE = TraceFacts(vcs=False, dated=False)
UNSTATED = TraceFacts(vcs=False, quotas=False, dated=False)


def _quality(*capabilities: tuple[str, bool, list[str] | None], records: int = 100, rejected: int = 0) -> Quality:
    told: list[CapabilityInfo] = [
        {"name": name, "available": available, "coverage": None, "window": window, "note": ""}
        for name, available, window in capabilities
    ]
    quality = {"capabilities": told, "records": records, "rejected": rejected, "rejects": [{}], "checks": [{}]}
    return cast("Quality", quality)


def _time(base: str, days: float) -> TimeInfo:
    times: dict[str, None] = dict.fromkeys(("first", "last", "last_submission"))
    return cast("TimeInfo", {"base": base, "timezone": "UTC", **times, "span_s": 86400 * days, "text": ""})


def _load(*rows: tuple[str, float, float, float | None]) -> list[dict[str, Any]]:
    return [
        {
            "time": time,
            "cluster": "c",
            "vc": "v",
            "running_jobs": 1.0,
            "pending_jobs": 0.0,
            "running_gpus": running,
            "pending_gpus": pending,
            "capacity_gpus": owned,
        }
        for time, running, pending, owned in rows
    ]


def test_facts_are_those_of_the_capabilities_and_of_the_times() -> None:
    quality = _quality(("tenants", True, None), ("users", True, None))
    assert trace_facts(quality, _time("absolute", 3)) == TraceFacts(vcs=True, quotas=False, dated=True)
    assert trace_facts(_quality(("tenants", False, None)), _time("relative", 3)) == UNSTATED


def test_without_virtual_clusters_no_sentence_speaks_of_them(golden: Golden) -> None:
    causes = [
        {
            "gpu_class": "1",
            "waits": 4,
            "wait_s": 100.0,
            "fair_share_waits": 1,
            "fair_share_wait_s": 50.0,
            "fair_share_share": 0.25,
            "fragmentation_waits": None,
            "fragmentation_share": None,
            "fragmentation_wait_s": None,
            "other_waits": 3,
        }
    ]
    proxy = finding("queuing/delay_causes", causes, TraceFacts(quotas=False)) or ""
    sentences = [
        told(finding("queuing/delay_causes", causes, WHOLE), "4", "1", "25.0 %", "50.0 %", "3"),
        told(finding("queuing/delay_causes", causes), "50.0 %"),
        told(proxy),
    ]
    assert charts("queuing/delay_causes", causes, WHOLE) == []  # each chart would have one bar
    larger = {**causes[0], "gpu_class": ">8", "fair_share_wait_s": 25.0}
    waits, times = charts("queuing/delay_causes", [*causes, larger], WHOLE)
    assert (waits.title, times.title) == ("Waits", "Time waited")
    (drawn,) = times.to_dict()["datasets"].values()
    assert [d["share"] for d in drawn] == [0.5, 0.25]
    causes[0] |= {"fair_share_share": 0.0, "fair_share_wait_s": 0.0}
    assert charts("queuing/delay_causes", causes, WHOLE) == []
    order = [
        {
            "gpu_class": "1",
            "starts": 4,
            "out_of_order_starts": 2,
            "out_of_order_share": 0.5,
            "harmless_share": 0.5,
            "overtaken_jobs": 1,
        }
    ]
    more = [{**order[0], "starts": 40, "harmless_share": 0.0}]
    alone = [
        told(finding("queuing/out_of_order", order, WHOLE), "2", "4", "50.0 %"),
        told(finding("queuing/out_of_order", more, WHOLE), "2", "40", "5.0 %"),
    ]
    # One bar is a number, which the sentence says.
    assert charts("queuing/out_of_order", order) == []
    assert len(charts("queuing/out_of_order", [order[0], {**order[0], "gpu_class": ">8"}])) == 1
    order[0]["out_of_order_share"] = 0.0
    assert charts("queuing/out_of_order", order) == []
    use = [{"cluster": "c", "vc": None, "allocated_share_mean": 0.5, "capacity_gpus": 4.0, "queue_p50_s": None}]
    for name in ("utilization/vc", "queuing/timeline"):
        assert (why_empty(name, use, WHOLE) or "").startswith("The trace has no virtual clusters.")
        assert why_empty(name, use) is None
    assert len(charts("utilization/vc", [use[0], {**use[0], "cluster": "d"}])) == 1
    assert "virtual cluster" in section_lead("queuing")
    assert "virtual cluster" not in section_lead("queuing", WHOLE)
    assert why_empty("utilization/vc", use, TraceFacts(vcs=False, load=False)) is None
    asked = "How long do attempts queue in each VC, and do attempts of larger jobs queue longer?"
    assert question_of("queuing/queue_delay", asked, TraceFacts()) == asked
    alone.append(question_of("queuing/queue_delay", asked, WHOLE))
    golden(
        [
            *sentences,
            *alone,
        ]
    )
    for text in (sentences[0], *alone):
        assert "VC" not in text
        assert "virtual" not in text


def test_times_without_a_date_are_days_since_the_start_of_the_trace(golden: Golden) -> None:
    rows = _load(("1970-01-01T00:00:00+00:00", 2.0, 0.0, 4.0), ("1970-01-03T12:00:00+00:00", 4.0, 3.0, 4.0))
    (chart,) = charts("queuing/cluster_timeline", rows, WHOLE)
    spec = chart.to_dict()
    x = _time_axis(spec)
    assert (x["type"], x["axis"]["title"][:4]) == ("quantitative", "days")
    values, _ = spec["datasets"].values()
    assert [v["time"] for v in values] == [0.0, 2.5]
    golden(
        [
            told(finding("queuing/cluster_timeline", rows, WHOLE), "4", "on day 2", "3 GPUs"),
            told(finding("queuing/cluster_timeline", rows), "on 3 January 1970 at 12:00", "3 GPUs"),
        ]
    )
    (chart,) = charts("queuing/cluster_timeline", rows)
    assert _time_axis(chart.to_dict())["type"] == "temporal"


def _time_axis(spec: dict[str, Any]) -> dict[str, Any]:
    """Return the axis of time of a chart whose two charts share it."""
    above, below = spec["layer"]
    axes = [layer["encoding"]["x"] for layer in (*above["layer"], below) if "field" in layer["encoding"]["x"]]
    assert all(axis == axes[0] for axis in axes)
    return cast("dict[str, Any]", axes[0])


def test_held_and_waiting_stand_above_each_other_on_scales_of_their_own() -> None:
    times = ("2026-01-01T00:00:00+00:00", "2026-01-02T00:00:00+00:00")
    (chart,) = charts("queuing/cluster_timeline", _load((times[0], 6.0, 0.0, 4.0), (times[1], 3.0, 9.0, 4.0)))
    spec = chart.to_dict()
    values, last = spec["datasets"].values()
    assert [(v["held"], v["waiting"], v["there"]) for v in values] == [(6, 0, 4), (3, 9, 4)]
    assert [v["name"] for v in last] == [["owned"]]
    above, below = spec["layer"]
    assert spec["resolve"] == {"scale": {"y": "independent"}}
    ends = [layer["encoding"]["y"]["scale"]["range"] for layer in (*above["layer"], below)]
    assert ends == [[{"expr": "height * 0.56"}, {"expr": "0"}]] * 3 + [[{"expr": "height"}, {"expr": "height * 0.68"}]]
    assert chart.legend == ()
    # Where nothing waits, no empty chart stands below.
    (alone,) = charts("queuing/cluster_timeline", _load((times[0], 6.0, 0.0, 4.0), (times[1], 3.0, 0.0, 4.0)))
    held = alone.to_dict()
    assert "resolve" not in held
    assert [layer["encoding"]["y"]["scale"]["range"][0] for layer in held["layer"]] == [{"expr": "height"}] * 3
    assert (chart.to_dict()["height"], alone.to_dict()["height"]) == (200, 133)


def test_dates_and_hours_are_those_of_the_time_zone_of_the_trace(golden: Golden) -> None:
    rows = _load(("2017-11-05T02:00:00+00:00", 2.0, 0.0, 4.0), ("2017-11-05T12:00:00+00:00", 4.0, 3.0, 4.0))
    pacific = TraceFacts(timezone="America/Los_Angeles")
    # Clocks went back by an hour between the two.
    (chart,) = charts("queuing/cluster_timeline", rows, pacific)
    spec = chart.to_dict()
    assert _time_axis(spec)["axis"]["title"] == "time (America/Los_Angeles)"
    values, _ = spec["datasets"].values()
    assert [v["time"] for v in values] == ["2017-11-04T19:00Z", "2017-11-05T04:00Z"]
    assert start_of_day("2017-11-05T02:00:00+00:00", pacific) == "4 November 2017"
    assert start_of_day("1970-01-03T02:00:00+00:00", WHOLE) == "day 2"
    quality = _quality(("utilization", True, ["2017-11-05T02:00:00+00:00", "2017-11-05T12:00:00+00:00"]))
    when = {**_time("absolute", 35), "timezone": "America/Los_Angeles"}
    golden(
        [
            told(finding("queuing/cluster_timeline", rows, pacific), "on 5 November 2017 at 04:00"),
            told(
                telemetry_period({"utilization"}, quality, cast("TimeInfo", when)), "4 to 5 November 2017", "10.0", "35"
            ),
        ]
    )


def test_more_gpus_held_than_owned_are_reported(golden: Golden) -> None:
    rows = _load(("2026-01-01T00:00:00+00:00", 6.0, 0.0, 4.0), ("2026-01-02T00:00:00+00:00", 3.0, 0.0, 4.0))
    said = finding("queuing/cluster_timeline", rows) or ""
    golden(told(said, "1", "2"))


def test_the_timeline_of_vcs_names_who_waits_most(golden: Golden) -> None:
    rows = _load(("2026-01-01T00:00:00+00:00", 2.0, 0.4, 4.0), ("2026-01-02T06:30:00+00:00", 4.0, 3.0, 4.0))
    quiet = [{**r, "vc": "w", "running_gpus": 8.0, "pending_gpus": 0.0} for r in rows]
    assert [p.title for p in charts("queuing/timeline", [*rows, *quiet])] == ["w", "v"]
    # A report holds the first rows of a long result only, which tell nothing of the whole.
    many = rows * 1000
    golden(
        [
            told(
                finding("queuing/timeline", [*rows, *quiet]),
                "w used",
                "v had the longest queue",
                "8",
                "1.7",
                "3 GPUs on 2 January 2026 at 06:30",
                "while using 4",
            ),
            told(finding("queuing/timeline", quiet), "w used", "8"),
            told(finding("queuing/timeline", many)),
        ]
    )
    assert charts("queuing/timeline", many) == []


def test_tries_that_count_as_failed_are_reported_in_the_sentence(golden: Golden) -> None:
    rows = [{"gpu_class": "1", "failures": 40, "p50_s": 60.0, "gpu_hours_lost": 8.0}]
    users = [{"user": "u", "gpu_hours_lost": 8.0, "failed_share": None, "jobs": 3}]
    retried = TraceFacts(retried=True)
    golden(
        [
            told(finding("failures/run_time_to_failure", rows, retried), "8"),
            told(finding("failures/by_user", users, retried), "user u", "8"),
        ]
    )


def test_a_log_that_holds_next_to_nothing_of_the_cluster_says_so(golden: Golden) -> None:
    def said(**metrics: float | None) -> str | None:
        return finding("queuing/gpu_time_held", _metrics(**metrics))

    golden(
        [
            told(said(held_share=0.0499, held_gpus=1.0)),
            told(said(held_share=0.05, held_gpus=3.2), "5.0 %", "3"),
            told(said(held_share=None, held_gpus=3.2), "3"),
        ]
    )
    assert said(held_share=None, held_gpus=0.0) is None


def _metrics(**values: float | None) -> list[dict[str, Any]]:
    return [{"metric": metric, "value": value, "unit": ""} for metric, value in values.items()]


@pytest.mark.parametrize(
    ("query", "base", "window", "facts"),
    [
        (
            "utilization/gpu_by_size_status",
            "absolute",
            ["2017-11-05T00:00:00+00:00", "2017-11-05T12:00:00+00:00"],
            ("5 November 2017", "12.0", "35"),
        ),
        ("utilization/host", "relative", ["1970-01-02T00:00:00+00:00", "1970-01-09T00:00:00+00:00"], ("7", "35")),
        ("utilization/host", "absolute", ["2017-10-01T00:00:00+00:00", "2017-11-03T00:00:00+00:00"], None),
        ("overview/summary", "absolute", ["2017-11-05T00:00:00+00:00", "2017-11-05T12:00:00+00:00"], None),
    ],
    ids=["hours of one day", "days without dates", "most of the time", "a question without telemetry"],
)
def test_telemetry_of_a_part_of_the_time_is_reported(
    golden: Golden, query: str, base: str, window: list[str], facts: tuple[str, ...] | None
) -> None:
    quality = _quality(("utilization", True, window), ("host_utilization", True, window))
    note = telemetry_note(find_query(query), quality, _time(base, 35))
    if facts is None:
        assert note is None
    else:
        golden(told(note, *facts))


def test_telemetry_of_a_part_of_the_nodes_is_reported(golden: Golden) -> None:
    window = ["2017-11-05T00:00:00+00:00", "2017-11-05T12:00:00+00:00"]
    quality = _quality(("utilization", True, window), ("host_utilization", True, window))
    seen = TelemetryCoverage(nodes=30, gpu_nodes=8, host_nodes=29)
    gpu = telemetry_period({"utilization"}, quality, _time("absolute", 35), seen)
    golden(
        [
            told(gpu, "5 November 2017", "12.0", "35", "8 of 30 nodes"),
            told(telemetry_period({"utilization"}, quality, _time("absolute", 0.5), seen), "8 of 30 nodes"),
        ]
    )
    assert telemetry_period({"host_utilization"}, quality, _time("absolute", 0.5), seen) is None


def test_few_attempts_behind_many_samples_are_reported(golden: Golden) -> None:
    rows = [{"gpu_count": 16.0, "node_count": n, "samples": 900, "mean_pct": pct} for n, pct in ((2, 43.75), (8, 29.0))]
    few = TraceFacts(telemetry=TelemetryCoverage(attempts={(16.0, 2): 1, (16.0, 8): 40}))
    many = TraceFacts(telemetry=TelemetryCoverage(attempts={(16.0, 2): 30, (16.0, 8): 40}))
    assert (finding("locality/utilization_by_spread", rows, many) or "").endswith("(900 samples of 40 runs).")
    beside = [{"gpu_count": 16.0, "colocated": c, "samples": 900, "mean_pct": 50.0} for c in (False, True)]
    golden(
        [
            told(
                finding("locality/utilization_by_spread", rows, few),
                "16",
                "43.8 %",
                "2",
                "900",
                "1",
                "29.0 %",
                "8",
                "40",
            ),
            told(finding("utilization/held_gpus", _metrics(busy_share=0.5, samples=900.0), few), "50.0 %", "900", "41"),
            told(finding("locality/utilization_by_colocation", beside, few), "41", "16", "50.0 %"),
        ]
    )


def test_zones_that_nobody_knows_and_times_beyond_the_calendar_stop_no_report() -> None:
    assert known_zone("Not/AZone") == known_zone("UTC+8") == "UTC"
    assert known_zone("Asia/Shanghai") == "Asia/Shanghai"
    assert local("9999-12-31T23:00:00+00:00", "Asia/Shanghai").isoformat() == "9999-12-31T23:00:00"


def _capacity(gpus: float | None, **others: float) -> CapacityInfo:
    return {"requested": "auto", "used": "listed", "gpus": gpus, "alternatives": others, "note": "", "word": "listed"}


def test_doubts_are_reported_where_there_are_any(golden: Golden) -> None:
    answers = answers_of(
        queuing__gpu_time_held=_metrics(held_share=0.01), overview__summary=_metrics(unknown_status_share=0.25)
    )
    numbers = [{"key": "unused_nodes", "value": 18.0}, {"key": "nodes", "value": 30.0}]
    judged = {"guidelines": [{"id": "power-down", "finding": {"numbers": numbers}}]}
    found = caveats(answers, _capacity(100.0, observed=103.0), _quality(rejected=2), judged)
    assert [d["place"] for d in found] == [
        "gpus-of-the-cluster",
        "g-power-down",
        "q-queuing-gpu-time-held",
        "quality",
        "records-set-aside",
    ]
    stated_numbers = (("103", "100"), ("18", "30"), ("1.0 %",), ("25.0 %",), ("2.0 %",))
    golden(
        [
            *(told(d["text"], *stated) for d, stated in zip(found, stated_numbers, strict=True)),
            told(found[0]["more"], "1.0 %", "100", "103"),
        ]
    )
    assert [len(d["text"]) <= 95 for d in found] == [True] * len(found)
    assert caveats({}, _capacity(100.0, observed=102.0), _quality(rejected=1)) == []
    assert caveats({}, _capacity(None), _quality()) == []


def test_errors_of_programs_that_printed_the_log_are_a_doubt(golden: Golden) -> None:
    def doubts(count: int) -> list[Doubt]:
        example = "sacct-2024-03-05.txt: sacct: error: connection lost"
        check = {"name": "program_errors", "count": count, "of": 62, "examples": [example] if count else []}
        return caveats({}, _capacity(None), cast("Quality", {**_quality(), "checks": [check]}))

    assert doubts(0) == []
    (found,) = doubts(33)
    assert found["place"] == "contradictions"
    golden(told(f"{found['text']} {found['more']}", "33", "62"))


def test_lost_gpu_hours_and_lost_ends_are_doubts(golden: Golden) -> None:
    def doubts(lost: int, gone: int) -> list[str]:
        counts = {"rejected_gpu_hours": (lost, 1000), "running_past_limit": (gone, 50)}
        checks = [{"name": name, "count": count, "of": of} for name, (count, of) in counts.items()]
        quality = cast("Quality", {**_quality(), "checks": checks})
        found = caveats(_summary(jobs=200), _capacity(None), quality)
        return [f"{doubt['text']} {doubt['more']}".strip() for doubt in found]

    # More than 10 of 1,000 GPU-hours; at least 2 of 200 runs.
    assert doubts(10, 1) == []
    golden(doubts(11, 2))


def test_one_number_of_gpus_serves_a_page_and_others_have_their_source(golden: Golden) -> None:
    owner = ("GPUs of a cluster: the GPUs of its node list",)
    load = answer_of("queuing/gpu_time_held", *_metrics(owned_gpus=140.0), notes=owner)
    origin = {"id": "cluster", "value": "nodes of the Trace"}
    every = {a.name: a for a in (load, answer_of("replay/assumptions", {"id": "M4", "value": "x"}, origin))}
    listed = {**_capacity(140.0), "note": "the node list, 9 nodes"}
    # What changes through time has no second number, its mean.
    changing = {**_capacity(150.0), "word": "largest stated total", "note": "c 150 from day 3"}
    words: list[str] = []

    def totals(capacity: Any, gpus: int = 140) -> list[float]:
        replay = cast("ReplayInfo", {"cluster": {"nodes": 3, "gpus": gpus}})
        found = gpu_totals(every, capacity, replay)
        words.extend(f"{t['gpus']:g}: {t['source']} -- for {t['used_for']}" for t in found)
        return [t["gpus"] for t in found]

    assert totals(listed) == [140.0]
    assert totals(listed, 96) == [140.0, 96.0]
    assert totals(changing, 150) == [150.0]
    assert totals({**_capacity(99.0), "note": "the file"}, 99) == [99.0, 140.0]
    assert totals(_capacity(None), 140) == [140.0, 140.0]
    golden(words)
    assert gpu_totals({}, _capacity(None), None) == []


def test_free_gpus_and_means_of_vcs_leave_out_what_came_after_the_last_submission(golden: Golden) -> None:
    def at(hour: int, **more: Any) -> dict[str, Any]:
        return {"time": f"2020-01-01T{hour:02}:00:00", "cluster": "c", "vc": None, **more}

    free = [at(h, free_gpus=f, largest_gang=g, whole_free_nodes=n) for h, f, g, n in ((0, 8, 2, 0), (1, 8, 4, 0))]
    free += [at(h, free_gpus=64, largest_gang=64, whole_free_nodes=8) for h in (2, 3, 4)]
    facts = TraceFacts(last_submission="2020-01-01T02:30:00")
    assert submitting(free, facts) == free[:2]
    said = finding("locality/fragmentation", free, facts) or ""
    golden(told(said, "37.5 %", "0 %"))
    # Where no interval ends by then, or the last submission is unknown, all rows count.
    assert submitting(free, replace(facts, last_submission="2020-01-01T00:30:00")) == free
    assert submitting(free, TraceFacts()) == free
    assert submitting(free[:1], facts) == free[:1]


@pytest.mark.parametrize(
    ("word", "label"),
    [
        ("observed", "observed at most"),
        ("quotas", "quotas"),
        ("largest sum of quotas", "quotas"),
        ("listed", "owned"),
        ("largest stated total", "owned"),
    ],
)
def test_a_chart_calls_nothing_owned_that_was_only_observed(word: str, label: str) -> None:
    assert capacity_label({**_capacity(8.0), "word": word}) == label


def test_quotas_that_do_not_go_with_use_are_doubtful(golden: Golden) -> None:
    def doubts(word: str, shown: float) -> list[str]:
        return [d["text"] for d in caveats({}, {**_capacity(100.0, observed=shown), "word": word}, _quality())]

    found = [*doubts("quotas", 103.0), *doubts("stated", 103.0), *doubts("quotas", 49.0)]
    golden([told(text, "100", shown) for text, shown in zip(found, ("103", "103", "49"), strict=True)])
    assert [doubts(*case) for case in (("quotas", 50.0), ("stated", 49.0), ("quotas", 102.0))] == [[], [], []]


def test_gpu_hours_say_what_jobs_hold_that_still_run(golden: Golden) -> None:
    answers = answers_of(
        overview__status=[{"status": "running", "jobs": 2, "jobs_share": 1.0}],
        overview__summary=_metrics(gpu_hours=12.0),
        queuing__gpu_time_held=_metrics(held_share=0.1, owned_gpus=100.0, running_gpu_hours=8.0),
    )
    hours, unknown = headline(answers, _capacity(None), "telemetry covers a day")
    (_, held, gpus) = headline(answers, _capacity(100.0, observed=120.0))
    assert unknown["text"] == held["text"] == "10.0 %"
    golden([told(hours["note"], "2", "8"), told(unknown["note"]), told(held["note"], "100")])
    assert (gpus["text"], gpus["note"]) == ("100", "listed; 120 as observed")
    use = answers_of(utilization__held_gpus=_metrics(busy_share=0.5, samples=4.0))
    (busy,) = headline(use, _capacity(None), "telemetry covers a day")
    assert (busy["text"], busy["note"]) == ("50.0 %", "telemetry covers a day")


def test_a_result_without_rows_says_what_that_means(golden: Golden) -> None:
    golden(told(finding("utilization/idle_jobs", []), "10 %"))
    assert finding("overview/status", []) is None
    assert section_lead("overview") == ""
    assert "gang" in section_lead("locality")


def test_the_vc_that_would_pay_most_is_named(golden: Golden) -> None:
    rows = [
        {"policy": policy, "vc": vc, "avg_queue_s": wait, "effect_told": True}
        for policy, vc, wait in (
            ("fifo", "a", 60.0),
            ("fifo", "b", 120.0),
            ("srtf", "a", 30.0),
            ("srtf", "b", 600.0),
            ("recorded", "a", 9000.0),
        )
    ]
    golden(
        [
            told(finding("replay/by_vc", rows), "10 min", "2 min", "VC b", "SRTF", "FIFO"),
            told(finding("replay/by_vc", rows[:3])),
        ]
    )


def test_a_cluster_that_is_the_same_in_all_rows_is_not_a_column() -> None:
    columns = [{"name": name, "unit": None, "meaning": ""} for name in ("cluster", "x")]
    rows: list[dict[str, Any]] = [{"cluster": "c", "x": 1}, {"cluster": "c", "x": 2}]
    answer = cast("AnswerInfo", {"columns": columns, "rows": rows, "row_count": 2, "intervals": []})
    assert [c["head"] for c in table_view(answer, 5)["columns"]] == ["x"]
    rows[1]["cluster"] = "d"
    assert [c["head"] for c in table_view(answer, 5)["columns"]] == ["cluster", "x"]


def _summary(**values: float) -> dict[str, Answer]:
    return answers_of(overview__summary=[{"metric": metric, "value": value} for metric, value in values.items()])


def test_times_that_cannot_be_are_reported_from_one_in_a_hundred_jobs_on(golden: Golden) -> None:
    found = caveats(_summary(jobs=1000, impossible_times=10), _capacity(None), _quality())
    assert [d["place"] for d in found] == ["contradictions"]
    golden(told(found[0]["text"], "10"))
    assert caveats(_summary(jobs=1001, impossible_times=10), _capacity(None), _quality()) == []
    assert caveats(_summary(jobs=0, impossible_times=0), _capacity(None), _quality()) == []


def test_hours_in_doubt_are_reported_with_what_they_may_change(golden: Golden) -> None:
    summary = {"jobs": 9.0, "gpu_hours": 1000.0, "hour_in_doubt_times": 27.0}
    (found,) = caveats(_summary(**summary, gpu_hours_in_doubt=74.0), _capacity(None), _quality())
    golden([told(found["text"], "27", "74"), told(found["more"], "7.4 %")])
    assert caveats(_summary(**summary, gpu_hours_in_doubt=9.9), _capacity(None), _quality()) == []
