"""What sentences and charts of a report must know of the trace: virtual clusters, dates, telemetry, doubts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

from tracekit.characterize import find_query
from tracekit.report.data import facts_of, telemetry_note, telemetry_period
from tracekit.report.doubts import doubts_of
from tracekit.report.gpu_totals import gpu_totals
from tracekit.report.headline import headline
from tracekit.report.sections import Facts, finding, panels, section_lead, why_empty
from tracekit.report.table_view import table_view
from tracekit.report.when import start_of_day

if TYPE_CHECKING:
    from tracekit.report.structure import Answer, CapabilityInfo, CapacityInfo, Quality, ReplayInfo, TimeInfo

WHOLE = Facts(vcs=False, dated=False)


def _quality(*capabilities: tuple[str, bool, list[str] | None], records: int = 100, rejected: int = 0) -> Quality:
    told: list[CapabilityInfo] = [
        {"name": name, "available": available, "coverage": None, "window": window, "note": ""}
        for name, available, window in capabilities
    ]
    quality = {"capabilities": told, "records": records, "rejected": rejected}
    return cast("Quality", quality)


def _time(base: str, days: float) -> TimeInfo:
    return {"base": base, "timezone": "UTC", "first": None, "last": None, "span_s": 86400 * days, "text": ""}


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
    assert facts_of(quality, _time("absolute", 3)) == Facts(vcs=True, dated=True)
    assert facts_of(_quality(("tenants", False, None)), _time("relative", 3)) == WHOLE


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
        }
    ]
    assert finding("queuing/delay_causes", causes, WHOLE) == (
        "Of 4 waits of GPU jobs above 0 s, 25.0 % were mostly due to too few free GPUs in the whole cluster (it"
        " explains 50.0 % of all time waited); whether scattered GPUs played a part cannot be told without nodes."
    )
    assert "the quota of their VC (it" in (finding("queuing/delay_causes", causes) or "")
    assert len(panels("queuing/delay_causes", causes, WHOLE)) == 1
    causes[0]["fair_share_share"] = 0.0
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
    assert said.startswith("2 of 4 starts of GPU jobs overtook a job; in 50.0 % of these cases the overtaken job lost")
    more = [{**order[0], "starts": 40, "harmless_share": 0.0}]
    assert (finding("queuing/out_of_order", more, WHOLE) or "").startswith(
        "2 of 40 starts of GPU jobs (5.0 %) overtook a job; each time the overtaken job could have started just then."
    )
    assert len(panels("queuing/out_of_order", order)) == 1
    order[0]["out_of_order_share"] = 0.0
    assert panels("queuing/out_of_order", order) == []
    use = [{"cluster": "c", "vc": None, "allocated_share_mean": 0.5, "capacity_gpus": 4.0, "queue_p50_s": None}]
    for name in ("utilization/vc", "queuing/timeline"):
        assert (why_empty(name, use, WHOLE) or "").startswith("The trace has no virtual clusters;")
        assert why_empty(name, use) is None
    assert len(panels("utilization/vc", use)) == 1
    assert "virtual cluster" in section_lead("queuing")
    assert "virtual cluster" not in section_lead("queuing", WHOLE)


def test_times_without_a_date_are_days_since_the_start_of_the_trace() -> None:
    rows = _load(("1970-01-01T00:00:00+00:00", 2.0, 0.0, 4.0), ("1970-01-03T12:00:00+00:00", 4.0, 3.0, 4.0))
    assert finding("queuing/cluster_timeline", rows, WHOLE) == (
        "Over the whole trace, jobs held 75.0 % of 4 GPUs, 3 on average and 4 in the fullest of the 2"
        " spans drawn. The longest queue began on day 3: waiting jobs asked for 3 GPUs, while jobs held 4."
    )
    (panel,) = panels("queuing/cluster_timeline", rows, WHOLE)
    spec = panel.to_dict()
    assert spec["encoding"]["x"]["type"] == "quantitative"
    assert spec["encoding"]["x"]["axis"]["title"] == "days since the start of the trace"
    (values,) = spec["datasets"].values()
    assert [v["time"] for v in values] == [0.0, 2.5]
    assert "on 1970-01-03 at 12:00:" in (finding("queuing/cluster_timeline", rows) or "")
    (panel,) = panels("queuing/cluster_timeline", rows)
    assert panel.to_dict()["encoding"]["x"]["type"] == "temporal"


def test_dates_and_hours_are_those_of_the_time_zone_of_the_trace() -> None:
    rows = _load(("2017-11-05T02:00:00+00:00", 2.0, 0.0, 4.0), ("2017-11-05T12:00:00+00:00", 4.0, 3.0, 4.0))
    pacific = Facts(timezone="America/Los_Angeles")
    # Clocks went back by an hour between the two.
    assert "on 2017-11-05 at 04:00:" in (finding("queuing/cluster_timeline", rows, pacific) or "")
    (panel,) = panels("queuing/cluster_timeline", rows, pacific)
    spec = panel.to_dict()
    assert spec["encoding"]["x"]["axis"]["title"] == "time (America/Los_Angeles)"
    (values,) = spec["datasets"].values()
    assert [v["time"] for v in values] == ["2017-11-04T19:00Z", "2017-11-05T04:00Z"]
    assert start_of_day("2017-11-05T02:00:00+00:00", pacific) == "2017-11-04"
    assert start_of_day("1970-01-03T02:00:00+00:00", WHOLE) == "day 3"
    quality = _quality(("utilization", True, ["2017-11-05T02:00:00+00:00", "2017-11-05T12:00:00+00:00"]))
    when = {**_time("absolute", 35), "timezone": "America/Los_Angeles"}
    assert telemetry_period({"utilization"}, quality, cast("TimeInfo", when)) == (
        "telemetry covers 2017-11-04 to 2017-11-05 only, 10.0 hours of the 35 days of the trace"
    )


def test_more_gpus_held_than_owned_are_told() -> None:
    rows = _load(("2026-01-01T00:00:00+00:00", 6.0, 0.0, 4.0), ("2026-01-02T00:00:00+00:00", 3.0, 0.0, 4.0))
    said = finding("queuing/cluster_timeline", rows) or ""
    assert said.endswith(" In 1 span jobs held more GPUs than are owned: one of the two numbers is wrong there.")


def test_the_timeline_of_vcs_says_nothing_of_rows_that_it_does_not_hold() -> None:
    rows = _load(("2026-01-01T00:00:00+00:00", 2.0, 0.4, 4.0), ("2026-01-02T06:30:00+00:00", 4.0, 3.0, 4.0))
    assert finding("queuing/timeline", rows) == (
        "The table shows the means of the first intervals, its file those of all."
    )


def test_a_log_that_holds_next_to_nothing_of_the_cluster_says_so() -> None:
    rows = _load(("2026-01-01T00:00:00+00:00", 1.0, 0.0, 100.0))
    assert (finding("queuing/cluster_timeline", rows) or "").endswith(
        "; the log may hold a part of the cluster's jobs only."
    )


@pytest.mark.parametrize(
    ("query", "base", "window", "note"),
    [
        (
            "utilization/gpu_by_size_status",
            "absolute",
            ["2017-11-05T00:00:00+00:00", "2017-11-05T12:00:00+00:00"],
            "telemetry covers 2017-11-05 only, 12.0 hours of the 35 days of the trace",
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


def _capacity(gpus: float | None, **others: float) -> CapacityInfo:
    return {"requested": "auto", "used": "listed", "gpus": gpus, "alternatives": others, "note": ""}


def test_doubts_are_told_where_there_are_any() -> None:
    def answer(name: str, rows: list[dict[str, Any]]) -> Answer:
        return cast("Answer", {"name": name, "rows": rows})

    load = answer("queuing/cluster_timeline", _load(("2026-01-01T00:00:00+00:00", 1.0, 0.0, 100.0)))
    status = answer("overview/status", [{"status": None, "jobs_share": 0.1}, {"status": "unknown", "jobs_share": 0.15}])
    found = doubts_of([load, status], _capacity(100.0, observed=103.0), _quality(rejected=2))
    assert [d.split(":")[0].split(";")[0] for d in found] == [
        "The source lists 100 GPUs, while jobs and telemetry show 103",
        "The jobs of this log hold 1.0 % of the GPUs",
        "How 25.0 % of the jobs ended is unknown.",
        "2.0 % of the records could not be read.",
    ]
    assert doubts_of([], _capacity(100.0, observed=102.0), _quality(rejected=1)) == []
    assert doubts_of([], _capacity(None), _quality()) == []


def test_each_part_names_the_number_of_gpus_that_it_stands_on() -> None:
    def answer(name: str, rows: list[dict[str, Any]], *notes: str) -> Answer:
        return cast("Answer", {"name": name, "rows": rows, "notes": list(notes)})

    load = answer(
        "queuing/cluster_timeline",
        _load(("2026-01-01T00:00:00+00:00", 1.0, 0.0, 100.0), ("2026-01-01T01:00:00+00:00", 1.0, 0.0, 110.0)),
        "what a cluster owns: the GPUs of its node list",
    )
    use = answer(
        "utilization/vc", [{"capacity_gpus": 60.0}, {"capacity_gpus": 70.0}, {"capacity_gpus": None}], "quota: q"
    )
    summary = answer("overview/summary", [{"metric": "gpus_observed", "value": 128.0}])
    free = answer("locality/fragmentation", [])
    replay = cast("ReplayInfo", {"cluster": {"nodes": 3, "gpus": 96}})
    every = [load, use, summary, free]
    found = gpu_totals(every, _capacity(100.0), replay, Facts())
    assert [(t["gpus"], t["source"]) for t in found] == [
        (105.0, "the GPUs of its node list"),
        (130.0, "the sum over its VCs, q"),
        (128.0, "node by node, the most that the list, jobs or telemetry show"),
        (96.0, "the cluster of the replays"),
    ]
    assert [t["gpus"] for t in gpu_totals(every, _capacity(100.0), None, WHOLE)] == [105.0, 128.0]
    assert gpu_totals([summary], _capacity(None), None, Facts()) == []


def test_gpu_hours_say_what_jobs_hold_that_still_run() -> None:
    def answer(name: str, rows: list[dict[str, Any]]) -> Answer:
        return cast("Answer", {"name": name, "rows": rows, "notes": []})

    # 10 GPUs for 2 hours: 12 GPU-hours of finished runs, 8 of runs that go on.
    load = _load(("2026-01-01T00:00:00+00:00", 8.0, 0.0, 100.0), ("2026-01-01T01:00:00+00:00", 12.0, 0.0, 100.0))
    status = [{"status": "running", "jobs": 2, "jobs_share": 1.0}]
    summary = [{"metric": "gpu_hours", "value": 12.0, "unit": "GPU-hours"}]
    named = {"queuing/cluster_timeline": load, "overview/status": status, "overview/summary": summary}
    hours, held = headline([answer(k, v) for k, v in named.items()], _capacity(None), "telemetry covers a day")
    assert hours["note"] == "of finished runs; 2 jobs still running at the end hold 8 more"
    assert (held["text"], held["note"]) == ("10.0 %", "of 100 GPUs over the whole trace, by jobs that still run too")
    use = [{"gpu_count": 1.0, "status": None, "samples": 4, "mean_pct": 50.0}]
    (busy,) = headline([answer("utilization/gpu_by_size_status", use)], _capacity(None), "telemetry covers a day")
    assert (busy["text"], busy["note"]) == ("50.0 %", "telemetry covers a day")


def test_a_result_without_rows_says_what_that_means() -> None:
    assert finding("utilization/idle_jobs", []) == (
        "No job held GPUs as long and used them as little as the parameters below ask for."
    )
    assert finding("overview/status", []) is None
    assert section_lead("overview") == ""
    assert "gang" in section_lead("locality")


def test_the_vc_that_would_pay_most_is_named() -> None:
    rows = [
        {"policy": policy, "vc": vc, "mean_wait_s": wait}
        for policy, vc, wait in (
            ("fifo", "a", 60.0),
            ("fifo", "b", 120.0),
            ("srtf", "a", 30.0),
            ("srtf", "b", 600.0),
            ("recorded", "a", 9000.0),
        )
    ]
    assert finding("replay/by_vc", rows) == (
        "The most would be paid by VC b under srtf: its jobs would wait 10 min on average instead of 2 min under fifo."
    )
    assert finding("replay/by_vc", rows[:3]) == "No VC waits longer under another policy than under fifo."


def test_a_cluster_that_is_the_same_in_all_rows_is_no_column() -> None:
    columns = [{"name": name, "unit": None, "meaning": ""} for name in ("cluster", "x")]
    rows: list[dict[str, Any]] = [{"cluster": "c", "x": 1}, {"cluster": "c", "x": 2}]
    answer = cast("Answer", {"columns": columns, "rows": rows, "row_count": 2, "intervals": []})
    assert [c["head"] for c in table_view(answer, 5)["columns"]] == ["x"]
    rows[1]["cluster"] = "d"
    assert [c["head"] for c in table_view(answer, 5)["columns"]] == ["cluster", "x"]
