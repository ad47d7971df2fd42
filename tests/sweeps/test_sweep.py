"""Sweeps: their files, digests, resuming, and runs that fail."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import polars as pl
import pytest

from tests.replay.three_jobs import three_jobs, written
from tracekit.errors import OutputError, UsageError
from tracekit.sweeps.file import TEMPLATE, read_sweep
from tracekit.sweeps.run import RunMaker, digest_of
from tracekit.sweeps.sweep import sweep

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path
    from typing import Any

    from tracekit.sweeps.file import SweepRun
    from tracekit.trace import Trace


@pytest.fixture(scope="module")
def trace(make_trace: Callable[..., Trace]) -> Trace:
    return three_jobs(make_trace)


def test_every_combination_is_a_run_in_the_order_of_the_file(trace: Trace, tmp_path: Path) -> None:
    file = written(tmp_path, trace, 'gpus = [1, 2.0]\nseeds = [0, 1]\nplacements = ["consolidate", "spread"]')
    runs = read_sweep(file)
    assert len(runs) == len(set(runs)) == 2 * 2 * 2 * 2
    assert [r.policy for r in runs[:2]] == ["fifo", "srtf"]
    assert [r.gpus for r in runs] == [1.0] * 8 + [2.0] * 8


def test_the_template_can_be_read(trace: Trace, tmp_path: Path) -> None:
    (tmp_path / "t.toml").write_text(TEMPLATE)
    runs = read_sweep(tmp_path / "t.toml")
    assert [r.policy for r in runs] == ["fifo", "srtf", "srtf,overhead=helios", "las"]
    assert runs[0].trace == str(tmp_path / "my-trace")


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ("seedz = [1]", "line 3: seedz: no such key; did you mean 'seeds'?"),
        ("seeds = 1", "line 3: seeds: 1 is not a list"),
        ("seeds = []", "line 3: seeds: is empty"),
        ("seeds = [-1]", "line 3: seeds[1]: -1 is out of range; it may be from 0 to 9,223,372,036,854,775,807"),
        ("seeds = [1, 1]", "line 3: seeds: has 1 twice"),
        ("gpus = [0]", "line 3: gpus[1]: 0 is out of range; it may be from 1e-06 to 1,000,000"),
        ("gpus = [nan]", "line 3: gpus[1]: nan is out of range"),
        ("loads = [1e300]", "line 3: loads[1]: 1e+300 is out of range"),
        ('placements = ["bestfit"]', "line 3: placements[1]: 'bestfit' is not a placement; did you mean 'best-fit'?"),
        ('models = "a\\u0000"', "line 3: models: 'a\\x00' contains a zero byte; remove it"),
        ("windows = [{to = 12:00:00}]", "line 3: windows[1].to: 12:00:00 is neither a date nor a text"),
        (
            'partitions = ["yes"]',
            "line 3: partitions[1]: 'yes' is not an allowed value; choose one of: default, off, on",
        ),
        ("windows = [{since = 2020-01-01}]", "line 3: windows[1].since: no such key; choose one of: from, to"),
        ('windows = [{from = "soon"}]', "line 3: windows[1]: 'soon' is not a time"),
        ("limit = 0", "line 3: limit: 0 is out of range; it may be from 1 to"),
        ("force = 1", "line 3: force: 1 is neither true nor false"),
        ("seeds = [", "line 4: is not TOML"),
    ],
)
def test_a_mistake_in_the_file_names_its_line(trace: Trace, tmp_path: Path, line: str, part: str) -> None:
    with pytest.raises(UsageError) as caught:
        read_sweep(written(tmp_path, trace, line))
    assert part in str(caught.value)


@pytest.mark.parametrize("key", ["traces", "policies"])
def test_what_a_sweep_cannot_do_without_names_the_example(tmp_path: Path, key: str) -> None:
    (tmp_path / "s.toml").write_text("".join(f'{k} = ["x"]\n' for k in ("traces", "policies") if k != key))
    with pytest.raises(UsageError, match=rf"has no {key}; 'tracekit sweep --template' prints an example$"):
        read_sweep(tmp_path / "s.toml")


def test_times_of_windows_are_dates_or_texts_in_utc(trace: Trace, tmp_path: Path) -> None:
    windows = '[{from = 2020-01-02, to = "2020-01-03T04"}, {from = 2020-01-01T01:00:00+01:00}, {}]'
    runs = read_sweep(written(tmp_path, trace, f"windows = {windows}", policies='"fifo"'))
    assert [(run.start, run.end) for run in runs] == [
        ("2020-01-02", "2020-01-03T04:00:00"),
        ("2020-01-01T00:00:00", None),
        (None, None),
    ]


def test_an_unknown_policy_is_reported_before_anything_runs(trace: Trace, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"line 2: policies\[1\]: unknown policy 'fifoo'; did you mean 'fifo'"):
        sweep(written(tmp_path, trace, policies='"fifoo"'), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_the_table_has_a_row_a_run_and_a_second_call_runs_nothing(
    trace: Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = written(tmp_path, trace)
    table = sweep(file, tmp_path / "out", workers=1)
    # First in, first out: ends at 100, 200, 210 s. Least left first: b waits for a, c runs between.
    assert table.select("policy", "avg_jct_s", "cluster_gpus", "error").rows() == [
        ("fifo", (100 + 190 + 190) / 3, 2, None),
        ("srtf", (110 + 200 + 10) / 3, 2, None),
    ]
    assert pl.read_parquet(tmp_path / "out" / "sweep.parquet").equals(table)
    kept = {p.stem: json.loads(p.read_text()) for p in (tmp_path / "out" / "runs").iterdir()}
    assert set(kept) == set(table["digest"])
    monkeypatch.setattr(RunMaker, "summary", lambda *_: pytest.fail("a finished run was run again"))
    assert sweep(file, tmp_path / "out", workers=1).equals(table)


def test_a_changed_file_costs_only_what_is_new_and_damaged_runs(
    trace: Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = sweep(written(tmp_path, trace), tmp_path / "out", workers=1)
    (tmp_path / "out" / "runs" / f"{first['digest'][1]}.json").write_text("{")
    done: list[str] = []
    real = RunMaker.summary

    def counted(self: RunMaker, run: SweepRun) -> dict[str, Any]:
        done.append(run.policy)
        return real(self, run)

    monkeypatch.setattr(RunMaker, "summary", counted)
    second = sweep(written(tmp_path, trace, policies='"sjf", "fifo", "srtf"'), tmp_path / "out", workers=1)
    assert done == ["sjf", "srtf"]
    assert second["digest"].to_list()[1:] == first["digest"].to_list()


def test_a_run_that_fails_is_a_row_and_is_tried_again(trace: Trace, tmp_path: Path) -> None:
    (tmp_path / "bad.py").write_text(
        "from tracekit.policies import Card, Policy\n"
        "class Bad(Policy):\n"
        "    card = Card(name='bad', title='t', rule='r')\n"
        "    def mechanism(self, jobs, cluster, models, seed):\n"
        "        return 1 / 0\n"
    )
    file = written(tmp_path, trace, 'clusters = ["none.toml", "trace"]', policies='"bad.py", "fifo"')
    table = sweep(file, tmp_path / "out", workers=2)
    assert [None if e is None else e.partition(": ")[0] for e in table["error"]] == [
        str(tmp_path / "none.toml"), str(tmp_path / "none.toml"), "the policy failed", None,
    ]  # fmt: skip
    assert table["avg_jct_s"].is_not_null().to_list() == [False, False, False, True]
    kept = sorted(path.name.partition(".")[2] for path in (tmp_path / "out" / "runs").iterdir())
    assert kept == ["failed.json"] * 3 + ["json"]


def test_a_digest_follows_contents_not_places(trace: Trace, tmp_path: Path) -> None:
    a, b = tmp_path / "a", tmp_path / "b"
    for folder in (a, b):
        folder.mkdir()
        (folder / "c.toml").write_text("[[pool]]\nnodes = 1\ngpus_per_node = 2\n")
    one, two = (read_sweep(written(f, trace, 'clusters = ["c.toml"]'))[0] for f in (a, b))
    assert one != two
    assert digest_of(one) == digest_of(two)
    assert digest_of(one) != digest_of(read_sweep(written(a, trace, "seeds = [1]"))[0])


def test_a_place_that_is_not_a_sweep_is_left_alone(trace: Trace, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine.txt").write_text("x")
    with pytest.raises(OutputError, match="exists and is not a sweep"):
        sweep(written(tmp_path, trace), tmp_path / "out")
    with pytest.raises(UsageError, match="at least 1 worker"):
        sweep(written(tmp_path, trace), tmp_path / "new", workers=0)
