"""twin.toml: what is written is what is read, and what cannot be used is refused with its line."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from typing import TYPE_CHECKING

import polars as pl
import pytest

import tracekit
from tests.command import run
from tracekit.calibration.api import calibrate
from tracekit.calibration.twin import ClusterTwin, Twin, digest_of_jobs, read_twin, twin_text, write_twin
from tracekit.calibration.twins import twin_of_cluster
from tracekit.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.reviewed import Golden
    from tracekit.calibration.api import Calibration
    from tracekit.trace import Trace


@pytest.fixture(scope="module")
def helios(sample_trace: Callable[[str], Trace]) -> Trace:
    return sample_trace("helios")


@pytest.fixture(scope="module")
def found(helios: Trace) -> Calibration:
    return calibrate(helios)


def test_every_cluster_has_a_twin_the_one_with_most_waiting_hours_first(found: Calibration, helios: Trace) -> None:
    assert [one.name for one in found.clusters] == ["Venus", "Earth"]
    venus = found.clusters[0]
    jobs = helios.scan("jobs").filter(pl.col("gpu_count") > 0).collect()
    hours = {name: float(jobs.filter(cluster=name)["queue_s"].sum()) for name in ("Venus", "Earth")}
    assert venus.waiting_share == pytest.approx(hours["Venus"] / sum(hours.values()))
    assert (venus.settings.rules.quotas, venus.score.grade) == ("limits", "close")
    assert found.left_out == {}


def test_a_twin_that_is_written_is_read_back(found: Calibration, helios: Trace, tmp_path: Path) -> None:
    file = tmp_path / "twin.toml"
    write_twin(found.twin, file)
    assert read_twin(file, helios) == found.twin


@pytest.mark.parametrize(
    ("was", "becomes", "line", "says"),
    [
        ('order = "arrival"', 'order = "random"', 8, "order"),
        ('order = "arrival"', 'ordre = "arrival"', 8, "ordre"),
        ('quotas = "limits"', 'quotas = "limits"\nlimits = { user_gpus = -1, vc_gpus = 0 }', None, "out of range"),
        ('backfill = "none"', 'backfill = "easy"', 6, "limits require"),
        ('placement = "consolidate"', 'placement = "scatter"', None, "not a placement"),
        ("holds = false", "holds = 1", None, "holds"),
        ('trace = "sha256:', 'trace = "sha256:0', 3, "is a twin of the Trace"),
    ],
)
def test_an_edited_twin_is_refused_with_line_and_key(
    found: Calibration, helios: Trace, tmp_path: Path, was: str, becomes: str, line: int | None, says: str
) -> None:
    text = twin_text(found.twin)
    if "limits = {" in becomes:
        text = text.replace("limits = { user_gpus = 0, vc_gpus = 0 }\n", "", 1)
    assert was in text
    file = tmp_path / "twin.toml"
    file.write_text(text.replace(was, becomes, 1), encoding="utf-8")
    with pytest.raises(UsageError) as error:
        read_twin(file, helios)
    assert says in str(error.value)
    if line is not None:
        assert error.value.line == line


def test_a_twin_of_another_trace_is_refused_by_name(
    found: Calibration, make_trace: Callable[..., Trace], tmp_path: Path
) -> None:
    other = make_trace(jobs=[{"job_id": "a", "gpu_count": 1, "submit_time": dt.datetime(2024, 1, 1)}])
    file = tmp_path / "twin.toml"
    write_twin(found.twin, file)
    there, here = (digest[:19] for digest in (found.twin.trace, digest_of_jobs(other)))
    says = rf"is a twin of the Trace 'helios' \({there}\), not of '{other.path}' \({here}\)"
    with pytest.raises(UsageError, match=says):
        read_twin(file, other)
    # An analysis works on a Trace inside its output; the one that the user gave is the one to name.
    source = tmp_path / "logs" / "trace"
    source.parent.mkdir()
    other.path.rename(source)
    with pytest.raises(UsageError) as error:
        tracekit.analyze(source, tmp_path / "report", twin=file, fit=False)
    assert f"not of '{source}' ({here})" in error.value.what
    assert (error.value.where, error.value.line) == (str(file), 3)
    assert "report" not in str(error.value)


def test_the_cluster_of_a_twin_is_the_one_asked_for_or_that_with_most_waiting(
    helios: Trace, found: Calibration, tmp_path: Path
) -> None:
    file = tmp_path / "twin.toml"
    write_twin(found.twin, file)
    assert list(found.twin.cluster) == ["Venus", "Earth"]
    for asked, name in ((None, "Venus"), ("Earth", "Earth")):
        made, others = twin_of_cluster(helios, file, asked)
        assert [one.name for one in made.clusters] == [name]
        assert others == [other for other in ("Venus", "Earth") if other != name]
    write_twin(replace(found.twin, cluster={"Earth": found.twin.cluster["Earth"]}), file)
    made, others = twin_of_cluster(helios, file, None)
    assert ([one.name for one in made.clusters], others) == (["Earth"], ["Venus"])
    with pytest.raises(UsageError, match=r"twin\.toml: has no cluster 'Venus'; choose one of: Earth$"):
        twin_of_cluster(helios, file, "Venus")
    with pytest.raises(UsageError, match=r"helios: has no cluster 'Erth'; did you mean 'Earth'\?$"):
        twin_of_cluster(helios, None, "Erth")


@pytest.mark.parametrize("command", ["replay", "plan", "sweep"])
def test_a_twin_of_jobs_without_gpus_is_refused(
    make_trace: Callable[..., Trace], tmp_path: Path, command: str, golden: Golden
) -> None:
    jobs = [
        {"job_id": name, "cluster": name, "gpu_count": gpus, "submit_time": dt.datetime(2024, 1, 1)}
        for name, gpus in (("c", 0), ("g", 1))
    ]
    trace, file = make_trace(jobs=jobs), tmp_path / "twin.toml"
    write_twin(Twin(digest_of_jobs(trace), {"c": ClusterTwin()}), file)
    (tmp_path / "sweep.toml").write_text(f'traces = ["{trace.path}"]\npolicies = ["sjf"]\n')
    words = [tmp_path / "sweep.toml"] if command == "sweep" else [trace.path, *(["-p", "sjf"] * (command == "replay"))]
    done = run(command, *words, "--twin", file, "-o", tmp_path / "out")
    assert done.returncode == 2
    said = done.stderr.splitlines()[-1]
    assert f"{file}: " in said
    golden(said.replace(str(file), "FILE"))


def test_a_log_without_starts_or_too_short_says_so(sample_trace: Callable[[str], Trace]) -> None:
    spot = sample_trace("alibaba-spot")
    with pytest.raises(UsageError, match="0 jobs of the first part of the log have a known start"):
        calibrate(spot)


def test_the_command_writes_the_twin_and_says_how_near_it_is(helios: Trace, tmp_path: Path, golden: Golden) -> None:
    done = run("calibrate", helios.path, "-o", tmp_path / "twin.toml", "--cluster-name", "Venus")
    assert done.returncode == 0, done.stderr
    golden(line for line in done.stdout.splitlines() if line.startswith(("Venus", "grade")))
    assert (tmp_path / "twin.toml").read_text().count("[cluster.") == 3
    wrong = run("calibrate", helios.path, "-o", tmp_path / "x.toml", "--cluster-name", "Mars")
    assert wrong.returncode == 2
    assert "no cluster 'Mars'" in wrong.stderr
    assert not (tmp_path / "x.toml").exists()


def test_a_replay_in_a_twin_reports_effects_only_where_its_grade_carries_them(
    found: Calibration, helios: Trace, tmp_path: Path
) -> None:
    file = tmp_path / "twin.toml"
    write_twin(found.twin, file)
    compared = {}
    for name in ("Venus", "Earth"):
        out = tmp_path / name
        done = run("replay", helios.path, "--twin", file, "--cluster-name", name, "-p", "kueue", "-o", out)
        assert done.returncode == 0, done.stderr
        assert (out / "twin" / "jobs.parquet").is_file()
        compared[name] = pl.read_parquet(out / "comparison.parquet")
        assert compared[name]["policy"].to_list() == ["twin", "kueue", "recorded"]
    assert [one.score.grade for one in found.clusters] == ["close", "poor"]
    assert compared["Venus"].row(1, named=True)["queue_diff_share"] < 0
    assert compared["Earth"].row(1, named=True)["queue_diff_share"] is None
    assert "grade poor" in compared["Earth"].row(1, named=True)["effect_reason"]


def test_what_a_twin_states_cannot_be_given_beside_it(found: Calibration, helios: Trace, tmp_path: Path) -> None:
    file = tmp_path / "twin.toml"
    write_twin(found.twin, file)
    wrong = run("replay", helios.path, "--twin", file, "--gpus", "2", "-o", tmp_path / "x")
    assert wrong.returncode == 2
    assert "--gpus: cannot be combined with a twin" in wrong.stderr
