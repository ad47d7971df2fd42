"""`tracekit plan` and `tracekit.plan` on Traces."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

import tracekit
from tests.command import run
from tracekit.calibration.api import calibrate
from tracekit.calibration.twin import twin_text
from tracekit.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.reviewed import Golden
    from tracekit.trace import Trace

FEW = ("--resamples", "5", "--workers", "1")


@pytest.fixture(scope="module")
def helios(sample_trace: Callable[[str], Trace]) -> Trace:
    return sample_trace("helios")


@pytest.fixture(scope="module")
def twin(helios: Trace, tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("plan") / "twin.toml"
    file.write_text(twin_text(calibrate(helios).twin), encoding="utf-8")
    return file


def test_the_command_writes_and_shows_a_plan(helios: Trace, twin: Path, tmp_path: Path, golden: Golden) -> None:
    out = tmp_path / "out"
    words = ("plan", helios.path, "--twin", twin, "--target", "p90<=1h", "--node-cost", "20", "--wait-cost", "5")
    done = run(*words, "-o", out, *FEW)
    assert done.returncode == 0, done.stderr
    golden(line for line in done.stderr.splitlines() if line.startswith("note: "))
    assert {p.name for p in out.iterdir()} == {"plan.json", "plan.svg"}
    facts = json.loads((out / "plan.json").read_text())
    assert list(facts) == [
        "cluster", "target", "recorded", "capacity", "more", "answer", "answers", "growth_of_log", "sentences",
        "assumptions", "resamples", "interval_share", "covers_further_month", "seed",
    ]  # fmt: skip
    assert facts["cluster"] == "Venus"
    assert facts["target"] == {"text": "p90<=1h", "metric": "p90", "limit_s": 3600.0, "for": "all jobs"}
    assert facts["answer"] == facts["answers"][0]
    assert facts["answer"]["sentence"] in done.stdout
    nodes = [row["nodes"] for row in facts["capacity"]]
    assert nodes == sorted(set(nodes))
    assert facts["recorded"]["nodes"] in nodes
    answer = next(row for row in facts["capacity"] if row["nodes"] == facts["answer"]["nodes"])
    assert answer["meets_target"]
    assert answer["p90_wait_s"] <= 3600
    assert answer["cost_per_day"] == pytest.approx(answer["owning_cost_per_day"] + answer["waiting_cost_per_day"])
    assert [s for s in facts["sentences"] if "total cost of owning and waiting is lowest" in s and s in done.stdout]
    assert "first in, first out" in done.stdout
    assert f"{facts['recorded']['nodes']} (log)" in done.stdout
    picture = (out / "plan.svg").read_text()
    assert picture.startswith("<svg")
    assert "target 1 h" in picture
    assert "recorded" in picture
    again = run(*words, "-o", out, *FEW)
    assert again.returncode == 2
    assert "add --force" in again.stderr


def test_other_jobs_loads_and_policies(helios: Trace, twin: Path, tmp_path: Path) -> None:
    done = run(
        "plan", helios.path, "--twin", twin, "--for", "cluster=Venus", "--for", "size=1", "--nodes", "20,30,20",
        "--growth", "1,1.5", "-p", "fifo,scan=skip", "-o", tmp_path / "out", *FEW,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    facts = json.loads((tmp_path / "out" / "plan.json").read_text())
    assert (facts["cluster"], facts["target"], facts["answer"]) == ("Venus", None, None)
    assert [(row["policy"], row["growth"], row["nodes"]) for row in facts["capacity"]] == [
        (policy, growth, nodes) for policy in ("twin", "fifo,scan=skip") for growth in (1.0, 1.5) for nodes in (20, 30)
    ]
    assert "growth" in facts["assumptions"]
    assert {row["cost_per_day"] for row in facts["capacity"]} == {None}


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("--target", "p90<1h"), "--target: 'p90<1h' is not a target"),
        (("--nodes", "0"), "--nodes: a number of nodes must be from 1"),
        (("--nodes", "2.5"), "--nodes: '2.5' is not a list of numbers; write it like 10,12,16"),
        (("--growth", "x"), "--growth: 'x' is not a list of numbers"),
        (("--growth", "-1"), "--growth: the growth must be above 0"),
        (("--for", "vc=nobody"), "--for: no VC 'nobody'"),
        (("--for", "cluster=Mars"), "no cluster 'Mars'"),
        (("--model", "H100"), "--model: no GPU model 'H100'"),
        (("--node-cost", "-1"), "--node-cost: a cost must be at least 0"),
        (("-p", "fifoo"), "did you mean 'fifo'"),
        (("--resamples", "1"), "--resamples: the number of resamples must be from 5"),
    ],
)
def test_what_cannot_be_used_ends_in_one_line(
    helios: Trace, twin: Path, tmp_path: Path, words: tuple[str, str], says: str
) -> None:
    done = run("plan", helios.path, "--twin", twin, "-o", tmp_path / "out", *FEW[2:], *words)
    assert done.returncode == 2
    assert says in done.stderr
    assert done.stderr.strip().count("\n") <= 1  # a note on the cluster may stand before it
    assert list(tmp_path.iterdir()) == []


def test_a_twin_that_is_too_far_from_the_log_gives_no_plan(
    helios: Trace, twin: Path, sample_trace: Callable[[str], Trace], tmp_path: Path
) -> None:
    # Edited by hand into rules that the log did not have: its grade is worked out again, whatever the file says.
    text = twin.read_text(encoding="utf-8").replace('quotas = "limits"', 'quotas = "none"', 1)
    edited = tmp_path / "edited.toml"
    edited.write_text(text, encoding="utf-8")
    assert text.count('grade = "close"') >= 1
    with pytest.raises(
        UsageError, match=r"a replay does not reproduce the log of Venus \(grade (rough|poor): mean wait"
    ):
        tracekit.plan(helios, "p90<=1h", twin=edited, resamples=5)
    with pytest.raises(UsageError, match=r"of Earth \(grade poor: mean wait 2.49 min, in the log 0 s\)"):
        tracekit.plan(helios, twin=twin, jobs_for=["cluster=Earth"])
    with pytest.raises(UsageError, match="is a twin of the Trace 'helios'"):
        tracekit.plan(sample_trace("slurm"), twin=twin)


def test_a_log_without_known_starts_gives_no_plan(sample_trace: Callable[[str], Trace]) -> None:
    with pytest.raises(UsageError, match="0 jobs of the first part of the log have a known start"):
        tracekit.plan(sample_trace("alibaba-spot"))
