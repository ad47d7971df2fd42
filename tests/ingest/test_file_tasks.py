"""Files of telemetry that others read: the Trace cannot tell, and what fails leaves nothing."""

from __future__ import annotations

import gzip
import io
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples
from tests.ingest.both_ways import Heard, Pickled, assert_same, both
from tests.ingest.telemetry.monitored import DAY, Cluster, series
from tracekit.errors import OutputError, SourceError, TracekitError, UsageError
from tracekit.ingest import file_tasks, ingest_logs

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence

    from tests.reviewed import Golden
    from tracekit.trace import Trace

ROOT = Path(__file__).parents[2]
GPU = "time,machineId,gpu0_util,gpu1_util,gpu2_util,gpu3_util,gpu4_util,gpu5_util,gpu6_util,gpu7_util,\n"
CPU = "time,machine_id,cpu_util,\n"
MEM = "time,machine_id,mem_total,mem_free,\n"


def gpu_row(time: str, machine: str = "m1", *cells: object) -> str:
    filled = [*cells, *[""] * (8 - len(cells))]
    return f"{time} PDT,{machine},{','.join(str(cell) for cell in filled)},\n"


DAYS = {
    "cluster_job_log": json.dumps(
        [
            {
                "status": "Pass",
                "vc": "v",
                "jobid": "a",
                "user": "u",
                "submitted_time": "2017-10-03 00:00:00",
                "attempts": [
                    {
                        "start_time": "2017-10-03 00:00:00",
                        "end_time": "2017-10-05 00:00:00",
                        "detail": [{"ip": "m1", "gpus": ["gpu0"]}],
                    }
                ],
            }
        ]
    ),
    # The last minute of a day is in the next day's file again, with another value; a header stands in the middle.
    "cluster_gpu_util-2017-10-03.csv": GPU
    + gpu_row("2017-10-03 00:01:00", "m1", 10, "NA")
    + GPU
    + gpu_row("2017-10-03 00:01:00", "m2", 20, 120)
    + gpu_row("2017-10-03 23:59:00", "m1", 30),
    "cluster_gpu_util-2017-10-04.csv": GPU
    + gpu_row("2017-10-03 23:59:00", "m1", 31)
    + gpu_row("1970-01-01 00:00:00", "m1", 1)
    + gpu_row("2017-10-04 00:01:00", "m1", 40, 41, 42),
    "2017-10-05/cluster_gpu_util": GPU + gpu_row("2017-10-05 00:01:00", "m3", 50) + "2017-10-05 00:02:00 PDT,m3,x,\n",
    "cluster_cpu_util_1.csv": CPU + "2017-10-03 00:01:00 PDT,m1,1,\n2017-10-03 00:02:00 PDT,m1,2,\n",
    "cluster_cpu_util_2.csv": CPU + "2017-10-03 00:02:00 PDT,m1,3,\n2017-10-03 00:03:00 PDT,m1,NA,\n",
    "cluster_mem_util.csv": MEM + "2017-10-03 00:02:00 PDT,m1,1048576,524288,\nsoon,m1,1,1,\n",
}


@pytest.fixture
def days(write_source: Callable[[Mapping[str, str]], Path]) -> Path:
    return write_source(DAYS)


def gpus(trace: Trace) -> list[tuple[str, str, int, float]]:
    frame = trace.scan("gpu_utilization").collect()
    time = frame["time"].dt.strftime("%d %H:%M").alias("time")
    return frame.with_columns(time).select("time", "node_id", "gpu_index", "utilization_pct").rows()


def test_daily_files_of_philly_are_one_table_whoever_reads_them(days: Path, tmp_path: Path) -> None:
    workers = Pickled()
    trace = both(days, tmp_path, workers)
    assert gpus(trace) == [  # in UTC, by path of the file; of the repeated minute the later file counts
        ("05 07:01", "m3", 0, 50.0),
        ("03 07:01", "m1", 0, 10.0),
        ("03 07:01", "m2", 0, 20.0),
        ("03 07:01", "m2", 1, 120.0),
        ("04 06:59", "m1", 0, 31.0),
        ("04 07:01", "m1", 0, 40.0),
        ("04 07:01", "m1", 1, 41.0),
        ("04 07:01", "m1", 2, 42.0),
    ]
    checks = {name: (check.count, check.of) for name, check in trace.manifest.checks.items()}
    assert checks["repeated_gpu_samples"] == (1, 9)
    assert (checks["offline_gpu_cells"], checks["impossible_dates"][0]) == ((1, None), 1)
    host = trace.scan("host_utilization").select("cpu_pct", "memory_used_gib").collect().rows()
    assert host == [(1.0, None), (3.0, 0.5), (None, None)]
    assert {(f.path, f.records, f.rejected) for f in trace.manifest.files if f.rejected} == {
        ("cluster_gpu_util-2017-10-03.csv", 4, 1),
        ("2017-10-05/cluster_gpu_util", 2, 1),
        ("cluster_mem_util.csv", 2, 1),
    }
    assert workers.started
    assert len(workers.begun) == 3 + 1 + 2 + 1 + 1 + 1  # each kind's first file is begun twice


def test_a_file_under_two_names_is_found_on_both_ways(
    write_source: Callable[[Mapping[str, str]], Path], tmp_path: Path
) -> None:
    day = GPU + gpu_row("2017-10-03 00:01:00", "m1", 10, 11) + gpu_row("2017-10-03 00:02:00", "m1", 12)
    source = write_source({"cluster_gpu_util-2017-10-03.csv": day, "cluster_gpu_util_20171003.csv": day})
    trace = both(source, tmp_path, Pickled())
    check = trace.manifest.checks["repeated_gpu_samples"]
    assert (check.count, check.of, len(gpus(trace))) == (3, 6, 3)


def test_files_in_order_need_no_search_for_repeats(
    write_source: Callable[[Mapping[str, str]], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("cluster_gpu_util-2017-10-03.csv", "cluster_gpu_util-2017-10-04.csv")
    source = write_source({name: GPU + gpu_row(f"{name[17:27]} 00:01:00", "m1", 10) for name in names})
    staged: list[str] = []
    with monkeypatch.context() as patched:
        patched.setattr(Heard, "stage", lambda _, what, total=None: staged.append(what))
        ingest_logs(source, tmp_path / "trace", workers=Pickled(), progress=Heard())
    assert "looking for repeated samples" not in staged
    assert [what for what in staged if "taking over" in what] == [f"taking over {name}" for name in names]


def test_naive_clocks_pair_the_samples_of_all_files(days: Path, tmp_path: Path) -> None:
    trace = both(days, tmp_path, Pickled(), options={"times": "naive"})
    assert trace.scan("host_utilization").collect()["cpu_pct"].to_list() == [1.0, 2.0, 3.0, None]


ROWS = st.lists(
    st.tuples(
        st.integers(0, 5),
        st.sampled_from(["m1", "m2"]),
        st.lists(st.sampled_from(["1", "99.5", "", "NA", "x"]), max_size=8),
    ),
    max_size=8,
)


@settings(max_examples=examples(8))
@given(st.lists(ROWS, min_size=1, max_size=3))
def test_any_daily_files_give_the_same_trace(
    tmp_path_factory: pytest.TempPathFactory, files: list[list[tuple[int, str, list[str]]]]
) -> None:
    place = tmp_path_factory.mktemp("days")
    (place / "logs").mkdir()
    (place / "logs" / "cluster_job_log").write_text(DAYS["cluster_job_log"])
    for number, rows in enumerate(files):
        text = GPU + "".join(gpu_row(f"2017-10-03 00:0{minute}:00", m, *cells) for minute, m, cells in rows)
        (place / "logs" / f"cluster_gpu_util_{number}.csv").write_text(text)
    both(place / "logs", place, Pickled(), max_reject_share=1)


def test_answers_of_prometheus_and_logs_of_nvidia_smi_are_read_by_others(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path / "logs")
    cluster.jobs(("1", "10:00", "10:10", 1, "n1"), ("2", "10:10", "10:20", 2, "n2"))
    util, power = "DCGM_FI_DEV_GPU_UTIL", "DCGM_FI_DEV_POWER_USAGE"
    first = {"10:05": 50, "10:06": "NaN", "10:07": 51}
    one = [series(util, first, Hostname="n1", gpu="0", hpc_job="1"), series("up", {"10:05": 1}, node="n1")]
    cluster.answer("a.json", one)
    cluster.answer("copy of a.json", one)
    # Another answer says something else of the same minute, and goes on.
    cluster.answer("b.json", [series(util, {"10:07": 52, "10:08": 53}, Hostname="n1", gpu="0", hpc_job="1")])
    cluster.answer("c.json", [series(power, {"10:05": 250, "10:06": -1}, Hostname="n1", gpu="0")])
    cluster.answer("d.json", [series("DCGM_FI_DEV_XID_ERRORS", {"10:05": 0, "10:06": 79}, Hostname="n1", gpu="0")])
    condition = {"10:05": 0, "10:15": 1, "10:16": 0}
    states = series("kube_node_status_condition", condition, node="n2", condition="Ready", status="false")
    cluster.answer("e.json", [states])
    (cluster.folder / "f.json").write_text((cluster.folder / "b.json").read_text().replace('"metric"', '"mtric"', 1))
    lines = "timestamp, index, utilization.gpu [%]\n2026/03/02 10:15:00, 0, 7 %\nsoon, 0, 7 %\n"
    (cluster.folder / "n2.csv.gz").write_bytes(gzip.compress(lines.encode()))
    workers = Pickled()
    trace = both(cluster.folder, tmp_path, workers, options={"timezone": "UTC"}, max_reject_share=1)
    frame = trace.scan("gpu_utilization").collect()
    assert frame.select(
        pl.col("time").dt.strftime("%H:%M"), "node_id", "utilization_pct", "power_w", "job_id"
    ).rows() == [
        ("10:05", "n1", 50.0, 250.0, "slurm/1"),
        ("10:07", "n1", 52.0, None, "slurm/1"),
        ("10:08", "n1", 53.0, None, "slurm/1"),
        ("10:15", "n2", 7.0, None, "slurm/2"),
    ]
    events = trace.scan("node_events").collect()
    assert sorted(events["node_id"].to_list()) == ["n1", "n2"]
    assert trace.manifest.rejected == 2
    assert len(workers.begun) == 8 + 1


LAYOUTS = """
[source]
timezone = "UTC"
[jobs]
files = "jobs.csv"
columns.job_id = "id"
columns.submit_time = "start"
[gpus]
files = "gpus.csv"
uuid = "u"
node = "n"
gpu = "g"
[telemetry.long]
files = "long*"
layout = "long"
time = "t"
uuid = "u"
metric = "m"
value = "v"
gpu_metrics = { utilization_pct = "util" }
[telemetry.wide]
files = "wide*.csv"
layout = "wide"
server = 'n(?<node>\\d)g(?<gpu>\\d)'
gpu_metrics = { power_w = "power" }
"""


def test_mapped_samples_of_any_layout_are_read_by_others(tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "jobs.csv").write_text(f"id,start\na,{DAY}T10:00:00\n")
    (logs / "gpus.csv").write_text("u,n,g\nU0,1,0\nU1,1,1\n")
    (logs / "long-1.csv").write_text(f"t,u,m,v\n{DAY}T10:00:00,U0,util,5\n{DAY}T10:00:00,U9,util,5\n")
    stamp = pl.Series("t", [f"{DAY}T10:00:00", f"{DAY}T10:01:00"]).str.to_datetime()
    more = pl.DataFrame({"t": stamp, "u": ["U0", "U1"], "m": ["util", "heat"], "v": [6.0, 7.0]})
    more.write_parquet(logs / "long-2.parquet")
    (logs / "wide-1.csv").write_text(f"when,n1g0,n1g1\n{DAY}T10:00:00,100,\nsoon,1,1\n")
    (logs / "wide-2.csv").write_text(f"when,n1g0\n{DAY}T10:01:00,200\n")
    (tmp_path / "map.toml").write_text(LAYOUTS)
    workers = Pickled()
    asked = {"format_name": "csv", "options": {"map": str(tmp_path / "map.toml")}, "max_reject_share": 1}
    trace = both(logs, tmp_path, workers, **asked)
    frame = trace.scan("gpu_utilization").collect().sort("time", "gpu_index")
    assert frame.select("node_id", "gpu_index", "utilization_pct", "power_w").rows() == [
        ("1", 0, 6.0, 100.0),
        ("1", 0, None, 200.0),
    ]
    assert (trace.manifest.rejected, trace.manifest.checks["unmapped_metric"].count) == (2, 1)
    assert len(workers.begun) == 4 + 1


def test_files_in_an_archive_are_read_here_and_that_is_said(days: Path, tmp_path: Path, golden: Golden) -> None:
    inside = sorted(path for path in days.glob("*gpu_util-*"))
    with tarfile.open(days / "gpus.tar.gz", "w:gz") as archive:
        for path in inside:
            archive.add(path, path.name)
            path.unlink()
    workers, heard = Pickled(), Heard()
    trace = both(days, tmp_path, workers, progress=heard)
    assert len(gpus(trace)) == 8
    (note,) = [text for text in heard.notes if "archive" in text]
    golden(note)
    assert note not in trace.manifest.notes


def of_this_machine(heard: Heard) -> list[str]:
    """Return the notes that say what is read on this machine."""
    return [note for note in heard.notes if "this machine" in note]


def test_a_format_without_files_for_workers_says_so_by_name_and_starts_none(tmp_path: Path, golden: Golden) -> None:
    cluster, heard, workers = Cluster(tmp_path / "logs"), Heard(), Pickled()
    cluster.jobs(("1", "10:00", "10:10", 1, "n1"))
    both(cluster.folder, tmp_path, workers, progress=heard)
    golden(of_this_machine(heard))
    assert not workers.started


def test_telemetry_in_an_archive_alone_starts_no_workers(days: Path, tmp_path: Path, golden: Golden) -> None:
    with tarfile.open(tmp_path / "all.tar", "w") as archive:
        archive.add(days, "days")
    heard, workers = Heard(), Pickled()
    both(tmp_path / "all.tar", tmp_path, workers, progress=heard)
    golden(of_this_machine(heard))
    assert not workers.started


def test_a_mapping_without_samples_has_no_files_for_workers(tmp_path: Path, golden: Golden) -> None:
    logs, heard, workers = tmp_path / "logs", Heard(), Pickled()
    logs.mkdir()
    (logs / "jobs.csv").write_text(f"id,start\na,{DAY}T10:00:00\n")
    (tmp_path / "map.toml").write_text(LAYOUTS.split("[gpus]", maxsplit=1)[0])
    asked = {"format_name": "csv", "options": {"map": str(tmp_path / "map.toml")}}
    both(logs, tmp_path, workers, progress=heard, **asked)
    assert not workers.started
    golden(of_this_machine(heard))


def test_a_trace_that_is_laid_out_again_is_refused_to_workers(days: Path, tmp_path: Path) -> None:
    ingest_logs(days, tmp_path / "trace")
    with pytest.raises(
        UsageError, match=r"^--engine: only this process can change the layout of a Trace; leave out --engine"
    ):
        ingest_logs(tmp_path / "trace", tmp_path / "again", partition="day", workers=Pickled())
    assert not (tmp_path / "again").exists()


def test_a_mapping_beside_a_format_has_files_for_workers(tmp_path: Path) -> None:
    cluster, workers = Cluster(tmp_path / "logs"), Pickled()
    cluster.jobs(("1", "10:00", "10:10", 1, "n1"))
    for number in (1, 2):
        (cluster.folder / f"wide-{number}.csv").write_text(f"when,n1g0\n{DAY}T10:0{number}:00,10{number}\n")
    wide = LAYOUTS.split("[telemetry.wide]")[1].replace("n(?<node>\\d)", "(?<node>n\\d)")
    (tmp_path / "map.toml").write_text(f'[source]\ntimezone = "UTC"\n[telemetry.wide]{wide}')
    asked = {"format_name": "slurm", "options": {"map": str(tmp_path / "map.toml"), "timezone": "UTC"}}
    trace = both(cluster.folder, tmp_path, workers, **asked)
    assert trace.scan("gpu_utilization").collect()["power_w"].to_list() == [101.0, 102.0]
    assert len(workers.begun) == 2 + 1


@pytest.mark.thorough
def test_days_are_appended_by_workers_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The second dump has an hour of samples more; the Trace is the one that one process has appended to."""
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1800000000")
    cluster = Cluster(tmp_path / "logs")
    traces = []
    for workers in (None, Pickled()):
        shutil.rmtree(cluster.folder, ignore_errors=True)
        out = tmp_path / f"trace-{workers is None}"
        for number, start in enumerate(("10:00", "11:00")):
            hour = start[:2]
            cluster.jobs((str(number), start, f"{hour}:10", 1, "n1"))
            samples = {f"{hour}:05": 50 + number, f"{hour}:06": 51}
            cluster.answer(f"{hour}.json", [series("DCGM_FI_DEV_GPU_UTIL", samples, Hostname="n1", gpu="0")])
            trace = ingest_logs(
                cluster.folder, out, append=True, options={"timezone": "UTC"}, partition="day", workers=workers
            )
        traces.append(trace)
    assert_same(*traces)
    assert traces[0].manifest.tables["gpu_utilization"].rows == 4


def test_an_old_copy_of_a_file_on_another_machine_is_refused(days: Path, tmp_path: Path) -> None:
    class Behind(Pickled):
        def in_order(self, work: Callable[[Any], Any], items: Sequence[Any]) -> Generator[Any]:
            return super().in_order(work, [(key, file, size + 7) for key, file, size in items])

    with pytest.raises(SourceError, match=r"cluster_gpu_util: has \d+ bytes on .*, but \d+ here; every machine"):
        ingest_logs(days, tmp_path / "trace", workers=Behind())
    assert not (tmp_path / "trace").exists()


def test_a_file_that_is_none_is_reported_as_one_machine_tells_it(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path / "logs")
    cluster.jobs(("1", "10:00", "10:10", 1, "n1"))
    cluster.answer("a.json", [series("DCGM_FI_DEV_GPU_UTIL", {"10:05": 1}, Hostname="n1", gpu="0")])
    (cluster.folder / "b.json").write_text('{"status": "error", "errorType": "timeout", "error": "slow"}')
    (cluster.folder / "c.csv").write_text("timestamp, index, utilization.gpu [%]\n")  # names no machine
    told = []
    for workers in (None, Pickled()):
        with pytest.raises(SourceError) as error:
            ingest_logs(cluster.folder, tmp_path / "trace", workers=workers)
        told.append(str(error.value))
    assert told[0] == told[1]
    assert told[0].startswith("b.json: is a server error")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["logs"]


class _Full(io.FileIO):
    """A file on a disk that takes a hundred bytes."""

    def write(self, data: Any) -> int:
        if self.tell() + len(data) > 100:
            raise OSError(28, "No space left on device")
        return super().write(data)


def test_a_full_disk_is_one_line_and_leaves_nothing(
    days: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = Path.open
    kept: list[Path] = []

    def full(path: Path, mode: str = "r", *more: Any, **named: Any) -> Any:
        if mode != "xb":
            return opened(path, mode, *more, **named)
        kept.append(path)
        return _Full(path, "x")

    monkeypatch.setattr(Path, "open", full)
    with pytest.raises(OutputError) as error:
        ingest_logs(days, tmp_path / "trace", workers=Pickled())
    assert str(error.value) == (
        f"{tmp_path / 'trace'}: cannot write: No space left on device; choose another -o, or free its path"
    )
    assert kept
    assert not any(path.exists() for path in kept)
    assert [path for path in tmp_path.iterdir() if "trace" in path.name] == []


@dataclass
class _Spoilt(Pickled):
    """Workers whose results something happens to before they are taken."""

    spoil: Callable[[Any, Any], Any]

    def __init__(self, spoil: Callable[[Any, Any], Any]) -> None:
        super().__init__()
        self.spoil = spoil

    def in_order(self, work: Callable[[Any], Any], items: Sequence[Any]) -> Generator[Any]:
        for found in super().in_order(work, items):
            yield self.spoil(work, found)


def _cut(work: Any, found: Any) -> Any:
    path = work.folder / found.name
    path.write_bytes(path.read_bytes()[:-3])
    return found


def _ended(work: Any, found: Any) -> Any:
    path = work.folder / found.name
    path.write_bytes(path.read_bytes()[:-20])
    return type(found)(found.name, path.stat().st_size, found.host)


def _gone(work: Any, found: Any) -> Any:
    (work.folder / found.name).unlink()
    return found


@pytest.mark.parametrize(
    ("spoil", "what"),
    [
        (_cut, "this machine cannot see the files"),
        (_gone, "this machine cannot see the files"),
        (_ended, "the output of a worker is incomplete"),
    ],
)
def test_a_result_that_is_not_whole_is_refused(
    days: Path, tmp_path: Path, spoil: Callable[[Any, Any], Any], what: str
) -> None:
    with pytest.raises(OutputError, match=what) as error:
        ingest_logs(days, tmp_path / "trace", workers=_Spoilt(spoil))
    assert "\n" not in str(error.value)
    assert error.value.where == str(tmp_path / "trace")
    assert [path for path in tmp_path.iterdir() if "trace" in path.name] == []


class _Elsewhere(Pickled):
    """Workers of a machine that lacks something."""

    def __init__(self, *lacks: Path) -> None:
        super().__init__()
        self.lacks = lacks

    def in_order(self, work: Callable[[Any], Any], items: Sequence[Any]) -> Generator[Any]:
        with pytest.MonkeyPatch.context() as there:
            for name in ("is_dir", "is_file"):
                real = getattr(Path, name)
                there.setattr(
                    Path,
                    name,
                    lambda path, real=real: real(path) and not any(p in (path, *path.parents) for p in self.lacks),
                )
            found = list(super().in_order(work, items))
        yield from found


def test_workers_that_do_not_see_the_files_or_the_folder_say_so(days: Path, tmp_path: Path) -> None:
    hint = "every machine must see the files and the -o folder at the same path"
    with pytest.raises(SourceError, match=rf"cluster_gpu_util.*: the file does not exist on .*; {hint}"):
        ingest_logs(days, tmp_path / "trace", workers=_Elsewhere(days))
    with pytest.raises(OutputError, match=rf"trace: its temporary folder does not exist on .*; {hint}"):
        ingest_logs(days, tmp_path / "trace", workers=_Elsewhere(*[tmp_path / "out", *_hidden(tmp_path)]))


def _hidden(place: Path) -> list[Path]:
    return [place / f".trace.partial-{os.getpid()}"]


def test_a_worker_of_another_version_is_refused(days: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Later(Pickled):
        def in_order(self, work: Callable[[Any], Any], items: Sequence[Any]) -> Generator[Any]:
            with monkeypatch.context() as there:
                there.setattr(file_tasks, "__version__", "9.9")
                found = list(super().in_order(work, items))
            yield from found

    with pytest.raises(TracekitError, match=r"the executor on .* has tracekit 9\.9, this machine has tracekit \d"):
        ingest_logs(days, tmp_path / "trace", workers=Later())


KILLED = """
import os, signal, sys
from tests.ingest.both_ways import Pickled
from tracekit.ingest import ingest_logs

class Until(Pickled):
    def in_order(self, work, items):
        for number, found in enumerate(super().in_order(work, items)):
            if number:
                os.kill(os.getpid(), signal.SIGKILL)
            yield found

ingest_logs(sys.argv[1], sys.argv[2], workers=Until())
"""


def test_a_driver_that_is_killed_leaves_no_trace_and_the_next_run_clears_up(days: Path, tmp_path: Path) -> None:
    out = tmp_path / "place" / "trace"
    ran = subprocess.run([sys.executable, "-c", KILLED, days, out], cwd=ROOT, check=False, capture_output=True)
    assert ran.returncode == -signal.SIGKILL, ran.stderr
    (left,) = out.parent.iterdir()
    assert left.name.startswith(".trace.partial-")
    assert list((left / "scratch" / "tasks").iterdir())
    ingest_logs(days, out, workers=Pickled())
    assert [path.name for path in out.parent.iterdir()] == ["trace"]


def test_what_is_written_down_is_done_again(tmp_path: Path) -> None:
    """Names that JSON has no letters for, empty frames, numbers of numpy's: all come back as they were."""
    said: list[Any] = []

    class Listening:
        class writer:  # noqa: N801 -- stands for the attribute
            target = tmp_path

        def __getattr__(self, name: str) -> Callable[..., None]:
            return lambda *told: said.append((name, *told))

    frame = pl.DataFrame({"a": [None, 1.5, float("nan")], "b": [["x"], [], None]})
    with file_tasks.RecordingSink(tmp_path / "kept", tmp_path, {}, None) as sink:
        sink.note("ein Wörtchen \udcff")
        sink.check("c", 3, None, "m", pl.Series(["e"] * 9))
        sink.write("jobs", frame)
        sink.write("jobs", frame.clear())
        sink.add_reject("p", 7, None, "r", b"\xff\n")
        sink.keep(frame.clear())
        sink.keep(frame)
    found = list(file_tasks.take_over(tmp_path / "kept", Listening()))  # type: ignore[arg-type]  # has what is asked of it
    assert [f.equals(g) and f.schema == g.schema for f, g in zip(found, [frame.clear(), frame], strict=True)] == [
        True
    ] * 2
    assert [name for name, *_ in said] == ["note", "check", "write", "add_rejected"]
    assert said[0] == ("note", "ein Wörtchen \udcff")
    assert said[1] == ("check", "c", 3, None, "m", ["e"] * 5)
    assert said[2][1] == "jobs"
    assert said[2][2].equals(frame)
    assert said[3] == ("add_rejected", "p", 7, None, "r", "\\xff\n")
