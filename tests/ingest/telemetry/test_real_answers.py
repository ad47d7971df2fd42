"""Answers of a real Prometheus, recomputed in plain Python; skipped where the dumps are not there."""

from __future__ import annotations

import gzip
import json
import os
from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tracekit.ingest import ingest_logs

if TYPE_CHECKING:
    from tracekit.trace import Trace

DATA = Path(os.environ.get("TRACEKIT_SHARED") or Path(__file__).parents[4] / "shared") / "data"
ANSWERS = DATA / "slurm_services"
if not ANSWERS.is_dir():
    pytest.skip("the dumps of a real Slurm are not beside the repository", allow_module_level=True)

COLUMNS = {
    "DCGM_FI_DEV_GPU_UTIL": ("utilization_pct", 1.0),
    "DCGM_FI_DEV_FB_USED": ("memory_used_gib", 2.0**-10),
    "DCGM_FI_DEV_POWER_USAGE": ("power_w", 1.0),
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": ("tensor_active_pct", 100.0),
}
ENGINE = "DCGM_FI_PROF_GR_ENGINE_ACTIVE"

Gpu = tuple[str, int]


def read(path: Path) -> list[dict[str, Any]]:
    raw = path.read_bytes()
    found: list[dict[str, Any]] = json.loads(gzip.decompress(raw) if path.suffix == ".gz" else raw)["data"]["result"]
    return found


def decided(answer: list[dict[str, Any]]) -> tuple[dict[tuple[str, Gpu, float], tuple[float, str | None]], int]:
    """Return value and job of each metric, GPU and time, and how many samples of ended series were left out.

    Of several series the one that began last counts; a series of the dumps has no gap inside.
    """
    told: dict[tuple[str, Gpu, float], list[tuple[float, float, str | None]]] = defaultdict(list)
    for series in answer:
        labels, values = series["metric"], series["values"]
        gpu = (labels["Hostname"], int(labels["gpu"]))
        run, before = values[0][0], values[0][0]
        for time, text in values:
            if time - before > 75:
                run = time
            before = time
            told[labels["__name__"], gpu, time].append((run, float(text), labels.get("hpc_job")))
    best = {key: max(found, key=lambda one: one[:2])[1:] for key, found in told.items()}
    return best, sum(len({run for run, _, _ in found}) - 1 for found in told.values())


def ingest(path: Path, folder: Path) -> Trace:
    """Return the Trace of an answer beside a log in which each job of its labels ran while it has samples."""
    life: dict[str, list[float]] = defaultdict(list)
    nodes: dict[str, set[str]] = defaultdict(set)
    for series in read(path):
        if job := series["metric"].get("hpc_job"):
            life[job] += [time for time, _ in series["values"]]
            nodes[job].add(series["metric"]["Hostname"])
    lines = ["JobID|Submit|Start|End|State|AllocTRES|NNodes|NodeList"]
    for job, times in life.items():
        start, end = (
            datetime.fromtimestamp(t, UTC).strftime("%Y-%m-%dT%H:%M:%S") for t in (min(times), max(times) + 1)
        )
        where = ",".join(sorted(nodes[job]))
        lines.append(f"{job}|{start}|{start}|{end}|COMPLETED|gres/gpu=1|{len(nodes[job])}|{where}")
    logs = folder / "logs"
    logs.mkdir()
    (logs / "sacct.txt").write_text("\n".join(lines) + "\n")
    (logs / path.name).write_bytes(path.read_bytes())
    return ingest_logs(logs, folder / "trace", options={"timezone": "UTC"})


@pytest.mark.parametrize(
    ("name", "invented"),
    [
        pytest.param("prometheus_day_all_30s.json.gz", 7000, marks=pytest.mark.thorough),
        ("hour_util_30s.json", None),
        ("live_stale.json", 0),
    ],
)
def test_every_sample_and_its_job_are_those_of_the_answer(tmp_path: Path, name: str, invented: int | None) -> None:
    best, ended = decided(read(ANSWERS / name))
    trace = ingest(ANSWERS / name, tmp_path)
    assert invented in (None, ended)
    assert trace.manifest.checks["telemetry_after_its_end"].count == ended
    assert trace.manifest.checks["telemetry_contradicts_itself"].count == 0
    columns = ["time", "node_id", "gpu_index", "job_id", *(column for column, _ in COLUMNS.values())]
    found = trace.scan("gpu_utilization").select(columns).collect()
    expected: dict[tuple[Gpu, float], dict[str, Any]] = defaultdict(dict)
    for (metric, gpu, time), (value, job) in best.items():
        if metric == ENGINE:
            continue  # the utilization of the whole GPU counts before it
        column, factor = COLUMNS[metric]
        expected[gpu, time] |= {column: value * factor, "job_id": None if job is None else f"slurm/{job}"}
    assert found.height == len(expected)
    for row in found.iter_rows(named=True):
        key = ((row.pop("node_id"), row.pop("gpu_index")), row.pop("time").replace(tzinfo=UTC).timestamp())
        assert {column: value for column, value in row.items() if value is not None} == pytest.approx(
            {column: value for column, value in expected[key].items() if value is not None}
        )


@pytest.mark.parametrize("name", ["bad_query.json", "max_samples.json", "too_many_points.json", "empty.json"])
def test_answers_without_samples_are_not_telemetry(tmp_path: Path, name: str) -> None:
    from tracekit.errors import SourceError, TooManyRejectsError

    (tmp_path / "logs").mkdir()
    (tmp_path / "logs" / "sacct.txt").write_text(
        "JobID|Submit|Start|End|State\n1|2026-11-20T00:00:00|2026-11-20T00:00:00|2026-11-20T01:00:00|COMPLETED\n"
    )
    (tmp_path / "logs" / name).write_bytes((ANSWERS / name).read_bytes())
    if name == "empty.json":
        trace = ingest_logs(tmp_path / "logs", tmp_path / "trace")
        assert "the telemetry contains no samples that tracekit reads" in trace.manifest.notes
        return
    with pytest.raises((SourceError, TooManyRejectsError), match="is a server error"):
        ingest_logs(tmp_path / "logs", tmp_path / "trace")
