"""Write the synthetic sensor, group tag and machine metric tables of the PAI sample.

They cover a part of the jobs only, to keep the sample small; in the release almost every job has a tag. Shares of use
and of tagged workloads are chosen, not taken from a table of the study.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from sample_traces._draw import Draw, Quirk, Table, write_rows

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["USE_COLUMNS", "PaiWork", "write_pai_use"]

FOLDER = "alibaba-pai"
SENSOR_FILE = f"{FOLDER}/pai_sensor_table.csv"
TAG_FILE = f"{FOLDER}/pai_group_tag_table.csv"
METRIC_FILE = f"{FOLDER}/pai_machine_metric.csv"
USE_COLUMNS = {
    "pai_sensor_table": "job_name,task_name,worker_name,inst_id,machine,gpu_name,cpu_usage,gpu_wrk_util,avg_mem,"
    "max_mem,avg_gpu_wrk_mem,max_gpu_wrk_mem,read,write,read_count,write_count",
    "pai_group_tag_table": "inst_id,user,gpu_type_spec,group,workload",
    "pai_machine_metric": "worker_name,machine,start_time,end_time,machine_cpu_iowait,machine_cpu_kernel,"
    "machine_cpu_usr,machine_gpu,machine_load_1,machine_net_receive,machine_num_worker,machine_cpu",
}
SENSORS, TAGS, METRICS = 40, 120, 45
"""Rows of each table before faults are planted."""
WORKLOADS = (("", 91.0), ("ctr", 3.0), ("graphlearn", 2.5), ("bert", 1.5), ("nmt", 1.0), ("resnet", 1.0))
CPU_USE: Table = ((0, 5), (0.5, 140), (0.9, 600), (1, 2000))
"""CPU use of a worker [percent of a core]."""
GPU_USE: Table = ((0, 0), (0.5, 4), (0.8, 25), (0.95, 80), (1, 190))
"""GPU use of a worker [percent of a GPU]."""


class PaiWork(NamedTuple):
    """What the other tables say, as far as these three need it."""

    jobs: list[tuple[str, str, str]]
    """inst_id, user and GPU type of each job that wants GPUs."""
    instances: list[list[str]]
    """Rows of the instance table, each worker once, start and end known."""
    gpu_tasks: set[tuple[str, str]]
    """job_name and task_name of the tasks that want GPUs."""


def write_pai_use(folder: Path, seed: int, work: PaiWork) -> list[Quirk]:
    """Write the three tables below `folder` and return what was planted."""
    draw = Draw(seed, "pai-use")
    quirks: list[Quirk] = []
    write_rows(folder / SENSOR_FILE, _sensor_rows(draw, work, quirks))
    write_rows(folder / TAG_FILE, _tag_rows(draw, work, quirks))
    write_rows(folder / METRIC_FILE, _metric_rows(draw, work, quirks))
    return quirks


def _spread(instances: Sequence[list[str]], count: int, first: int) -> list[list[str]]:
    """Return `count` rows of the instance table, evenly spaced."""
    step = (len(instances) - first) // count
    return [instances[first + place * step] for place in range(count)]


def _sensor(draw: Draw, cells: list[str], *, gpu: bool) -> list[str]:
    job, task, _, worker, inst_id, _, _, _, machine = cells
    memory, gpu_memory = draw.between(20, 4000), draw.between(20, 1500)
    used = f"{draw.quantile(GPU_USE):.2f}" if gpu else ""
    traffic = [str(draw.between(1000, 9_000_000)) for _ in range(2)] + [str(draw.between(1, 9000)) for _ in range(2)]
    return [job, task, worker, inst_id, machine, "/dev/nvidia0" if gpu else "", f"{draw.quantile(CPU_USE):.2f}", used,
            f"{memory / 100:.2f}", f"{memory / 50:.2f}", f"{gpu_memory / 100:.2f}" if gpu else "",
            f"{gpu_memory / 50:.2f}" if gpu else "", *traffic]  # fmt: skip


def _sensor_rows(draw: Draw, work: PaiWork, quirks: list[Quirk]) -> list[str]:
    measured = _spread(work.instances, SENSORS, 3)
    rows = [_sensor(draw, cells, gpu=tuple(cells[:2]) in work.gpu_tasks) for cells in measured]
    blank = next(row for row in rows if not row[5])
    quirks.append(Quirk(SENSOR_FILE, blank[2], "no-gpu-values", "a worker without GPU: its GPU cells are empty"))
    rows[5][4] = next(row[4] for row in rows if row[4] != rows[5][4])
    quirks.append(Quirk(SENSOR_FILE, rows[5][2], "other-machine", "measured on a machine that is not the worker's"))
    stray = [draw.word(24), rows[6][1], draw.word(60), *rows[6][3:]]
    rows.insert(8, stray)
    quirks.append(Quirk(SENSOR_FILE, stray[0], "use-without-job", "job_name is not in the job table"))
    rows[12][2] = draw.word(60)
    quirks.append(Quirk(SENSOR_FILE, rows[12][2], "use-without-instance", "worker_name is not in the instance table"))
    second = list(rows[15])
    second[5:8] = ["/dev/nvidia1", second[6], "12.50"]
    rows.insert(16, second)
    quirks.append(Quirk(SENSOR_FILE, second[2], "repeated-worker", "two rows for one worker_name, both count"))
    rows.insert(20, [*rows[20][:7], "high", *rows[20][8:]])
    quirks.append(Quirk(SENSOR_FILE, rows[20][2], "unreadable-number", "gpu_wrk_util is the word high", usable=False))
    rows.insert(30, ["5c" * 12, "worker", "0" * 60])
    quirks.append(Quirk(SENSOR_FILE, "5c" * 12, "few-fields", "three fields", usable=False))
    return [",".join(row) for row in rows]


def _tag_rows(draw: Draw, work: PaiWork, quirks: list[Quirk]) -> list[str]:
    groups = draw.words(TAGS // 4, 32)
    rows = []
    for inst_id, user, gpu_type in work.jobs[:TAGS]:
        spec = gpu_type if draw.chance(0.15) else ""
        rows.append([inst_id, user, spec, draw.pick(groups), draw.weighted(WORKLOADS)])
    rows[7][4] = "bert"
    quirks.append(Quirk(TAG_FILE, rows[7][0], "model-tag", "workload names a model, not what the job is for"))
    rows[11][2] = "P100" if work.jobs[11][2] != "P100" else "T4"
    quirks.append(Quirk(TAG_FILE, rows[11][0], "other-type", "asks for another GPU type than its tasks ran on"))
    rows[17][1] = "ffffffffffff"
    quirks.append(Quirk(TAG_FILE, rows[17][0], "other-user", "user is not the job's"))
    stray = draw.word(60)
    rows.insert(23, [stray, *rows[22][1:]])
    quirks.append(Quirk(TAG_FILE, stray, "tag-without-job", "inst_id is not in the job table"))
    rows.insert(60, [*rows[29][:3], draw.word(32), ""])
    quirks.append(Quirk(TAG_FILE, rows[60][0], "repeated-tag", "second row for one inst_id, the first one counts"))
    rows.insert(40, ["", *rows[39][1:]])
    quirks.append(Quirk(TAG_FILE, "line 41", "no-alias", "inst_id is empty", usable=False))
    rows.insert(70, ["5d" * 30, "ffffffffffff"])
    quirks.append(Quirk(TAG_FILE, "5d" * 30, "few-fields", "two fields", usable=False))
    return [",".join(row) for row in rows]


def _metric(draw: Draw, cells: list[str]) -> list[str]:
    """Return the use of a worker's machine; the shares add up to machine_cpu, in hundredths of a percent."""
    shares = [draw.between(0, 20), draw.between(50, 900), draw.between(300, 4000)]
    start, end = (str(int(float(cell))) for cell in cells[6:8])
    return [cells[3], cells[8], start, end, *(f"{share / 100:.2f}" for share in shares),
            f"{draw.quantile(GPU_USE) * 2:.2f}", f"{draw.between(100, 6000) / 100:.2f}",
            str(draw.between(1000, 200_000_000)), f"{draw.between(100, 1200) / 100:.2f}",
            f"{sum(shares) / 100:.2f}"]  # fmt: skip


def _metric_rows(draw: Draw, work: PaiWork, quirks: list[Quirk]) -> list[str]:
    rows = [_metric(draw, cells) for cells in _spread(work.instances, METRICS, 5)]
    rows[3][2] = "0"
    quirks.append(Quirk(METRIC_FILE, rows[3][0], "start-zero", "start_time is 0: no sample"))
    rows[9][11] = ""
    quirks.append(Quirk(METRIC_FILE, rows[9][0], "no-value", "machine_cpu is empty: no sample"))
    rows[14][2:4] = reversed(rows[14][2:4])
    quirks.append(Quirk(METRIC_FILE, rows[14][0], "end-before-start", "start and end are exchanged"))
    rows[20][6], rows[20][11] = "99.80", "104.20"
    rows[20][4:6] = ["0.20", "4.20"]
    quirks.append(Quirk(METRIC_FILE, rows[20][0], "above-100", "machine_cpu is 104.20 percent"))
    rows[25][1] = draw.word(24)
    quirks.append(Quirk(METRIC_FILE, rows[25][0], "unknown-machine", "machine is not in the specification"))
    again = [draw.word(60), *rows[30][1:11], "55.55"]
    rows.insert(33, again)
    quirks.append(Quirk(METRIC_FILE, again[0], "repeated-interval", "same machine and start as an earlier row"))
    rows.insert(36, [*rows[36][:11], "n/a"])
    quirks.append(Quirk(METRIC_FILE, "line 37", "unreadable-number", "machine_cpu is n/a", usable=False))
    rows.insert(40, ["5e" * 30, "worker"])
    quirks.append(Quirk(METRIC_FILE, "5e" * 30, "few-fields", "two fields", usable=False))
    return [",".join(row) for row in rows]
