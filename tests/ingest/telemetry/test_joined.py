"""Samples meet the jobs that held the GPU, and what is not certain belongs to no job."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.ingest.telemetry.monitored import DAY, Cluster, series
from tracekit.characterize import answer_query
from tracekit.errors import SourceError

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.trace import Trace

UTIL = "DCGM_FI_DEV_GPU_UTIL"


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path / "logs")


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    """Return the Trace of four machines, each for a test below."""
    cluster = Cluster(tmp_path_factory.mktemp("several") / "logs")
    nodes = ("back", "engines", "anew", "overlap")
    cluster.jobs(*((str(number), "10:00", "10:20", 1, node) for number, node in enumerate(nodes, 1)))
    energy = "DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION"
    cluster.answer(
        "a.json",
        [
            series(UTIL, {"10:00": 1, "10:01": 2, "10:10": 5, "10:11": 6}, Hostname="back", gpu="0", hpc_job="1"),
            series(UTIL, {"10:04": 3, "10:05": 4, "10:10": 4}, Hostname="back", gpu="0"),
            series("DCGM_FI_PROF_GR_ENGINE_ACTIVE", {"10:05": 0.9, "10:06": 0.8}, Hostname="engines", gpu="0"),
            series(UTIL, {"10:05": 50}, Hostname="engines", gpu="0"),
            series(energy, {"10:01": 900, "10:02": 5}, Hostname="anew", gpu="0"),
            series(UTIL, {"10:01": 1}, Hostname="anew", gpu="0"),
            series(UTIL, {"10:01": 1, "10:02": 2}, Hostname="overlap", gpu="0"),
        ],
    )
    cluster.answer("b.json", [series(UTIL, {"10:02": 2, "10:03": 3}, Hostname="overlap", gpu="0")])
    return cluster.trace()


def on_node(trace: Trace, node: str, *columns: str) -> list[tuple[object, ...]]:
    """Return the samples of a node, as `samples` returns all."""
    return [row for row in samples(trace, *columns) if row[1] == node]


def samples(trace: Trace, *columns: str) -> list[tuple[object, ...]]:
    """Return time of the day, node and GPU of each sample, and columns."""
    frame = trace.scan("gpu_utilization").collect().sort("time", "node_id", "gpu_index", "gpu_instance")
    clock = frame["time"].dt.strftime("%H:%M").alias("clock")
    return frame.with_columns(clock).select("clock", "node_id", "gpu_index", *columns).rows()


def counts(trace: Trace) -> dict[str, int]:
    """Return the checks of telemetry above zero."""
    found = {name: check.count for name, check in trace.manifest.checks.items() if check.count}
    return {name: count for name, count in found.items() if "telemetry" in name or "xid" in name}


def test_metrics_of_one_gpu_and_time_are_one_row_in_the_units_of_a_trace(cluster: Cluster) -> None:
    cluster.jobs(("7", "10:00", "10:02", 1, "n1"))
    labels = {"Hostname": "n1", "gpu": "3", "hpc_job": "7"}
    cluster.answer(
        "metrics.json",
        [
            series(UTIL, {"10:00": 40, "10:01": 60}, **labels),
            series("DCGM_FI_DEV_FB_USED", {"10:00": 2048}, **labels),
            series("DCGM_FI_DEV_POWER_USAGE", {"10:00": 250.5}, **labels),
            series("DCGM_FI_PROF_SM_ACTIVE", {"10:01": 0.25}, **labels),
            series("DCGM_FI_PROF_PIPE_TENSOR_ACTIVE", {"10:01": 0.125}, **labels),
            series("DCGM_FI_DEV_MEM_CLOCK", {"10:01": 5}, **labels),
        ],
    )
    trace = cluster.trace()
    columns = ("utilization_pct", "memory_used_gib", "power_w", "sm_active_pct", "tensor_active_pct", "job_id")
    assert samples(trace, *columns) == [
        ("10:00", "n1", 3, 40.0, 2.0, 250.5, None, None, "slurm/7"),
        ("10:01", "n1", 3, 60.0, None, None, 25.0, 12.5, "slurm/7"),
    ]
    account = {file.path: (file.records, file.kept) for file in trace.manifest.files}
    assert account == {"metrics.json": (6, 6), "sacct.txt": (1, 1)}
    assert trace.manifest.checks["unused_telemetry_metrics"].examples == ["DCGM_FI_DEV_MEM_CLOCK"]


def test_a_label_names_the_job_only_while_an_attempt_of_it_ran(cluster: Cluster) -> None:
    cluster.jobs(("7", "10:00", "10:02", 1, "n1"), ("8", "10:02", "10:04", 1, "n1"))
    cluster.answer(
        "a.json",
        [
            series(UTIL, {"09:59": 1, "10:00": 2, "10:01": 3, "10:02": 4}, Hostname="n1", gpu="0", hpc_job="7"),
            series(UTIL, {"10:03": 5}, Hostname="n1", gpu="0", hpc_job="99"),
        ],
    )
    trace = cluster.trace()
    assert samples(trace, "job_id") == [
        ("09:59", "n1", 0, None),
        ("10:00", "n1", 0, "slurm/7"),
        ("10:01", "n1", 0, "slurm/7"),
        ("10:02", "n1", 0, None),
        ("10:03", "n1", 0, None),
    ]
    assert counts(trace) == {"telemetry_outside_its_job": 2, "telemetry_of_unknown_jobs": 1}


def test_a_monitor_names_a_component_of_a_heterogeneous_job_by_its_own_number(cluster: Cluster) -> None:
    cluster.folder.mkdir()
    span = f"{DAY}T10:00:00|{DAY}T10:00:00|{DAY}T10:05:00|COMPLETED||cpu=1,gres/gpu=1,node=1|1"
    rows = [("33+0", "33", "n1"), ("33+1", "34", "n2"), ("35", "35", "n3")]
    lines = [f"{job}|{raw}|{span}|{node}\n" for job, raw, node in rows]
    header = "JobID|JobIDRaw|Submit|Start|End|State|Elapsed|AllocTRES|NNodes|NodeList\n"
    (cluster.folder / "sacct.txt").write_text(header + "".join(lines))
    answers = [
        series(UTIL, {"10:01": use}, Hostname=node, gpu="0", hpc_job=raw)
        for use, (_, raw, node) in enumerate(rows, start=1)
    ]
    cluster.answer("util.json", answers)
    assert sorted(samples(cluster.trace(), "utilization_pct", "job_id")) == [
        ("10:01", "n1", 0, 1.0, "slurm/33"),
        ("10:01", "n2", 0, 2.0, "slurm/33"),
        ("10:01", "n3", 0, 3.0, "slurm/35"),
    ]


def test_a_series_that_goes_on_after_its_end_gives_way_to_the_one_that_began(cluster: Cluster) -> None:
    cluster.jobs(("7", "10:00", "10:02", 1, "n1"), ("8", "10:02", "10:10", 1, "n1"))
    old = {f"10:0{minute}": 90 for minute in range(7)}  # the last five are invented by query_range
    new = {f"10:0{minute}": 10 for minute in range(2, 9)}
    cluster.answer(
        "a.json",
        [
            series(UTIL, old, Hostname="n1", gpu="0", hpc_job="7"),
            series(UTIL, new, Hostname="n1", gpu="0", hpc_job="8"),
        ],
    )
    trace = cluster.trace()
    assert samples(trace, "utilization_pct", "job_id") == [
        (f"10:0{minute}", "n1", 0, 90.0 if minute < 2 else 10.0, "slurm/7" if minute < 2 else "slurm/8")
        for minute in range(9)
    ]
    assert counts(trace) == {"telemetry_after_its_end": 5}


def test_a_job_that_comes_back_to_a_gpu_is_not_taken_for_one_that_had_ended(several: Trace) -> None:
    assert on_node(several, "back", "utilization_pct") == [
        ("10:00", "back", 0, 1.0),
        ("10:01", "back", 0, 2.0),
        ("10:04", "back", 0, 3.0),
        ("10:05", "back", 0, 4.0),
        ("10:10", "back", 0, 5.0),
        ("10:11", "back", 0, 6.0),
    ]


def test_without_labels_only_a_job_that_holds_the_whole_machine_is_certain(cluster: Cluster) -> None:
    cluster.jobs(
        ("1", "10:00", "10:10", 2, "n1"),  # all GPUs of n1
        ("2", "10:10", "10:20", 1, "n1"),  # one of two
        ("3", "10:12", "10:20", 1, "n1"),
    )
    cluster.answer(
        "a.json",
        [
            series(UTIL, {"10:05": 50, "10:11": 60, "10:15": 70, "10:25": 80}, Hostname="n1", gpu=str(gpu))
            for gpu in range(2)
        ],
    )
    trace = cluster.trace()
    assert samples(trace, "job_id") == [
        (clock, "n1", gpu, "slurm/1" if clock == "10:05" else None)
        for clock in ("10:05", "10:11", "10:15", "10:25")
        for gpu in range(2)
    ]
    assert counts(trace) == {"telemetry_ambiguous": 4, "telemetry_busy_and_free": 2}


def test_a_machine_has_as_many_gpus_as_telemetry_shows(cluster: Cluster) -> None:
    cluster.jobs(("1", "10:00", "10:10", 1, "n1"))
    cluster.answer("a.json", [series(UTIL, {"10:05": 50}, Hostname="n1", gpu=str(gpu)) for gpu in range(4)])
    trace = cluster.trace()
    assert samples(trace, "job_id") == [("10:05", "n1", gpu, None) for gpu in range(4)]
    assert counts(trace)["telemetry_ambiguous"] == 4


def test_labels_show_how_a_gang_is_split_and_which_gpus_it_held(cluster: Cluster) -> None:
    cluster.jobs(("1", "10:00", "10:10", 5, "n1,n2"))
    shown = [("n1", gpu) for gpu in (0, 1, 2)] + [("n2", gpu) for gpu in (4, 5)]
    cluster.answer(
        "a.json", [series(UTIL, {"10:05": 50}, Hostname=node, gpu=str(gpu), hpc_job="1") for node, gpu in shown]
    )
    placed = cluster.trace().scan("placements").select("node_id", "gpu_count", "gpu_index").collect().rows()
    assert placed == [("n1", 3.0, [0, 1, 2]), ("n2", 2.0, [4, 5])]


def test_labels_that_show_other_gpus_than_the_log_states_are_counted_and_not_used(cluster: Cluster) -> None:
    cluster.jobs(("1", "10:00", "10:10", 2, "n1"))
    cluster.answer("a.json", [series(UTIL, {"10:05": 50}, Hostname="n1", gpu="0", hpc_job="1")])
    trace = cluster.trace()
    assert trace.scan("placements").select("gpu_count", "gpu_index").collect().rows() == [(2.0, None)]
    assert counts(trace) == {"telemetry_shows_other_gpus": 1}


def test_an_error_is_an_event_when_it_changes_and_what_sticks_is_one(cluster: Cluster) -> None:
    cluster.jobs(("1", "10:00", "10:10", 2, "n1"))
    xid = "DCGM_FI_DEV_XID_ERRORS"
    cluster.answer(
        "a.json",
        [
            series(xid, {"10:00": 0, "10:01": 79, "10:02": 79}, Hostname="n1", gpu="0", hpc_job="1"),
            series(xid, {"10:03": 79, "10:04": 31}, Hostname="n1", gpu="0"),
            series(xid, {"10:00": 48, "10:01": 48}, Hostname="n1", gpu="1"),
        ],
    )
    trace = cluster.trace()
    events = trace.scan("node_events").collect()
    clock = events["start_time"].dt.strftime("%Y-%m-%d %H:%M")
    assert events.with_columns(clock).select("node_id", "start_time", "state", "cause", "source_cause").rows() == [
        ("n1", f"{DAY} 10:01", "degraded", "gpu lost", "GPU 0: XID 79"),
        ("n1", f"{DAY} 10:04", "degraded", "software", "GPU 0: XID 31"),
    ]
    assert (events["start_time"] == events["end_time"]).all()
    assert counts(trace) == {"xid_before_the_samples": 1}


def test_parts_of_a_gpu_have_samples_of_their_own(cluster: Cluster) -> None:
    cluster.jobs(("1", "10:00", "10:10", 1, "n1"), ("2", "10:00", "10:10", 1, "n1"))
    cluster.answer(
        "a.json",
        [
            series(
                "DCGM_FI_PROF_GR_ENGINE_ACTIVE", {"10:05": share}, Hostname="n1", gpu="0", GPU_I_ID=part, hpc_job=job
            )
            for part, job, share in (("1", "1", 0.5), ("2", "2", 0.75))
        ],
    )
    trace = cluster.trace()
    assert samples(trace, "gpu_instance", "utilization_pct", "job_id") == [
        ("10:05", "n1", 0, "1", 50.0, "slurm/1"),
        ("10:05", "n1", 0, "2", 75.0, "slurm/2"),
    ]


def test_the_whole_gpus_metric_counts_before_the_engines(several: Trace) -> None:
    found = on_node(several, "engines", "utilization_pct")
    assert found == [("10:05", "engines", 0, 50.0), ("10:06", "engines", 0, 80.0)]


def test_hosts_are_found_by_address_domain_and_uuid(cluster: Cluster) -> None:
    cluster.jobs(("1", "10:00", "10:10", 1, "n1"))
    cluster.answer(
        "a.json",
        [
            series(UTIL, {"10:05": 1}, instance="n1:9400", gpu="0", UUID="GPU-a"),
            series("DCGM_FI_DEV_POWER_USAGE", {"10:05": 2}, instance="n1.cluster.example:9400", gpu="0"),
            series("DCGM_FI_PROF_SM_ACTIVE", {"10:05": 0.5}, UUID="GPU-a"),
            series(UTIL, {"10:05": 4}, Hostname="elsewhere", gpu="0"),
            series(UTIL, {"10:05": 5}, job="dcgm"),
        ],
    )
    trace = cluster.trace()
    assert samples(trace, "utilization_pct", "power_w", "sm_active_pct", "job_id") == [
        ("10:05", "elsewhere", 0, 4.0, None, None, None),
        ("10:05", "n1", 0, 1.0, 2.0, 50.0, "slurm/1"),
    ]
    assert counts(trace) == {"telemetry_without_gpu": 1, "telemetry_of_unknown_nodes": 1}


def test_exports_that_overlap_count_once(several: Trace) -> None:
    found = on_node(several, "overlap", "utilization_pct")
    assert found == [(f"10:0{n}", "overlap", 0, float(n)) for n in (1, 2, 3)]
    # The one is of the job that comes back: the sample at 10:10 without a label gives way.
    assert counts(several) == {"telemetry_after_its_end": 1}


def test_what_is_not_a_number_is_counted(cluster: Cluster) -> None:
    cluster.jobs(("1", "10:00", "10:10", 1, "n1"))
    bad = series(UTIL, {"10:01": "NaN", "10:02": "+Inf", "10:03": "x", "10:04": 7}, Hostname="n1", gpu="0")
    bad["values"].append(["x"])
    cluster.answer("a.json", [bad])
    trace = cluster.trace()
    assert samples(trace, "utilization_pct") == [("10:04", "n1", 0, 7.0)]
    assert counts(trace) == {"telemetry_without_value": 4}


@pytest.mark.parametrize("shift", [3600, -3600, 0])
def test_a_clock_that_differs_is_reported_by_labels(cluster: Cluster, shift: int) -> None:
    rows = [(str(job), f"{job:02}:00", f"{job:02}:30", 1, "n1") for job in range(4, 12)]
    cluster.jobs(*rows)
    result = []
    for job in range(4, 12):
        found = series(
            UTIL, {f"{job:02}:{minute:02}": 50 for minute in range(30)}, Hostname="n1", gpu="0", hpc_job=str(job)
        )
        found["values"] = [[time + shift, value] for time, value in found["values"]]
        result.append(found)
    cluster.answer("a.json", result)
    trace = cluster.trace()
    check = trace.manifest.checks["telemetry_clock_differs"]
    way = "ahead of" if shift > 0 else "behind"
    assert check.examples == ([f"the telemetry's clock is 3,600 s {way} the log's"] if shift else [])
    assert check.count == (1 if shift else 0)


@pytest.mark.parametrize("shift", [7200, 0])
def test_a_zone_that_differs_is_reported_without_labels(cluster: Cluster, shift: int) -> None:
    """Busy from one full hour to the next half: only one shift brings all of it into held times."""
    cluster.jobs(*[(str(job), f"{job:02}:00", f"{job:02}:40", 1, "n1") for job in (4, 5, 7, 8, 12, 13, 16)])
    result = series(
        UTIL, {f"{job:02}:{m:02}": 50 for job in (4, 5, 7, 8, 12, 13, 16) for m in range(40)}, Hostname="n1", gpu="0"
    )
    result["values"] = [[time + shift, value] for time, value in result["values"]]
    cluster.answer("a.json", [result])
    check = cluster.trace().manifest.checks["telemetry_clock_differs"]
    assert check.examples == (["the telemetry's clock is 7,200 s ahead of the log's"] if shift else [])


def test_samples_of_a_known_job_are_in_the_questions_about_utilization(cluster: Cluster) -> None:
    cluster.jobs(("1", "10:00", "10:10", 1, "n1"), ("2", "10:00", "10:10", 1, "n1"))
    cluster.answer(
        "a.json",
        [
            series(UTIL, {"10:00": 10, "10:05": 30, "10:10": 99}, Hostname="n1", gpu="0", hpc_job="1"),
            series(UTIL, {"10:05": 80}, Hostname="n1", gpu="1", hpc_job="2"),
        ],
    )
    rows = answer_query(cluster.trace(), "utilization/idle_jobs", params={"threshold_pct": "101", "min_run_s": "0"})
    found = {row["job_id"]: row["mean_pct"] for row in rows.frame.to_dicts()}
    assert found == {"slurm/1": 20.0, "slurm/2": 80.0}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b'{"status":"error","errorType":"bad_data","error":"parse error"}', "is a server error"),
        (b'{"status":"success","data":{"resultType":"vector","result":[]}}', "is not a matrix of samples"),
        (b'{"status":"success","data":{"resultType":"matrix","result":[{"metric":{}', "ends in the middle"),
    ],
)
def test_an_answer_without_samples_is_one_clear_error(cluster: Cluster, text: bytes, message: str) -> None:
    cluster.jobs(("1", "10:00", "10:10", 1, "n1"))
    (cluster.folder / "a.json").write_bytes(text)
    with pytest.raises(SourceError, match=message):
        cluster.trace()


def test_telemetry_may_lie_elsewhere_and_must_be_known(cluster: Cluster, tmp_path: Path) -> None:
    cluster.jobs(("1", "10:00", "10:10", 1, "n1"))
    apart = Cluster(tmp_path / "monitor")
    apart.folder.mkdir()
    apart.answer("sacct.txt", [series(UTIL, {"10:05": 1}, Hostname="n1", gpu="0")])
    trace = cluster.trace(telemetry=(str(apart.folder),))
    assert samples(trace, "job_id") == [("10:05", "n1", 0, "slurm/1")]
    assert sorted(file.path for file in trace.manifest.files) == ["monitor/sacct.txt", "sacct.txt"]
    (tmp_path / "page").write_text("<html>")
    with pytest.raises(SourceError, match="contains no telemetry in a known format"):
        cluster.trace(telemetry=(str(tmp_path / "page"),), force=True)


def test_answers_of_other_servers_and_layouts_are_read(cluster: Cluster) -> None:
    """Indented with sorted keys, and with statistics behind the series as VictoriaMetrics writes them."""
    cluster.jobs(("1", "10:00", "10:10", 1, "n1"))
    first = series(UTIL, {"10:01": 1}, Hostname="n1", gpu="0")
    second = series(UTIL, {"10:02": 2}, Hostname="n1", gpu="0")
    answer = {"status": "success", "data": {"resultType": "matrix", "result": [first]}}
    (cluster.folder / "indented.json").write_text(json.dumps(answer, indent="\t", sort_keys=True))
    data = {"resultType": "matrix", "result": [second]}
    stats = {"seriesFetched": "1"}
    told = {"status": "success", "isPartial": False, "data": data, "stats": stats}
    (cluster.folder / "victoria.json").write_text(json.dumps(told))
    trace = cluster.trace()
    assert samples(trace, "utilization_pct") == [("10:01", "n1", 0, 1.0), ("10:02", "n1", 0, 2.0)]
    account = {file.path: (file.records, file.rejected) for file in trace.manifest.files}
    assert account == {"indented.json": (1, 0), "victoria.json": (1, 0), "sacct.txt": (1, 0)}


def test_series_that_occur_twice_and_contradict_each_other_are_counted(cluster: Cluster) -> None:
    cluster.jobs(("1", "10:00", "10:10", 1, "n1"))
    for number, replica in enumerate(("a", "b")):
        values = {"10:01": 5, "10:02": 7 + number}
        cluster.answer(f"{replica}.json", [series(UTIL, values, Hostname="n1", gpu="0", prometheus_replica=replica)])
    trace = cluster.trace()
    assert samples(trace, "utilization_pct", "job_id") == [
        ("10:01", "n1", 0, 5.0, "slurm/1"),
        ("10:02", "n1", 0, 8.0, "slurm/1"),
    ]
    assert counts(trace) == {"telemetry_contradicts_itself": 1}


def test_values_that_no_gpu_can_have_are_left_out(cluster: Cluster) -> None:
    """2147483632 is DCGM's number for a sensor that is not there."""
    cluster.jobs(("1", "10:00", "10:10", 1, "n1"))
    labels = {"Hostname": "n1", "gpu": "0"}
    cluster.answer(
        "a.json",
        [
            series(UTIL, {"10:01": 2147483632, "10:02": -1, "10:03": 100, "10:04": 0}, **labels),
            series("DCGM_FI_DEV_FB_USED", {"10:01": "9223372036854775792", "10:03": "1e308"}, **labels),
            series("DCGM_FI_DEV_XID_ERRORS", {"10:01": 0, "10:02": 2147483632, "10:03": -5}, **labels),
        ],
    )
    trace = cluster.trace()
    assert samples(trace, "utilization_pct", "memory_used_gib") == [
        ("10:03", "n1", 0, 100.0, None),
        ("10:04", "n1", 0, 0.0, None),
    ]
    assert counts(trace) == {"telemetry_impossible_values": 6}
    assert not trace.has("node_events")


def test_a_counter_that_begins_anew_tells_no_power(several: Trace) -> None:
    assert on_node(several, "anew", "utilization_pct", "power_w") == [("10:01", "anew", 0, 1.0, None)]


def test_labels_may_hold_anything(cluster: Cluster) -> None:
    cluster.jobs(("1", "10:00", "10:10", 1, "n1"))
    script, long = "<script>alert(1)</script>", "x" * 10_000_000
    cluster.answer(
        "a.json",
        [
            series(UTIL, {"10:01": 1}, Hostname="n1", gpu="0", hpc_job=script),
            series(UTIL, {"10:02": 2}, Hostname="n1", gpu="0", hpc_job=long),
            series(UTIL, {"10:03": 3}, Hostname="\u0000\x1b[31mn1\n", gpu="0"),
            series(UTIL, {"10:04": 4}, Hostname="n1", gpu="99999999999999999999"),
            series(UTIL, {"10:05": 5}, Hostname="n1", gpu="-1"),
            series(UTIL, {"10:06": 6}, Hostname="n1", gpu="\u0663"),
            series(long[:1_000_000], {"10:07": 7}, Hostname="n1", gpu="0"),
            series(UTIL, {"10:08": 8}, Hostname="n1", gpu="0", hpc_job="1"),
        ],
    )
    trace = cluster.trace()
    found = [row for row in samples(trace, "utilization_pct", "job_id") if row[1] == "n1"]
    assert found == [
        ("10:01", "n1", 0, 1.0, None),
        ("10:02", "n1", 0, 2.0, None),
        ("10:08", "n1", 0, 8.0, "slurm/1"),
    ]
    assert counts(trace) == {
        "telemetry_of_unknown_jobs": 2,
        "telemetry_without_gpu": 1,  # the three name nothing else
        "telemetry_of_unknown_nodes": 1,
        "unused_telemetry_metrics": 1,
    }
    assert max(len(text) for check in trace.manifest.checks.values() for text in check.examples) <= 200


def test_many_series_are_joined(cluster: Cluster) -> None:
    """A job of its own for each of 20,000 series: a place with many short runs."""
    cluster.jobs(("1", "00:00", "23:59", 1, "n1"))
    clocks = [f"{n // 60 % 24:02}:{n % 60:02}" for n in range(1440)]
    cluster.answer(
        "a.json",
        [
            series(
                UTIL, {clocks[n % 1440]: n % 100}, Hostname="n1", gpu=str(n // 1440), hpc_job="1" if n % 2 else f"x{n}"
            )
            for n in range(20_000)
        ],
    )
    trace = cluster.trace()
    found = samples(trace, "utilization_pct", "job_id")
    assert len(found) == 20_000
    # 23:59 is the end of the job: 13 GPUs have an odd series then.
    assert sum(row[-1] == "slurm/1" for row in found) == 10_000 - 13
    assert counts(trace)["telemetry_of_unknown_jobs"] == 10_000


def test_a_gpu_without_a_label_is_idle_where_the_monitor_labels_jobs(cluster: Cluster) -> None:
    cluster.jobs(("1", "10:00", "10:10", 1, "n1"), ("2", "10:00", "10:10", 1, "n2"))
    cluster.answer(
        "a.json",
        [
            series(UTIL, {"10:05": 50}, Hostname="n1", gpu="0", hpc_job="1"),
            series(UTIL, {"10:05": 0}, Hostname="n1", gpu="1"),
            *(series(UTIL, {"10:05": 1}, Hostname="n2", gpu=str(gpu)) for gpu in (0, 1)),
        ],
    )
    trace = cluster.trace()
    assert samples(trace, "job_id") == [
        ("10:05", "n1", 0, "slurm/1"),
        ("10:05", "n1", 1, None),
        ("10:05", "n2", 0, None),
        ("10:05", "n2", 1, None),
    ]
    assert counts(trace) == {"telemetry_ambiguous": 2}


MIG = {"Hostname": "n1", "gpu": "0", "UUID": "GPU-a"}
ACTIVE = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"
MINUTES = [f"10:{minute:02}" for minute in range(60)]


def part(number: int, profile: str, job: str) -> dict[str, str]:
    return {**MIG, "GPU_I_ID": str(number), "GPU_I_PROFILE": profile, "hpc_job": job}


def test_utilization_of_a_divided_gpu_gives_way_to_activity_and_its_zeros_are_unknown(cluster: Cluster) -> None:
    cluster.jobs(("1", "10:00", "10:10", 1, "n1"), ("2", "10:00", "10:10", 1, "n1"), ("3", "10:00", "10:10", 1, "n2"))
    cluster.answer(
        "a.json",
        [
            series(UTIL, {"10:05": 0}, **MIG),  # the driver's word on the whole GPU
            series(UTIL, {"10:05": 0}, **part(1, "3g.40gb", "1")),
            series(ACTIVE, {"10:05": 0.6}, **part(1, "3g.40gb", "1")),
            series(UTIL, {"10:05": 0}, **part(2, "3g.40gb", "2")),
            series("DCGM_FI_DEV_FB_USED", {"10:05": 1024}, **part(2, "3g.40gb", "2")),
            series(UTIL, {"10:05": 0}, Hostname="n2", gpu="0", hpc_job="3"),  # not divided
            series(ACTIVE, {"10:05": 0.5}, Hostname="n2", gpu="0", hpc_job="3"),
        ],
    )
    trace = cluster.trace()
    assert samples(trace, "gpu_instance", "utilization_pct", "memory_used_gib", "job_id") == [
        ("10:05", "n1", 0, "3g.40gb/1", 60.0, None, "slurm/1"),
        ("10:05", "n1", 0, "3g.40gb/2", None, 1.0, "slurm/2"),
        ("10:05", "n2", 0, None, 0.0, None, "slurm/3"),
    ]
    assert counts(trace) == {"telemetry_not_measured": 3}


def hours(trace: Trace) -> tuple[float, ...]:
    """Return GPU-hours held and used, and the share that is covered."""
    columns = ("held_gpu_h", "used_gpu_h", "coverage_share")
    (row,) = answer_query(trace, "utilization/efficiency", {"by": "cluster"}).frame.select(columns).rows()
    return tuple(round(value, 6) for value in row)


def test_parts_of_one_gpu_cover_their_time_each_for_itself(cluster: Cluster) -> None:
    cluster.jobs(("1", "10:00", "11:00", 1, "n1"), ("2", "10:00", "11:00", 1, "n1"))
    busy = [(1, "1", 1.0), (2, "2", 0.5)]
    cluster.answer(
        "a.json", [series(ACTIVE, dict.fromkeys(MINUTES, use), **part(n, "3g.40gb", job)) for n, job, use in busy]
    )
    # The log counts each part as a GPU: 1 h busy and 1 h half busy.
    assert hours(cluster.trace()) == (2.0, 1.5, 1.0)


def test_parts_of_one_job_weigh_as_large_as_they_are(cluster: Cluster) -> None:
    cluster.jobs(("1", "10:00", "11:00", 1, "n1"))
    parts = [(1, "4g.40gb", 1.0), (2, "2g.20gb", 0.0), (3, "1g.10gb", 0.5)]
    cluster.answer(
        "a.json", [series(ACTIVE, dict.fromkeys(MINUTES, use), **part(n, size, "1")) for n, size, use in parts]
    )
    trace = cluster.trace()
    # 4/7 of the GPU busy, 1/7 half busy: 4.5 / 7 of an hour.
    assert hours(trace) == (1.0, round(4.5 / 7, 6), 1.0)
    (mean,) = answer_query(trace, "utilization/idle_jobs", {"threshold_pct": 100}).frame["mean_pct"].to_list()
    assert mean == pytest.approx(450 / 7)


def test_a_part_that_is_not_sampled_is_not_covered(cluster: Cluster) -> None:
    cluster.jobs(("1", "10:00", "11:00", 1, "n1"))
    parts = [(1, "1g.10gb", 1.0), (2, "1g.10gb", 1.0)]
    cluster.answer(
        "a.json", [series(ACTIVE, dict.fromkeys(MINUTES, use), **part(n, size, "1")) for n, size, use in parts]
    )
    assert hours(cluster.trace()) == (1.0, round(2 / 7, 6), round(2 / 7, 6))
