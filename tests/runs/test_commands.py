"""calibrate, plan and fit in shards: each gets to the end whatever the others do, and the result is the same."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.command import run
from tracekit.runs.ledger import RunFolder

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import Any

    from tests.reviewed import Golden
    from tracekit.trace import Trace


class Killed(BaseException):
    """Stands for what ends a process between two results."""


@pytest.fixture(scope="module")
def twin(sample_trace: Callable[[str], Trace], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("twin") / "twin.toml"
    assert run("calibrate", sample_trace("helios").path, "-o", path).returncode == 0
    return path


def results(runs: Path) -> set[str]:
    return {path.name for path in runs.iterdir()} - {"shards.json"}


def said(*command: str | Path) -> str:
    done = run(*command)
    assert done.returncode == 0, done.stderr
    return done.stdout


CASES: dict[str, tuple[str, list[str], str]] = {
    "calibrate": ("helios", ["calibrate"], "candidates"),
    "calibrate with a cluster left out": ("acme", ["calibrate"], "candidates"),
    "plan": (
        "helios",
        ["plan", "--target", "p90<=1h", "--resamples", "5", "--workers", "1", "-p", "sjf", "--growth", "1,1.5"],
        "resamples",
    ),
    "plan of spares": ("slurm-outages", ["plan", "--gang", "8nodes", "--resamples", "5"], "runs"),
    "fit": ("alibaba-openb", ["fit", "--scores", "1", "--bootstrap", "0"], "workloads"),
    "fit of a small log": ("small", ["fit", "--scores", "1", "--bootstrap", "0"], "workloads"),
}
"""What a command is given: a sample, or the small log; options; and what its results are called."""
LONG = {"calibrate", "plan", "fit", "fit of a small log"}


@pytest.fixture(scope="module")
def small(make_trace: Callable[..., Trace]) -> Trace:
    """A log just long enough for generators to be judged on its last part."""
    days = [
        {
            "job_id": str(i),
            "user": f"u{i % 3}",
            "status": "completed",
            "submit_time": f"2020-03-{1 + i // 30:02} {i % 30 * 48 // 60:02}:{i % 30 * 48 % 60:02}",
            "gpu_count": 1,
            "run_s": 10 + 7 * (i % 41),
        }
        for i in range(480)
    ]
    return make_trace(jobs=days)


@pytest.mark.parametrize(
    "case", [pytest.param(case, marks=pytest.mark.thorough if case in LONG else ()) for case in CASES]
)
def test_shards_make_what_one_process_makes(
    case: str,
    sample_trace: Callable[[str], Trace],
    small: Trace,
    request: pytest.FixtureRequest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    golden: Golden,
) -> None:
    sample, (name, *options), what = CASES[case]
    trace = small if sample == "small" else sample_trace(sample)
    command: list[str | Path] = [name, trace.path, *options]
    if case == "plan":
        command += ["--twin", request.getfixturevalue("twin")]
    out, runs = tmp_path / "out", tmp_path / "out.runs"
    shown = said(*command, "-o", tmp_path / "alone")

    # The first shard is killed between two results.
    kept: list[str] = []
    real = RunFolder.write

    def write(self: RunFolder, digest: str, result: dict[str, Any]) -> None:
        if len(kept) == 3:
            raise Killed
        real(self, digest, result)
        kept.append(digest)

    monkeypatch.setattr(RunFolder, "write", write)
    with pytest.raises(Killed):
        run(*command, "-o", out, "--shard", "1/3")
    monkeypatch.undo()
    assert results(runs) == {f"{digest}.json" for digest in kept}

    early = run(*command, "-o", out, "--collect")
    assert early.returncode == 2
    assert early.stderr.splitlines()[-1].startswith(f"tracekit: error: {runs}: ")
    golden(early.stderr.splitlines()[-1].removeprefix(f"tracekit: error: {runs}: "), "early")
    assert not out.exists()

    # The second does its part and what the others left; to the third nothing is left.
    told = said(*command, "-o", out, "--shard", "2/3")
    made = len(results(runs)) - 3
    first, following = told.splitlines()
    assert first == f"shard 2/3: all {what} are done, {made:,} of them by this shard"
    golden(following)
    assert not out.exists()
    if name != "fit":
        assert f"all {what} are done, 0 of them by this shard" in said(*command, "-o", out, "--shard", "3/3")
        assert len(results(runs)) == made + 3

    collected = said(*command, "-o", out, "--collect")
    assert collected.replace(str(out), str(tmp_path / "alone")) == shown
    files = [path for path in (tmp_path / "alone").rglob("*") if path.is_file()] or [tmp_path / "alone"]
    for path in files:
        assert (out / path.relative_to(tmp_path / "alone")).read_bytes() == path.read_bytes()

    if case not in ("calibrate with a cluster left out", "plan of spares"):
        return  # the rest takes time, and is alike
    # What is damaged is made again, and by nobody who only gathers.
    damaged = runs / min(results(runs))
    damaged.write_bytes(damaged.read_bytes()[:-5])
    assert "1 of " in run(*command, "-o", tmp_path / "out", "--collect", *["--force"] * (name != "calibrate")).stderr
    assert f"all {what} are done, 1 of them by this shard" in said(*command, "-o", out, "--shard", "1/1")


@pytest.mark.thorough
def test_a_plan_without_a_twin_calibrates_in_shards_too(sample_trace: Callable[[str], Trace], tmp_path: Path) -> None:
    command = ("plan", sample_trace("slurm").path, "--nodes", "4,5", "--resamples", "5", "--workers", "1")
    alone = said(*command, "-o", tmp_path / "alone")
    said(*command, "-o", tmp_path / "out", "--shard", "2/2")
    before = len(results(tmp_path / "out.runs"))
    assert before > 30
    collected = said(*command, "-o", tmp_path / "out", "--collect")
    assert collected.replace(str(tmp_path / "out"), str(tmp_path / "alone")) == alone
    assert len(results(tmp_path / "out.runs")) == before


@pytest.mark.parametrize("command", ["calibrate", "plan", "fit"])
def test_options_that_cannot_be_used_are_one_line(
    command: str, sample_trace: Callable[[str], Trace], tmp_path: Path
) -> None:
    trace = sample_trace("helios").path
    for options, part in (
        (["--shard", "9/8"], "--shard: there is no shard 9 of 8; write it as I/N, with I from 1 to N, such as 2/8"),
        (["--shard", "1/8", "--collect"], "--shard: cannot be combined with --collect, which only merges results"),
        (["--collect"], f"{tmp_path / 'out.runs'}: contains no finished results; make them with --shard first"),
    ):
        done = run(command, trace, "-o", tmp_path / "out", *options)
        assert done.returncode == 2
        (line,) = done.stderr.splitlines()
        assert part in line
    assert list(tmp_path.iterdir()) == []


def test_a_shard_that_has_no_workloads_to_judge_is_refused(
    sample_trace: Callable[[str], Trace], tmp_path: Path, golden: Golden
) -> None:
    done = run("fit", sample_trace("philly").path, "-o", tmp_path / "w.json", "--shard", "1/2", "--scores", "0")
    assert done.returncode == 2
    golden(done.stderr.splitlines()[-1])
    told = said("fit", sample_trace("swf").path, "-o", tmp_path / "w.json", "--shard", "1/2")
    assert told.startswith("no scores: ")
