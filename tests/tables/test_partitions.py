"""Tables in partitions: where they lie, what a part of them is, and what is told when some are missing or damaged."""

from __future__ import annotations

import datetime as dt
import json
import shutil
from pathlib import PureWindowsPath
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

from tests.command import run
from tests.effort import examples
from tracekit.characterize import answer_query
from tracekit.errors import DamagedTraceError, TraceError, UsageError
from tracekit.ingest import ingest_logs
from tracekit.tables.partitions import partition_path
from tracekit.tables.window import Window
from tracekit.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

DAY = dt.date(2020, 1, 1)

JOBS: list[dict[str, Any]] = [
    {"job_id": "d", "cluster": "B", "submit_time": "2020-01-01 12:00"},
    {"job_id": "a", "cluster": "A", "submit_time": "2020-01-01 10:00"},
    {"job_id": "e", "cluster": None, "submit_time": "2020-01-01 12:00"},
    {"job_id": "b", "cluster": "A", "submit_time": "2020-01-01 23:59:59.999999"},
    {"job_id": "c", "cluster": "A", "submit_time": "2020-01-02 00:00"},
    {"job_id": "f", "cluster": "A", "submit_time": None},
]
SAMPLES = [
    {"time": "2020-01-01 23:59", "node_id": "n1", "gpu_index": 0, "utilization_pct": 1.0},
    {"time": "2020-01-02 00:00", "node_id": "n1", "gpu_index": 0, "utilization_pct": 2.0},
    {"time": "2020-01-01 23:59", "node_id": "n2", "gpu_index": 0, "utilization_pct": 3.0},
    {"time": "2020-01-01 10:00", "node_id": "n3", "gpu_index": 0, "utilization_pct": 4.0},
]
TABLES: dict[str, list[dict[str, Any]]] = {
    "jobs": JOBS,
    "attempts": [{"job_id": job["job_id"], "attempt": 0} for job in [*JOBS, {"job_id": "x"}]],
    "nodes": [{"node_id": "n1", "cluster": "A"}, {"node_id": "n2", "cluster": "B"}, {"node_id": "n3"}],
    "capacity": [{"time": "2019-12-01", "cluster": c, "gpu_count": 8} for c in "AB"],
    "gpu_utilization": SAMPLES,
    "node_events": [
        {"node_id": "n1", "start_time": "2019-12-31 00:00", "end_time": "2020-01-01 00:00", "state": "down"},
        {"node_id": "n1", "start_time": "2019-12-31 00:00", "end_time": "2020-01-01 00:01", "state": "drained"},
        {"node_id": "n1", "start_time": "2019-12-30 00:00", "end_time": None, "state": "maintenance"},
        {"node_id": "n2", "start_time": "2020-01-01 08:00", "end_time": "2020-01-01 08:00", "state": "down"},
        {"node_id": "n2", "start_time": "2020-01-02 00:00", "end_time": None, "state": "drained"},
    ],
}


@pytest.fixture(scope="module")
def laid_out(make_trace: Callable[..., Trace], tmp_path_factory: pytest.TempPathFactory) -> tuple[Trace, Trace]:
    """Return the same Trace with its tables as files and in partitions, which no test may change."""
    plain = make_trace(**TABLES)
    return plain, ingest_logs(plain.path, tmp_path_factory.mktemp("laid-out") / "parts", partition="day")


@pytest.fixture
def layouts(laid_out: tuple[Trace, Trace], tmp_path: Path) -> tuple[Trace, Trace]:
    """Return the same Trace with its tables as files and in partitions, of which a test may change the second."""
    plain, parts = laid_out
    return plain, Trace.open(shutil.copytree(parts.path, tmp_path / "parts"))


NAMES = st.lists(st.one_of(st.none(), st.text(max_size=200)), min_size=2, max_size=6, unique=True)


@given(NAMES)
@settings(max_examples=examples(60))
def test_each_cluster_has_a_place_of_its_own_inside_the_folder(names: list[str | None]) -> None:
    assert_places_of_their_own(names)


@pytest.mark.thorough
@given(NAMES)
@settings(max_examples=examples(300))
def test_many_clusters_have_places_of_their_own_inside_the_folder(names: list[str | None]) -> None:
    assert_places_of_their_own(names)


def assert_places_of_their_own(names: list[str | None]) -> None:
    paths = [partition_path("jobs", name, DAY) for name in names]
    assert len({path.casefold() for path in paths}) == len(names)
    for path in paths:
        table, cluster, day, file = path.split("/")
        assert (table, day, file) == ("jobs", "day=2020-01-01", "part-0.parquet")
        assert cluster.isascii()
        assert cluster.isprintable()
        assert len(cluster) <= 200
        assert not set(cluster) & set(r'\:*?"<>|[] ')
        assert not cluster.endswith(".")
        assert not PureWindowsPath(path).is_absolute()


@pytest.mark.parametrize(
    ("name", "folder"),
    [
        ("philly", "cluster=philly"),
        ("../x", "cluster=%2E.%2Fx"),
        ("..", "cluster=%2E%2E"),
        ("", "cluster="),
        ("Ab-c_1.2", "cluster=%41b-c_1.2"),
        (None, "cluster=__HIVE_DEFAULT_PARTITION__"),
        ("__hive_default_partition__", "cluster=%5F_hive_default_partition__"),
        ("ü", "cluster=%C3%BC"),
    ],
)
def test_places_are_written_as_hive_does(name: str | None, folder: str) -> None:
    assert partition_path("jobs", name, None).split("/")[1:] == [folder, "day=unknown", "part-0.parquet"]


def test_rows_lie_at_cluster_and_day_in_the_order_of_the_table(layouts: tuple[Trace, Trace]) -> None:
    _, parts = layouts
    found = {
        table: [(p.cluster, p.day, p.rows) for p in info.partitions or []]
        for table, info in parts.manifest.tables.items()
    }
    of_jobs = [("A", "2020-01-01", 2), ("A", "2020-01-02", 1), ("A", None, 1), ("B", "2020-01-01", 1)]
    assert found == {
        "jobs": [*of_jobs, (None, "2020-01-01", 1)],
        # Nothing is known of the job x.
        "attempts": [*of_jobs, (None, "2020-01-01", 1), (None, None, 1)],
        "gpu_utilization": [
            ("A", "2020-01-01", 1), ("A", "2020-01-02", 1), ("B", "2020-01-01", 1), (None, "2020-01-01", 1)
        ],
        "nodes": [], "capacity": [], "node_events": [],
    }  # fmt: skip
    assert parts.scan("jobs").collect()["job_id"].to_list() == ["a", "b", "c", "f", "d", "e"]
    for table in parts.tables:
        for partition in parts.manifest.tables[table].partitions or []:
            assert partition.bytes == (parts.path / partition.path).stat().st_size
    assert parts.manifest.schema_version == "6"


JAN1, JAN2 = dt.datetime(2020, 1, 1), dt.datetime(2020, 1, 2)
# By hand: jobs, and the values of samples, and the places of events in TABLES.
WINDOWS = [
    ({"start": JAN1, "end": JAN2}, "abde", [1, 3, 4], [1, 2, 3]),
    ({"start": JAN1, "end": JAN2, "cluster": "A"}, "ab", [1], [1, 2]),
    ({"start": dt.datetime(2020, 1, 1, 12)}, "bcde", [1, 2, 3], [2, 4]),
    ({"end": dt.datetime(2020, 1, 1, 12)}, "a", [4], [0, 1, 2, 3]),
    ({"start": JAN2}, "c", [2], [2, 4]),
    ({"cluster": "A"}, "abcf", [1, 2], [0, 1, 2]),
    ({"start": dt.datetime(2021, 1, 1)}, "", [], [2, 4]),
]


@pytest.mark.parametrize(("asked", "jobs", "samples", "events"), WINDOWS)
def test_a_window_takes_jobs_by_submission_and_samples_by_time(
    layouts: tuple[Trace, Trace], asked: dict[str, Any], jobs: str, samples: list[int], events: list[int]
) -> None:
    for trace in layouts:
        part = trace.window(**asked)
        machines = {"A": ["n1"], None: ["n1", "n2", "n3"]}[asked.get("cluster")]
        expected: dict[str, list[Any]] = {
            "jobs": sorted(jobs),
            "attempts": sorted(jobs),
            "gpu_utilization": samples,
            "nodes": machines,
            "capacity": ["A"] if "cluster" in asked else ["A", "B"],
            "node_events": [(TABLES["node_events"][n]["node_id"], TABLES["node_events"][n]["state"]) for n in events],
        }
        shown = {"gpu_utilization": "utilization_pct", "nodes": "node_id", "capacity": "cluster"}
        with part.connect() as con:
            for table, rows in expected.items():
                columns = ["node_id", "state"] if table == "node_events" else [shown.get(table, "job_id")]
                by_python = part.scan(table).select(columns).collect()
                by_sql = con.sql(f"SELECT {', '.join(columns)} FROM {table}").pl()
                assert_frame_equal(by_python, by_sql, check_row_order=False)
                got = by_python.rows() if len(columns) > 1 else by_python.to_series().to_list()
                assert sorted(got) == sorted(rows), (table, trace.path)


def test_partitions_outside_of_a_window_are_not_opened(layouts: tuple[Trace, Trace]) -> None:
    _, parts = layouts
    whole = parts.window(start=JAN1, end=JAN2, cluster="A").scan("gpu_utilization").collect()
    kept = {path for table in ("jobs", "attempts", "gpu_utilization") for path in [
        parts.path / partition_path(table, "A", DAY)]}  # fmt: skip
    for path in parts.path.rglob("part-*.parquet"):
        if path not in kept:
            path.write_bytes(b"nothing that can be read")
    limits = Window(JAN1, JAN2, "A")
    part = Trace.open(parts.path, limits=limits)
    assert {path for table in part.tables for path in part.files(table) if "cluster=" in str(path)} == kept
    assert_frame_equal(part.scan("gpu_utilization").collect(), whole)
    with part.connect() as con:
        assert con.sql("SELECT job_id FROM attempts ORDER BY ALL").fetchall() == [("a",), ("b",)]
    with pytest.raises(DamagedTraceError, match=r"the partition jobs/cluster=%41/day=2020-01-02/part-0\.parquet is"):
        Trace.open(parts.path)
    # The same by the command, which reads one day of one cluster.
    shown = run("query", parts.path, "queuing/wait_over_time", "--from", "2020-01-01", "--to", "2020-01-02",
                "--cluster", "A", "-f", "csv")  # fmt: skip
    assert "is damaged" not in shown.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--from", "2020-01-02", "--to", "2020-01-01"], "--to: 2020-01-01 00:00:00 is not after 2020-01-02 00:00:00"),
        (["--cluster", "a"], "--cluster-name: the trace has no cluster 'a'"),
        (["--from", "soon"], "--from: 'soon' is not a time"),
    ],
)
def test_windows_that_cannot_be_are_one_line(layouts: tuple[Trace, Trace], words: list[str], said: str) -> None:
    for trace in layouts:
        found = run("query", trace.path, "queuing/run_time", *words)
        assert found.returncode == 2
        assert said in found.stderr
        assert found.stderr.count("\n") == 1


def change(trace: Trace, edit: Callable[[dict[str, Any]], object]) -> None:
    manifest = trace.path / "manifest.json"
    raw = json.loads(manifest.read_bytes())
    edit(raw)
    manifest.write_text(json.dumps(raw))


@pytest.mark.parametrize(
    "path",
    [
        "../outside.parquet",
        "/etc/passwd",
        "jobs/cluster=%41/day=2020-01-01/../../../x/part-0.parquet",
        "jobs/cluster=%41/day=2020-01-02/part-0.parquet",
        "jobs/cluster=%42/day=2020-01-01/part-0.parquet",
        "attempts/cluster=%41/day=2020-01-01/part-0.parquet",
        "jobs/cluster=%41/day=2020-01-01/part-00.parquet",
        "jobs\\cluster=%41\\day=2020-01-01\\part-0.parquet",
        "",
    ],
)
def test_a_manifest_whose_partition_lies_elsewhere_is_refused(layouts: tuple[Trace, Trace], path: str) -> None:
    _, parts = layouts
    change(parts, lambda raw: raw["tables"]["jobs"]["partitions"][0].update(path=path))
    with pytest.raises(TraceError, match=r"the manifest is damaged: jobs cannot have the partition '") as raised:
        Trace.open(parts.path)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (lambda t: t["jobs"]["partitions"].append(t["jobs"]["partitions"][0]), "jobs cannot have the partition"),
        (lambda t: t["nodes"].update(partitions=t["jobs"]["partitions"]), "nodes cannot have the partition"),
        (lambda t: t["jobs"]["partitions"][0].update(day="yesterday"), "'yesterday' is not a day"),
        (lambda t: t["jobs"]["partitions"][0].update(rows=-1), "out of range"),
        (lambda t: t["jobs"]["partitions"][0].pop("sha256"), "sha256"),
    ],
)
def test_a_manifest_that_tells_partitions_wrongly_is_refused(
    layouts: tuple[Trace, Trace], edit: Callable[[Any], object], said: str
) -> None:
    _, parts = layouts
    change(parts, lambda raw: edit(raw["tables"]))
    with pytest.raises(TraceError, match=f"the manifest is damaged: .*{said}"):
        Trace.open(parts.path)


@pytest.fixture(scope="module")
def helios_laid_out(sample_trace: Callable[[str], Trace], tmp_path_factory: pytest.TempPathFactory) -> Trace:
    """Return the sample of Helios in partitions, which no test may change."""
    return ingest_logs(sample_trace("helios").path, tmp_path_factory.mktemp("helios") / "helios", partition="day")


@pytest.fixture
def helios(helios_laid_out: Trace, tmp_path: Path) -> Trace:
    """Return the sample of Helios in partitions, which the test may change."""
    return Trace.open(shutil.copytree(helios_laid_out.path, tmp_path / "helios"))


def first(trace: Trace) -> Path:
    return trace.path / (trace.manifest.tables["jobs"].partitions or [])[0].path


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 0xFF
    path.write_bytes(content)


def test_each_problem_of_a_partition_is_reported_by_name(helios: Trace) -> None:
    assert helios.validate(deep=True) == []
    day, other = (path for path in helios.files("jobs")[:2])
    name = day.relative_to(helios.path).as_posix()
    whole = day.read_bytes()
    (helios.path / "jobs" / "notes.txt").write_text("x")
    (helios.path / "jobs.parquet").write_bytes(b"x")
    assert helios.validate() == [
        "the file jobs.parquet is not in the manifest, which lists jobs as partitioned",
        "the file jobs/notes.txt is not in the manifest",
    ]
    (helios.path / "jobs" / "notes.txt").unlink()
    (helios.path / "jobs.parquet").unlink()
    day.unlink()
    assert f"the partition {name} is missing" in helios.validate()
    flip_free = bytearray(whole)
    flip_free[len(whole) // 3] ^= 0xFF
    day.write_bytes(flip_free)
    assert f"the partition {name} is damaged: its SHA-256 differs from the manifest" in helios.validate(deep=True)
    # Rows of another day, told as this one's.
    shutil.copyfile(other, day)
    size, rows = day.stat().st_size, pl.read_parquet(day).height
    stated = json.loads((helios.path / "manifest.json").read_bytes())["tables"]["jobs"]["partitions"][0]["bytes"]
    if size != stated:
        said = f"the partition {name} is damaged: it has {size:,} bytes, but the manifest says {stated:,}"
        assert said in helios.validate()
    change(helios, lambda raw: raw["tables"]["jobs"]["partitions"][0].update(bytes=size))
    found = Trace.open(helios.path, check=False)
    assert any(p.startswith(f"the partition {name} has {rows} rows, but the manifest says") for p in found.validate())
    change(helios, lambda raw: raw["tables"]["jobs"]["partitions"][0].update(rows=rows))
    found = Trace.open(helios.path, check=False)
    assert f"the partition {name} has {rows} rows of a different cluster or day" in found.validate()


def test_statistics_with_a_time_in_no_year_are_found_in_a_partition(helios: Trace) -> None:
    path = first(helios)
    content = path.read_bytes()
    begin = len(content) - 8 - int.from_bytes(content[-8:-4], "little")  # of the footer
    latest = pl.read_parquet(path)["submit_time"].to_physical().max()
    assert isinstance(latest, int)
    stated = latest.to_bytes(8, "little")
    assert content.count(stated, begin)
    path.write_bytes(content[:begin] + content[begin:].replace(stated, (2**62).to_bytes(8, "little")))
    (found,) = helios.validate()  # a job that starts at once has the same time twice
    assert found in {
        f"jobs: {column} has a time outside the years 1 to 9999 in a footer" for column in ("submit_time", "start_time")
    }


@pytest.mark.parametrize("damage", [lambda path: path.unlink(), flip, lambda path: path.write_bytes(b"")])
def test_the_rest_is_answered_only_where_that_is_allowed(helios: Trace, damage: Callable[[Path], object]) -> None:
    path = first(helios)
    name, lost = path.relative_to(helios.path).as_posix(), pl.read_parquet(path)["job_id"].to_list()
    whole = helios.scan("jobs").collect()
    damage(path)
    found = Trace.open(helios.path, allow_missing=True)
    assert_frame_equal(found.scan("jobs").collect(), whole.filter(~pl.col("job_id").is_in(lost)))
    note = f"1 partition with {len(lost)} rows could not be read; their rows are missing from all results: {name}"
    assert list(found.missing) == [name]
    answer = answer_query(found, "queuing/run_time")
    assert answer.notes[-1] == note
    shown = run("query", helios.path, "queuing/run_time", "--allow-missing")
    assert f"note: {note}\n" in shown.stderr
    assert shown.returncode == 0


def test_a_missing_partition_is_one_line(helios: Trace) -> None:
    path = first(helios)
    path.unlink()
    name = path.relative_to(helios.path).as_posix()
    for words in (("query", helios.path, "queuing/run_time"), ("info", helios.path)):
        shown = run(*words)
        assert shown.returncode == 2
        assert f"helios: the partition {name} is missing; ingest the source again, or use" in shown.stderr


def test_a_window_cannot_be_empty_backwards() -> None:
    with pytest.raises(UsageError, match=r"^--to: 2020-01-01 00:00:00 is not after 2020-01-01 00:00:00"):
        Window(JAN1, JAN1)


def test_every_damaged_footer_is_reported(layouts: tuple[Trace, Trace]) -> None:
    _, parts = layouts
    first, second, *_ = parts.files("jobs")
    nodes = parts.files("nodes")[0]
    for path in (first, second, nodes):
        content = path.read_bytes()
        path.write_bytes(content[:-8] + b"\xff\xff\xff\x7f" + content[-4:])  # a footer longer than the file
    found = parts.validate()
    assert len(found) == 3
    for path, problem in zip((first, second, nodes), sorted(found, key=lambda text: "nodes" in text), strict=True):
        assert "cannot be read" in problem
        assert path.relative_to(parts.path).as_posix() in problem
