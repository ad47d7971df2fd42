"""The benchmark of GPU sharing: fits of planted tables, what it writes for --models, and its runs without a GPU."""

from __future__ import annotations

import csv
import importlib.util
import os
import re
import sys
import time
from itertools import combinations_with_replacement
from multiprocessing import Pipe
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import gpu_sharing
import pytest
from gpu_sharing_model import (
    C_IN_USE,
    COLUMNS,
    Job,
    MeasurementError,
    asymmetric,
    medians,
    models_toml,
    points,
    read_runs,
    rms,
    splits,
    strength,
    summary,
)

from tracekit.replay.assumptions.models import load_models

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tracekit.replay.assumptions.models import Models

H200 = Path(os.environ.get("TRACEKIT_SHARED") or Path(__file__).parents[3] / "shared") / "data/gpu_h200/runs.csv"

USED = {"low": 10, "half": 50, "busy": 90, "most": 100}
"""Utilization alone of the planted jobs [%]."""

Row = dict[str, object]


def alone(model: str, rate: float = 10, parts: int = 1, gib: float = 8, used: int | None = None) -> Row:
    used = USED.get(model) if used is None else used
    row = {"kind": "alone", "a": model, "a_batch": 64, "a_parts": parts, "a_iters_per_s": rate, "a_gib": gib}
    return {**row, "utilization_pct": used, "gpu": "a card"}


def pair(a: str, b: str, rates: tuple[float, float]) -> Row:
    row: Row = {"kind": "pair", "a": a, "b": b, "a_batch": 64, "b_batch": 64, "a_parts": 1, "b_parts": 1}
    return {**row, "a_iters_per_s": rates[0], "b_iters_per_s": rates[1], "a_gib": 1, "b_gib": 1, "utilization_pct": 99}


def planted(speed: Callable[[float, float], float]) -> list[Row]:
    """Return runs of four jobs of 10 steps a second, whose speed in pairs is a function of their utilizations."""
    rows = [alone(model) for model in USED]
    for a, b in combinations_with_replacement(USED, 2):
        u, v = USED[a] / 100, USED[b] / 100
        rows.append(pair(a, b, (10 * speed(u, v), 10 * speed(v, u))))
    return rows


def cut(slowdown: float, fixed: float, model: str = "busy") -> list[Row]:
    """Return a batch of 8 GiB whole and in 2 and 4 sub-batches."""
    return [
        alone(model, 10 / (1 + slowdown * doublings), parts, 8 * (fixed + (1 - fixed) / parts))
        for doublings, parts in enumerate((1, 2, 4))
    ]


def write(path: Path, rows: Iterable[Row], columns: Iterable[str] = (*COLUMNS, "utilization_pct", "gpu")) -> Path:
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, list(columns), extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
    return path


def computed(folder: Path, rows: Iterable[Row]) -> Models:
    """Return the assumptions that the script writes for some runs, as a replay reads them."""
    source = write(folder / "table.csv", rows)
    assert gpu_sharing.main(["-o", str(folder / "out"), "--from", str(source)]) == 0
    return load_models(folder / "out" / "models.toml")


# Fits


def test_the_planted_strength_of_the_product_comes_back(tmp_path: Path) -> None:
    runs = read_runs(write(tmp_path / "runs.csv", planted(lambda u, v: 1 - 0.6 * u * v)))
    seen = points(medians(runs))
    assert len(seen) == 16
    assert strength(seen) == pytest.approx(0.6)
    assert rms(seen, 0.6) == pytest.approx(0)
    assert asymmetric(seen) == pytest.approx((0.6, 1, 1))


def test_planted_exponents_come_back_and_the_product_misses_them(tmp_path: Path) -> None:
    runs = read_runs(write(tmp_path / "runs.csv", planted(lambda u, v: 1 - 0.7 * u**2.1 * v**0.4)))
    seen = points(medians(runs))
    assert asymmetric(seen) == pytest.approx((0.7, 2.1, 0.4))
    assert rms(seen, *asymmetric(seen)) == pytest.approx(0, abs=1e-9)
    assert rms(seen, strength(seen)) > 0.05


def test_the_victim_is_the_job_whose_speed_it_is(tmp_path: Path) -> None:
    """The busy job is halved, the other keeps four fifths."""
    runs = read_runs(write(tmp_path / "runs.csv", [alone("busy"), alone("half"), pair("busy", "half", (5, 8))]))
    assert sorted(points(medians(runs))) == [(0.5, 0.9, 0.8), (0.9, 0.5, 0.5)]


def test_equal_runs_count_once_by_their_median_and_give_the_spread(tmp_path: Path) -> None:
    rows = [alone("busy", rate) for rate in (9, 10, 12)]
    rows += [alone("half"), pair("busy", "busy", (4, 6)), pair("busy", "busy", (5, 5.5))]
    found = medians(read_runs(write(tmp_path / "runs.csv", rows)))
    job = Job("busy", 64)
    assert (found[job, None].rate, found[job, None].runs) == (10, 3)
    assert found[job, None].spread == pytest.approx(0.3)
    assert (found[job, job].rate, found[job, job].runs) == (5.25, 4)
    assert points(found) == [(0.9, 0.9, 0.525)]


def test_planted_sub_batches_come_back(tmp_path: Path) -> None:
    runs = read_runs(write(tmp_path / "runs.csv", cut(0.1, 0.2)))
    (split,) = splits(medians(runs))
    assert split.time == pytest.approx({2: 1.1, 4: 1.2})
    assert split.kept == pytest.approx({2: 0.6, 4: 0.4})
    assert [split.slowdown, split.fixed] == pytest.approx([0.1, 0.2])
    assert split.utilization == 0.9


# What is printed


def test_the_table_of_bins_has_a_mean_and_the_number_of_pairs(tmp_path: Path) -> None:
    text = summary(read_runs(write(tmp_path / "runs.csv", planted(lambda u, v: 1 - 0.5 * u * u * v))))
    rows = {line.split()[0]: line.split()[1:] for line in text.splitlines() if "%-" in line}
    assert rows["0%-20%"] == ["1.00", "(1)", "-", "1.00", "(1)", "-", "1.00", "(2)"]
    # 50 % next to 90 % and 100 %: 1 - 0.125 * 0.9 and 1 - 0.125.
    assert rows["40%-60%"] == ["0.99", "(1)", "-", "0.94", "(1)", "-", "0.88", "(2)"]
    assert rows["20%-40%"] == ["-"] * 5


def test_slowdown_is_given_by_how_far_the_batch_fills_the_gpu(tmp_path: Path) -> None:
    rows = [*cut(0.1, 0.2), *cut(0.2, 0.1, "most"), *cut(0.9, 0.3, "half")]
    lines = summary(read_runs(write(tmp_path / "runs.csv", rows))).splitlines()
    full, rest = (re.findall(r"[0-9.]+%", line) for line in lines if line.startswith("slowdown"))
    assert full == ["80%", "15.0%", "10.0%", "20.0%"]
    assert rest == ["80%", "90.0%", "90.0%", "90.0%"]
    assert re.findall(r"[0-9.]+", lines[-1]) == ["0.20", "0.10", "0.30"]


# What a replay reads


def test_models_takes_what_is_written(tmp_path: Path) -> None:
    rows = [*planted(lambda u, v: 1 - 0.6 * u * v), *cut(0.1, 0.2), *cut(0.3, 0.1, "half"), *cut(0.2, 0.3, "low")]
    models = computed(tmp_path, rows)
    assert (models.interference.c, models.interference.rule) == (0.6, "product")
    assert models.accumulation.slowdown_per_doubling == 0.2
    assert models.accumulation.fixed_share == 0.2
    assert models.changed == {
        "interference": ("rule", "level", "levels.measured"),
        "accumulation": ("slowdown_per_doubling", "fixed_share"),
    }
    assert "a card" in (tmp_path / "out" / "models.toml").read_text(encoding="utf-8")


def test_what_models_would_refuse_is_left_out(tmp_path: Path) -> None:
    """All pairs at a twentieth of their speed, sub-batches that are faster, and memory that grows."""
    models = computed(tmp_path, [*planted(lambda u, v: 0.05), *cut(-0.1, 1.2)])
    assert models.interference == load_models().interference
    assert models.accumulation == load_models().accumulation
    text = (tmp_path / "out" / "models.toml").read_text(encoding="utf-8")
    # The strength: 0.95 * (0.1 + 0.5 + 0.9 + 1)^2 / (0.01 + 0.25 + 0.81 + 1)^2.
    assert [number in text for number in ("1.386", "0.99", "-0.1", "1.2")] == [True] * 4


def test_a_strength_needs_four_pairs(tmp_path: Path) -> None:
    """Two jobs in both orders are two pairs; each with itself, they are four."""
    rows = [alone("busy"), alone("most"), pair("busy", "most", (5.5, 5.5))]
    assert computed(tmp_path, rows).interference == load_models().interference
    rows += [pair(model, model, (5.5, 5.5)) for model in ("busy", "most")]
    # 0.45 * (0.9 + 0.9 + 0.81 + 1) / (0.9^2 + 0.9^2 + 0.81^2 + 1)
    assert computed(tmp_path, rows).interference.c == 0.496


def test_without_utilization_m1_is_left_out_and_m3_is_not(tmp_path: Path) -> None:
    rows = [*planted(lambda u, v: 1 - 0.6 * u * v), *cut(0.1, 0.25)]
    source = write(tmp_path / "table.csv", rows, COLUMNS)
    runs = read_runs(source)
    assert points(medians(runs)) == []
    assert "M1: 0 pairs" in summary(runs)
    (tmp_path / "models.toml").write_text(models_toml(runs), encoding="utf-8")
    models = load_models(tmp_path / "models.toml")
    assert models.interference == load_models().interference
    assert models.accumulation.fixed_share == 0.25


def test_the_strength_in_use_is_that_of_the_replay() -> None:
    assert load_models().interference.c == C_IN_USE


# Tables that cannot be read


@pytest.mark.parametrize(
    ("rows", "columns", "message"),
    [
        ([], COLUMNS, "no runs"),
        ([alone("busy")], COLUMNS[:-3], "no column"),
        ([alone("busy"), {**alone("busy"), "a_iters_per_s": "fast"}], COLUMNS, ", line 3: a_iters_per_s is 'fast'"),
        ([{**alone("busy"), "a_iters_per_s": 0}], COLUMNS, ", line 2: a_iters_per_s is '0'"),
        ([alone("busy", used=101)], (*COLUMNS, "utilization_pct"), ", line 2: utilization_pct is '101'"),
        ([{**alone("busy"), "a_parts": 0}], COLUMNS, ", line 2: a_parts is '0'"),
        ([{**alone("busy"), "a": ""}], COLUMNS, ", line 2: a names"),
        ([{**alone("busy"), "kind": "pair"}], COLUMNS, ", line 2: b names"),
    ],
)
def test_a_table_that_cannot_be_read_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], rows: list[Row], columns: tuple[str, ...], message: str
) -> None:
    source = write(tmp_path / "table.csv", rows, columns)
    assert gpu_sharing.main(["-o", str(tmp_path / "out"), "--from", str(source)]) == 2
    out, err = capsys.readouterr()
    assert (out, len(err.splitlines())) == ("", 1)
    assert str(source) in err
    assert message in err
    assert not (tmp_path / "out").exists()


def test_a_table_that_does_not_exist_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(MeasurementError, match="cannot be read"):
        read_runs(tmp_path / "absent.csv")


# The measurement


def without_gpu(*_: object) -> gpu_sharing.Process:
    here, there = Pipe()
    there.send(None)
    return gpu_sharing.Process(None, None, here)


class OnPaper:
    """A bench on which the first job of a run makes 10 steps a second and the second 20; a run takes 2 s."""

    device = "cpu"

    def __init__(self) -> None:
        self.runs: list[tuple[Job, ...]] = []
        self.alive: list[Job] = []
        self.most = 0
        self.now = 0.0

    def start(self, job: Job) -> SimpleNamespace:
        self.alive.append(job)
        self.most = max(self.most, len(self.alive))
        process = SimpleNamespace(kill=lambda: self.alive.remove(job), join=lambda: None)
        return SimpleNamespace(job=job, process=process, answer=lambda: None)

    def window(self, run: list[SimpleNamespace]) -> tuple[list[tuple[float, float]], float, float]:
        self.runs.append(tuple(one.job for one in run))
        self.now += 2
        return [(10.0 * number, 0.5) for number in range(1, len(run) + 1)], self.now - 2, self.now


def measured(
    path: Path, monkeypatch: pytest.MonkeyPatch, jobs: list[Job], split: list[Job], plan: gpu_sharing.Plan
) -> OnPaper:
    bench = OnPaper()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: object())
    monkeypatch.setattr(time, "monotonic", lambda: bench.now)
    on_paper: Any = bench
    gpu_sharing.measure(path, jobs, split, plan, on_paper)
    return bench


@pytest.mark.parametrize(("installed", "message"), [(None, "not installed"), (object(), "no GPU")])
def test_without_pytorch_or_gpu_nothing_is_measured(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    installed: object,
    message: str,
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: installed)
    monkeypatch.setattr(gpu_sharing.Bench, "start", without_gpu)
    assert gpu_sharing.main(["-o", str(tmp_path / "out")]) == 2
    out, err = capsys.readouterr()
    assert (out, len(err.splitlines())) == ("", 1)
    assert message in err
    assert not (tmp_path / "out").exists()


def test_every_job_its_sub_batches_and_every_pair_run_as_often_as_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    a, b, large = Job("mlp", 8), Job("lstm", 8), Job("lstm", 32)
    bench = measured(tmp_path / "runs.csv", monkeypatch, [a, b], [b, large], gpu_sharing.Plan(3, 4, 1000))
    once = [(a,), (b,), (large,), *((job._replace(parts=n),) for job in (b, large) for n in (2, 4)), (a, a), (a, b)]
    assert bench.runs == [*once, (b, b)] * 3
    # Of four runs at a time at most three are pairs, and no process outlives its group.
    assert (bench.most, bench.alive) == (7, [])
    runs = read_runs(tmp_path / "runs.csv")
    assert len(runs) == 3 * (7 + 2 * 3)
    pairs = [(run.rate, run.gib, run.utilization) for run in runs if (run.job, run.partner) == (b, a)]
    assert pairs == [(20.0, 0.5, None)] * 3


def test_no_run_begins_after_the_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Runs of 2 s begin after 0, 2 and 4 s; the limit is 5 s."""
    path = tmp_path / "runs.csv"
    bench = measured(path, monkeypatch, [Job("mlp", 8)], [], gpu_sharing.Plan(3, 4, 5))
    assert (len(bench.runs), bench.alive, len(read_runs(path))) == (3, [], 4)


@pytest.mark.parametrize(("step_s", "answer"), [(0.125, (8.0, None)), (1.5, "mlp:8: 1 steps")])
def test_steps_that_end_in_the_window_make_the_rate(
    monkeypatch: pytest.MonkeyPatch, step_s: float, answer: object
) -> None:
    now = [0.0]

    def step() -> None:
        now[0] += step_s

    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace())
    monkeypatch.setattr(gpu_sharing, "_training_step", lambda *_: step)
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    here, there = Pipe()
    here.send((6.5, 8.5))
    here.send(None)
    gpu_sharing.train(there, Job("mlp", 8), "cpu")
    assert here.recv() is None
    found = here.recv()
    assert found == answer or found.startswith(answer)


def test_a_batch_that_four_does_not_divide_is_not_split(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for option, value in (("--split", "mlp:6"), ("--jobs", "mlp"), ("--jobs", "no-such-model:4")):
        with pytest.raises(SystemExit) as ended:
            gpu_sharing.main(["-o", str(tmp_path), option, value])
        assert ended.value.code == 2
    assert "multiple of 4" in capsys.readouterr().err


@pytest.mark.skipif(not H200.is_file(), reason="our own measurement is not beside the repository")
def test_the_measurement_of_an_h200_gives_the_memory_kept_that_it_was_read_to_give() -> None:
    found = {split.job.model: split.fixed for split in splits(medians(read_runs(H200)))}
    for model, share in (
        ("resnet50-imagenet", 0.05),
        ("gpt2-small", 0.09),
        ("bert-base-squad", 0.17),
        ("lstm-wikitext", 0.2),
        ("transformer-multi30k", 0.24),
        ("autoencoder-ml20m", 0.31),
    ):
        assert found[model] == pytest.approx(share, abs=0.025)
