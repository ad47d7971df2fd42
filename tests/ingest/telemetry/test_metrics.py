"""Metrics of other exporters than NVIDIA's, counters of energy, and files of which nothing is used."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.ingest.telemetry.monitored import Cluster, series

if TYPE_CHECKING:
    from pathlib import Path

COLUMNS = ("node_id", "gpu_index", "utilization_pct", "memory_used_gib", "power_w", "job_id")
ALLIANCE = {
    "instance": "n1:9798",
    "gpu": "0",
    "gpu_type": "NVIDIA A100",
    "slurmjobid": "7",
    "job": "slurm-job-exporter",
}
AMD = {"hostname": "n1", "gpu_id": "0", "gpu_uuid": "ccff", "job_id": "7", "pod": "", "namespace": ""}
OMNISTAT = {"instance": "n1:8001", "card": "0"}
OTEL = {"host_name": "n1", "hw_id": "0", "hw_type": "gpu"}


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    found = Cluster(tmp_path / "logs")
    found.jobs(("7", "10:00", "10:10", 1, "n1"))
    return found


def test_exporters_name_and_scale_the_same_numbers_differently(tmp_path: Path) -> None:
    exporters: dict[str, tuple[dict[str, str], dict[str, float]]] = {
        "slurm-job-exporter": (
            ALLIANCE | {"instance": "n1:9798", "slurmjobid": "1"},
            {"slurm_job_utilization_gpu": 40, "slurm_job_memory_usage_gpu": 2 * 2**30, "slurm_job_power_gpu": 250_000},
        ),
        "device_metrics_exporter": (
            AMD | {"hostname": "n2", "job_id": "2"},
            {"gpu_gfx_activity": 40, "gpu_used_vram": 2048, "gpu_package_power": 250},
        ),
        "with a prefix": (
            AMD | {"hostname": "n3", "job_id": "3", "gpu_uuid": "ddff"},
            {"amd_gpu_gfx_activity": 40, "amd_gpu_used_vram": 2048, "amd_gpu_average_package_power": 250},
        ),
        "OpenTelemetry": (
            OTEL | {"host_name": "n4"},
            {"hw_gpu_utilization_ratio": 0.4, "hw_gpu_memory_usage_bytes": 2 * 2**30, "hw_power_watts": 250},
        ),
    }
    cluster = Cluster(tmp_path / "logs")
    cluster.jobs(*((str(n), "10:00", "10:10", 1, f"n{n}") for n in range(1, 5)))
    for name, (labels, values) in exporters.items():
        cluster.answer(f"{name}.json", [series(metric, {"10:05": value}, **labels) for metric, value in values.items()])
    found = cluster.trace().scan("gpu_utilization").select(COLUMNS).sort("node_id").collect().rows()
    assert dict(zip(exporters, found, strict=True)) == {
        name: (f"n{n}", 0, pytest.approx(40.0), 2.0, 250.0, f"slurm/{n}") for n, name in enumerate(exporters, 1)
    }


def test_omnistat_counts_cards_and_energy(cluster: Cluster) -> None:
    energy = {"10:00": 1000, "10:01": 7000, "10:02": 19_000, "10:03": 600, "10:05": 12_600}  # [J]; 10:03 began anew
    cluster.answer(
        "a.json",
        [
            series("rocm_utilization_percentage", {"10:01": 40}, **OMNISTAT),
            series("rocm_energy_joules", energy, **OMNISTAT),
        ],
    )
    frame = cluster.trace().scan("gpu_utilization").collect().sort("time")
    clock = frame["time"].dt.strftime("%H:%M").alias("clock")
    assert frame.select(clock, "utilization_pct", "power_w").rows() == [
        ("10:00", None, 100.0),
        ("10:01", 40.0, 200.0),
        ("10:03", None, 100.0),
    ]


def test_power_that_is_measured_goes_before_the_rise_of_energy(cluster: Cluster) -> None:
    labels = {"Hostname": "n1", "gpu": "0", "hpc_job": "7"}
    cluster.answer(
        "a.json",
        [
            series("DCGM_FI_DEV_TOTAL_ENERGY_CONSUMPTION", {"10:00": 0, "10:01": 6e6, "10:02": 12e6}, **labels),  # [mJ]
            series("DCGM_FI_DEV_POWER_USAGE", {"10:01": 90}, **labels),
        ],
    )
    assert cluster.trace().scan("gpu_utilization").collect().sort("time")["power_w"].to_list() == [100.0, 90.0]


def test_what_opentelemetry_says_of_other_hardware_and_tasks_is_not_used(cluster: Cluster) -> None:
    others: dict[str, dict[str, str]] = {
        "hw_gpu_utilization_ratio": {"hw_type": "gpu", "hw_gpu_task": "decoder"},
        "hw_power_watts": {"hw_type": "power_supply"},
        "hw_energy_joules_total": {},  # of any hardware
    }
    labels = {"host_name": "n1", "hw_id": "0"}
    values = {"10:05": 0.5, "10:06": 0.5}
    cluster.answer("a.json", [series(name, values, **labels, **more) for name, more in others.items()])
    trace = cluster.trace()
    assert not trace.has("gpu_utilization")
    assert sorted(trace.manifest.checks["unused_telemetry_metrics"].examples) == sorted(others)


def test_a_file_of_which_nothing_is_used_names_what_it_holds(cluster: Cluster) -> None:
    cluster.answer("used.json", [series("gpu_gfx_activity", {"10:05": 4}, **AMD), series("other", {"10:05": 4}, **AMD)])
    cluster.answer("unused.json", [series(f"habana_{n}", {"10:05": 4}, **AMD) for n in range(10) for _ in range(2)])
    trace = cluster.trace()
    (note,) = [note for note in trace.manifest.notes if "no metrics that tracekit reads" in note]
    assert note == (
        "unused.json has no metrics that tracekit reads, only habana_0, habana_1, habana_2, habana_3, habana_4, "
        "habana_5, "
        "habana_6, habana_7 and 2 more (docs/telemetry.md lists the metrics)"
    )
    assert trace.manifest.checks["unused_telemetry_metrics"].count == 21
