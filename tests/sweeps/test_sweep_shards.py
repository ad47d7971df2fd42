"""Sweeps in shards: each makes its own runs, and what is collected equals the sweep in one piece, whatever dies."""

from __future__ import annotations

import json
import random
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl
import pytest

from tests.command import run as tracekit_run
from tests.replay.three_jobs import three_jobs, written
from tracekit.errors import OutputError, UnfinishedError, UsageError
from tracekit.outputs import lock_folder
from tracekit.progress import Progress
from tracekit.replay import facts
from tracekit.runs.ledger import dealt
from tracekit.sweeps.file import read_sweep
from tracekit.sweeps.run import digest_of, kind_of
from tracekit.sweeps.sweep import sweep

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from tests.reviewed import Golden
    from tracekit.trace import Trace

ROOT = Path(__file__).parents[2]
SLOW = """
import time
from tracekit.policies import Card, Policy
from tracekit.replay.keys import by_arrival
from tracekit.replay.mechanisms import Ordered
class Slow(Policy):
    card = Card(name='slow', title='t', rule='r')
    def mechanism(self, jobs, cluster, models, seed):
        time.sleep(0.03)
        return Ordered(by_arrival, scan='stop', drift='none')
"""
BAD = """
from tracekit.policies import Card, Policy
class Bad(Policy):
    card = Card(name='bad', title='t', rule='r')
    def mechanism(self, jobs, cluster, models, seed):
        return 1 / 0
"""


class Notes(Progress):
    """Keeps what was noted."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


@pytest.fixture(scope="module")
def trace(make_trace: Callable[..., Trace]) -> Trace:
    return three_jobs(make_trace)


def run_names(out: Path) -> set[str]:
    return {path.name for path in (out / "runs").glob("*.json")} - {"shards.json"}


def test_shards_make_what_a_sweep_in_one_piece_makes(trace: Trace, tmp_path: Path) -> None:
    file = written(tmp_path, trace, 'seeds = [0, 1, 2]\ngpus = [1, 2]\nplacements = ["consolidate", "spread"]')
    whole = sweep(file, tmp_path / "whole", workers=1)
    parts = [sweep(file, tmp_path / "out", workers=1, shard=f"{number}/5") for number in (4, 2, 5, 1, 3)]
    # 24 runs in 5 shards: 5 each, but for one that has 4.
    assert sorted(part.height for part in parts) == [4, 5, 5, 5, 5]
    assert sorted(digest for part in parts for digest in part["digest"]) == sorted(whole["digest"])
    assert not (tmp_path / "out" / "sweep.parquet").exists()
    collected = sweep(file, tmp_path / "out", collect=True)
    assert collected.equals(whole)
    assert (tmp_path / "out" / "sweep.parquet").read_bytes() == (tmp_path / "whole" / "sweep.parquet").read_bytes()
    # The same results, whoever made them, but for how long that took.
    for name in run_names(tmp_path / "whole"):
        one, other = (json.loads((tmp_path / where / "runs" / name).read_text()) for where in ("whole", "out"))
        for found in (one, other):
            del found["check"], found["engine"]["wall_s"], found["engine"]["jobs_per_s"]
        assert one == other


def test_collecting_too_early_names_runs_and_shards_and_writes_no_table(
    trace: Trace, tmp_path: Path, golden: Golden
) -> None:
    file, out, said = written(tmp_path, trace, "seeds = [0, 1, 2, 3]"), tmp_path / "out", Notes()
    runs = {digest_of(run): run for run in read_sweep(file)}
    owner = dealt({digest: kind_of(run) for digest, run in runs.items()}, 4)
    for number in (1, 3):
        sweep(file, out, workers=1, shard=f"{number}/4")
    with pytest.raises(UnfinishedError) as caught:
        sweep(file, out, collect=True, progress=said)
    golden(str(caught.value).replace(str(out), "OUT").replace(str(file), "FILE"))
    assert said.notes == [
        f"missing: seed {run.seed}, policy {run.policy} (shard {owner[digest]}/4)"
        for digest, run in runs.items()
        if owner[digest] in (2, 4)
    ]
    assert not (out / "sweep.parquet").exists()
    sweep(file, out, workers=1, shard="2/4")
    with pytest.raises(UnfinishedError, match="2 of 8 runs are missing, of shard 4 of 4; "):
        sweep(file, out, collect=True)
    table = sweep(file, out, collect=True, allow_missing=True)
    golden(table["error"].drop_nulls().to_list(), "in the table")
    assert table["avg_jct_s"].null_count() == 2
    assert table["digest"].to_list() == list(runs)


def test_a_shard_that_is_run_again_makes_what_is_missing_or_damaged(trace: Trace, tmp_path: Path) -> None:
    file, out = written(tmp_path, trace, "seeds = [0, 1, 2, 3]"), tmp_path / "out"
    first = sweep(file, out, workers=1, shard="1/2")
    kept = {name: (out / "runs" / name).stat().st_mtime_ns for name in run_names(out)}
    gone, cut = (f"{digest}.json" for digest in first["digest"][:2])
    (out / "runs" / gone).unlink()
    (out / "runs" / cut).write_bytes((out / "runs" / cut).read_bytes()[:-10])
    said = Notes()
    assert sweep(file, out, workers=1, shard="1/2", progress=said).equals(first)
    assert said.notes == ["2 of 4 runs already exist"]
    again = {name: (out / "runs" / name).stat().st_mtime_ns for name in run_names(out)}
    assert {name for name in kept if again[name] != kept[name]} == {gone, cut}


def test_a_run_that_fails_is_collected_as_the_sweep_in_one_piece_has_it(trace: Trace, tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text(BAD)
    file = written(tmp_path, trace, 'clusters = ["none.toml", "trace"]', policies='"bad.py:Bad", "fifo"')
    whole = sweep(file, tmp_path / "whole", workers=1)
    assert whole["error"].null_count() == 1
    parts = [sweep(file, tmp_path / "out", workers=1, shard=f"{number}/2") for number in (1, 2)]
    assert sum(part["error"].null_count() for part in parts) == 1
    said = Notes()
    assert sweep(file, tmp_path / "out", collect=True, progress=said).equals(whole)
    assert said.notes == ["3 runs failed; run their shards again to retry them"]
    # Once it is mended the run counts, and the note of the failure no more.
    (tmp_path / "none.toml").write_text("[[pool]]\nnodes = 1\ngpus_per_node = 2\n")
    for number in (1, 2):
        sweep(file, tmp_path / "out", workers=1, shard=f"{number}/2")
    assert sweep(file, tmp_path / "out", collect=True)["error"].null_count() == 2


def test_more_shards_than_runs_leave_some_without_work(trace: Trace, tmp_path: Path) -> None:
    file, out = written(tmp_path, trace), tmp_path / "out"
    assert [sweep(file, out, workers=1, shard=f"{number}/4").height for number in (1, 2, 3, 4)] == [1, 1, 0, 0]
    assert sweep(file, out, collect=True).height == 2


def test_a_sweep_in_one_piece_finishes_what_shards_began_and_takes_no_lock_from_them(
    trace: Trace, tmp_path: Path
) -> None:
    file, out = written(tmp_path, trace, "seeds = [0, 1]"), tmp_path / "out"
    sweep(file, out, workers=1, shard="1/2")
    with lock_folder(out / "runs", shown=out):
        # As if a sweep in one piece were running; a second one is refused, a shard is not.
        with pytest.raises(OutputError, match="another run is writing it"):
            sweep(file, out, workers=1)
        sweep(file, out, workers=1, shard="1/2")
    said = Notes()
    whole = sweep(file, out, workers=1, progress=said)
    assert said.notes == ["2 of 4 runs already exist"]
    assert sweep(file, out, collect=True).equals(whole)


def test_another_sweep_in_the_same_folder_does_no_harm(trace: Trace, tmp_path: Path) -> None:
    out = tmp_path / "out"
    sweep(written(tmp_path, trace, "seeds = [7, 8]"), out, workers=1, shard="1/1")
    file = written(tmp_path, trace, "seeds = [0, 1]")
    with pytest.raises(
        UnfinishedError, match=r"4 of 4 runs are missing; run 'tracekit sweep .*' to perform them; --allow-missing"
    ):
        sweep(file, out, collect=True)
    for number in (1, 2):
        sweep(file, out, workers=1, shard=f"{number}/2")
    assert sweep(file, out, collect=True).equals(sweep(file, tmp_path / "alone", workers=1))
    assert len(run_names(out)) == 8


def test_another_tracekit_makes_results_of_its_own(
    trace: Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, out = written(tmp_path, trace), tmp_path / "out"
    sweep(file, out, workers=1, shard="1/1")
    monkeypatch.setattr(facts, "code_of", lambda *_, **__: "another")
    with pytest.raises(UnfinishedError, match="2 of 2 runs are missing"):
        sweep(file, out, collect=True)


def test_where_files_lie_decides_neither_digest_nor_shard(trace: Trace, tmp_path: Path) -> None:
    found = []
    for name in ("a", "b/c"):
        folder = tmp_path / name
        folder.mkdir(parents=True)
        shutil.copytree(trace.path, folder / "t")
        (folder / "slow.py").write_text(SLOW)
        (folder / "s.toml").write_text('traces = ["t"]\npolicies = ["slow.py:Slow", "fifo"]\nseeds = [0, 1, 2]\n')
        runs = read_sweep(folder / "s.toml")
        found.append(dealt({digest_of(run): kind_of(run) for run in runs}, 4))
    assert found[0] == found[1]


@pytest.mark.parametrize(
    ("given", "part"),
    [
        ({"shard": "0/2"}, "--shard: there is no shard 0 of 2"),
        ({"shard": "x"}, "--shard: 'x' is not a shard"),
        ({"shard": "1/2", "collect": True}, "cannot be combined with --collect, which only merges results"),
        ({"allow_missing": True}, "--allow-missing: works only with --collect"),
    ],
)
def test_options_that_cannot_be_used_are_reported_before_anything_is_made(
    trace: Trace, tmp_path: Path, given: dict[str, Any], part: str
) -> None:
    with pytest.raises(UsageError) as caught:
        sweep(written(tmp_path, trace), tmp_path / "out", **given)
    assert part in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_a_place_that_is_not_a_sweep_is_left_alone(trace: Trace, tmp_path: Path) -> None:
    file, out = written(tmp_path, trace), tmp_path / "out"
    with pytest.raises(OutputError, match="contains no finished results; make them with --shard first"):
        sweep(file, out, collect=True)
    assert not out.exists()
    out.mkdir()
    (out / "mine.txt").write_text("x")
    for given in ({"shard": "1/2"}, {"collect": True}):
        with pytest.raises(OutputError, match="exists and is not a sweep"):
            sweep(file, out, **given)
    assert [path.name for path in out.iterdir()] == ["mine.txt"]


@pytest.mark.thorough
def test_the_command_tells_how_far_a_shard_is_and_what_comes_next(trace: Trace, tmp_path: Path, golden: Golden) -> None:
    written(tmp_path, trace)
    done = tracekit_run("sweep", "sweep.toml", "-o", "out", "--shard", "1/2", "--workers", "1", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    early = tracekit_run("sweep", "sweep.toml", "-o", "out", "--collect", cwd=tmp_path)
    assert early.returncode == 2
    assert not (tmp_path / "out" / "sweep.parquet").exists()
    assert (
        tracekit_run("sweep", "sweep.toml", "-o", "out", "--shard", "2/2", "--workers", "1", cwd=tmp_path).returncode
        == 0
    )
    collected = tracekit_run("sweep", "sweep.toml", "-o", "out", "--collect", cwd=tmp_path)
    assert collected.stdout.splitlines()[-1] == "sweep: out/sweep.parquet"
    golden([*done.stdout.splitlines(), early.stderr.splitlines()[-1]])
    assert (tmp_path / "out" / "tradeoffs.svg").read_text().startswith("<svg")


@pytest.mark.thorough
def test_three_shards_that_are_killed_at_random_make_the_same_table(
    sample_trace: Callable[[str], Trace], tmp_path: Path
) -> None:
    (tmp_path / "slow.py").write_text(SLOW)
    file = written(tmp_path, sample_trace("philly"), "seeds = [0, 1, 2, 3, 4, 5]", '"slow.py:Slow", "fifo", "srtf"')
    out, lot = tmp_path / "out", random.Random(22)
    code = "import sys, tracekit; tracekit.sweep(sys.argv[1], sys.argv[2], shard=sys.argv[3], workers=1)"

    def started(number: int) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", code, str(file), str(out), f"{number}/3"]
        return subprocess.Popen(command, cwd=ROOT, stderr=subprocess.DEVNULL)

    def made() -> int:
        return len(run_names(out))

    shards = {number: started(number) for number in (1, 2, 3)}
    killed = 0
    while killed < 4 or any(shard.poll() is None for shard in shards.values()):
        enough, begun = made() + lot.randrange(1, 4), time.monotonic()
        while made() < enough and any(shard.poll() is None for shard in shards.values()):
            assert time.monotonic() - begun < 60
            time.sleep(0.002)
        alive = [number for number, shard in shards.items() if shard.poll() is None]
        if killed < 4 and alive:
            number = lot.choice(alive)
            shards[number].send_signal(signal.SIGKILL)
            shards[number].wait()
            killed += 1
            # One in two comes back at once; the others are done again at the end.
            if lot.random() < 0.5:
                shards[number] = started(number)
        elif killed < 4:
            break
    assert killed >= 2
    if made() < 18:
        with pytest.raises(UnfinishedError, match="runs are missing, of shard"):
            sweep(file, out, collect=True)
    for number in (1, 2, 3):
        sweep(file, out, workers=1, shard=f"{number}/3")
    left = [path.name for path in (out / "runs").iterdir() if path.name.startswith(".")]
    assert left == []
    assert sweep(file, out, collect=True).equals(sweep(file, tmp_path / "whole", workers=1))
    assert pl.read_parquet(out / "sweep.parquet")["error"].null_count() == 18
