"""Sweeps in a twin: runs beside the twin's own, their effects on the record, and what cannot be given beside a twin."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from typing import TYPE_CHECKING

import polars as pl
import pytest

import tracekit
from tests.command import run
from tracekit.calibration.twin import ClusterTwin, Delays, Twin, digest_of_jobs, write_twin
from tracekit.calibration.twins import Twins
from tracekit.errors import UnfinishedError, UsageError
from tracekit.replay.clusters.of_trace import cluster_of_trace
from tracekit.replay.scenario import Scenario
from tracekit.replay.workload.from_trace import jobs_of_trace
from tracekit.runs.ledger import code_of
from tracekit.sweeps.file import read_sweep
from tracekit.sweeps.run import RunMaker
from tracekit.sweeps.sweep import sweep

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path
    from typing import Any

    from tests.reviewed import Golden
    from tracekit.trace import Trace

START = dt.datetime(2020, 1, 1)
SUBMIT = [900 * k + 37 * (k * k % 11) for k in range(160)]
RUN = [200 + 130 * (k * 7 % 13) for k in range(160)]
"""One GPU, 160 jobs of 200 to 1,760 s, one about every 15 min, so that it is busy most of the time [s]."""


def starts(submit: Sequence[float], run_s: Sequence[float], *, shortest: bool = False) -> list[float]:
    """Return when jobs start on one GPU, in the order of submission or the shortest of those that wait first."""
    free, left, found = 0.0, list(range(len(submit))), [0.0] * len(submit)
    while left:
        free = max(free, submit[left[0]])
        waiting = [k for k in left if submit[k] <= free]
        k = min(waiting, key=lambda k: (run_s[k], k)) if shortest else waiting[0]
        found[k], free = free, free + run_s[k]
        left.remove(k)
    return found


def mean_wait(submit: Sequence[float], run_s: Sequence[float], *, shortest: bool = False) -> float:
    found = starts(submit, run_s, shortest=shortest)
    return sum(s - t for s, t in zip(found, submit, strict=True)) / len(submit)


def at(seconds: float) -> str:
    return (START + dt.timedelta(seconds=seconds)).isoformat(" ")


@pytest.fixture(scope="module")
def trace(make_trace: Callable[..., Trace]) -> Trace:
    """Return the jobs as one GPU ran them, first in, first out."""
    rows = zip(SUBMIT, starts(SUBMIT, RUN), RUN, strict=True)
    jobs: list[dict[str, Any]] = [
        {
            "job_id": f"j{k}",
            "submit_time": at(submit),
            "start_time": at(start),
            "end_time": at(start + run_s),
            "queue_s": start - submit,
            "run_s": run_s,
            "gpu_count": 1,
            "status": "completed",
        }
        for k, (submit, start, run_s) in enumerate(rows)
    ]
    nodes = [{"node_id": "n", "gpu_count": 1}]
    return make_trace(jobs=jobs, nodes=nodes, manifest_overrides={"capabilities": {}})


def twin_file(trace: Trace, path: Path, **settings: Any) -> Path:
    write_twin(Twin(digest_of_jobs(trace), {"all": ClusterTwin(**settings)}, "x"), path)
    return path


def sweep_file(folder: Path, trace: Trace, more: str = "", policies: str = '"sjf"') -> Path:
    path = folder / "sweep.toml"
    path.write_text(f'traces = ["{trace.path}"]\npolicies = [{policies}]\n{more}\n', encoding="utf-8")
    return path


def test_each_run_is_next_to_the_twin_and_has_its_effect_on_the_record(trace: Trace, tmp_path: Path) -> None:
    """The twin is the log itself, so that the expected wait is that of the policy."""
    twin = twin_file(trace, tmp_path / "twin.toml")
    table = sweep(sweep_file(tmp_path, trace), tmp_path / "out", twin=twin, workers=1)
    assert pl.read_parquet(tmp_path / "out" / "sweep.parquet").equals(table)
    own, sjf = table.iter_rows(named=True)
    fifo_s, sjf_s = mean_wait(SUBMIT, RUN), mean_wait(SUBMIT, RUN, shortest=True)
    assert fifo_s > 1.2 * sjf_s
    assert [own["policy"], own["avg_queue_s"], own["recorded_queue_s"]] == ["twin", *[pytest.approx(fifo_s)] * 2]
    assert (own["expected_queue_s"], own["effect_reason"]) == (None, "this is the twin itself")
    assert [sjf["avg_queue_s"], sjf["expected_queue_s"]] == [pytest.approx(sjf_s)] * 2
    mean_run = sum(RUN) / len(RUN)
    assert (sjf["recorded_jct_s"], sjf["expected_jct_s"]) == pytest.approx((fifo_s + mean_run, sjf_s + mean_run))
    # Two days are too few to resample.
    assert [sjf["expected_queue_low_s"], sjf["expected_queue_high_s"]] == [pytest.approx(sjf_s)] * 2
    assert (sjf["effect_jobs"], sjf["effect_reason"], sjf["error"]) == (160, None, None)


@pytest.mark.parametrize(
    ("more", "submit", "run_s"),
    [
        ("loads = [2]", [s / 2 for s in SUBMIT], RUN),
        ("limit = 100", SUBMIT[:100], RUN[:100]),
        (f'windows = [{{from = "{at(SUBMIT[40])}", to = "{at(SUBMIT[90])}"}}]', SUBMIT[40:90], RUN[40:90]),
    ],
    ids=["load", "limit", "window"],
)
def test_other_jobs_than_those_of_the_log_have_no_effect_on_its_record(
    trace: Trace, tmp_path: Path, more: str, submit: list[float], run_s: list[float], golden: Golden
) -> None:
    twin_file(trace, tmp_path / "twin.toml")
    file = sweep_file(tmp_path, trace, f'twin = "twin.toml"\n{more}')
    own, sjf = sweep(file, tmp_path / "out", workers=1).iter_rows(named=True)
    assert own["avg_queue_s"] == pytest.approx(mean_wait(submit, run_s))
    assert sjf["avg_queue_s"] == pytest.approx(mean_wait(submit, run_s, shortest=True))
    for row in (own, sjf):
        assert row["jobs"] == len(submit)
        assert row["effect_reason"] == own["effect_reason"]
        assert [row[c] for c in row if c.startswith(("expected", "recorded", "effect_jobs"))] == [None] * 9
    golden(own["effect_reason"])


def test_a_window_and_a_limit_that_take_all_jobs_change_nothing(trace: Trace, tmp_path: Path) -> None:
    twin = twin_file(trace, tmp_path / "twin.toml")
    file = sweep_file(tmp_path, trace, "windows = [{from = 2019-01-01, to = 2021-01-01}]\nlimit = 160")
    assert sweep(file, tmp_path / "out", twin=twin, workers=1)["effect_jobs"].to_list() == [None, 160]


def test_delays_are_drawn_by_the_seed_for_the_twin_and_the_policies_alike(trace: Trace, tmp_path: Path) -> None:
    startup = {"1": tuple(60.0 * k for k in range(10))}
    twin = twin_file(trace, tmp_path / "twin.toml", delays=Delays(startup=startup))
    table = sweep(sweep_file(tmp_path, trace, "seeds = [0, 1]"), tmp_path / "out", twin=twin, workers=1)
    waits = table["avg_queue_s"].to_list()
    assert waits[0] != waits[2]
    assert min(waits[0], waits[2]) > mean_wait(SUBMIT, RUN)
    again = sweep(sweep_file(tmp_path, trace, "seeds = [1]"), tmp_path / "other", twin=twin, workers=1)
    assert again["avg_queue_s"].to_list() == waits[2:]


def test_a_grade_that_does_not_carry_effects_gives_the_reason(trace: Trace, tmp_path: Path, golden: Golden) -> None:
    twin = twin_file(trace, tmp_path / "twin.toml", order="shortest")
    table = sweep(sweep_file(tmp_path, trace, policies='"fifo"'), tmp_path / "out", twin=twin, workers=1)
    row = table.row(1, named=True)
    golden(row["effect_reason"])
    assert (row["expected_queue_s"], row["recorded_queue_s"]) == (None, pytest.approx(mean_wait(SUBMIT, RUN)))


def test_worker_processes_make_the_same_runs(trace: Trace, tmp_path: Path) -> None:
    twin = twin_file(trace, tmp_path / "twin.toml")
    file = sweep_file(tmp_path, trace, "loads = [1, 1.5]")
    here, there = (sweep(file, tmp_path / f"out{n}", twin=twin, workers=n) for n in (1, 2))
    assert here["error"].null_count() == 4
    assert here.equals(there)


def test_shards_in_a_twin_make_what_the_sweep_in_one_piece_makes(trace: Trace, tmp_path: Path) -> None:
    twin = twin_file(trace, tmp_path / "twin.toml", delays=Delays(startup={"1": tuple(60.0 * k for k in range(10))}))
    file, out = sweep_file(tmp_path, trace, "seeds = [0, 1]\nloads = [1, 2]", '"sjf", "srtf"'), tmp_path / "out"
    whole = sweep(file, tmp_path / "whole", twin=twin, workers=1)
    first = sweep(file, out, twin=twin, workers=1, shard="1/2")
    # Twelve runs, and of each policy, the twin too, as many in either shard.
    assert sorted(first["policy"]) == ["sjf", "sjf", "srtf", "srtf", "twin", "twin"]
    with pytest.raises(UnfinishedError, match=rf"6 of 12 runs .* --twin {twin} --shard 2/2', then --collect again"):
        sweep(file, out, twin=twin, collect=True)
    sweep(file, out, twin=twin, workers=1, shard="2/2")
    assert sweep(file, out, twin=twin, collect=True).equals(whole)
    assert whole["error"].null_count() == 12


def test_the_same_twin_costs_nothing_anew_and_an_edited_one_all_runs(
    trace: Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: list[str] = []
    real = RunMaker.summary

    def counted(self: RunMaker, one: Any) -> dict[str, Any]:
        done.append(one.policy)
        return real(self, one)

    monkeypatch.setattr(RunMaker, "summary", counted)
    twin = twin_file(trace, tmp_path / "twin.toml")
    file = sweep_file(tmp_path, trace)
    first = sweep(file, tmp_path / "out", twin=twin, workers=1)
    assert sweep(file, tmp_path / "out", twin=twin, workers=1).equals(first)
    assert done == ["twin", "sjf"]
    twin_file(trace, twin, scan="skip")
    other = sweep(file, tmp_path / "out", twin=twin, workers=1)
    assert done == ["twin", "sjf"] * 2
    assert not set(first["digest"]) & set(other["digest"])
    without = sweep(file, tmp_path / "out", workers=1)
    assert (without["policy"].to_list(), without["effect_reason"].to_list()) == (["sjf"], [None])


def test_the_option_wins_over_the_key_whose_path_is_seen_from_the_file(trace: Trace, tmp_path: Path) -> None:
    twin_file(trace, tmp_path / "twin.toml")
    given = twin_file(trace, tmp_path / "given.toml", placement="best-fit", capacity="observed")
    file = sweep_file(tmp_path, trace, 'twin = "twin.toml"')
    assert {one.twin for one in read_sweep(file)} == {str(tmp_path / "twin.toml")}
    assert {one.twin for one in read_sweep(file, given)} == {str(given)}
    table = sweep(file, tmp_path / "out", twin=given, workers=1)
    # What the twin states is what the table says.
    assert set(table.select("placement", "cluster", "partitioned", "cluster_name").rows()) == {
        ("best-fit", "auto", False, "all")
    }


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("placements", '["best-fit"]'),
        ("clusters", '["auto"]'),
        ("gpus", "[1.0, 2.0]"),
        ("partitions", '["on"]'),
        ("models", '"models.toml"'),
    ],
)
def test_what_a_twin_states_is_refused_with_its_line(trace: Trace, tmp_path: Path, key: str, value: str) -> None:
    twin = twin_file(trace, tmp_path / "twin.toml")
    file = sweep_file(tmp_path, trace, f"{key} = {value}")
    read_sweep(file)
    done = run("sweep", file, "-o", tmp_path / "out", "--twin", twin)
    assert done.returncode == 2
    what = f"line 3: {key}: cannot be combined with a twin, which sets it; edit '{twin}' instead"
    assert done.stderr.strip().splitlines() == [f"tracekit: error: {file}, {what}"]
    assert not (tmp_path / "out").exists()


def test_a_twin_that_cannot_be_used_is_reported_before_any_run(
    trace: Trace, sample_trace: Callable[[str], Trace], tmp_path: Path
) -> None:
    file = sweep_file(tmp_path, trace)
    other = twin_file(sample_trace("slurm"), tmp_path / "other.toml")
    with pytest.raises(UsageError, match=r"line 3: is a twin of the Trace 'x' \(sha256:"):
        sweep(file, tmp_path / "out", twin=other)
    with pytest.raises(UsageError, match="cannot read the twin: No such file"):
        sweep(file, tmp_path / "out", twin=tmp_path / "none.toml")
    named = tmp_path / "named.toml"
    named.write_text(f'traces = [{{path = "{trace.path}", cluster = "Mars"}}]\npolicies = ["fifo"]\n')
    with pytest.raises(UsageError, match=r"twin.toml: has no cluster 'Mars'; choose one of: all"):
        sweep(named, tmp_path / "out", twin=twin_file(trace, tmp_path / "twin.toml"))
    empty = sweep_file(tmp_path, trace, "windows = [{from = 2030-01-01}]")
    table = sweep(empty, tmp_path / "late", twin=tmp_path / "twin.toml", workers=1)
    assert all("submitted in the window" in error for error in table["error"])
    assert not (tmp_path / "out").exists()


def test_clusters_of_a_sample_have_the_effects_that_the_twins_tell(
    sample_trace: Callable[[str], Trace], tmp_path: Path, golden: Golden
) -> None:
    helios = sample_trace("helios")
    twin = Twin(
        digest_of_jobs(helios),
        {"Venus": ClusterTwin(quotas="limits"), "Earth": ClusterTwin(quotas="partitions")},
        "helios",
    )
    write_twin(twin, tmp_path / "twin.toml")
    file = tmp_path / "sweep.toml"
    clusters = ", ".join(f'{{path = "{helios.path}", cluster = "{name}"}}' for name in ("Earth", "Venus"))
    file.write_text(f'traces = [{clusters}]\npolicies = ["kueue", "recorded"]\ntwin = "twin.toml"\n')
    done = run("sweep", file, "-o", tmp_path / "out", "--workers", "1")
    assert done.returncode == 0, done.stderr
    assert "No effect on the recorded" in done.stdout
    table = pl.read_parquet(tmp_path / "out" / "sweep.parquet")
    assert table["policy"].to_list() == ["twin", "kueue", "recorded"] * 2
    twins = {one.found.name: one for one in Twins(helios, 0, file=tmp_path / "twin.toml").clusters}
    effect = twins["Venus"].effect("kueue", "queue")
    assert not isinstance(effect, str)
    row = table.row(4, named=True)
    assert (row["expected_queue_s"], row["expected_queue_low_s"], row["expected_queue_high_s"]) == pytest.approx(
        (effect.changed_s, effect.low_s, effect.high_s)
    )
    assert row["effect_jobs"] == effect.jobs
    assert table["expected_queue_s"].null_count() == 5
    golden(table["effect_reason"].fill_null("none").to_list())
    assert tracekit.sweep is sweep


def test_quotas_and_nodes_through_time_move_with_the_jobs(
    make_trace: Callable[..., Trace], trace: Trace, tmp_path: Path
) -> None:
    """A window under another load is what the Trace tells of these jobs alone, quotas that change included."""
    jobs = trace.scan("jobs").collect().to_dicts()
    for k, job in enumerate(jobs):
        job |= {"vc": f"v{k % 2}", "cluster": None, "gpu_count": 1 + k % 3}
    capacity = [
        {"time": at(86_400 * day), "vc": f"v{v}", "gpu_count": gpus}
        for day, pair in ((-1, (3, 8)), (0.5, (8, 3)), (1, (3, 4)))
        for v, gpus in enumerate(pair)
    ]
    changing = make_trace(jobs=jobs, capacity=capacity, manifest_overrides={"capabilities": {}})
    twin = twin_file(changing, tmp_path / "twin.toml", quotas="limits")
    window = f'windows = [{{from = "{at(60_000)}"}}]\nloads = [1.5]'
    file = sweep_file(tmp_path, changing, window, policies='"kueue"')
    own = sweep(file, tmp_path / "out", twin=twin, workers=1).row(0, named=True)
    begin = START + dt.timedelta(seconds=60_000)
    alone = jobs_of_trace(changing, start=begin, load=1.5)
    cluster = cluster_of_trace(changing, alone, partitioned=False, load=1.5)
    assert len(cluster.quota_ms) > 1
    expected = Scenario.make(alone, cluster).run(ClusterTwin(quotas="limits").policy).summary
    assert own["avg_queue_s"] == pytest.approx(expected["avg_queue_s"])
    assert (own["jobs"], own["cluster_gpus"]) == (len(alone), cluster.total_gpus)
    still = replace(cluster, quota_ms=cluster.quota_ms[:1], quota=cluster.quota[:1])
    other = Scenario.make(alone, still).run(ClusterTwin(quotas="limits").policy).summary
    assert other["avg_queue_s"] != pytest.approx(expected["avg_queue_s"])


def test_a_digest_follows_the_programs_own_code() -> None:
    codes = {code_of("replay"), code_of("policies"), code_of("replay", "policies")}
    assert len(codes) == 3
