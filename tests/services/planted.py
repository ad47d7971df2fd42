"""GPU series with the DCGM exporter's names for jobs that really ran, planted in a real Prometheus."""

from __future__ import annotations

import datetime as dt
import json
import urllib.parse
import urllib.request
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.services.configuration import GPUS_PER_NODE, MODELS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from pathlib import Path

    from tests.services.daemons import Services
    from tests.services.records import Run

__all__ = ["LABELLED", "METRICS", "Held", "Planted", "held_gpus", "plant", "range_queries"]

LABELLED = ("node1", "node2")
"""Machines whose exporter names each GPU's job."""
METRICS: dict[str, Callable[[int], float]] = {
    "DCGM_FI_DEV_GPU_UTIL": lambda use: use,
    "DCGM_FI_DEV_FB_USED": lambda use: 1024 * use,
    "DCGM_FI_DEV_POWER_USAGE": lambda use: 60 + 3 * use,
    "DCGM_FI_PROF_SM_ACTIVE": lambda use: use / 125,
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": lambda use: use / 250,
}
"""Each metric [%, MiB, W, share, share] as a function of a job's utilization [%]."""


@dataclass(frozen=True)
class Held:
    """A machine's GPUs allocated to one run of a job, as recorded by the machine when the run began."""

    number: int
    job_id: str
    node: str
    gpus: tuple[int, ...]
    start: dt.datetime
    end: dt.datetime

    @property
    def utilization(self) -> int:
        """Utilization planted for the job [%], which is never 0 because idle GPUs have 0."""
        return 5 + self.number * 37 % 91


@dataclass(frozen=True)
class Planted:
    """One sample of one GPU, taken once per second."""

    time: dt.datetime
    node: str
    gpu: int
    utilization: int
    number: int | None
    """Job number given by the exporter, or None if the GPU is idle or the exporter names no job."""
    job_id: str | None
    """Job to which the GPU was allocated, which exporters on machines without labels do not report."""


def held_gpus(text: str, runs: Iterable[Run]) -> tuple[list[Held], set[tuple[int, str]]]:
    """Return each run's GPUs with times from the accounting database, and the places of runs missing from it.

    The machines record each run as it begins. On a busy host, the database may miss a run. If a run is requeued within
    the second in which it started, the next run overwrites its row.
    """
    begun: dict[tuple[int, str], list[Run]] = {}
    for run in sorted((r for r in runs if r.start is not None), key=lambda r: (r.start or r.submit, r.submit)):
        for node in run.nodes:
            begun.setdefault((run.number, node), []).append(run)
    found = []
    unrecorded = set()
    for line in text.splitlines():
        seconds, number, node, gpus = line.split("|")
        moment = dt.datetime.fromtimestamp(int(seconds), dt.UTC).replace(tzinfo=None) + dt.timedelta(seconds=1)
        if not gpus:
            continue
        # The last run that had begun by then. A resize continues with the GPUs on the remaining machines.
        recorded = begun.get((int(number), node), [])
        mine = [run for run in recorded if run.start is not None and run.start <= moment]
        if not mine:
            unrecorded.add((int(number), node))
            continue
        start = mine[-1].start
        ends = [run.end for run in recorded if run.start == start and run.end is not None]
        assert start is not None
        held = tuple(int(gpu) for gpu in gpus.split(","))
        found.append(Held(int(number), mine[-1].job_id, node, held, start, max(ends)))
    # Both a machine and the job's script record most runs.
    return list(dict.fromkeys(found)), unrecorded


def plant(held: Iterable[Held], start: dt.datetime, end: dt.datetime) -> list[Planted]:
    """Return a sample of each GPU at each second from `start` to `end` (exclusive)."""
    second = dt.timedelta(seconds=1)
    busy: dict[tuple[dt.datetime, str, int], Held] = {}
    for span in held:
        for gpu in span.gpus:
            for offset in range(int((span.end - span.start).total_seconds())):
                place = (span.start + offset * second, span.node, gpu)
                # The later run has the GPU, because in the database, a run that ended before its requeue lasts until
                # the requeue.
                busy[place] = span
    samples = []
    for node in MODELS:
        for gpu in range(GPUS_PER_NODE):
            for offset in range(int((end - start).total_seconds())):
                time = start + offset * second
                owner = busy.get((time, node, gpu))
                use = owner.utilization if owner else 0
                named = owner.number if owner and node in LABELLED else None
                samples.append(Planted(time, node, gpu, use, named, owner.job_id if owner else None))
    return samples


def write_openmetrics(samples: Iterable[Planted], path: Path) -> None:
    """Write the samples as text from which promtool makes blocks."""
    samples = list(samples)
    with path.open("w", encoding="ascii") as out:
        for metric in METRICS:
            out.write(f"# HELP {metric} {metric}\n# TYPE {metric} gauge\n")
            out.writelines(f"{line}\n" for line in _lines(metric, samples))
        out.write("# EOF\n")


def _lines(metric: str, samples: list[Planted]) -> Iterator[str]:
    value = METRICS[metric]
    for sample in samples:
        labels = {
            "gpu": str(sample.gpu),
            "UUID": f"GPU-{sample.node}-{sample.gpu}",
            "device": f"nvidia{sample.gpu}",
            "modelName": f"NVIDIA {MODELS[sample.node].upper()}",
            "Hostname": sample.node,
            "instance": f"{sample.node}:9400",
            "job": "dcgm",
            **({"hpc_job": str(sample.number)} if sample.number else {}),
        }
        text = ",".join(f'{name}="{label}"' for name, label in labels.items())
        seconds = int(sample.time.replace(tzinfo=dt.UTC).timestamp())
        yield f"{metric}{{{text}}} {value(sample.utilization)} {seconds}"


def fill(services: Services, samples: Iterable[Planted]) -> None:
    """Start a Prometheus server with only these samples."""
    text, data = services.base / "prometheus" / "planted.om", services.base / "prometheus" / "data"
    write_openmetrics(samples, text)
    services.run("promtool", "tsdb", "create-blocks-from", "openmetrics", str(text), str(data), seconds=120)
    services.start_prometheus(data)


def range_queries(
    services: Services, start: dt.datetime, end: dt.datetime, folder: Path, step_s: int = 1, selector: str = ""
) -> None:
    """Write the responses of `query_range` to files, one per metric."""
    folder.mkdir(parents=True)
    for metric in METRICS:
        last = end - dt.timedelta(seconds=1)
        times = {name: time.replace(tzinfo=dt.UTC).timestamp() for name, time in (("start", start), ("end", last))}
        question = urllib.parse.urlencode({"query": metric + selector, "step": str(step_s), **times})
        with urllib.request.urlopen(f"{services.url}/api/v1/query_range?{question}", timeout=60) as answer:
            text = answer.read()
        assert json.loads(text)["status"] == "success"
        (folder / f"{metric}.json").write_bytes(text)
