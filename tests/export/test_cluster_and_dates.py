"""How large the cluster of an export is, when its jobs begin, and what the simulator has to be told."""

from __future__ import annotations

import csv
import json
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from tests.command import run as command
from tracekit.characterize import run_query
from tracekit.errors import UsageError
from tracekit.export.api import export
from tracekit.ingest import ingest_logs

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.reviewed import Golden
    from tracekit.trace import Trace

# Every 100 s a job of 200 s: on 4 GPUs in the VC 'a' and on 2 in the VC 'b', in turns. From the first to the last
# submission 900 s pass, and the jobs take 10 * 200 s * 3 GPUs on average, 6,000 GPU-s.
JOBS = [
    {
        "job_id": f"j{n}",
        "cluster": "Earth",
        "vc": "ab"[n % 2],
        "gpu_count": 4 - 2 * (n % 2),
        "run_s": 200,
        "submit_time": f"2021-06-01 00:{n * 100 // 60:02}:{n * 100 % 60:02}",
    }
    for n in range(10)
]


@pytest.fixture
def steady(make_trace: Callable[..., Trace]) -> Trace:
    return make_trace(jobs=JOBS)


def nodes_of(folder: Path) -> list[int]:
    """Return switches, nodes of each and GPUs of each node, as Tiresias' specification has them."""
    return [int(cell) for cell in (folder / "o.cluster.csv").read_text().splitlines()[1].split(",")][:3]


def test_the_load_decides_how_many_nodes_there_are(steady: Trace, tmp_path: Path, golden: Golden) -> None:
    # A node of 1 GPU offers 900 GPU-s: 6,000 / (900 * 0.5) = 13.3, so 14 nodes, whose load is 6,000 / 12,600.
    options = {"gpus_per_node": "1"}
    done = export(steady, "tiresias", tmp_path / "o.csv", options=options, target_load=0.5)
    assert nodes_of(tmp_path) == [1, 14, 1]
    golden(done.log.notes)
    # 6,000 / (900 * 4) = 1.7: 2 nodes would do, but the largest job needs 4 GPUs.
    done = export(steady, "tiresias", tmp_path / "o.csv", options=options, target_load=4, force=True)
    assert nodes_of(tmp_path) == [1, 4, 1]
    golden(done.log.notes, "of the largest job")


def test_machines_come_before_what_the_trace_lists(make_trace: Callable[..., Trace], tmp_path: Path) -> None:
    trace = make_trace(jobs=JOBS, nodes=[{"node_id": f"n{n}", "gpu_count": 4} for n in range(3)])
    export(trace, "tiresias", tmp_path / "o.csv")
    assert nodes_of(tmp_path) == [1, 3, 4]
    export(trace, "tiresias", tmp_path / "o.csv", machines=7, force=True)
    assert nodes_of(tmp_path) == [1, 7, 4]
    export(trace, "batsim", tmp_path / "w.json", machines=7)
    assert (tmp_path / "w.json").read_text().startswith('{"nb_res": 28,')
    export(trace, "alibaba-sim", tmp_path / "p.csv", options={"layout": "openb"}, machines=7)
    assert len((tmp_path / "p.nodes.csv").read_text().splitlines()) == 8


def test_nodes_of_different_sizes_stay_different_where_the_target_can_hold_them(
    make_trace: Callable[..., Trace], tmp_path: Path, golden: Golden
) -> None:
    sizes = {"a": 16, "b": 4, "c": 4, "unknown": None}
    trace = make_trace(jobs=JOBS, nodes=[{"node_id": node, "gpu_count": gpus} for node, gpus in sizes.items()])
    notes: list[str] = []
    export(trace, "accasim", tmp_path / "o.swf")
    system = json.loads((tmp_path / "o.config").read_text())
    assert {name: group["core"] for name, group in system["groups"].items()} == {"g0": 16, "g1": 4}
    assert system["resources"] == {"g0": 1, "g1": 2}
    assert "; MaxProcs: 24\n" in (tmp_path / "o.swf").read_text()
    done = export(trace, "alibaba-sim", tmp_path / "p.csv", options={"layout": "openb"})
    with (tmp_path / "p.nodes.csv").open(newline="") as file:
        written = {row["sn"]: int(row["gpu"]) for row in csv.DictReader(file)}
    assert written == {"a": 16, "b": 4, "c": 4}
    notes += [note for note in done.log.notes if "GPUs" in note]
    notes += export(trace, "alibaba-sim", tmp_path / "q.csv").log.settings
    notes += export(trace, "opendc", tmp_path / "q").log.settings
    # Nodes that are all alike are two of 16, with 32 GPUs for 24.
    notes += export(trace, "tiresias", tmp_path / "o.csv").log.notes[:1]
    assert nodes_of(tmp_path) == [1, 2, 16]
    even = make_trace(jobs=JOBS, nodes=[{"node_id": str(gpus), "gpu_count": gpus} for gpus in (6, 4, 2)])
    notes += export(even, "tiresias", tmp_path / "s.csv", force=True).log.notes[:1]
    golden(notes)


def test_a_cluster_whose_nodes_are_all_unknown_is_as_large_as_its_jobs_need(
    make_trace: Callable[..., Trace], tmp_path: Path
) -> None:
    trace = make_trace(jobs=JOBS, nodes=[{"node_id": "a", "gpu_count": None}])
    done = export(trace, "alibaba-sim", tmp_path / "p.csv", options={"layout": "openb"})
    with (tmp_path / "p.nodes.csv").open(newline="") as file:
        assert [(row["sn"], row["gpu"]) for row in csv.DictReader(file)] == [("node-0000", "8")]
    assert any(note.startswith("1 node left out") for note in done.log.notes)


def test_machines_with_parts_of_gpus_have_their_cards(ingest_mig: Trace, tmp_path: Path) -> None:
    export(ingest_mig, "accasim", tmp_path / "o.swf")
    system = json.loads((tmp_path / "o.config").read_text())
    assert [system["resources"], system["groups"]["g0"]["core"]] == [{"g0": 3}, 8]
    found = {r["metric"]: r["value"] for r in run_query(ingest_mig, "queuing/gpu_time_held").iter_rows(named=True)}
    assert found["owned_gpus"] == 24


@pytest.fixture
def ingest_mig(tmp_path: Path) -> Trace:
    """Return three machines of 8 GPUs, one of which is divided into 56 parts."""
    source = tmp_path / "mig"
    source.mkdir()
    gres = {"mig-01": "gpu:1g.10gb:56", "a100-01": "gpu:a100:8", "a100-02": "gpu:a100:8"}
    nodes = [f"NodeName={name} Gres={text} CPUTot=64 RealMemory=1031000 State=IDLE" for name, text in gres.items()]
    (source / "nodes.txt").write_text("\n".join(nodes) + "\n")
    span = "2026-09-01T00:00:00|2026-09-01T00:00:00|2026-09-01T01:00:00|COMPLETED"
    jobs = [
        "JobID|Submit|Start|End|State|AllocTRES|NNodes|NodeList",
        f"1|{span}|gres/gpu:1g.10gb=1,gres/gpu=1,node=1|1|mig-01",
        f"2|{span}|gres/gpu:a100=8,gres/gpu=8,node=1|1|a100-01",
    ]
    (source / "sacct.txt").write_text("\n".join(jobs) + "\n")
    return ingest_logs(source, tmp_path / "trace")


def test_quotas_share_the_nodes_by_gpu_time(steady: Trace, tmp_path: Path) -> None:
    def quotas(name: str, **sized: Any) -> dict[str, str]:
        export(steady, "helios", tmp_path / name, **sized)
        with (tmp_path / name / "Earth" / "cluster_gpu_number.csv").open(newline="") as file:
            (row,) = csv.DictReader(file)
        return row

    # Two thirds of the GPU time are a's: 5 nodes are 3.33 and 1.67, so 3 and 2 by the largest remainder.
    assert quotas("five", machines=5) == {"date": "2021-06-01", "a": "24", "b": "16", "total": "40"}
    assert quotas("six", machines=6) == {"date": "2021-06-01", "a": "32", "b": "16", "total": "48"}
    # One node would leave none for b.
    assert quotas("one", machines=1) == {"date": "2021-06-01", "a": "8", "b": "8", "total": "16"}
    # 6,000 GPU-s over 900 s of nodes of 8 GPUs at a load of 0.2: 4.2, so 5 nodes.
    assert quotas("load", target_load=0.2) == {"date": "2021-06-01", "a": "24", "b": "16", "total": "40"}


def test_all_times_move_together(small: Trace, tmp_path: Path, golden: Golden) -> None:
    # The first submission of the log is 2020-04-02 00:00:00 UTC; Helios' times are those of Shanghai.
    export(small, "helios", tmp_path / "h", options={"jobs": "gpu"}, shift_to="2020-04-01")
    with (tmp_path / "h" / "Earth" / "cluster_log.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    names = ("submit_time", "start_time", "end_time")
    assert [rows[1][name] for name in names] == ["2020-04-01 00:01:00", "2020-04-01 00:01:00", "2020-04-01 00:02:40"]
    assert (tmp_path / "h" / "Earth" / "cluster_gpu_number.csv").read_text().splitlines()[1].startswith("2020-04-01,")
    done = export(small, "opendc", tmp_path / "o", shift_to="2022-01-01T06:00")
    first = pl.read_parquet(tmp_path / "o" / "tasks.parquet")["submission_time"][0]
    assert str(first) == "2022-01-01 06:00:00+00:00"
    golden(done.log.notes)


def test_stated_quotas_move_with_the_jobs(make_trace: Callable[..., Trace], tmp_path: Path) -> None:
    capacity = [{"time": "2021-06-01", "cluster": "Earth", "vc": vc, "gpu_count": 16} for vc in "ab"]
    export(make_trace(jobs=JOBS, capacity=capacity), "helios", tmp_path / "h", shift_to="2020-04-01T08:00:00")
    table = (tmp_path / "h" / "Earth" / "cluster_gpu_number.csv").read_text()
    assert table == "date,a,b,total\n2020-04-01,16,16,32\n"


def test_a_trace_without_dates_gets_some(make_trace: Callable[..., Trace], tmp_path: Path) -> None:
    jobs = [{"job_id": "1", "submit_time": "1970-01-01 00:00:50", "gpu_count": 1, "run_s": 5}]
    trace = make_trace(jobs=jobs, manifest_overrides={"time_base": "relative"})
    export(trace, "swf", tmp_path / "o.swf", shift_to="2001-09-09T01:46:40")
    assert "; UnixStartTime: 1000000000" in (tmp_path / "o.swf").read_text()
    export(trace, "csv", tmp_path / "o.csv", shift_to="2001-09-09T01:46:40")
    assert "2001-09-09T01:46:40.000000Z" in (tmp_path / "o.csv").read_text()
    assert 'timezone = "UTC"' in (tmp_path / "o.map.toml").read_text()


@pytest.mark.parametrize(
    ("target", "given", "what"),
    [
        ("gavel", {"machines": 2, "target_load": 0.5}, "both set the size of the cluster"),
        ("gavel", {"machines": 0}, "not a number of nodes"),
        ("gavel", {"target_load": 0.0}, "not a load"),
        ("gavel", {"target_load": float("nan")}, "not a load"),
        ("swf", {"machines": 2}, "the format swf has no cluster"),
        ("csv", {"target_load": 1.0}, "the format csv has no cluster"),
        ("gavel", {"shift_to": "2020-04-01"}, "count from the first submission"),
        ("helios", {"shift_to": "April"}, "'April' is not a date"),
        ("helios", {"shift_to": "2020-04-01T00:00+02:00"}, "without a zone"),
        ("helios", {"shift_to": "9999-12-31"}, "is not a date"),
    ],
)
def test_what_cannot_be_is_refused(
    steady: Trace, tmp_path: Path, target: str, given: dict[str, Any], what: str
) -> None:
    with pytest.raises(UsageError, match=what):
        export(steady, target, tmp_path / "o", **given)
    assert list(tmp_path.iterdir()) == []


def test_jobs_that_all_come_at_once_are_not_a_load(make_trace: Callable[..., Trace], tmp_path: Path) -> None:
    trace = make_trace(jobs=[{**job, "submit_time": "2021-06-01"} for job in JOBS])
    with pytest.raises(UsageError, match="all jobs are submitted at the same time"):
        export(trace, "tiresias", tmp_path / "o.csv", target_load=0.5)


def test_the_simulator_gets_what_it_needs(steady: Trace, tmp_path: Path, golden: Golden) -> None:
    said = []
    for target in ("gavel", "tiresias", "batsim", "accasim", "alibaba-sim", "opendc"):
        (setting,) = export(steady, target, tmp_path / target / "o.csv", machines=2).log.settings
        said.append(f"{target}: {setting}")
    result = command("export", steady.path, "--to", "batsim", "--machines", "3", "-o", tmp_path / "w.json")
    golden([*said, result.stdout.splitlines()[-1]])
