"""The text of exporters, scrape below scrape."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.ingest.telemetry.monitored import Cluster, at

if TYPE_CHECKING:
    from pathlib import Path

COLUMNS = ("node_id", "gpu_index", "utilization_pct", "memory_used_gib", "job_id")


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    found = Cluster(tmp_path / "logs")
    found.jobs(("7", "10:00", "10:10", 1, "n1"))
    return found


def scrape(use: str, *, labels: str = 'Hostname="n1",', time: str = "") -> str:
    return (
        "# HELP DCGM_FI_DEV_GPU_UTIL GPU utilization (in %).\n# TYPE DCGM_FI_DEV_GPU_UTIL gauge\n"
        f'DCGM_FI_DEV_GPU_UTIL{{gpu="0",UUID="GPU-a",{labels}modelName="a \\"b\\" {{c}}"}} {use}{time}\n'
        "# TYPE DCGM_FI_DEV_FB_USED gauge\n"
        f'DCGM_FI_DEV_FB_USED{{gpu="0",UUID="GPU-a",{labels}hpc_job="7"}} 2048{time}\n'
        "# TYPE go_threads gauge\ngo_threads 12\n"
    )


def test_a_line_with_the_time_dates_the_scrape_below_it(cluster: Cluster) -> None:
    text = "".join(f"# time {at(clock):.0f}\n{scrape(use)}" for clock, use in (("10:01", "40"), ("10:02", "NaN")))
    (cluster.folder / "metrics.prom").write_text(text)
    trace = cluster.trace()
    frame = trace.scan("gpu_utilization").collect().sort("time")
    assert frame.select(frame["time"].dt.strftime("%H:%M"), *COLUMNS).rows() == [
        ("10:01", "n1", 0, 40.0, 2.0, "slurm/7"),
        ("10:02", "n1", 0, None, 2.0, "slurm/7"),
    ]
    assert trace.manifest.checks["unused_telemetry_metrics"].examples == ["go_threads"]
    assert trace.manifest.checks["telemetry_without_value"].count == 1


def test_times_of_the_lines_themselves_and_the_machine_of_the_name_are_taken(cluster: Cluster) -> None:
    (cluster.folder / "n1.prom").write_text(scrape("40", labels="", time=f" {at('10:05') * 1000:.0f}"))
    frame = cluster.trace().scan("gpu_utilization").collect()
    assert frame.select(frame["time"].dt.strftime("%H:%M"), *COLUMNS).rows() == [
        ("10:05", "n1", 0, 40.0, 2.0, "slurm/7")
    ]


def test_samples_without_a_time_are_counted_and_not_used(cluster: Cluster) -> None:
    (cluster.folder / "n1.prom").write_text(scrape("40"))
    trace = cluster.trace()
    assert not trace.has("gpu_utilization")
    check = trace.manifest.checks["telemetry_without_time"]
    assert (check.count, check.of) == (2, 2)


def test_text_of_which_nothing_is_used_names_its_metrics(cluster: Cluster) -> None:
    (cluster.folder / "n1.prom").write_text("# TYPE habana_utilization gauge\nhabana_utilization 5\nbroken{\n")
    trace = cluster.trace(max_reject_share=1)
    assert any("n1.prom has no metrics that tracekit reads, only habana_utilization" in n for n in trace.manifest.notes)
    assert trace.scan("rejects").collect()["line"].to_list() == [3]
