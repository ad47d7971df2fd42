"""Write the synthetic tables of the Alibaba PAI 2020 release; those of measured use and tags are in _pai_use.

Shares of states, requests, GPU types and run times follow Weng et al. (NSDI 2022). Times are seconds that read as
hour and weekday in UTC+8, as in the release; the date means nothing.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sample_traces._draw import Draw, Quirk, Table, one_file_tar_gz, write_rows
from sample_traces._pai_use import USE_COLUMNS, PaiWork, write_pai_use

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["write_pai"]

HOUR = 3600
DAY = 24 * HOUR
UTC_PLUS_8 = 8 * HOUR
FIRST_DAY = 18 * DAY - UTC_PLUS_8
"""1970-01-19 00:00:00 in UTC+8 [s], a Monday."""
DAYS = 28
JOBS = 400
FOLDER = "alibaba-pai"
JOB_FILE = f"{FOLDER}/pai_job_table.csv"
TASK_FILE = f"{FOLDER}/pai_task_table.csv"
INSTANCE_FILE = f"{FOLDER}/pai_instance_table.tar.gz"
MACHINE_FILE = f"{FOLDER}/pai_machine_spec.tar.gz"

COLUMNS = {
    "pai_job_table": "job_name,inst_id,user,status,start_time,end_time",
    "pai_task_table": "job_name,task_name,inst_num,status,start_time,end_time,plan_cpu,plan_mem,plan_gpu,gpu_type",
    "pai_instance_table": "job_name,task_name,inst_name,worker_name,inst_id,status,start_time,end_time,machine",
    "pai_machine_spec": "machine,gpu_type,cap_cpu,cap_mem,cap_gpu",
    **USE_COLUMNS,
}
HOURLY = (6, 5, 4, 4, 3, 3, 3, 4, 5, 8, 10, 11, 9, 9, 11, 12, 12, 11, 9, 9, 10, 10, 9, 7)
STATUS = (("Terminated", 69.4), ("Failed", 24.0), ("Running", 5.6), ("Waiting", 1.0))
RUN: Table = ((0, 5), (0.11, 30), (0.21, 60), (0.42, 300), (0.52, 600), (0.68, 1800), (0.77, 3600), (0.885, 10_000),
              (0.99, 100_000), (1, 400_000))  # fmt: skip
WAIT: Table = ((0, 0), (0.5, 9), (0.9, 450), (0.98, 4000), (1, 14_000))
PLAN_GPU = (("25.0", 27.0), ("50.0", 25.0), ("100.0", 43.0), ("200.0", 5.0))
GPU_TYPE = (("MISC", 58.0), ("T4", 21.0), ("P100", 8.0), ("V100", 4.0), ("V100M32", 3.0), ("", 6.0))
GANG = ((1, 62.0), (2, 14.0), (4, 11.0), (8, 8.0), (16, 3.0), (32, 1.0))
PLANNED = (("Terminated", 2), ("Terminated", 8), ("Terminated", 32), *(("Terminated", 1),) * 7, ("Waiting", 1),
           ("Running", 1), ("Failed", 1), ("Failed", 1))  # fmt: skip
"""State and workers of the first jobs, so that every fault finds a job whatever the seed."""
SHAPES = {"CPU": (8, 96, 512, 0), "MISC": (26, 96, 512, 8), "P100": (24, 64, 512, 2), "T4": (24, 96, 512, 2),
          "V100": (8, 96, 384, 8), "V100M32": (6, 96, 384, 8)}  # fmt: skip
"""Per type: machines, CPU cores, memory [GB], GPUs each."""


@dataclass
class _Task:
    name: str
    count: int
    gpu: str
    gpu_type: str
    cpu: str
    mem: str
    status: str
    start: str
    end: str


@dataclass
class _Job:
    name: str
    inst_id: str
    user: str
    status: str
    submit: int
    end: str = ""
    tasks: list[_Task] = field(default_factory=list)
    instances: list[list[str]] = field(default_factory=list)

    def start_text(self) -> str:
        """Return the submission as the tables spell it; waiting jobs have none."""
        return "" if self.status == "Waiting" else _time(self.submit)


def write_pai(folder: Path, seed: int) -> list[Quirk]:
    """Write the seven tables and their headers below `folder` and return what was planted."""
    draw = Draw(seed, "pai")
    machines = _machines(draw)
    users = draw.words(60, 12)
    plans = [*PLANNED, *[None] * (JOBS - len(PLANNED))]
    jobs = [_job(draw, users, machines, plan) for plan in plans]
    quirks = _plant(jobs, machines, draw)
    job_rows = [f"{j.name},{j.inst_id},{j.user},{j.status},{j.start_text()},{j.end}" for j in jobs]
    task_rows = [_task_row(job, task) for job in jobs for task in job.tasks]
    instance_rows = [",".join(cells) for job in jobs for cells in job.instances]
    _add_orphans(task_rows, instance_rows, jobs, draw, quirks)
    _add_unusable(job_rows, task_rows, instance_rows, jobs, quirks)
    for table, header in COLUMNS.items():
        write_rows(folder / FOLDER / f"{table}.header", [header])
    write_rows(folder / JOB_FILE, job_rows)
    write_rows(folder / TASK_FILE, task_rows)
    (folder / INSTANCE_FILE).write_bytes(one_file_tar_gz("pai_instance_table.csv", instance_rows))
    spec_rows = [",".join([name, kind, *(str(n) for n in SHAPES[kind][1:])]) for name, kind in machines]
    (folder / MACHINE_FILE).write_bytes(one_file_tar_gz("pai_machine_spec.csv", spec_rows))
    quirks.append(Quirk(MACHINE_FILE, machines[0][0], "cpu-machine", "gpu_type CPU, no GPU"))
    return quirks + write_pai_use(folder, seed, _work(jobs))


def _work(jobs: list[_Job]) -> PaiWork:
    """Return what the tables of measured use and tags need to know of the jobs."""
    return PaiWork(
        jobs=[(job.inst_id, job.user, job.tasks[-1].gpu_type) for job in jobs if job.tasks[-1].gpu],
        instances=[
            cells
            for job in jobs
            for cells in job.instances
            if cells[7] and cells[6] != "0.0" and sum(other[3] == cells[3] for other in job.instances) == 1
        ],
        gpu_tasks={(job.name, task.name) for job in jobs for task in job.tasks if task.gpu},
    )


def _time(seconds: int) -> str:
    return f"{seconds}.0"


def _machines(draw: Draw) -> list[tuple[str, str]]:
    """Return (machine, type)."""
    return [(draw.word(24), kind) for kind, (count, *_) in SHAPES.items() for _ in range(count)]


def _job(draw: Draw, users: list[str], machines: list[tuple[str, str]], plan: tuple[str, int] | None) -> _Job:
    status, count = plan or (draw.weighted(STATUS), draw.weighted(GANG))
    day = draw.weighted([(day, 3.0 if day % 7 >= 5 else 5.0) for day in range(DAYS)])
    hour = draw.weighted(list(enumerate(HOURLY)))
    submit = FIRST_DAY + day * DAY + hour * HOUR + draw.between(0, HOUR - 1)
    user = users[int(60 * draw.share() * draw.share())]
    job = _Job(draw.word(24), draw.word(60), user, status, submit)
    wait, run = int(draw.quantile(WAIT)), int(draw.quantile(RUN))
    if job.status == "Failed":
        run = run // 3 + 1  # failed jobs end sooner: median 220 s against 663 s
    for task in _tasks(job, count, draw, planned=plan is not None):
        job.tasks.append(task)
        job.instances += _instances(job, task, draw, wait=wait, run=run, machines=machines)
    ends = [int(float(cells[7])) for cells in job.instances if cells[7]]
    has_end = job.status == "Terminated" or (job.status == "Failed" and draw.chance(0.1))
    if has_end and ends:
        job.end = _time(max(ends) + draw.between(0, 3))
        for task in job.tasks:
            task.end = job.end
    return job


def _tasks(job: _Job, count: int, draw: Draw, *, planned: bool) -> list[_Task]:
    """Return one task, or parameter servers and workers, now and then with an evaluator."""
    gpu_type = draw.weighted(GPU_TYPE)
    role = "worker" if count > 1 else "tensorflow"
    worker = _task(job, role, count, gpu=draw.weighted(PLAN_GPU), gpu_type=gpu_type, start=job.submit)
    tasks = [worker]
    if count > 1 and (planned or draw.chance(0.5)):
        tasks.insert(0, _task(job, "ps", max(1, count // 4), gpu="", gpu_type=gpu_type, start=job.submit))
        worker.start = worker.start and _time(job.submit + draw.between(0, 4))
    if count > 1 and not planned and draw.chance(0.15):
        later = job.submit + draw.between(1, 9)
        tasks.append(_task(job, "evaluator", 1, gpu="25.0", gpu_type=gpu_type, start=later))
    if count == 1 and not planned and draw.chance(0.12):
        worker.name, worker.gpu, worker.gpu_type = "worker", "", ""  # a task without any GPU
    return tasks


def _task(job: _Job, name: str, count: int, *, gpu: str, gpu_type: str, start: int) -> _Task:
    begin = "" if job.status == "Waiting" else _time(start)
    return _Task(name, count, gpu, gpu_type, "600.0", "29.296875", job.status, begin, "")


def _instances(
    job: _Job, task: _Task, draw: Draw, *, wait: int, run: int, machines: list[tuple[str, str]]
) -> list[list[str]]:
    """Return the rows of the workers of one task; waiting tasks have none."""
    if job.status == "Waiting":
        return []
    wanted = task.gpu_type or ("CPU" if not task.gpu else "MISC")
    hosts = [name for name, kind in machines if kind == wanted]
    rows = []
    for _ in range(task.count):
        start = int(float(task.start)) + wait + draw.between(0, 5)
        end = _time(start + max(1, int(run * (0.97 + 0.03 * draw.share())))) if job.status != "Running" else ""
        names = [draw.word(60), draw.word(60)]
        rows.append([job.name, task.name, *names, job.inst_id, job.status, _time(start), end, draw.pick(hosts)])
    return rows


def _task_row(job: _Job, task: _Task) -> str:
    return ",".join([job.name, task.name, _time(task.count), task.status, task.start, task.end, task.cpu, task.mem,
                     task.gpu, task.gpu_type])  # fmt: skip


def _plant(jobs: list[_Job], machines: list[tuple[str, str]], draw: Draw) -> list[Quirk]:
    """Change jobs in place, each for one fault, and return what was done or found."""
    quirks: list[Quirk] = []
    used: set[str] = set()

    def take(file: str, kind: str, what: str, status: str, *, tasks: int = 1, gang: int = 1) -> _Job:
        small = tasks == gang == 1  # then the job has one task with one instance
        fits = (
            j
            for j in jobs
            if j.status == status
            and (j.tasks[-1].count == len(j.tasks) == 1 if small else j.tasks[-1].count >= gang)
            and len(j.tasks) >= tasks
        )
        job = next(job for job in fits if job.name not in used)
        used.add(job.name)
        quirks.append(Quirk(file, job.name, kind, what))
        return job

    take(JOB_FILE, "waiting", "no times, no instances", "Waiting")
    take(JOB_FILE, "running", "no end time", "Running")
    failed = take(JOB_FILE, "failed-without-end", "ended according to its instances only", "Failed")
    failed.end = failed.tasks[0].end = ""
    job = take(INSTANCE_FILE, "start-zero", "start_time of the only instance is 0: unknown", "Terminated")
    job.instances[0][6] = "0.0"
    job = take(TASK_FILE, "start-zero", "start_time of the task is 0: unknown", "Terminated")
    job.tasks[0].start = "0.0"
    job = take(TASK_FILE, "mixed-types", "ps on V100, workers on T4", "Terminated", tasks=2)
    for task, gpu_type in zip(job.tasks, ("V100", "T4"), strict=True):
        task.gpu_type = gpu_type
        for cells in (row for row in job.instances if row[1] == task.name):
            cells[8] = draw.pick([name for name, kind in machines if kind == gpu_type])
    job = take(INSTANCE_FILE, "lost-instances", "two instances fewer than inst_num", "Terminated", gang=4)
    del job.instances[-2:]
    job = take(INSTANCE_FILE, "retried-worker", "three rows for one worker_name, the last one counts", "Terminated")
    job.instances = _retries(job.instances[0])
    job.end = job.tasks[0].end = job.instances[1][7]
    for _ in range(2):
        job = take(INSTANCE_FILE, "unknown-machine", "machine is not in the specification", "Terminated")
        job.instances[0][8] = draw.word(24)
    job = take(INSTANCE_FILE, "rare-status", "instance status Interrupted", "Failed")
    job.instances[0][5] = "Interrupted"
    job = take(JOB_FILE, "end-disagrees", "job.end_time is 10 minutes after its last instance", "Terminated")
    job.end = _time(int(float(job.end)) + 600)
    take(TASK_FILE, "gang-of-32", "inst_num 32", "Terminated", gang=32)
    blank = next(j for j in jobs if j.tasks[0].gpu and not j.tasks[0].gpu_type)
    quirks.append(Quirk(TASK_FILE, blank.name, "blank-type", "GPUs without gpu_type"))
    cpu = next(j for j in jobs if not j.tasks[0].gpu)
    quirks.append(Quirk(TASK_FILE, cpu.name, "blank-plan", "plan_gpu is empty: no GPU wanted"))
    return quirks


def _retries(last: list[str]) -> list[list[str]]:
    """Return two failed tries and the final row of one worker, in mixed order."""
    start, end = int(float(last[6])), int(float(last[7]))
    rows = []
    for status, begin, stop in (("Failed", 70, 130), ("Terminated", 150, 150 + end - start), ("Failed", 0, 60)):
        rows.append([*last[:5], status, _time(start + begin), _time(start + stop), last[8]])
    return rows


def _add_orphans(
    task_rows: list[str], instance_rows: list[str], jobs: list[_Job], draw: Draw, quirks: list[Quirk]
) -> None:
    """Append a task without job and an instance without task."""
    model = next(job for job in jobs if job.status == "Terminated")
    stray = draw.word(24)
    cells = _task_row(model, model.tasks[0]).split(",")
    task_rows.insert(50, ",".join([stray, *cells[1:]]))
    quirks.append(Quirk(TASK_FILE, stray, "task-without-job", "job_name is not in the job table"))
    row = list(model.instances[0])
    row[1:4] = ["chief", draw.word(60), draw.word(60)]
    instance_rows.insert(70, ",".join(row))
    quirks.append(Quirk(INSTANCE_FILE, f"{model.name} chief", "instance-without-task", "the job has no such task"))


def _add_unusable(
    job_rows: list[str], task_rows: list[str], instance_rows: list[str], jobs: list[_Job], quirks: list[Quirk]
) -> None:
    """Insert rows that no reader can keep."""
    short, twin, wrong = "5a" * 12, jobs[200].name, "5b" * 12
    job_rows.insert(120, f"{short},{'7c' * 30},{jobs[0].user}")
    job_rows.insert(300, job_rows[jobs.index(jobs[200]) + 1].replace(jobs[200].user, "ffffffffffff"))
    task_rows.insert(90, f"{short},tensorflow,1.0,Terminated")
    task_rows.insert(190, f"{jobs[200].name},extra,1.0,Terminated,2000000.0,2000060.0,600.0,29.296875,half,T4")
    instance_rows.insert(33, f"{wrong},worker,{'0' * 60}")
    for file, record, kind, what in (
        (JOB_FILE, short, "few-fields", "three fields"),
        (JOB_FILE, twin, "repeated-job", "second row, user ffffffffffff"),
        (TASK_FILE, short, "few-fields", "four fields"),
        (TASK_FILE, f"{twin} extra", "unreadable-number", "plan_gpu is the word half"),
        (INSTANCE_FILE, wrong, "few-fields", "three fields"),
    ):
        quirks.append(Quirk(file, record, kind, what, usable=False))
