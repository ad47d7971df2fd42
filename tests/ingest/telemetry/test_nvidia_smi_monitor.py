"""Tables of nvidia-smi dmon and pmon, and of dcgmi dmon."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.ingest.telemetry.monitored import Cluster

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tracekit.trace import Trace

COLUMNS = ("gpu_index", "utilization_pct", "memory_used_gib", "power_w")
DMON = """#Date        Time         gpu    pwr     sm    mem     fb
#YYYYMMDD    HH:MM:SS     Idx      W      %      %     MB
 20260302    10:05:00       0    250     45     10   1024
 20260302    10:05:00       1      -      -      -      0
#Date        Time         gpu    pwr     sm    mem     fb
#YYYYMMDD    HH:MM:SS     Idx      W      %      %     MB
 20260302    10:06:00       0    251     46     10   2048
 20260302    later          0    251     46     10   2048
"""
PMON = """#Date        Time         gpu         pid   type     sm    mem     fb    command
#YYYYMMDD    HH:MM:SS     Idx           #    C/G      %      %     MB    name
 20260302    10:05:00       0        1138     C     30      5    512    python3
 20260302    10:05:00       0        1139     C      -      -    512    my tool
 20260302    10:05:00       1           -     -      -      -      -    -
 20260302    10:06:00       0        1138     C      -      -      -    python3
"""
DCGMI = """2026-03-02 10:05:00 #Entity   GPUTL   POWER    SMACT
2026-03-02 10:05:00 ID                  W
2026-03-02 10:05:00 GPU 0     45      250.500  0.250
2026-03-02 10:05:00 GPU 1     N/A     90.000   N/A
"""


@pytest.fixture(scope="module")
def trace(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    """Return the Trace of three machines, each with a table of another program."""
    cluster = Cluster(tmp_path_factory.mktemp("tables") / "logs")
    cluster.jobs(*((str(n), "10:00", "10:10", 2, node) for n, node in enumerate(("dmon", "pmon", "dcgmi"), 1)))
    for node, text in (("dmon", DMON), ("pmon", PMON), ("dcgmi", DCGMI)):
        (cluster.folder / f"{node}.txt").write_text(text)
    return cluster.trace(max_reject_share=1)


def samples(trace: Trace, node: str, *columns: str) -> list[tuple[object, ...]]:
    frame = trace.scan("gpu_utilization").filter(node_id=node).collect().sort("time", "gpu_index")
    return frame.select(frame["time"].dt.strftime("%H:%M"), *columns).rows()


def test_a_line_of_dmon_is_a_gpu_at_a_time(trace: Trace) -> None:
    assert samples(trace, "dmon", *COLUMNS) == [
        ("10:05", 0, 45.0, 1.0, 250.0),
        ("10:05", 1, None, 0.0, None),
        ("10:06", 0, 46.0, 2.0, 251.0),
    ]


def test_processes_of_a_gpu_are_added_up_and_a_gpu_without_any_uses_nothing(trace: Trace) -> None:
    assert samples(trace, "pmon", *COLUMNS) == [("10:05", 0, 30.0, 1.0, None), ("10:05", 1, 0.0, 0.0, None)]


def test_dcgmi_has_the_time_that_ts_puts_before_its_lines(trace: Trace) -> None:
    assert samples(trace, "dcgmi", "gpu_index", "utilization_pct", "sm_active_pct", "power_w") == [
        ("10:05", 0, 45.0, 25.0, 250.5),
        ("10:05", 1, None, None, 90.0),
    ]


def test_a_table_that_cannot_be_used_is_noted(tmp_path: Path) -> None:
    tables = {
        "dcgmi": (DCGMI.replace("2026-03-02 10:05:00 ", ""), "has no times with dates"),
        "dmon": (
            DMON.replace("#Date        Time         gpu", "#gpu").replace(" 20260302    10:05:00", ""),
            "has no times with dates",
        ),
        "no-column": (
            "#Date Time gpu pid enc command\n20260302 10:05:00 0 7 1 python3\n",
            "has no metrics that tracekit reads, only Date, Time, command, enc, gpu, pid",
        ),
    }
    cluster = Cluster(tmp_path / "logs")
    cluster.jobs(*((str(n), "10:00", "10:10", 2, node) for n, node in enumerate(tables, 1)))
    for node, (text, _) in tables.items():
        (cluster.folder / f"{node}.txt").write_text(text)
    trace = cluster.trace()
    assert not trace.has("gpu_utilization")
    for node, (_, words) in tables.items():
        assert any(f"{node}.txt" in note and words in note for note in trace.manifest.notes), node


def test_dmon_of_an_h200_has_the_means_that_awk_gives(tmp_path: Path, real_data: Callable[[str], Path]) -> None:
    cluster = Cluster(tmp_path / "logs")
    cluster.folder.mkdir()
    span = "2026-11-26T21:09:00|2026-11-26T21:09:00|2026-11-26T21:15:00|COMPLETED|gres/gpu=1,node=1|1|n1"
    (cluster.folder / "sacct.txt").write_text(f"JobID|Submit|Start|End|State|AllocTRES|NNodes|NodeList\n1|{span}\n")
    (cluster.folder / "n1.txt").write_bytes(real_data("gpu_h200/dmon.txt").read_bytes())
    frame = cluster.trace().scan("gpu_utilization").collect()
    assert frame["job_id"].to_list() == ["slurm/1"] * 91
    means = frame.select("utilization_pct", "memory_used_gib", "power_w").mean().row(0)
    assert means == pytest.approx((50.835165, 33.854664, 299.054945), rel=1e-6)
