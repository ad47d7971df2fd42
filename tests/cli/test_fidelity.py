"""`tracekit calibrate --report`: a replay beside what the log recorded."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import polars as pl
import pytest

import tracekit
from tests.calibration.benches import bench_of
from tests.calibration.worlds import make_world
from tests.cli.test_commands import assert_one_line
from tests.command import run
from tracekit.calibration.api import calibrate_jobs
from tracekit.calibration.fidelity import fidelity_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.reviewed import Golden
    from tracekit.trace import Trace


def test_a_policy_in_place_of_the_twins_rules_is_scored_on_the_same_jobs(golden: Golden) -> None:
    found = calibrate_jobs(bench_of(make_world("passing", 0, 0.85, jobs=600)))
    twin, strict = fidelity_of(found), fidelity_of(found, "fifo,scan=stop")
    assert (twin.score.grade, twin.score.whole["ratio"]) == ("close", pytest.approx(1.0))
    assert strict.score.whole["jobs"] == twin.score.whole["jobs"]
    assert strict.score.whole["recorded_mean_s"] == twin.score.whole["recorded_mean_s"]
    assert strict.score.whole["twin_mean_s"] > 2 * twin.score.whole["twin_mean_s"]
    assert strict.score.grade == "poor"
    assert (twin.why_no_effect, twin.to_dict()["carries_effects"]) == (None, True)
    assert strict.why_no_effect is not None
    golden(strict.why_no_effect)
    assert strict.to_dict()["carries_effects"] is False


def test_a_log_without_waits_carries_no_effects_however_near_the_replay_is(golden: Golden) -> None:
    world = make_world("passing", 0, 0.85, jobs=600)
    found = calibrate_jobs(bench_of(replace(world, start=[job.submit for job in world.jobs], end=[])))
    facts = [fidelity_of(found, policy).to_dict() for policy in (None, "fifo")]
    assert [fact["carries_effects"] for fact in facts] == [False, False]
    golden(fact["why_no_effect"] for fact in facts)


def test_quantiles_and_the_queue_are_those_of_the_waits() -> None:
    found = calibrate_jobs(bench_of(make_world("passing", 0, 0.85, jobs=600)))
    shown = fidelity_of(found)
    whole = shown.quantiles.filter(pl.col("scope") == "all")
    assert whole.filter(pl.col("quantile") == 1.0)["recorded_s"].item() == found.recorded_s[found.unseen].max()
    assert (whole["recorded_s"] == whole["replayed_s"]).all()
    assert (shown.queue["recorded_gpus"] == shown.queue["replayed_gpus"]).all()
    assert (shown.queue["recorded_gpus"] > 0).any()


def test_the_command_writes_and_reports(sample_trace: Callable[[str], Trace], tmp_path: Path, golden: Golden) -> None:
    trace, out = sample_trace("helios").path, tmp_path / "out"
    result = run("calibrate", trace, "--cluster-name", "Venus", "--report", out)
    assert result.returncode == 0, result.stderr
    golden(line for line in result.stdout.splitlines() if line.startswith("Venus"))
    assert {p.name for p in out.iterdir()} == {
        "fidelity.json", "fidelity.parquet", "quantiles.parquet", "queue.parquet", "twin.toml", "Venus",
    }  # fmt: skip
    (facts,) = json.loads((out / "fidelity.json").read_text())["clusters"]
    table = pl.read_parquet(out / "fidelity.parquet")
    assert facts["groups"] == table.drop("cluster").to_dicts()
    assert table["cluster"].unique().to_list() == ["Venus"]
    assert (facts["grade"], facts["carries_effects"], facts["why_no_effect"]) == ("close", True, None)
    assert next(c for c in facts["candidates"] if c["chosen"])["distance"] == 0
    assert all((out / "Venus" / f"{name}.svg").read_text().startswith("<svg") for name in ("quantiles", "queue"))

    again = run("calibrate", trace, "--twin", out / "twin.toml", "--report", tmp_path / "again")
    assert again.returncode == 0, again.stderr
    (same,) = json.loads((tmp_path / "again" / "fidelity.json").read_text())["clusters"]
    assert same["groups"] == facts["groups"]
    assert same["candidates"] == []


def test_a_policy_that_is_not_there_is_refused_before_the_search(
    sample_trace: Callable[[str], Trace], tmp_path: Path
) -> None:
    wrong = run("calibrate", sample_trace("helios").path, "-p", "fifoo", "--report", tmp_path / "x")
    assert wrong.returncode == 2
    assert "did you mean 'fifo'?" in wrong.stderr
    assert not (tmp_path / "x").exists()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "no output is given; give -o FILE.toml, --report OUT or both"),
        (("-o", "t.toml", "-p", "fifo"), "--policy: works only with --report; add --report OUT"),
        (("--report", "x", "-o", "t.toml", "--twin", "t.toml"), "-o: cannot be combined with --twin"),
        (("--report", "x", "--shard", "1/2"), "--shard: cannot be combined with --report"),
    ],
)
def test_what_does_not_go_together_is_refused(options: tuple[str, ...], message: str) -> None:
    assert_one_line(run("calibrate", "absent", *options), message)


def test_clusters_without_a_twin_are_named(sample_trace: Callable[[str], Trace], golden: Golden) -> None:
    study = tracekit.fidelity(sample_trace("acme"))
    assert [one.cluster for one in study.clusters] == ["Seren"]
    golden(study.sentences[-1])
