"""Write synthetic jobs and nodes in the form of the Alibaba spot release of 2026, with their planted faults.

The node list has the models and GPU counts of the released one with other CPUs; the job list follows the description
of the release.
Times are whole seconds from the first job.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sample_traces._draw import Draw, Quirk, Table, write_rows

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["write_spot"]

JOBS_FILE = "alibaba-spot/job_info_df.csv"
NODES_FILE = "alibaba-spot/node_info_df.csv"
JOBS = 300
WINDOW = 7 * 86_400
HEADER = "job_name,organization,gpu_model,cpu_request,gpu_request,worker_num,submit_time,duration,job_type"
NODE_HEADER = "gpu_model,gpu_capacity_num,cpu_num,node_name"
NODES = ((22, "A10", 1, 120), (2, "A10", 1, 118), (6, "A100-SXM4-80GB", 8, 120), (3, "H800", 8, 180),
         (8, "GPU-series-1", 1, 180), (3, "GPU-series-1", 4, 180), (2, "GPU-series-2", 8, 180),
         (1, "A800-SXM4-80GB", 8, 120))  # fmt: skip
"""Number of nodes, model, GPUs and CPU [cores]."""
MODELS = (("A100-SXM4-80GB", 5.0), ("A10", 3.0), ("H800", 2.0), ("GPU-series-1", 2.0), ("GPU-series-2", 1.0))
WORK: Table = ((0, 30), (0.5, 1800), (0.9, 40_000), (1, 400_000))
MODEL, GPUS, WORKERS, KIND = 2, 4, 5, 8

Job = list[str]


def write_spot(folder: Path, seed: int) -> list[Quirk]:
    """Write the job list and the node list below `folder` and return what was planted."""
    draw = Draw(seed, "spot")
    jobs = _jobs(draw)
    quirks = _plant(jobs)
    write_rows(folder / JOBS_FILE, [HEADER, *_with_unusable(jobs, quirks)])
    write_rows(folder / NODES_FILE, [NODE_HEADER, *_nodes(draw)])
    quirks += [
        Quirk(NODES_FILE, "header", "column-order", "the columns stand in another order than the release describes"),
        Quirk(NODES_FILE, "node_name", "numbers-with-gaps", "node names are running numbers with gaps"),
    ]
    return quirks


def _jobs(draw: Draw) -> list[Job]:
    times = sorted(int(draw.share() * WINDOW) for _ in range(JOBS))
    times[0] = 0
    organizations = [f"org-{number}" for number in range(8)]
    jobs = []
    for number, time in enumerate(times):
        model = draw.weighted(MODELS)
        gpus = 1 if model == "A10" else draw.pick((1, 1, 2, 4, 8, 8))
        workers = draw.weighted(((1, 8.0), (2, 2.0), (4, 1.0)))
        kind = draw.weighted((("HP", 3.0), ("Spot", 2.0)))
        work = int(draw.quantile(WORK))
        cells = [gpus * 12, gpus, workers, time, work, kind]
        jobs.append([f"job-{number:04d}", draw.pick(organizations), model, *(str(cell) for cell in cells)])
    return jobs


def _plant(jobs: list[Job]) -> list[Quirk]:
    """Change jobs in place and return what was done."""
    quirks = []
    for place, column, cell, kind, what in (
        (20, MODEL, "", "no-model", "gpu_model is empty: any model will do"),
        (40, GPUS, "0.5", "part-of-a-gpu", "each worker asks for half a GPU"),
        (60, GPUS, "0", "model-without-gpu", "names a GPU model but asks for no GPU"),
        (80, WORKERS, "0", "no-workers", "worker_num is 0"),
        (100, KIND, "Batch", "unknown-type", "job_type is neither HP nor Spot"),
        (120, KIND, "", "no-type", "job_type is empty"),
        (140, 7, "", "no-duration", "duration is empty"),
    ):
        jobs[place][column] = cell
        quirks.append(Quirk(JOBS_FILE, jobs[place][0], kind, what))
    return quirks


def _with_unusable(jobs: list[Job], quirks: list[Quirk]) -> list[str]:
    """Return the rows with three more that no reader can keep."""
    rows = [",".join(job) for job in jobs]
    model = jobs[30]
    for place, row, record, kind, what in (
        (50, ",".join(["job-9001", *model[1:6], "-5", *model[7:]]), "job-9001", "negative-time", "submit_time is -5"),
        (150, ",".join(["job-9002", *model[1:4]]), "job-9002", "few-fields", "four fields"),
        (250, rows[200], jobs[200][0], "repeated-name", "the same job again"),
    ):
        rows.insert(place, row)
        quirks.append(Quirk(JOBS_FILE, record, kind, what, usable=kind == "negative-time"))
    return rows


def _nodes(draw: Draw) -> list[str]:
    rows, number = [], 0
    for count, model, gpus, cpus in NODES:
        for _ in range(count):
            rows.append(f"{model},{gpus},{cpus},{number}")
            number += draw.weighted(((1, 0.95), (2, 0.05)))
    return rows
