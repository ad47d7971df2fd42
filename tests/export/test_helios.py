"""Helios: job logs as released, quota tables by day, and names that cannot be folders."""

from __future__ import annotations

import csv
import json
from typing import TYPE_CHECKING, Any

import pytest

from tracekit.errors import OutputError, UsageError
from tracekit.export.api import export

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.reviewed import Golden
    from tracekit.trace import Trace

    Run = Callable[..., tuple[Path, Any]]

JOB = {"submit_time": "2020-04-01 16:00:00", "run_s": 60, "gpu_count": 1}


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(newline="", encoding="utf-8") as file:
        return list(csv.DictReader(file))


def test_the_log_has_the_released_columns_in_local_time(small: Trace, run: Run, golden: Golden) -> None:
    folder, done = run(small, "helios", "out", jobs="gpu")
    log = (folder / "Earth" / "cluster_log.csv").read_text().splitlines()
    assert log == [
        "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue,jobname",
        "1,ann,red,4,16,1,COMPLETED,2020-04-02 08:00:00,2020-04-02 08:00:30,2020-04-02 08:02:10,100,30,",
        "2,bob,blue,8,,,FAILED,2020-04-02 08:01:00,2020-04-02 08:01:00,2020-04-02 08:02:40,75,0,",
        "3,unknown,red,1,,,TIMEOUT,2020-04-02 08:04:00,2020-04-02 08:04:01,2020-04-02 08:04:13,12,1,",
    ]
    # Each VC held 4 or 8 GPUs at once: one node of 8 for both.
    assert (folder / "Earth" / "cluster_gpu_number.csv").read_text() == "date,blue,red,total\n2020-04-02,8,8,16\n"
    golden(done.log.sentences)
    assert json.loads((folder / "export.json").read_text())["left_out"] == done.log.left_out


def test_what_the_simulator_makes_of_a_valid_log_is_noted(
    make_trace: Callable[..., Trace], run: Run, golden: Golden
) -> None:
    # Midnight in UTC+8 is 16:00 of the day before: the first job comes a second before April.
    times = ("2020-03-31 15:59:59", "2020-03-31 16:00:00", "2020-04-02")
    jobs = [{**JOB, "job_id": str(n), "submit_time": t, "run_s": n * 0.3} for n, t in enumerate(times)]
    folder, done = run(make_trace(jobs=jobs), "helios", "out")
    assert [r["duration"] for r in rows(folder / "Cluster" / "cluster_log.csv")] == ["0", "0", "1"]
    golden(done.log.notes)
    folder, done = run(make_trace(jobs=jobs), "helios", "other", least_s=1)
    assert [r["duration"] for r in rows(folder / "Cluster" / "cluster_log.csv")] == ["1", "1", "1"]
    assert not any("0 s" in note for note in done.log.notes)


def test_quotas_change_from_day_to_day(make_trace: Callable[..., Trace], run: Run) -> None:
    jobs = [{"job_id": "1", "cluster": "Earth", "vc": "red", **JOB, "submit_time": "2020-04-03 20:00:00"}]
    at = {"cluster": "Earth"}
    # Midnight in UTC+8 is 16:00 of the day before.
    capacity = [
        {"time": "2020-03-31 16:00:00", "vc": "red", "gpu_count": 16, **at},
        {"time": "2020-04-01 16:00:00", "vc": "blue", "gpu_count": 8, **at},
        {"time": "2020-04-02 16:00:00", "vc": "red", "gpu_count": 0, **at},
        {"time": "2020-03-31 16:00:00", "vc": None, "gpu_count": 20, **at},
        {"time": "2020-04-01 16:00:00", "vc": "red", "gpu_count": 99, "cluster": "Venus"},
    ]
    folder, _ = run(make_trace(jobs=jobs, capacity=capacity), "helios", "out")
    assert (folder / "Earth" / "cluster_gpu_number.csv").read_text().splitlines() == [
        "date,blue,red,total",
        "2020-04-01,0,16,20",
        "2020-04-02,8,16,20",
        "2020-04-03,8,0,20",
        "2020-04-04,8,0,20",
    ]


def test_clusters_are_apart_and_job_ids_lose_their_cluster(
    make_trace: Callable[..., Trace], run: Run, golden: Golden
) -> None:
    jobs = [
        {"job_id": "Earth/7", "cluster": "Earth", **JOB},
        {"job_id": "Venus/7", "cluster": "Venus", **JOB},
        {"job_id": "Venus/x", "cluster": "Venus", **JOB},
        {"job_id": "7", **JOB},
    ]
    folder, done = run(make_trace(jobs=jobs), "helios", "out", cluster="Rest")
    ids = {f: [r["job_id"] for r in rows(folder / f / "cluster_log.csv")] for f in ("Earth", "Venus", "Rest")}
    assert ids == {"Earth": ["7"], "Venus": ["1", "2"], "Rest": ["7"]}
    golden(done.log.notes)
    assert rows(folder / "Rest" / "cluster_log.csv")[0]["vc"] == "default"


@pytest.mark.parametrize("name", ["../up", "/tmp/up", "a/b", "..", ".hidden", "a\nb", "x" * 300, "é", "cluster-1"])
def test_a_cluster_whose_name_is_not_a_folder_stays_inside(
    make_trace: Callable[..., Trace], tmp_path: Path, name: str
) -> None:
    trace = make_trace(jobs=[{"job_id": "1", "cluster": name, **JOB}])
    export(trace, "helios", tmp_path / "in" / "out")
    assert [p.name for p in tmp_path.iterdir()] == ["in"]
    assert [p.name for p in (tmp_path / "in").iterdir()] == ["out"]
    assert sorted(p.name for p in (tmp_path / "in" / "out").iterdir()) == ["cluster-1", "export.json"]


def test_texts_that_spreadsheets_run_get_a_quote(make_trace: Callable[..., Trace], run: Run, golden: Golden) -> None:
    jobs = [{"job_id": "1", "cluster": "E", "user": "=1+1", "vc": '@x,"y"', "name": "+a\nb", **JOB}]
    folder, done = run(make_trace(jobs=jobs), "helios", "out")
    (row,) = rows(folder / "E" / "cluster_log.csv")
    assert (row["user"], row["vc"], row["jobname"]) == ("'=1+1", '\'@x,"y"', "'+a\nb")
    assert list(rows(folder / "E" / "cluster_gpu_number.csv")[0]) == ["date", '\'@x,"y"', "total"]
    golden(done.log.notes)
    folder, _ = run(make_trace(jobs=jobs), "helios", "out", guard="no")
    assert rows(folder / "E" / "cluster_log.csv")[0]["user"] == "=1+1"


def test_only_an_earlier_export_is_replaced(small: Trace, tmp_path: Path) -> None:
    out = tmp_path / "out"
    export(small, "helios", out)
    with pytest.raises(OutputError, match="exists already"):
        export(small, "helios", out)
    export(small, "helios", out, options={"jobs": "gpu"}, force=True)
    assert len(rows(out / "Earth" / "cluster_log.csv")) == 3
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").touch()
    with pytest.raises(OutputError, match="is not an export"):
        export(small, "helios", tmp_path / "mine", force=True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"timezone": "Mars/Crater"}, "'Mars/Crater' is not a time zone"),
        ({"cluster": "../x"}, "cannot name a folder"),
        ({"cluster": "Earth"}, "is already the name of a cluster of the Trace"),
        ({"vc": "a\nb"}, "is not one printable line"),
    ],
)
def test_a_wrong_option_is_one_line(
    make_trace: Callable[..., Trace], tmp_path: Path, options: dict[str, str], message: str
) -> None:
    trace = make_trace(jobs=[{"job_id": "1", "cluster": "Earth", **JOB}, {"job_id": "2", **JOB}])
    with pytest.raises(UsageError, match=message):
        export(trace, "helios", tmp_path / "out", options=options)
    assert list(tmp_path.iterdir()) == []
