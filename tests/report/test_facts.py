"""What sentences and charts of a report must know of the trace: virtual clusters, dates, telemetry, doubts."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

import pytest

from tests.report.answering import answer_of, answers_of
from tracekit.characterize import find_query
from tracekit.report.caveats import caveats
from tracekit.report.data import trace_facts
from tracekit.report.gpu_totals import capacity_label, gpu_totals
from tracekit.report.headline import headline
from tracekit.report.sections.interface import TraceFacts, finding, panels, question_of, section_lead, why_empty
from tracekit.report.sections.queuing_load import submitting
from tracekit.report.table_view import table_view
from tracekit.report.telemetry import telemetry_note, telemetry_period
from tracekit.report.telemetry_coverage import TelemetryCoverage
from tracekit.report.times import known_zone, local, start_of_day

if TYPE_CHECKING:
    from tracekit.answer import Answer
    from tracekit.report.structure import AnswerInfo, CapabilityInfo, CapacityInfo, Quality, ReplayInfo, TimeInfo

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


def test_without_virtual_clusters_no_sentence_speaks_of_them() -> None:
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
    assert finding("queuing/delay_causes", causes, WHOLE) == (
        "Of 4 waits of GPU jobs above 0 s, 1 (25.0 %) came mostly from too few free GPUs in the whole cluster, and"
        " 50.0 % of the time waited. Scattered GPUs cannot be judged, since the log does not say where jobs ran."
        " During the other 3 enough GPUs were free, and the cause is not known."
    )
    assert "came mostly from the quota of their VC, and 50.0 %" in (finding("queuing/delay_causes", causes) or "")
    proxy = finding("queuing/delay_causes", causes, TraceFacts(quotas=False)) or ""
    assert "fell mostly while their VC held as many GPUs as it ever did (the log states no quotas)" in proxy
    assert panels("queuing/delay_causes", causes, WHOLE) == []  # each chart would have one bar
    larger = {**causes[0], "gpu_class": ">8", "fair_share_wait_s": 25.0}
    waits, times = panels("queuing/delay_causes", [*causes, larger], WHOLE)
    assert (waits.title, times.title) == ("Waits", "Time waited")
    (drawn,) = times.to_dict()["datasets"].values()
    assert [d["share"] for d in drawn] == [0.5, 0.25]
    causes[0] |= {"fair_share_share": 0.0, "fair_share_wait_s": 0.0}
    assert panels("queuing/delay_causes", causes, WHOLE) == []
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
    said = finding("queuing/out_of_order", order, WHOLE) or ""
    assert said.startswith(
        "2 of 4 starts of GPU jobs overtook a job; in 50.0 % of the cases that can be decided no overtaken job"
    )
    more = [{**order[0], "starts": 40, "harmless_share": 0.0}]
    assert (finding("queuing/out_of_order", more, WHOLE) or "").startswith(
        "2 of 40 starts of GPU jobs (5.0 %) overtook a job; each time an overtaken job had room to start too."
    )
    # One bar is a number, which the sentence says.
    assert panels("queuing/out_of_order", order) == []
    assert len(panels("queuing/out_of_order", [order[0], {**order[0], "gpu_class": ">8"}])) == 1
    order[0]["out_of_order_share"] = 0.0
    assert panels("queuing/out_of_order", order) == []
    use = [{"cluster": "c", "vc": None, "allocated_share_mean": 0.5, "capacity_gpus": 4.0, "queue_p50_s": None}]
    for name in ("utilization/vc", "queuing/timeline"):
        assert (why_empty(name, use, WHOLE) or "").startswith("The trace has no virtual clusters;")
        assert why_empty(name, use) is None
    assert len(panels("utilization/vc", [use[0], {**use[0], "cluster": "d"}])) == 1
    assert "virtual cluster" in section_lead("queuing")
    assert "virtual cluster" not in section_lead("queuing", WHOLE)
    assert why_empty("utilization/vc", use, TraceFacts(vcs=False, load=False)) is None
    asked = "How long do jobs wait, in which VC, and do larger jobs wait longer?"
    assert question_of("queuing/queue_delay", asked, TraceFacts()) == asked
    assert question_of("queuing/queue_delay", asked, WHOLE) == "How long do jobs wait, and do larger jobs wait longer?"


def test_times_without_a_date_are_days_since_the_start_of_the_trace() -> None:
    rows = _load(("1970-01-01T00:00:00+00:00", 2.0, 0.0, 4.0), ("1970-01-03T12:00:00+00:00", 4.0, 3.0, 4.0))
    assert finding("queuing/cluster_timeline", rows, WHOLE) == (
        "At the fullest jobs held 4 GPUs. The queue was longest on day 2: 3 GPUs waited for, 4 held."
    )
    (panel,) = panels("queuing/cluster_timeline", rows, WHOLE)
    spec = panel.to_dict()
    x = _time_axis(spec)
    assert (x["type"], x["axis"]["title"]) == ("quantitative", "days since the start of the trace")
    values, _ = spec["datasets"].values()
    assert [v["time"] for v in values] == [0.0, 2.5]
    assert "on 3 January 1970 at 12:00:" in (finding("queuing/cluster_timeline", rows) or "")
    (panel,) = panels("queuing/cluster_timeline", rows)
    assert _time_axis(panel.to_dict())["type"] == "temporal"


def _time_axis(spec: dict[str, Any]) -> dict[str, Any]:
    """Return the axis of time of a chart whose two panels share it."""
    above, below = spec["layer"]
    axes = [layer["encoding"]["x"] for layer in (*above["layer"], below) if "field" in layer["encoding"]["x"]]
    assert all(axis == axes[0] for axis in axes)
    return cast("dict[str, Any]", axes[0])


def test_held_and_waiting_stand_above_each_other_on_scales_of_their_own() -> None:
    times = ("2026-01-01T00:00:00+00:00", "2026-01-02T00:00:00+00:00")
    (panel,) = panels("queuing/cluster_timeline", _load((times[0], 6.0, 0.0, 4.0), (times[1], 3.0, 9.0, 4.0)))
    spec = panel.to_dict()
    values, last = spec["datasets"].values()
    assert [(v["held"], v["waiting"], v["there"]) for v in values] == [(6, 0, 4), (3, 9, 4)]
    assert [v["name"] for v in last] == [["owned"]]
    above, below = spec["layer"]
    assert spec["resolve"] == {"scale": {"y": "independent"}}
    ends = [layer["encoding"]["y"]["scale"]["range"] for layer in (*above["layer"], below)]
    assert ends == [[{"expr": "height * 0.56"}, {"expr": "0"}]] * 3 + [[{"expr": "height"}, {"expr": "height * 0.68"}]]
    assert panel.legend == ()
    # Where nothing waits, no empty panel stands below.
    (alone,) = panels("queuing/cluster_timeline", _load((times[0], 6.0, 0.0, 4.0), (times[1], 3.0, 0.0, 4.0)))
    (held,) = alone.to_dict()["layer"]
    assert [layer["encoding"]["y"]["scale"]["range"][0] for layer in held["layer"]] == [{"expr": "height"}] * 3
    assert (panel.to_dict()["height"], alone.to_dict()["height"]) == (200, 133)


def test_dates_and_hours_are_those_of_the_time_zone_of_the_trace() -> None:
    rows = _load(("2017-11-05T02:00:00+00:00", 2.0, 0.0, 4.0), ("2017-11-05T12:00:00+00:00", 4.0, 3.0, 4.0))
    pacific = TraceFacts(timezone="America/Los_Angeles")
    # Clocks went back by an hour between the two.
    assert "on 5 November 2017 at 04:00:" in (finding("queuing/cluster_timeline", rows, pacific) or "")
    (panel,) = panels("queuing/cluster_timeline", rows, pacific)
    spec = panel.to_dict()
    assert _time_axis(spec)["axis"]["title"] == "time (America/Los_Angeles)"
    values, _ = spec["datasets"].values()
    assert [v["time"] for v in values] == ["2017-11-04T19:00Z", "2017-11-05T04:00Z"]
    assert start_of_day("2017-11-05T02:00:00+00:00", pacific) == "4 November 2017"
    assert start_of_day("1970-01-03T02:00:00+00:00", WHOLE) == "day 2"
    quality = _quality(("utilization", True, ["2017-11-05T02:00:00+00:00", "2017-11-05T12:00:00+00:00"]))
    when = {**_time("absolute", 35), "timezone": "America/Los_Angeles"}
    assert telemetry_period({"utilization"}, quality, cast("TimeInfo", when)) == (
        "telemetry covers 4 to 5 November 2017 only, 10.0 hours of the 35 days of the trace"
    )


def test_more_gpus_held_than_owned_are_told() -> None:
    rows = _load(("2026-01-01T00:00:00+00:00", 6.0, 0.0, 4.0), ("2026-01-02T00:00:00+00:00", 3.0, 0.0, 4.0))
    said = finding("queuing/cluster_timeline", rows) or ""
    assert said.endswith("; in 1 of the 2 spans drawn they held more than are owned.")


def test_the_timeline_of_vcs_names_who_waits_most() -> None:
    rows = _load(("2026-01-01T00:00:00+00:00", 2.0, 0.4, 4.0), ("2026-01-02T06:30:00+00:00", 4.0, 3.0, 4.0))
    quiet = [{**r, "vc": "w", "running_gpus": 8.0, "pending_gpus": 0.0} for r in rows]
    assert finding("queuing/timeline", [*rows, *quiet]) == (
        "w held the most GPUs, 8 on average, and v waited for the most, 1.7. Most at one time were waited for by v,"
        " 3 on 2 January 2026 at 06:30, when it held 4."
    )
    assert finding("queuing/timeline", quiet) == "w held the most GPUs, 8 on average; nobody waited for GPUs."
    assert [p.title for p in panels("queuing/timeline", [*rows, *quiet])] == ["w", "v"]
    # A report holds the first rows of a long result only, which tell nothing of the whole.
    many = rows * 1000
    assert finding("queuing/timeline", many) == (
        "The table shows the means of the first intervals, its file those of all."
    )
    assert panels("queuing/timeline", many) == []


def test_tries_that_count_as_failed_are_told_in_the_sentence() -> None:
    rows = [{"gpu_class": "1", "failures": 40, "p50_s": 60.0, "gpu_hours_lost": 8.0}]
    said = finding("failures/run_time_to_failure", rows, TraceFacts(retried=True)) or ""
    assert "All that failed, those tried again included, took 8 GPU-hours" in said
    users = [{"user": "u", "gpu_hours_lost": 8.0, "failed_share": None, "jobs": 3}]
    said = finding("failures/by_user", users, TraceFacts(retried=True)) or ""
    assert said == "Failed attempts of user u, those tried again included, took the most, 8 GPU-hours."


def test_a_log_that_holds_next_to_nothing_of_the_cluster_says_so() -> None:
    def said(**metrics: float | None) -> str | None:
        return finding("queuing/gpu_time_held", _metrics(**metrics))

    little = "; the log may hold a part of the cluster's jobs only."
    assert (said(held_share=0.0499, held_gpus=1.0) or "").endswith(little)
    assert said(held_share=0.05, held_gpus=3.2) == (
        "Jobs held 5.0 % of the cluster's GPU time up to the last submission, 3 GPUs on average."
    )
    assert said(held_share=None, held_gpus=3.2) == "Up to the last submission, jobs held 3 GPUs on average."
    assert said(held_share=None, held_gpus=0.0) is None


def _metrics(**values: float | None) -> list[dict[str, Any]]:
    return [{"metric": metric, "value": value, "unit": ""} for metric, value in values.items()]


@pytest.mark.parametrize(
    ("query", "base", "window", "note"),
    [
        (
            "utilization/gpu_by_size_status",
            "absolute",
            ["2017-11-05T00:00:00+00:00", "2017-11-05T12:00:00+00:00"],
            "telemetry covers 5 November 2017 only, 12.0 hours of the 35 days of the trace",
        ),
        (
            "utilization/host",
            "relative",
            ["1970-01-02T00:00:00+00:00", "1970-01-09T00:00:00+00:00"],
            "telemetry covers 7 days of the 35 days of the trace",
        ),
        ("utilization/host", "absolute", ["2017-10-01T00:00:00+00:00", "2017-11-03T00:00:00+00:00"], None),
        ("overview/summary", "absolute", ["2017-11-05T00:00:00+00:00", "2017-11-05T12:00:00+00:00"], None),
    ],
)
def test_telemetry_of_a_part_of_the_time_is_told(query: str, base: str, window: list[str], note: str | None) -> None:
    quality = _quality(("utilization", True, window), ("host_utilization", True, window))
    assert telemetry_note(find_query(query), quality, _time(base, 35)) == note


def test_telemetry_of_a_part_of_the_nodes_is_told() -> None:
    window = ["2017-11-05T00:00:00+00:00", "2017-11-05T12:00:00+00:00"]
    quality = _quality(("utilization", True, window), ("host_utilization", True, window))
    seen = TelemetryCoverage(nodes=30, gpu_nodes=8, host_nodes=29)
    gpu = telemetry_period({"utilization"}, quality, _time("absolute", 35), seen)
    assert gpu == "telemetry covers 5 November 2017 only, 12.0 hours of the 35 days of the trace, on 8 of 30 nodes"
    assert telemetry_period({"utilization"}, quality, _time("absolute", 0.5), seen) == "telemetry covers 8 of 30 nodes"
    assert telemetry_period({"host_utilization"}, quality, _time("absolute", 0.5), seen) is None


def test_few_attempts_behind_many_samples_are_told() -> None:
    rows = [{"gpu_count": 16.0, "node_count": n, "samples": 900, "mean_pct": pct} for n, pct in ((2, 43.75), (8, 29.0))]
    few = TraceFacts(telemetry=TelemetryCoverage(attempts={(16.0, 2): 1, (16.0, 8): 40}))
    assert finding("locality/utilization_by_spread", rows, few) == (
        "GPUs of attempts of 16 GPUs were 43.8 % busy on average on 2 nodes (900 samples of 1 attempt) and 29.0 % on"
        " 8 nodes (900 samples of 40 attempts), too few attempts to tell why."
    )
    many = TraceFacts(telemetry=TelemetryCoverage(attempts={(16.0, 2): 30, (16.0, 8): 40}))
    assert (finding("locality/utilization_by_spread", rows, many) or "").endswith("(900 samples of 40 attempts).")
    assert finding("utilization/held_gpus", _metrics(busy_share=0.5, samples=900.0), few) == (
        "GPUs that jobs held were 50.0 % busy on average, over 900 samples of 41 attempts."
    )
    beside = [{"gpu_count": 16.0, "colocated": c, "samples": 900, "mean_pct": 50.0} for c in (False, True)]
    assert (finding("locality/utilization_by_colocation", beside, few) or "").startswith(
        "GPUs of 41 attempts of 16 GPUs were 50.0 % busy on average"
    )


def test_zones_that_nobody_knows_and_times_beyond_the_calendar_stop_no_report() -> None:
    assert known_zone("Not/AZone") == known_zone("UTC+8") == "UTC"
    assert known_zone("Asia/Shanghai") == "Asia/Shanghai"
    assert local("9999-12-31T23:00:00+00:00", "Asia/Shanghai").isoformat() == "9999-12-31T23:00:00"


def _capacity(gpus: float | None, **others: float) -> CapacityInfo:
    return {"requested": "auto", "used": "listed", "gpus": gpus, "alternatives": others, "note": "", "word": "listed"}


def test_doubts_are_told_where_there_are_any() -> None:
    answers = answers_of(
        queuing__gpu_time_held=_metrics(held_share=0.01), overview__summary=_metrics(unknown_status_share=0.25)
    )
    numbers = [{"key": "unused_nodes", "value": 18.0}, {"key": "nodes", "value": 30.0}]
    judged = {"guidelines": [{"id": "power-down", "finding": {"numbers": numbers}}]}
    found = caveats(answers, _capacity(100.0, observed=103.0), _quality(rejected=2), judged)
    assert [(d["text"], d["place"]) for d in found] == [
        ("Jobs or telemetry show 103 GPUs, the source lists 100.", "gpus-of-the-cluster"),
        ("18 of 30 nodes ran no job of this log: it may hold a part of the load only.", "g-power-down"),
        ("Jobs hold 1.0 % of the GPU time: this log may hold a part of the load only.", "q-queuing-gpu-time-held"),
        ("How 25.0 % of the jobs ended is unknown.", "quality"),
        ("2.0 % of the records could not be read.", "records-set-aside"),
    ]
    assert found[0]["more"] == (
        "Some nodes show more GPUs than the source lists, and shares of the cluster may be smaller: jobs held 1.0 % of"
        " 100 GPUs, or 1.0 % of 103."
    )
    assert [len(d["text"]) <= 95 for d in found] == [True] * len(found)
    assert caveats({}, _capacity(100.0, observed=102.0), _quality(rejected=1)) == []
    assert caveats({}, _capacity(None), _quality()) == []


def test_one_number_of_gpus_stands_for_a_page_and_others_have_their_source() -> None:
    owner = ("GPUs of a cluster: the GPUs of its node list",)
    load = answer_of("queuing/gpu_time_held", *_metrics(owned_gpus=140.0), notes=owner)
    origin = {"id": "cluster", "value": "nodes of the Trace"}
    every = {a.name: a for a in (load, answer_of("replay/assumptions", {"id": "M4", "value": "x"}, origin))}
    listed = {**_capacity(140.0), "note": "the node list, 9 nodes"}
    one = [(140.0, "the node list, 9 nodes", "shares of the whole cluster, through time and by hour")]

    def totals(capacity: Any, gpus: int = 140) -> list[tuple[float, str, str]]:
        replay = cast("ReplayInfo", {"cluster": {"nodes": 3, "gpus": gpus}})
        return [(t["gpus"], t["source"], t["used_for"]) for t in gpu_totals(every, capacity, replay)]

    assert totals(listed) == one
    replayed = (96.0, "the cluster of the replays: nodes of the Trace", "replays")
    assert totals(listed, 96) == [*one, replayed]
    # What changes through time has no second number, its mean.
    changing = {**_capacity(150.0), "word": "largest stated total", "note": "c 150 from day 3"}
    assert totals(changing, 150) == [
        (150.0, "c 150 from day 3; a share counts what there is at each moment", one[0][2]),
    ]
    assert totals({**_capacity(99.0), "note": "the file"}, 99) == [
        (99.0, "the file", "the cluster as a whole"),
        (140.0, "the GPUs of its node list, on average over time", one[0][2]),
    ]
    assert [t[0] for t in totals(_capacity(None), 140)] == [140.0, 140.0]
    assert gpu_totals({}, _capacity(None), None) == []


def test_free_gpus_and_means_of_vcs_leave_out_what_came_after_the_last_submission() -> None:
    def at(hour: int, **more: Any) -> dict[str, Any]:
        return {"time": f"2020-01-01T{hour:02}:00:00", "cluster": "c", "vc": None, **more}

    free = [at(h, free_gpus=f, largest_gang=g, whole_free_nodes=n) for h, f, g, n in ((0, 8, 2, 0), (1, 8, 4, 0))]
    free += [at(h, free_gpus=64, largest_gang=64, whole_free_nodes=8) for h in (2, 3, 4)]
    facts = TraceFacts(last_submission="2020-01-01T02:30:00")
    assert submitting(free, facts) == free[:2]
    said = finding("locality/fragmentation", free, facts) or ""
    assert "37.5 % of the free GPUs" in said
    assert "0 % of the time a node" in said
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


@pytest.mark.parametrize(
    ("word", "shown", "caveat"),
    [
        (
            "quotas",
            103.0,
            "Jobs once held 103 GPUs, more than the 100 that the quotas add up to.",
        ),
        ("stated", 103.0, "Jobs once held 103 GPUs, more than the 100 that the source states."),
        ("quotas", 49.0, "The quotas add up to 100 GPUs, but jobs never held more than 49 at once."),
        ("quotas", 50.0, None),
        ("stated", 49.0, None),
        ("quotas", 102.0, None),
    ],
)
def test_quotas_that_do_not_go_with_use_are_doubtful(word: str, shown: float, caveat: str | None) -> None:
    found = caveats({}, {**_capacity(100.0, observed=shown), "word": word}, _quality())
    assert [d["text"] for d in found] == [caveat] * (caveat is not None)


def test_gpu_hours_say_what_jobs_hold_that_still_run() -> None:
    answers = answers_of(
        overview__status=[{"status": "running", "jobs": 2, "jobs_share": 1.0}],
        overview__summary=_metrics(gpu_hours=12.0),
        queuing__gpu_time_held=_metrics(held_share=0.1, owned_gpus=100.0, running_gpu_hours=8.0),
    )
    hours, held = headline(answers, _capacity(None), "telemetry covers a day")
    assert hours["note"] == "of finished runs; 2 jobs still running at the end hold 8 more"
    assert (held["text"], held["note"]) == (
        "10.0 %",
        "by jobs, up to the last submission (jobs that still run included)",
    )
    (_, held, gpus) = headline(answers, _capacity(100.0, observed=120.0))
    assert held["note"] == "of 100 GPUs, up to the last submission (jobs that still run included)"
    assert (gpus["text"], gpus["note"]) == ("100", "listed; 120 as observed")
    use = answers_of(utilization__held_gpus=_metrics(busy_share=0.5, samples=4.0))
    (busy,) = headline(use, _capacity(None), "telemetry covers a day")
    assert (busy["text"], busy["note"]) == ("50.0 %", "telemetry covers a day")


def test_a_result_without_rows_says_what_that_means() -> None:
    assert finding("utilization/idle_jobs", []) == (
        "No job with telemetry held GPUs for an hour or more at 10 % utilization or less."
    )
    assert finding("overview/status", []) is None
    assert section_lead("overview") == ""
    assert "gang" in section_lead("locality")


def test_the_vc_that_would_pay_most_is_named() -> None:
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
    assert finding("replay/by_vc", rows) == (
        "The most would be paid by VC b under shortest remaining time first (SRTF): its jobs would wait 10 min on"
        " average instead of 2 min under first in, first out (FIFO)."
    )
    assert (
        finding("replay/by_vc", rows[:3])
        == "No VC waits longer under another policy than under first in, first out (FIFO)."
    )


def test_a_cluster_that_is_the_same_in_all_rows_is_no_column() -> None:
    columns = [{"name": name, "unit": None, "meaning": ""} for name in ("cluster", "x")]
    rows: list[dict[str, Any]] = [{"cluster": "c", "x": 1}, {"cluster": "c", "x": 2}]
    answer = cast("AnswerInfo", {"columns": columns, "rows": rows, "row_count": 2, "intervals": []})
    assert [c["head"] for c in table_view(answer, 5)["columns"]] == ["x"]
    rows[1]["cluster"] = "d"
    assert [c["head"] for c in table_view(answer, 5)["columns"]] == ["cluster", "x"]


def _summary(**values: float) -> dict[str, Answer]:
    return answers_of(overview__summary=[{"metric": metric, "value": value} for metric, value in values.items()])


def test_times_that_cannot_be_are_told_from_one_in_a_hundred_jobs_on() -> None:
    found = caveats(_summary(jobs=1000, impossible_times=10), _capacity(None), _quality())
    assert [(d["text"], d["place"]) for d in found] == [
        ("10 times of the log cannot be true, such as an end before its start.", "contradictions")
    ]
    assert caveats(_summary(jobs=1001, impossible_times=10), _capacity(None), _quality()) == []
    assert caveats(_summary(jobs=0, impossible_times=0), _capacity(None), _quality()) == []


def test_hours_in_doubt_are_told_with_what_they_may_change() -> None:
    summary = {"jobs": 9.0, "gpu_hours": 1000.0, "hour_in_doubt_times": 27.0}
    found = caveats(_summary(**summary, gpu_hours_in_doubt=74.0), _capacity(None), _quality())
    assert [d["text"] for d in found] == ["27 times are ambiguous by an hour: GPU-hours may be off by up to 74."]
    assert found[0]["more"].endswith("7.4 % in doubt.")
    assert caveats(_summary(**summary, gpu_hours_in_doubt=9.9), _capacity(None), _quality()) == []
