"""analyze --compare: with a day, a Trace, a report, or logs of another time."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest

from tests.characterize.periods import attempts, planted
from tests.report.asking import asking
from tracekit.analysis import analyze, analyze_many
from tracekit.errors import SourceError, UsageError
from tracekit.progress import Progress

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.reviewed import Golden
    from tracekit.analysis import Analysis
    from tracekit.trace import Trace


@pytest.fixture(autouse=True)
def few_queries() -> Iterator[None]:
    """Spare these tests most of the queries and all guidelines, which others look at, and the script bundle."""
    with asking("overview/status", "queuing/queue_delay", guidelines=()):
        yield


@pytest.fixture(scope="module")
def october(make_trace: Callable[..., Trace]) -> Trace:
    jobs = planted(np.random.default_rng(1), "2017-10-02", 10, each=20)
    return make_trace(jobs=jobs, attempts=attempts(jobs))


@pytest.fixture(scope="module")
def november(make_trace: Callable[..., Trace]) -> Trace:
    jobs = planted(np.random.default_rng(2), "2017-11-06", 10, each=20, later_s=3600)
    return make_trace(jobs=jobs, attempts=attempts(jobs))


@pytest.fixture(scope="module")
def last(october: Trace, tmp_path_factory: pytest.TempPathFactory) -> Analysis:
    """Return a report of October, which no test may change."""
    with asking("overview/status", guidelines=()):
        return analyze(october.path, tmp_path_factory.mktemp("last") / "out", fit=False, replay_jobs=0)


def compare(source: Path, out: Path, other: str) -> Analysis:
    return analyze(source, out, fit=False, replay_jobs=0, compare=other)


def verdict(done: Analysis, measure: str, scope: str = "all jobs") -> tuple[str, int, int]:
    rows = pl.read_parquet(done.results["change/measures"]).filter(measure=measure, scope=scope)
    found: tuple[str, int, int] = rows.select("verdict", "n_before", "n_after").row(0)
    return found


def test_with_a_trace_of_another_time(october: Trace, november: Trace, tmp_path: Path) -> None:
    done = compare(november.path, tmp_path / "out", str(october.path))
    assert verdict(done, "median wait") == ("changed", 200, 200)
    assert verdict(done, "jobs a day") == ("noise", 200, 200)
    report = json.loads(done.data.read_text(encoding="utf-8"))
    expected = f"tracekit analyze {november.path} -o {tmp_path}/out --no-fit --replay-jobs 0 --compare {october.path}"
    assert report["command"] == expected
    assert [s["name"] for s in report["sections"]][1] == "change"


def test_with_an_earlier_report(last: Analysis, november: Trace, tmp_path: Path) -> None:
    done = compare(november.path, tmp_path / "out", str(last.folder))
    assert verdict(done, "median wait") == ("changed", 200, 200)


def test_with_a_day_that_splits_it(october: Trace, tmp_path: Path) -> None:
    done = compare(october.path, tmp_path / "out", "2017-10-05")
    assert verdict(done, "median wait") == ("too little data", 60, 140)


def test_with_logs_that_are_read_for_it_and_not_kept(sample_source: Callable[[str], Path], tmp_path: Path) -> None:
    before = tmp_path / "before"
    shutil.copytree(sample_source("helios"), before)
    source = tmp_path / "after"
    shutil.copytree(sample_source("helios"), source)
    done = analyze(source, tmp_path / "out", format_name="helios", fit=False, replay_jobs=0, compare=str(before))
    measures = pl.read_parquet(done.results["change/measures"])
    assert set(measures["verdict"]) <= {"noise", "too little data"}
    assert set(measures["difference"]) == {0.0}
    assert "compared-with" not in {p.name for p in done.folder.iterdir()}
    assert sorted(p.name for p in tmp_path.iterdir()) == ["after", "before", "out"]


def test_options_of_a_format_are_for_the_logs_where_the_source_is_a_trace(
    october: Trace, sample_source: Callable[[str], Path], tmp_path: Path
) -> None:
    given: dict[str, Any] = {"fit": False, "replay_jobs": 0, "format_name": "helios"}
    done = analyze(october.path, tmp_path / "out", compare=str(sample_source("helios")), **given)
    # Helios has 3,000 jobs, 1,441 of them with GPUs.
    assert verdict(done, "jobs a day", "GPU jobs")[1:] == (1441, 200)
    with pytest.raises(UsageError, match="the source is a Trace"):
        analyze(october.path, tmp_path / "other", compare="2017-10-05", **given)


def test_without_times_of_submission_the_rest_is_answered(
    october: Trace, make_trace: Callable[..., Trace], tmp_path: Path, golden: Golden
) -> None:
    blank = make_trace(jobs=[{"job_id": "a"}])
    done = compare(october.path, tmp_path / "out", str(blank.path))
    assert done.unanswered["change/measures"] == done.unanswered["change/by_vc"]
    golden(done.unanswered["change/measures"])
    assert "overview/status" in done.results


def test_a_failure_of_the_comparison_costs_no_other_answer(
    october: Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, golden: Golden
) -> None:
    class Heard(Progress):
        def note(self, text: str) -> None:
            heard.append(text)

    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError("by zero")

    heard: list[str] = []
    monkeypatch.setattr("tracekit.characterize.changes.compare_since", fail)
    out = tmp_path / "out"
    done = analyze(october.path, out, fit=False, replay_jobs=0, compare="2017-10-05", progress=Heard())
    golden([*done.unanswered["change/measures"], *(note for note in heard if "compar" in note)])


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ("2017-10-02", r"2017-10-02: the day does not split the trace, .* from 2017-10-02 to 2017-10-11; "),
        ("2016-10-05", r"2016-10-05: the day does not split the trace"),
        ("2017-02-30", r"2017-02-30: this day does not exist"),
    ],
)
def test_a_day_that_does_not_split_it_is_refused(october: Trace, tmp_path: Path, other: str, message: str) -> None:
    with pytest.raises(UsageError, match=message) as caught:
        compare(october.path, tmp_path / "out", other)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_what_is_not_there_is_refused_before_any_work(
    october: Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tracekit.analysis.source.copy_trace", lambda *_: pytest.fail("work was done"))
    with pytest.raises(SourceError, match=r"--compare 31\.10\.2017: the file .* write a day as 2017-10-31"):
        compare(october.path, tmp_path / "out", "31.10.2017")
    assert list(tmp_path.iterdir()) == []


def test_logs_that_cannot_be_read_are_one_line(october: Trace, tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    with pytest.raises(SourceError, match=r"logs: .*contains no files") as caught:
        compare(october.path, tmp_path / "out", str(tmp_path / "logs"))
    assert "\n" not in str(caught.value)
    assert [p.name for p in tmp_path.iterdir()] == ["logs"]


def test_what_would_be_replaced_is_refused(last: Analysis, november: Trace) -> None:
    for other in (last.folder, last.trace):
        with pytest.raises(UsageError, match="is in the output folder"):
            analyze(november.path, last.folder, fit=False, replay_jobs=0, compare=str(other), force=True)


def test_several_sources_are_refused(october: Trace, november: Trace, tmp_path: Path) -> None:
    sources = [october.path, november.path]
    with pytest.raises(UsageError, match=r"--compare: works with one source, not 2; "):
        analyze_many(sources, tmp_path / "out", compare="2017-10-05")
    analyze_many(sources[:1], tmp_path / "out", compare="2017-10-05", fit=False, replay_jobs=0)
    assert list((tmp_path / "out").glob("*/tables/change/measures.csv"))
