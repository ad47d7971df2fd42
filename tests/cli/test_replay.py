"""`tracekit replay` and `tracekit policies` as a user meets them."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest
from typer.testing import CliRunner

import tracekit
from tests.command import run
from tests.philly_by_hand import jobs
from tracekit.cli import app
from tracekit.errors import TracekitError

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.reviewed import Golden
    from tracekit.trace import Trace

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def traces(sample_trace: Callable[[str], Trace]) -> Path:
    """Return a folder with Traces of the samples of Philly and Helios."""
    (folder,) = {sample_trace(name).path.parent for name in ("philly", "helios")}
    return folder


def test_policies_are_compared_and_kept(traces: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    result = run(
        "replay", traces / "philly", "--gpus", "0.2", "--log", "-o", out,
        "-p", "fifo", "-p", "srtf,overhead=helios", "-p", "recorded",
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    sized = [job for job in jobs() if job.size]
    unmeasured = [job for job in sized if job.gpu_seconds is None]
    begun = [job for job in unmeasured if job.attempts[0].start is not None]
    assert f"note: {len(jobs()) - len(sized)} jobs are left out: no GPU count" in result.stderr
    assert f"note: {len(unmeasured) - len(begun)} jobs are left out: no start and no run time" in result.stderr
    assert f"note: {len(begun)} jobs are left out: no end and no run time" in result.stderr
    assert result.stdout.index("JCT against fifo") < result.stdout.index("Assumptions used:")
    assert "  M9, " in result.stdout
    assert result.stdout.endswith(f"replays: {out}\n")
    names = {p.name for p in out.iterdir()}
    assert names == {
        "comparison.csv", "comparison.parquet", "comparison.svg", "fifo", "recorded", "srtf,overhead=helios",
    }  # fmt: skip
    assert {p.name for p in (out / "recorded").iterdir()} == {
        "jobs.parquet", "log.parquet", "summary.json", "timeline.parquet", "violations.parquet",
    }  # fmt: skip
    summary = json.loads((out / "srtf,overhead=helios" / "summary.json").read_text())
    assert (summary["policy"], summary["parameters"]["overhead"]) == ("srtf,overhead=helios", "helios")
    compared = pl.read_parquet(out / "comparison.parquet")
    assert compared["policy"].to_list() == ["fifo", "srtf,overhead=helios", "recorded"]
    assert compared["avg_jct_s"][1] == summary["avg_jct_s"]
    log = pl.read_parquet(out / "fifo" / "log.parquet")
    assert log.columns == ["time_ms", "kind", "job_id", "node", "node_id", "gpu", "value"]
    speed = r"[\d.e-]+ s \([\d,]+ jobs/s\)"
    assert re.search(
        rf"^note: engine: fifo {speed}; srtf,overhead=helios {speed}; recorded {speed}$", result.stderr, re.MULTILINE
    )
    assert log.filter(pl.col("kind") == "finish").height == compared["completed"][0]
    picture = (out / "comparison.svg").read_text()
    assert picture.startswith("<svg")
    assert "var(--" not in picture
    again = run("replay", traces / "philly", "-o", out, "-p", "fifo")
    assert again.returncode == 2
    assert "exists already" in again.stderr


def test_a_panel_of_ten_when_none_is_named(traces: Path, tmp_path: Path) -> None:
    result = run("replay", traces / "helios", "--cluster-name", "Venus", "--limit", "200", "-o", tmp_path / "out")
    assert result.returncode == 0, result.stderr
    compared = pl.read_parquet(tmp_path / "out" / "comparison.parquet")
    assert compared.height >= 10
    assert compared["policy"][0] == "fifo"


def test_what_of_the_panel_cannot_run_is_reported(traces: Path, tmp_path: Path, golden: Golden) -> None:
    result = run("replay", traces / "philly", "--load", "2", "--limit", "50", "-o", tmp_path / "out")
    assert result.returncode == 0, result.stderr
    golden(line for line in result.stderr.splitlines() if "panel" in line)
    assert not (tmp_path / "out" / "recorded").exists()


def test_a_window_measured_and_a_cluster_file(traces: Path, tmp_path: Path) -> None:
    cluster = tmp_path / "c.toml"
    cluster.write_text("[[pool]]\nnodes = 20\ngpus_per_node = 8\n")
    result = run(
        "replay", traces / "philly", "--cluster", cluster, "-p", "fifo", "--from", "2017-10-10", "--to", "2017-10-20",
        "--measure-from", "2017-10-12", "--measure-to", "2017-10-13", "-o", tmp_path / "out",
    )  # fmt: skip
    assert result.returncode == 0, result.stderr
    summary = json.loads((tmp_path / "out" / "fifo" / "summary.json").read_text())
    jobs = pl.read_parquet(tmp_path / "out" / "fifo" / "jobs.parquet")
    assert summary["cluster"] == {"nodes": 20, "gpus": 160}
    day = jobs.filter(pl.col("submit_time").dt.date() == pl.date(2017, 10, 12))
    assert 0 < summary["jobs"] == day.height < jobs.height


def test_a_bracket_tells_whether_the_assumptions_decide(traces: Path, tmp_path: Path, golden: Golden) -> None:
    arguments = ("replay", traces / "philly", "--limit", "50", "--bracket", "-o", tmp_path / "out")
    result = run(*arguments, "-p", "sjf", "-p", "sjf-ffs")
    assert result.returncode == 0, result.stderr
    lines = [line for line in result.stdout.splitlines() if "mean JCT of sjf-ffs minus that of sjf [s]" in line]
    shown = dict(line.split(": mean JCT of sjf-ffs minus that of sjf [s] ") for line in lines[:-1])
    pairs = [f"c={c} m={m}" for c in ("0.367", "0.5", "0.63") for m in ("0.45", "0.55")]
    assert list(shown) == [*pairs, "as assumed", "u=0.3", "u=0.9", "spread=0.05", "spread=1.4"]
    values = {pair: float(value.replace(",", "")) for pair, value in shown.items()}
    summaries = [tmp_path / "out" / name / "summary.json" for name in ("sjf", "sjf-ffs")]
    alone, shared = (json.loads(path.read_text())["avg_jct_s"] for path in summaries)
    assert values["c=0.5 m=0.45"] == pytest.approx(shared - alone, rel=1e-5)  # what models.toml assumes
    assert values["as assumed"] == values["c=0.5 m=0.45"]
    signs = {(value > 0) - (value < 0) for value in values.values()} - {0}
    expected = "undecided" if len(signs) > 1 else {1: "higher", -1: "lower", 0: "equal"}[sum(signs)]
    assert lines[-1] == f"mean JCT of sjf-ffs minus that of sjf [s]: {expected}"
    single = run(*arguments, "-p", "fifo", "--force")
    golden(single.stderr.splitlines()[-1])


def test_a_placement_study(traces: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    result = run("replay", traces / "philly", "--inflate", "0.5", "-p", "fgd", "-p", "best-fit", "-o", out)
    assert result.returncode == 0, result.stderr
    table = pl.read_parquet(out / "inflation.parquet")
    assert table["policy"].unique(maintain_order=True).to_list() == ["fgd", "bestfit"]
    # Jobs arrive until the next one, of 16 of the 138 GPUs at most, would ask for more than half of them.
    arrived = table["arrived_percent"].to_list()[-1]
    assert 50 - 12 <= arrived <= 50
    wrong = run("replay", traces / "philly", "--inflate", "0.5", "-p", "fgdd", "-o", tmp_path / "other")
    assert "did you mean 'fgd'?" in wrong.stderr


OVER = """
import numpy as np
from tracekit.policies import Card, Policy
from tracekit.replay.mechanisms import Plan, Planner

class Greedy(Policy):
    card = Card(name="greedy", title="t", rule="r")
    def mechanism(self, jobs, cluster, models, seed):
        return Planner(lambda view: Plan(job=view.job, gpus=np.full(len(view.job), 10_000)))
"""


@pytest.mark.parametrize(
    ("arguments", "part"),
    [
        (["-p", "fifoo"], "unknown policy 'fifoo'; did you mean 'fifo'?"),
        (["-p", "fifo,scann=stop"], "did you mean 'scan'?"),
        (["-p", "fifo,scan=stopp"], "did you mean 'stop'?"),
        (["-p", "fifo,relax=-5"], "relax=-5 is out of range"),
        (["-p", "fifo,relax=1e300"], "relax=1e300 is out of range"),
        (["-p", "fifo", "-p", "fifo"], "two results are called 'fifo'"),
        (["-p", "over.py"], "the policy greedy requested more GPUs than the cluster has"),
        (["--placement", "consolidat"], "did you mean 'consolidate'?"),
        (["--cluster", "bad.toml"], "bad.toml, line 3: "),
        (["--cluster", "none.toml"], "none.toml: "),
        (["--cluster", "zero.toml"], "zero.toml, line "),
        (["--load", "0"], "the load must be a number above 0"),
        (["--load", "-1"], "the load must be a number above 0"),
        (["--load", "1e-300"], "the submissions span "),
        (["--gpus", "0"], "the GPU factor must be above 0"),
        (["--gpus", "-3"], "the GPU factor must be above 0"),
        (["--gpus", "1e30"], "the GPU factor must be above 0"),
        (["--limit", "0"], "the limit must be at least 1 job"),
        (["--from", "yesterday"], "--from: 'yesterday' is not a time"),
        (["--from", "2030-01-01"], "no job was submitted in the window; submissions run from 2017-"),
        (["--from", "2018-01-01", "--to", "2017-01-01"], "the window is empty"),
        (["--measure-from", "2030-01-01"], "no job was submitted in the measuring window"),
        (["--inflate", "-1"], "the load must be above 0"),
        (["--models", "bad.toml"], "bad.toml, line 3: "),
    ],
)
def test_a_mistake_is_one_line(
    traces: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], part: str
) -> None:
    (tmp_path / "over.py").write_text(OVER)
    (tmp_path / "bad.toml").write_text("[[pool]]\nnodes = 2\ngpus_per_node = = 8\n")
    (tmp_path / "zero.toml").write_text("[[pool]]\nnodes = 2\ngpus_per_node = 0\n")
    before = sorted(tmp_path.iterdir())
    monkeypatch.chdir(tmp_path)
    # Inside this process, which is faster; `main` prints the error as it is.
    result = CliRunner().invoke(app, ["replay", str(traces / "philly"), "-o", "out", *arguments])
    assert isinstance(result.exception, TracekitError)
    assert part in str(result.exception)
    assert "\n" not in str(result.exception)
    assert [p for p in sorted(tmp_path.iterdir()) if p.name != "__pycache__"] == before


def test_of_several_clusters_the_busiest_is_replayed_and_reported(traces: Path, tmp_path: Path, golden: Golden) -> None:
    chosen = run("replay", traces / "helios", "-p", "fifo", "-o", tmp_path / "out")
    named = run("replay", traces / "helios", "-p", "fifo", "--cluster-name", "Earth", "-o", tmp_path / "named")
    told = [" ".join(done.stdout.partition("Assumptions used:")[2].split()) for done in (chosen, named)]
    golden(re.findall(r"Earth.*?Venus", told[0]))
    assert re.findall(r"Earth.*?Venus", told[1]) == []
    rows = [pl.read_parquet(tmp_path / name / "fifo" / "jobs.parquet") for name in ("out", "named")]
    assert rows[0].equals(rows[1])


def test_a_folder_that_is_not_a_trace(traces: Path, tmp_path: Path) -> None:
    none = run("replay", traces, "-o", tmp_path / "out")
    assert "make one with 'tracekit ingest SRC -o TRACE'" in none.stderr


def test_work_that_never_fits_is_refused_unless_forced(traces: Path, tmp_path: Path) -> None:
    (tmp_path / "small.toml").write_text("[[pool]]\nnodes = 1\ngpus_per_node = 1\n")
    arguments = ("replay", traces / "philly", "--cluster", "small.toml", "-p", "fifo", "--limit", "100", "-o", "out")
    refused = run(*arguments, cwd=tmp_path)
    assert refused.returncode == 2
    assert "can never be placed" in refused.stderr
    forced = run(*arguments, "--force", cwd=tmp_path)
    assert forced.returncode == 0, forced.stderr
    assert "note: warning: " in forced.stderr
    summary = json.loads((tmp_path / "out" / "fifo" / "summary.json").read_text())
    assert summary["unschedulable"] > 0


def test_policies_are_listed_with_their_cards() -> None:
    listed = run("policies")
    assert listed.returncode == 0
    assert re.search(r"^ *srtf +shortest remaining time first; running jobs may be ", listed.stdout, re.MULTILINE)
    card = run("policies", "srtf").stdout
    for part in (
        "A stopped job later resumes",
        "overhead",
        "skip",
        "M9, ",
        "Sources:",
        "The same as others:",
    ):
        assert part in card
    facts = json.loads(run("policies", "srtf", "-f", "json").stdout)
    assert [p["name"] for p in facts["parameters"]][:3] == ["scan", "fit", "overhead"]
    wrong = run("policies", "srtff")
    assert wrong.returncode == 2
    assert "unknown policy 'srtff'; did you mean 'srtf'?" in wrong.stderr


@pytest.mark.parametrize(
    "first",
    [
        "import tracekit.replay.api",
        pytest.param("", marks=pytest.mark.thorough),
        pytest.param("tracekit.replay", marks=pytest.mark.thorough),
    ],
)
def test_the_package_is_the_function_before_and_after_its_modules_are_imported(traces: Path, first: str) -> None:
    code = (
        f"import tracekit\n{first}\n"
        f"found = tracekit.replay({str(traces / 'philly')!r}, policy='fifo', limit=50)\n"
        "print(found, found.jobs().height, found.timeline().height > 0)"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=env).stdout
    assert told.startswith("Replay of 50 jobs under fifo\n")
    assert told.endswith(" 50 True\n")


def test_names_of_the_documentation_exist() -> None:
    assert callable(tracekit.replay)
    assert callable(tracekit.sweep)
    assert callable(tracekit.fidelity)
