"""Published numbers: the files, how a number is measured, what the difference is, and when it is shown."""

from __future__ import annotations

import csv
import importlib
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracekit.characterize import answer_query, find_query, list_queries, run_query
from tracekit.characterize.published import (
    CONFIDENCE,
    FACTOR,
    PublishedComparison,
    PublishedValue,
    compare_published,
    conditions,
    list_published,
    measure,
    release_of,
)
from tracekit.characterize.timeline import timelines_in
from tracekit.ingest import ingest_logs

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

    from tests.reviewed import Golden
    from tracekit.trace import Trace

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "reports" / "published"
FORMATS = ("acme", "alibaba-openb", "alibaba-pai", "helios", "philly")
NAMES = [f.name for f in fields(PublishedValue)]


def number(**given: Any) -> PublishedValue:
    """Return a published number that is the plain cell `jobs` of overview/status, unless told otherwise."""
    facts: dict[str, Any] = dict.fromkeys(NAMES, "")
    facts |= {"query": "overview/status", "column": "jobs", "kind": "number", "value": None, "low": None, "high": None}
    return PublishedValue(**{**facts, **given})


def test_there_is_a_file_for_each_trace_that_has_published_numbers() -> None:
    assert sorted(p.stem for p in FOLDER.glob("*.csv")) == list(FORMATS)
    assert sorted(tomllib.loads((FOLDER / "releases.toml").read_text(encoding="utf-8"))) == list(FORMATS)


@pytest.mark.parametrize("name", FORMATS)
def test_every_line_of_a_file_has_the_columns_and_a_number(name: str) -> None:
    with (FOLDER / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        lines = list(csv.DictReader(file))
    assert len(lines) > 20
    assert all(list(line) == NAMES for line in lines)
    assert [line for line in lines if not line["source"].strip() or not line["artefact"].strip()] == []
    assert [line for line in lines if not line["as_printed"].strip()] == []
    has = {"number": "100", "about": "100", "range": "011", "above": "010", "below": "001"}
    assert set(has) == {"number", "about", "range", "above", "below"}
    for found in list_published(name):
        assert "".join("1" if n is not None else "0" for n in (found.value, found.low, found.high)) == has[found.kind]
        assert found.confidence in CONFIDENCE
        assert found.aggregate in {"", "sum", "min", "max", "mean", "share"}
        assert (found.aggregate == "share") == bool(found.of)
        assert found.what


@pytest.mark.parametrize("name", FORMATS)
def test_every_number_names_a_query_and_columns_that_exist(name: str) -> None:
    queries = {q.name: q for q in list_queries()}
    for found in list_published(name):
        query = queries[found.query]
        columns = {c.name: c.unit for c in query.columns}
        named = (
            {c for c, _, _ in conditions(f"{found.row};{found.of}")} | {found.column} | {found.weight or found.column}
        )
        assert named <= set(columns), found
        params = {p.name: p.choices for p in (*query.params, *(p for s in timelines_in(query) for p in s.params))}
        for pair in filter(None, found.params.split(";")):
            param, _, value = pair.partition("=")
            assert param in params
            assert not params[param] or value in params[param]
        if columns[found.column] != "see unit":
            assert found.unit == ("share" if found.aggregate == "share" else columns[found.column]), found


def test_the_metrics_of_the_summary_have_the_units_of_the_files(make_trace: Callable[..., Trace]) -> None:
    units = dict(run_query(make_trace(jobs=[{"job_id": "a"}]), "overview/summary").select("metric", "unit").rows())
    for name in FORMATS:
        for found in (n for n in list_published(name) if n.query == "overview/summary"):
            assert units[found.row.removeprefix("metric=")] == found.unit


def test_shares_lie_between_0_and_1() -> None:
    for name in FORMATS:
        for found in (n for n in list_published(name) if n.unit == "share"):
            assert all(0 <= n <= 1 for n in (found.value, found.low, found.high) if n is not None), found


FRAME = pl.DataFrame(
    {
        "gpu_class": ["0", "1", "2-4", ">8", None],
        "status": ["completed", "completed", "failed", "timeout", "completed"],
        "gpu_count": [0.0, 1.0, 4.0, 16.0, None],
        "jobs": [10, 20, 6, 4, 1],
        "mean_s": [1.0, 10.0, 50.0, 100.0, None],
    }
)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"row": "gpu_class=>8", "column": "jobs"}, 4.0),
        ({"row": "gpu_class=1", "column": "mean_s"}, 10.0),
        ({"row": "gpu_class=5-8", "column": "jobs"}, None),
        ({"row": "status=completed", "column": "jobs"}, None),  # three rows are not one number
        ({"row": "status=failed|timeout", "column": "jobs", "aggregate": "sum"}, 10.0),
        ({"row": "status=node_fail", "column": "jobs", "aggregate": "sum"}, 0.0),
        ({"row": "gpu_class!=0", "column": "mean_s", "aggregate": "max"}, 100.0),
        ({"row": "gpu_count>0", "column": "mean_s", "aggregate": "min"}, 10.0),
        ({"row": "gpu_count>0", "column": "mean_s", "aggregate": "mean"}, 160 / 3),
        ({"row": "gpu_count>0", "column": "mean_s", "aggregate": "mean", "weight": "jobs"}, 900 / 30),
        ({"row": "gpu_count>0;gpu_count<=4", "of": "gpu_count>0", "column": "jobs", "aggregate": "share"}, 26 / 30),
        (
            {"row": "gpu_count=4", "of": "gpu_count>=0", "column": "gpu_count", "aggregate": "share", "weight": "jobs"},
            24 / 108,
        ),
        ({"row": "status=lost", "of": "status=lost", "column": "jobs", "aggregate": "share"}, None),
        ({"row": "gpu_count<0", "column": "mean_s", "aggregate": "max"}, None),
        ({"row": "vc=a", "column": "jobs"}, None),
        ({"column": "p50_s", "aggregate": "max"}, None),
    ],
)
def test_a_number_is_measured_as_its_line_says(given: dict[str, Any], expected: float | None) -> None:
    found = measure(FRAME, number(**given))
    assert found == (None if expected is None else pytest.approx(expected))


def test_a_sum_over_a_column_of_which_nothing_is_known_is_unknown() -> None:
    frame = pl.DataFrame({"status": ["failed"], "gpu_hours": pl.Series([None], dtype=pl.Float64)})
    assert measure(frame, number(row="status=failed", column="gpu_hours", aggregate="sum")) is None


def test_a_misshapen_condition_is_an_error() -> None:
    with pytest.raises(ValueError, match="not a condition: 'status'"):
        conditions("gpu_count>=0;status")


@pytest.mark.parametrize(
    ("stated", "measured", "difference", "relative"),
    [
        ({"value": 80.0}, 100.0, 20.0, 0.25),
        ({"value": 80.0}, 60.0, -20.0, -0.25),
        ({"value": 0.0}, 3.0, 3.0, None),
        ({"kind": "about", "value": 40.0}, 44.0, 4.0, 0.1),
        ({"kind": "range", "low": 65.0, "high": 90.0}, 70.0, 0.0, None),
        ({"kind": "range", "low": 65.0, "high": 90.0}, 60.0, -5.0, None),
        ({"kind": "range", "low": 65.0, "high": 90.0}, 92.0, 2.0, None),
        ({"kind": "above", "low": 50.0}, 51.0, 0.0, None),
        ({"kind": "above", "low": 50.0}, 45.0, -5.0, None),
        ({"kind": "below", "high": 10.0}, 4.0, 0.0, None),
        ({"kind": "below", "high": 10.0}, 12.0, 2.0, None),
    ],
)
def test_the_difference_is_measured_minus_published(
    stated: dict[str, Any], measured: float, difference: float, relative: float | None
) -> None:
    found = PublishedComparison(number(**stated), measured)
    assert found.difference == pytest.approx(difference)
    assert found.relative == (None if relative is None else pytest.approx(relative))


def test_what_is_not_measured_has_no_difference() -> None:
    found = PublishedComparison(number(value=1.0), None)
    assert (found.difference, found.relative) == (None, None)


@given(st.floats(0, 1e6), st.floats(0, 1e6), st.floats(0, 2e6))
def test_a_range_is_left_exactly_by_what_lies_outside(a: float, b: float, measured: float) -> None:
    low, high = sorted((a, b))
    found = number(kind="range", low=low, high=high).difference(measured)
    assert (found == 0) == (low <= measured <= high)
    assert low - 1e-6 <= measured - found <= high + 1e-6


@pytest.fixture(scope="module")
def gapped(make_trace: Callable[..., Trace]) -> Trace:
    """Return two jobs of 1 GPU: one of two attempts of 1 h with a gap of 2 h, one that failed after 1 h."""
    jobs = [
        {"job_id": "a", "status": "completed", "gpu_count": 1, "run_s": 4 * 3600, "cluster": "philly"},
        {"job_id": "b", "status": "failed", "gpu_count": 1, "run_s": 3600, "cluster": "philly"},
    ]
    attempts = [
        {"job_id": "a", "attempt": 0, "run_s": 3600, "gpu_count": 1},
        {"job_id": "a", "attempt": 1, "run_s": 3600, "gpu_count": 1},
        {"job_id": "b", "attempt": 0, "run_s": 3600, "gpu_count": 1},
    ]
    return make_trace(manifest_overrides={"format": "philly"}, jobs=jobs, attempts=attempts)


def test_a_number_that_needs_other_parameters_is_measured_with_them(gapped: Trace) -> None:
    query = find_query("overview/status")
    settings: tuple[dict[str, Any], ...] = ({}, {"gpu_time": "with_gaps"})
    for params in settings:
        every = compare_published(gapped, answer_query(gapped, query, params))
        found = [b for b in every if b.published.row == "status=completed"]
        by = {b.published.artefact: b.measured for b in found if b.published.column == "gpu_hours_share"}
        # 2 h of 3 h over attempts; 4 h of 5 h with the gap.
        assert by == {
            "Table 6": pytest.approx(2 / 3),
            "Helios Fig 1b": pytest.approx(4 / 5),
            "Acme summary": pytest.approx(2 / 3),
        }


def test_a_sample_is_said_not_to_be_the_public_trace(gapped: Trace, golden: Golden) -> None:
    release = release_of(gapped)
    assert release is not None
    assert not release.public
    golden(release.note)


@pytest.mark.parametrize(("clusters", "expected"), [(["Earth"], 872_886), (["Earth", "Venus"], 3_362_981)])
def test_one_cluster_is_compared_with_that_cluster(
    make_trace: Callable[..., Trace], clusters: list[str], expected: int
) -> None:
    rows = [{"job_id": name, "cluster": name, "gpu_count": 1} for name in clusters]
    trace = make_trace(manifest_overrides={"format": "helios"}, jobs=rows)
    release = release_of(trace)
    assert release is not None
    assert release.jobs == expected
    query = find_query("workload/gpu_request")
    found = compare_published(trace, answer_query(trace, query))
    assert {b.published.cluster for b in found} == {"Earth" if len(clusters) == 1 else ""}


def test_numbers_of_a_cluster_by_hour_apply_where_the_trace_has_the_cluster() -> None:
    named = {n.row.partition(";")[0] for n in list_published("helios") if n.cluster == "*" and "hour=" in n.row}
    assert named == {f"cluster={c}" for c in ("Earth", "Saturn", "Uranus", "Venus")}


@pytest.mark.parametrize(
    ("jobs", "public"), [(8152, True), (6522, True), (6521, False), (10_190, True), (10_191, False)]
)
def test_a_trace_is_public_within_the_factor(make_trace: Callable[..., Trace], jobs: int, public: bool) -> None:
    assert FACTOR == 1.25
    trace = make_trace(manifest_overrides={"format": "alibaba-openb"}, jobs=[{"job_id": str(i)} for i in range(jobs)])
    release = release_of(trace)
    assert release is not None
    assert release.public == public
    assert release.note.startswith(
        "This appears to be the public trace: " if public else "This is not the public trace ("
    )


def test_tasks_are_compared_with_numbers_of_tasks(make_trace: Callable[..., Trace]) -> None:
    query = find_query("overview/summary")
    for options, expected in (({}, "1055501 rows"), ({"unit": "task"}, "1261050 rows")):
        trace = make_trace(manifest_overrides={"format": "alibaba-pai", "options": options}, jobs=[{"job_id": "a"}])
        found = [b.published for b in compare_published(trace, answer_query(trace, query))]
        assert [n.as_printed for n in found if n.row == "metric=jobs"] == [expected]
        release = release_of(trace)
        assert release is not None
        assert f"{release.jobs} rows" == expected


@pytest.mark.parametrize("name", ["csv", "slurm", "../published/philly", ""])
def test_other_formats_have_no_published_numbers(make_trace: Callable[..., Trace], name: str) -> None:
    trace = make_trace(manifest_overrides={"format": name}, jobs=[{"job_id": "a"}])
    query = find_query("overview/summary")
    assert list_published(name) == ()
    assert release_of(trace) is None
    assert compare_published(trace, answer_query(trace, query)) == []


def test_the_released_pod_list_gives_what_was_published_of_it(real_data: Callable[[str], Path], tmp_path: Path) -> None:
    logs = tmp_path / "logs"
    logs.mkdir()
    for name in ("openb_pod_list_default.csv", "openb_node_list_all_node.csv"):
        (logs / name).symlink_to(real_data("alibaba_openb") / name)
    trace = ingest_logs(logs, tmp_path / "trace")
    release = release_of(trace)
    assert release is not None
    assert release.public
    cut = {"mean_run_s", "median_run_s", "gpu_hours"}  # pods cut by the end of the trace are censored here
    count = 0
    for name in ("overview/summary", "overview/status", "overview/job_size", "workload/gpu_request"):
        for b in compare_published(trace, answer_query(trace, name)):
            if b.published.row.removeprefix("metric=") not in cut:
                assert b.difference == pytest.approx(0, abs=1e-2 if b.published.unit == "s" else 6e-4), b
                count += 1
    assert count > 25


def test_submissions_of_venus_by_hour_are_those_of_the_figure_with_gpus(
    real_data: Callable[[str], Path], make_trace: Callable[..., Trace]
) -> None:
    # Real counts of four of the six months: the jobs that they stand for are made again, ten minutes at a time.
    counts = pl.read_csv(real_data("helios/venus_counts_2020-04_07.csv.gz"), try_parse_dates=True)
    with_gpus = counts.select(t="time", n="submit_gpu_job", gpu_count=1.0)
    without = counts.select(t="time", n=pl.col("submit_job_all") - pl.col("submit_gpu_job"), gpu_count=0.0)
    times = pl.concat([with_gpus, without]).select(pl.exclude("n").repeat_by("n").explode().drop_nulls())
    utc = pl.col("t") - pl.duration(hours=8)
    jobs = times.select(utc.alias("submit_time"), "gpu_count", cluster=pl.lit("Venus")).with_row_index("job_id")
    trace = make_trace(
        manifest_overrides={"format": "helios", "timezone": "Asia/Shanghai"},
        jobs=jobs.with_columns(pl.col("job_id").cast(pl.String)).to_dicts(),
        attempts=[{"job_id": "0", "attempt": 0}],
    )
    query = find_query("utilization/cluster_by_hour")
    answer = answer_query(trace, query)
    frame = answer.frame
    hour, day = counts["time"].dt.hour(), counts["time"].dt.date()
    for name, column in (("submitted_jobs", "submit_job_all"), ("submitted_gpu_jobs", "submit_gpu_job")):
        by_hour = counts.group_by(hour.alias("hour")).agg(pl.col(column).sum() / day.n_unique()).sort("hour")
        assert frame[name].to_list() == pytest.approx(by_hour[column].to_list())
    shown = [b for b in compare_published(trace, answer) if b.published.column == "submitted_gpu_jobs" and b.measured]
    assert len(shown) == 24
    # The figure is of six months, and read to two jobs. All jobs together would be off by twenty on average.
    assert max(abs(b.difference or 0) for b in shown) < 7
    assert sum(b.relative or 0 for b in shown) / 24 == pytest.approx(0, abs=0.15)


HEADER = "trace,artefact,metric,group,value,unit,source,note\n"


@pytest.fixture
def make_published(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return tools/make_published.py."""
    monkeypatch.syspath_prepend(str(ROOT))
    return importlib.import_module("tools.make_published")


def test_the_tool_places_numbers_and_counts_what_it_leaves_out(
    make_published: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "numbers"
    source.mkdir()
    (source / "helios_published.csv").write_text(
        HEADER + "helios,table2,jobs,all,3360000,jobs,paper Table 2,\n"
        "helios,readme,jobs_total,all,3362981,jobs,README,\n"
        "helios,fig7a,status_share,jobs=gpu;status=failed,15.5,percent,paper Fig 7a,\n"
        "helios,text,single_gpu_gpu_time_share,all,3-12,percent,paper text,\n"
        "helios,summary_csv,fail_gpu_time,cluster=Venus,7200,GPU*s,summary.csv,\n"
        "helios,fig9,unheard,all,1,jobs,paper,\n"
        "philly,fig1a,gpu_job_duration_cdf,duration<=4,0.2,percent,plot.pdf (digitised),+-0.2 pp\n",
        encoding="utf-8",
    )
    monkeypatch.setattr(make_published, "OUT", tmp_path / "out")
    assert make_published.main([str(source)]) == 0
    with (tmp_path / "out" / "helios.csv").open(encoding="utf-8", newline="") as file:
        lines = {(r["query"], r["row"], r["cluster"]): r for r in csv.DictReader(file)}
    assert set(lines) == {
        ("overview/summary", "metric=jobs", ""),
        ("failures/status_by_size", "gpu_class!=0;status=failed|timeout|node_fail", ""),
        ("overview/job_size", "gpu_class=1", ""),
        ("overview/status", "status=failed|timeout|node_fail", "Venus"),
    }
    share = lines["failures/status_by_size", "gpu_class!=0;status=failed|timeout|node_fail", ""]
    assert (share["value"], share["unit"], share["as_printed"]) == ("0.155", "share", "15.5 percent")
    assert (share["aggregate"], share["of"], share["artefact"]) == ("share", "gpu_class!=0", "Fig 7a")
    spread = lines["overview/job_size", "gpu_class=1", ""]
    assert (spread["kind"], spread["value"], spread["low"], spread["high"]) == ("range", "", "0.03", "0.12")
    assert lines["overview/status", "status=failed|timeout|node_fail", "Venus"]["value"] == "2"
    said = capsys.readouterr().out
    assert "helios: 4 numbers, 2 left out" in said
    assert "no query measures it" in said
    assert "philly: 0 numbers, 1 left out" in said


def test_the_tool_wants_a_folder(make_published: ModuleType, capsys: pytest.CaptureFixture[str]) -> None:
    assert make_published.main([]) == 2
    assert "python tools/make_published.py FOLDER" in capsys.readouterr().out


def test_clusters_are_put_together_by_sums_and_by_means_over_jobs(make_published: ModuleType) -> None:
    numbers = importlib.import_module("tools.publishing.numbers")
    stated = {
        "gpu_job_num": ("300", "100"),
        "avg_run_time_gpu": ("10", "50"),
        "max_gpu": ("8", "64"),
        "gpu_job_share": ("50", "50"),
    }
    references = [
        numbers.Reference("acme", "summary_csv", metric, f"cluster={cluster}", value, "", "summary.csv", "", "acme")
        for metric, values in stated.items()
        for cluster, value in zip(("Seren", "Kalos"), values, strict=True)
    ]
    found = {r.metric: (r.value, r.confidence) for r in numbers.pooled(references)}
    assert found == {"gpu_job_num": ("400", "E"), "avg_run_time_gpu": ("20", "E"), "max_gpu": ("64", "E")}


@pytest.mark.parametrize(
    ("source", "note", "expected"),
    [
        ("README", "", "A"),
        ("plot.pdf (digitised)", "", "D"),
        ("summary.csv (derived)", "", "E"),
        ("paper via secondary notes", "", "C"),
        ("notebook (digitised)", "conf=B; two notes agree", "B"),
    ],
)
def test_a_reference_says_how_sure_it_is(make_published: ModuleType, source: str, note: str, expected: str) -> None:
    numbers = importlib.import_module("tools.publishing.numbers")
    assert numbers.Reference("philly", "x", "y", "", "1", "jobs", source, note).confidence == expected
