"""Telemetry in a history of daily exports."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.ingest.telemetry.monitored import Cluster, series
from tracekit.ingest import ingest_logs

if TYPE_CHECKING:
    from pathlib import Path

    import polars as pl

    from tracekit.trace import Trace

UTIL = "DCGM_FI_DEV_GPU_UTIL"
JOBS = {
    "1": ("1", "01:00", "10:30", 2, "n1"),
    "2": ("2", "10:00", "13:00", 1, "n2"),
    "3": ("3", "12:30", "14:00", 2, "n1"),
}
HOURS = [f"{hour:02}:{minute:02}" for hour in range(14) for minute in (0, 30)]


def export(folder: Path, jobs: str, first: str, last: str) -> None:
    """Write the jobs of an export and the samples of its time: with labels on n2, without on n1."""
    cluster = Cluster(folder)
    cluster.jobs(*(JOBS[job] for job in jobs))
    clocks = [clock for clock in HOURS if first <= clock <= last]
    free = [series(UTIL, dict.fromkeys(clocks, 40), Hostname="n1", gpu=str(gpu)) for gpu in (0, 1)]
    ran = [clock for clock in clocks if "10:00" <= clock < "13:00"]
    cluster.answer("a.json", [*free, series(UTIL, dict.fromkeys(ran, 70), Hostname="n2", gpu="1", hpc_job="2")])


def table(trace: Trace, name: str, *keys: str) -> pl.DataFrame:
    return trace.scan(name).collect().sort(keys)


def test_a_history_of_two_days_has_what_one_ingest_of_both_has(tmp_path: Path) -> None:
    """The second export repeats two hours of samples and job 2, and no longer lists job 1."""
    export(tmp_path / "both" / "one", "12", "00:00", "12:00")
    export(tmp_path / "both" / "two", "23", "10:00", "13:30")
    options = {"timezone": "UTC"}
    for day in ("one", "two"):
        history = ingest_logs(tmp_path / "both" / day, tmp_path / "history", append=True, options=options)
    whole = ingest_logs(tmp_path / "both", tmp_path / "whole", options=options)
    keys = ("time", "node_id", "gpu_index", "gpu_instance")
    samples = table(history, "gpu_utilization", *keys)
    assert samples.equals(table(whole, "gpu_utilization", *keys), null_equal=True)
    held = samples.group_by("job_id").len().sort("job_id").rows()
    # Job 1 had two GPUs at 19 half-hours, job 2 one at 6, job 3 two at 3; n1 was free at 6 half-hours.
    assert held == [(None, 12), ("slurm/1", 38), ("slurm/2", 6), ("slurm/3", 6)]
    for name, by in (("placements", ("job_id", "node_id")), ("nodes", ("node_id",)), ("jobs", ("job_id",))):
        assert table(history, name, *by).equals(table(whole, name, *by), null_equal=True)


def test_gpus_that_an_earlier_export_showed_are_kept(tmp_path: Path) -> None:
    export(tmp_path / "one", "2", "00:00", "12:00")
    export(tmp_path / "two", "23", "13:00", "13:30")
    for day in ("one", "two"):
        trace = ingest_logs(tmp_path / day, tmp_path / "history", append=True, options={"timezone": "UTC"})
    placed = table(trace, "placements", "job_id").select("job_id", "gpu_index").rows()
    assert placed == [("slurm/2", [1]), ("slurm/3", None)]


def test_parts_of_a_gpu_stay_apart(tmp_path: Path) -> None:
    for day in ("one", "two"):
        cluster = Cluster(tmp_path / day)
        cluster.jobs(JOBS["1"], *([JOBS["3"]] if day == "two" else []))
        cluster.answer(
            "a.json",
            [series(UTIL, {"02:00": part * 10}, Hostname="n1", gpu="0", GPU_I_ID=str(part)) for part in (1, 2)],
        )
        trace = ingest_logs(tmp_path / day, tmp_path / "history", append=True, options={"timezone": "UTC"})
    found = table(trace, "gpu_utilization", "gpu_instance").select("gpu_instance", "utilization_pct").rows()
    assert found == [("1", 10.0), ("2", 20.0)]
