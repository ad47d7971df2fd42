"""Documents of nvidia-smi -q -x."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.ingest.telemetry.monitored import Cluster

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

COLUMNS = ("gpu_index", "utilization_pct", "memory_used_gib", "power_w", "job_id")


def gpu(use: str, memory: str, power: str, bus: str) -> str:
    return f"""
\t<gpu id="00000000:{bus}:00.0">
\t\t<mig_devices>
\t\t\t<mig_device>
\t\t\t\t<fb_memory_usage>
\t\t\t\t\t<used>7 MiB</used>
\t\t\t\t</fb_memory_usage>
\t\t\t</mig_device>
\t\t</mig_devices>
\t\t<uuid>GPU-{bus}</uuid>
\t\t<minor_number>5</minor_number>
\t\t<fb_memory_usage>
\t\t\t<total>81920 MiB</total>
\t\t\t<used>{memory}</used>
\t\t</fb_memory_usage>
\t\t<bar1_memory_usage>
\t\t\t<used>1 MiB</used>
\t\t</bar1_memory_usage>
\t\t<utilization>
\t\t\t<gpu_util>{use}</gpu_util>
\t\t\t<memory_util>3 %</memory_util>
\t\t</utilization>
\t\t<gpu_power_readings>
\t\t\t<average_power_draw>{power}</average_power_draw>
\t\t\t<instant_power_draw>N/A</instant_power_draw>
\t\t</gpu_power_readings>
\t\t<module_power_readings>
\t\t\t<average_power_draw>900.00 W</average_power_draw>
\t\t</module_power_readings>
\t</gpu>"""


def document(clock: str, *gpus: str) -> str:
    head = '<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">\n<nvidia_smi_log>'
    return f"{head}\n\t<timestamp>Mon Mar  2 {clock} 2026</timestamp>{''.join(gpus)}\n</nvidia_smi_log>\n"


def test_documents_below_each_other_are_the_gpus_at_their_times(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path / "logs")
    cluster.jobs(("1", "10:00", "10:10", 2, "n1"))
    text = document("10:05:00", gpu("45 %", "1024 MiB", "250.50 W", "07"), gpu("N/A", "0 MiB", "[N/A]", "0F"))
    text += document("10:06:00", gpu("46 %", "2048 MiB", "N/A", "07"))
    (cluster.folder / "n1.xml").write_text(text)
    frame = cluster.trace().scan("gpu_utilization").collect().sort("time", "gpu_index")
    assert frame.select(frame["time"].dt.strftime("%H:%M"), *COLUMNS).rows() == [
        ("10:05", 0, 45.0, 1.0, 250.5, "slurm/1"),
        ("10:05", 1, None, 0.0, None, "slurm/1"),
        ("10:06", 0, 46.0, 2.0, None, "slurm/1"),
    ]


def test_the_document_of_an_h200_is_read(tmp_path: Path, real_data: Callable[[str], Path]) -> None:
    cluster = Cluster(tmp_path / "logs")
    cluster.folder.mkdir()
    span = "2026-11-26T21:09:00|2026-11-26T21:09:00|2026-11-26T21:15:00|COMPLETED|gres/gpu=1,node=1|1|n1"
    (cluster.folder / "sacct.txt").write_text(f"JobID|Submit|Start|End|State|AllocTRES|NNodes|NodeList\n1|{span}\n")
    (cluster.folder / "n1.xml").write_bytes(real_data("gpu_h200/q.xml").read_bytes())
    frame = cluster.trace().scan("gpu_utilization").collect()
    assert frame.select(COLUMNS).rows() == [(0, 0.0, 0.0, pytest.approx(79.96), "slurm/1")]
