"""Write the synthetic Slurm trace: one week of a small cluster as `sacct --parsable` prints it, with planted faults.

The cluster, its users and its load are invented. Times are seconds since 1970 of the cluster's wall clock.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sample_traces._draw import Draw, Quirk, stamp, write_rows

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["write_slurm"]

FILE = "slurm/sacct.txt"
HOUR = 3600
DAY = 24 * HOUR
FIRST_DAY = 1709510400
"""2024-03-04 00:00:00 [s], a Monday."""
JOBS = 270
FIRST_ID = 50_001

COLUMNS = (
    "JobID", "JobIDRaw", "Submit", "Start", "End", "State", "Elapsed", "Suspended", "Timelimit", "AllocTRES",
    "ReqTRES", "AllocGRES", "ReqMem", "NNodes", "NodeList", "Account", "Partition", "User", "JobName", "Priority",
    "MaxRSS", "TRESUsageInAve",
)  # fmt: skip
HOURLY = (9, 7, 5, 4, 3, 3, 5, 9, 18, 30, 36, 38, 30, 34, 40, 42, 40, 36, 28, 22, 20, 18, 15, 12)
RUN = ((0, 20), (0.2, 240), (0.5, 2 * HOUR), (0.8, 7 * HOUR), (0.96, 18 * HOUR), (1, 40 * HOUR))
"""Run time [s]."""
SIZES = ((1, 48), (2, 12), (4, 14), (8, 16), (16, 7), (24, 3))
"""GPUs of a job and their weights."""
STATES = (("COMPLETED", 68), ("FAILED", 15), ("CANCELLED by 1004", 9), ("TIMEOUT", 5), ("OUT_OF_MEMORY", 3))
"""Final states and their weights."""
REQUEUES: tuple[tuple[int, int, tuple[str, ...]], ...] = (
    (116, 8, ("PREEMPTED",)),
    (124, 2, ("NODE_FAIL", "REQUEUED")),
    (180, 16, ("PREEMPTED",)),
)
"""Which jobs are requeued: position from which to look, GPUs, and how the runs before the last one ended."""
RERUNS = (1200, 5400)
"""Run times of the runs after the first [s]."""
REQUEUE_WAIT = 150
"""Wait of a requeued run [s]."""
NODES = {
    "a100": [f"gpu{number:02d}" for number in range(1, 6)],
    "h100": [f"hgx{number}" for number in range(1, 4)],
    "cpu": [f"r{rack}n{number:02d}" for rack in (1, 2) for number in (3, 4)],
}
PER_NODE = 8
"""GPUs of a node that has any."""


@dataclass
class _Job:
    number: int
    submit: int
    partition: str
    gpus: int
    run: int
    state: str
    user: str
    account: str
    start: int = 0
    hold: int = 0
    """How long the nodes stay taken after the first run [s]."""
    nodes: list[str] = field(default_factory=list)
    fields: dict[str, str] = field(default_factory=dict)
    """Columns that a planted fault overwrites."""
    after: list[dict[str, str]] = field(default_factory=list)
    """Rows that follow the job's own, as changes of it."""

    def cells(self) -> dict[str, str]:
        """Return the cells of the job's own row by column."""
        count = len(self.nodes)
        return {
            "JobID": str(self.number),
            "JobIDRaw": str(self.number),
            "Submit": _time(self.submit),
            "Start": _time(self.start),
            "End": _time(self.start + self.run),
            "State": self.state,
            "Elapsed": _duration(self.run),
            "Timelimit": "2-00:00:00",
            "AllocTRES": _tres(self.gpus, count, self.partition),
            "NNodes": str(count),
            "NodeList": _node_list(self.nodes),
            "Account": self.account,
            "Partition": self.partition,
            "User": self.user,
            "JobName": "train" if self.gpus else "prep",
            "Priority": str(4000 + 7 * self.gpus),
            **self.fields,
        }

    def rows(self) -> list[str]:
        """Return the job's row and those that follow it."""
        own = self.cells()
        return [_line(own), *(_line({**own, **changes}) for changes in self.after)]


def write_slurm(folder: Path, seed: int) -> list[Quirk]:
    """Write the trace below `folder` and return what was planted."""
    draw = Draw(seed, "slurm")
    jobs = _jobs(draw)
    # What changes how long a job holds its nodes has to be known before others get them.
    spellings, requeued = _plant_spellings(jobs), _plan_requeues(jobs)
    _place(jobs)
    quirks = [Quirk(FILE, "every row", "trailing-delimiter", "row ends with the delimiter, as --parsable prints it")]
    planted = _plant_states(jobs) + spellings + _plant_resources(jobs) + _requeue(requeued) + _plant_rows(jobs)
    quirks += [Quirk(FILE, f"JobID {name}", kind, what) for name, kind, what in planted]
    rows = [row for job in jobs for row in job.rows()]
    header = "|".join(COLUMNS) + "|"
    write_rows(folder / FILE, [header, *_with_unusable(rows, jobs, header, quirks)])
    return quirks


def _jobs(draw: Draw) -> list[_Job]:
    people = [(f"u{number:02d}", draw.pick(["vision", "speech", "physics"])) for number in range(18)]
    submits = []
    for _ in range(JOBS):
        day = draw.weighted([(day, 4.0 if day >= 5 else 9.0) for day in range(7)])
        hour = draw.weighted(list(enumerate(HOURLY)))
        submits.append(FIRST_DAY + day * DAY + hour * HOUR + draw.between(0, HOUR - 1))
    jobs = []
    for number, submit in enumerate(sorted(submits), start=FIRST_ID):
        partition = draw.weighted([("a100", 0.55), ("h100", 0.25), ("cpu", 0.2)])
        gpus = 0 if partition == "cpu" else draw.weighted(SIZES)
        user, account = people[int(18 * draw.share() * draw.share())]
        run = int(draw.quantile(RUN)) // (1 if gpus < 16 else 2)
        jobs.append(_Job(number, submit, partition, gpus, run, draw.weighted(STATES), user, account))
    return jobs


def _place(jobs: list[_Job]) -> None:
    """Start the jobs of each partition in order of submission, on GPUs that nobody else holds."""
    for partition, nodes in NODES.items():
        running: list[tuple[int, str, int]] = []  # (end, node, GPUs)
        now = 0
        for job in [job for job in jobs if job.partition == partition]:
            now = max(now, job.submit)
            each = min(job.gpus, PER_NODE)
            while True:
                running = [held for held in running if held[0] > now]
                fits = [n for n in nodes if PER_NODE - sum(g for _, node, g in running if node == n) >= each]
                if len(fits) >= max(1, job.gpus // PER_NODE):
                    break
                now = min(end for end, _, _ in running)
            job.start = now
            # CPU jobs go round the nodes, GPU jobs take the first that fit.
            fits = fits[job.number % len(fits) :] if partition == "cpu" else fits
            job.nodes = fits[: max(1, job.gpus // PER_NODE)]
            running += [(now + job.run + job.hold, node, each) for node in job.nodes]


Planted = list[tuple[str, str, str]]


def _take(jobs: list[_Job], first: int, gpus: int | None = None) -> _Job:
    """Return the first untouched job from position `first` on, of a size if one is given."""
    fits = (job for job in jobs[first:] if gpus in {None, job.gpus} and not job.fields and not job.after)
    return next(fits)


def _plant_states(jobs: list[_Job]) -> Planted:
    planted: Planted = []
    for first, start, state in (
        (10, "None", "CANCELLED by 1004"),
        (30, "Unknown", "CANCELLED by 0"),
        (50, "", "CANCELLED"),
    ):
        job = _take(jobs, first)
        job.fields = {**_waiting(job), "Start": start, "State": state, "End": _time(job.submit + 600)}
        planted.append((str(job.number), "cancelled-before-start", f"Start is {start or 'empty'}"))
    job = _take(jobs, 70)
    job.fields = {**_waiting(job), "State": "CANCELLED by 1007", "Start": _time(job.submit + 90)}
    job.fields["End"] = job.fields["Start"]
    planted.append((str(job.number), "cancelled-before-start", "Start is End, no nodes, Elapsed 0"))
    open_end = {"End": "Unknown"}
    for first, state, changes, what in (
        (228, "RUNNING", open_end, "End is Unknown"),
        (231, "COMPLETING", open_end, "End is Unknown"),
        (120, "RUNNING", {}, "carries an End all the same"),
        (225, "SUSPENDED", {**open_end, "Suspended": "00:10:00"}, "End is Unknown"),
        (130, "SPECIAL_EXIT", {}, "a state that is not in the mapping"),
        (140, "CANCELLED+", {}, "cut to the width of the column"),
        (145, "OUT_OF_ME+", {}, "cut to the width of the column"),
    ):
        # A run without end holds its nodes for good; only CPU nodes can be shared.
        job = _take(jobs, first, 0 if "End is" in what or state == "RUNNING" else None)
        job.state, job.fields = state, {**changes, "Priority": "1"}
        planted.append((str(job.number), "rare-state", f"{state}: {what}"))
    for first, start in ((235, "Unknown"), (236, "N/A")):
        job = _take(jobs, first)
        job.fields = {**_waiting(job), "State": "PENDING", "Start": start, "End": "Unknown"}
        planted.append((str(job.number), "pending", f"Start is {start}, only ReqTRES is filled"))
    return planted


def _plant_spellings(jobs: list[_Job]) -> Planted:
    planted: Planted = []
    for first, run, changes, kind, what in (
        (20, 754, {"Elapsed": "12:34"}, "old-elapsed", "Elapsed is MM:SS"),
        (24, 600, {"Elapsed": "00:10:00.400"}, "old-elapsed", "Elapsed has a fraction"),
        (28, 700, {"Elapsed": "INVALID"}, "invalid-elapsed", "Elapsed is INVALID"),
        (36, DAY + 7384, {"Elapsed": "1-02:03:04"}, "long-run", "Elapsed has days"),
        (40, 900, {"Elapsed": "00:20:00"}, "elapsed-disagrees", "Elapsed is five minutes more than the times give"),
        (44, 1800, {"Elapsed": "00:25:00", "Suspended": "00:05:00"}, "suspended", "Elapsed leaves out a suspension"),
        (48, 800, {"Timelimit": "UNLIMITED"}, "no-limit", "Timelimit is UNLIMITED"),
        (52, 800, {"Timelimit": "Partition_Limit"}, "no-limit", "Timelimit is Partition_Limit"),
        (56, 800, {"JobName": "sweep|lr=0.1|seed"}, "delimiter-in-name", "JobName holds the delimiter twice"),
        (60, 800, {"JobName": '24" wafer'}, "quote-in-name", "JobName holds a quote"),
    ):
        job = _take(jobs, first, 1)
        job.run, job.fields, job.state = run, changes, "COMPLETED"
        planted.append((str(job.number), kind, what))
    return planted


def _plant_resources(jobs: list[_Job]) -> Planted:
    planted: Planted = []
    for first, gpus, changes, kind, what in (
        (64, 4, {"AllocTRES": "cpu=32,gres/gpu:a100=4,mem=256G,node=1"}, "typed-only", "no entry gres/gpu"),
        (68, 2, {"AllocTRES": "cpu=16,gres/gpu=2,mem=128G,node=1"}, "untyped", "no model"),
        (72, 2, {"AllocTRES": "cpu=8,gres/gpu:a100_1g.5gb=2,mem=32G,node=1"}, "mig", "two MIG slices"),
        (76, 1, {"AllocTRES": "cpu=4,gres/shard=2,mem=16G,node=1"}, "shards", "two shards of a GPU of unknown size"),
        (80, 2, {"AllocTRES": "", "AllocGRES": "gpu:a100:2"}, "old-gres", "GPUs only in AllocGRES, for each node"),
        (84, 0, {"AllocTRES": "cpu=1.5K,mem=1.5T,node=4", "NNodes": "4", "NodeList": "r[1-2]n[03-04]"},
         "several-brackets", "1.5K CPUs on four nodes in two bracket groups"),
        (88, 0, {"AllocTRES": "cpu=8,node=1", "ReqMem": "4000Mc"}, "request-forms", "ReqMem for each CPU"),
        (92, 0, {"AllocTRES": "cpu=8,node=1", "ReqMem": "4Gn"}, "request-forms", "ReqMem for each node"),
        (96, 0, {"AllocTRES": "cpu=8,node=1", "ReqMem": "256G"}, "request-forms", "ReqMem for the job"),
        (100, 16, {"AllocTRES": "cpu=80,gres/gpu:a100=11,gres/gpu=11,mem=640G,node=2"}, "uneven-gang",
         "11 GPUs on two nodes"),
        (104, 8, {"AllocTRES": "cpu=64,gres/gpu:a100=4,gres/gpu:v100=4,gres/gpu=8,mem=512G,node=1"}, "mixed-models",
         "two models"),
        (150, 4, {"AllocTRES": "cpu=32,gres/gpu:a100=2,gres/gpu=4,mem=256G,node=1"}, "typed-disagree",
         "typed entries do not add up"),
        (154, 1, {"NNodes": "2"}, "extra-node", "NNodes is one more than NodeList names"),
    ):  # fmt: skip
        job = _take(jobs, first, gpus)
        job.fields = {name: cell.replace("a100", job.partition) for name, cell in changes.items()}
        planted.append((str(job.number), kind, what))
    return planted


def _plant_rows(jobs: list[_Job]) -> Planted:
    planted: Planted = []
    for first, gpus in ((6, 1), (16, 4), (34, 8), (160, 1), (165, 8), (170, 2)):
        job = _take(jobs, first, gpus)
        job.after = _steps(job, str(job.number), str(job.number))
        planted.append((f"{job.number}.batch", "step", "with measured use"))
    job = _take(jobs, 108, 0)
    base = job.number
    job.fields = {"JobID": f"{base}_1", "JobIDRaw": str(base + 20_000)}
    job.after = [{"JobID": f"{base}_{task}", "JobIDRaw": str(base + 20_000 + task)} for task in range(2, 6)]
    pending = {**_waiting(job), "JobID": f"{base}_[6-20%4]", "JobIDRaw": str(base), "State": "PENDING"}
    job.after.append({**pending, "Start": "Unknown", "End": "Unknown"})
    planted += [(f"{base}_1 and following", "array", "five tasks"), (f"{base}_[6-20%4]", "pending-array", "15 tasks")]
    job = _take(jobs, 112, 8)
    alone = {"JobID": f"{job.number}+1", "JobIDRaw": str(job.number + 30_000), "NodeList": "r1n03", "Partition": "cpu"}
    job.after = [{**alone, "AllocTRES": _tres(0, 1, "cpu")}]
    job.fields = {"JobID": f"{job.number}+0"}
    planted.append((f"{job.number}+0, {job.number}+1", "heterogeneous", "a GPU and a CPU component"))
    job = _take(jobs, 185, 1)
    job.after = [{}]
    job.fields = {"State": "RUNNING", "End": "Unknown"}
    job.after = [{"State": "COMPLETED", "End": _time(job.start + job.run)}]
    planted.append((str(job.number), "listed-twice", "a run seen while it ran and after its end"))
    early, late = _take(jobs, 2, 1), _take(jobs, 215, 1)
    late.fields = {"JobID": str(early.number), "JobIDRaw": str(early.number), "JobName": "after-wrap"}
    planted.append((str(early.number), "reused-id", "two jobs, days apart"))
    return planted


def _plan_requeues(jobs: list[_Job]) -> list[tuple[_Job, tuple[str, ...]]]:
    planned = []
    for first, gpus, words in REQUEUES:
        job = _take(jobs, first, gpus)
        job.state, job.fields = words[0], {"Priority": "9000"}
        job.hold = sum(REQUEUE_WAIT + run for run in RERUNS[: len(words)])
        planned.append((job, words))
    return planned


def _requeue(planned: list[tuple[_Job, tuple[str, ...]]]) -> Planted:
    """Add the later runs of the requeued jobs, each submitted when the one before it ended."""
    planted: Planted = []
    for job, words in planned:
        states = [*words, "COMPLETED"]
        end = job.start + job.run
        for run, state in zip(RERUNS, states[1:], strict=False):
            start = end + REQUEUE_WAIT
            changes = {"Submit": _time(end), "Start": _time(start), "End": _time(start + run), "State": state}
            job.after.append({**changes, "Elapsed": _duration(run)})
            end = start + run
        planted.append((str(job.number), "requeued", f"{len(states)} runs: {', '.join(states)}"))
    return planted


def _steps(job: _Job, name: str, raw: str) -> list[dict[str, str]]:
    blank = {"Submit": _time(job.start), "Timelimit": "", "User": "", "Partition": "", "Priority": ""}
    busy = f"cpu=00:10:00,gres/gpumem={4 + job.number % 30}G,gres/gpuutil={40 * job.gpus},mem=6G"
    return [
        {**blank, "JobID": f"{name}.batch", "JobIDRaw": f"{raw}.batch", "JobName": "batch", "MaxRSS": "1572864K"},
        {**blank, "JobID": f"{name}.0", "JobIDRaw": f"{raw}.0", "JobName": "python", "TRESUsageInAve": busy},
    ]


def _waiting(job: _Job) -> dict[str, str]:
    """Return the cells of a job that holds nothing."""
    asked = _tres(job.gpus, len(job.nodes), "")
    return {"Elapsed": "00:00:00", "AllocTRES": "", "ReqTRES": asked, "NodeList": "None assigned"}


def _with_unusable(rows: list[str], jobs: list[_Job], header: str, quirks: list[Quirk]) -> list[str]:
    """Return the rows with more that no reader can keep."""
    own = jobs[1].cells()
    last = jobs[-1].number

    def broken(number: int, **changes: str) -> str:
        return _line({**own, "JobID": str(last + number), "JobIDRaw": str(last + number), **changes})

    more = [
        (30, "|".join(broken(1).split("|")[:8]), f"JobID {last + 1}", "few-fields", "eight fields"),
        (60, broken(2, Submit="2024-02-30T12:00:00"), f"JobID {last + 2}", "unreadable-time", "February has 29 days"),
        (90, broken(3, NodeList="gpu[1-99999999]"), f"JobID {last + 3}", "absurd-node-list", "99,999,999 nodes"),
        (120, broken(4, Submit=""), f"JobID {last + 4}", "no-submission", "Submit is empty"),
        (150, broken(5, JobID="total"), "JobID total", "unreadable-id", "not a job id"),
        (180, broken(6, AllocTRES="cpu=many"), f"JobID {last + 6}", "unreadable-tres", "cpu is the word many"),
        (210, header, "line 211", "repeated-header", "the header line of a second export"),
    ]
    rows = list(rows)
    for place, row, record, kind, what in more:
        rows.insert(place - 1 if row == header else place, row)
        quirks.append(Quirk(FILE, record, kind, what, usable=False))
    return rows


def _line(cells: dict[str, str]) -> str:
    return "|".join(cells.get(name, "") for name in COLUMNS) + "|"


def _time(seconds: int) -> str:
    return stamp(seconds).replace(" ", "T")


def _duration(seconds: int) -> str:
    days, rest = divmod(seconds, DAY)
    clock = f"{rest // HOUR:02d}:{rest // 60 % 60:02d}:{rest % 60:02d}"
    return f"{days}-{clock}" if days else clock


def _tres(gpus: int, nodes: int, model: str) -> str:
    cpus = 8 * max(1, gpus)
    typed = f"gres/gpu:{model}={gpus}," if model else ""
    held = f"{typed}gres/gpu={gpus}," if gpus else ""
    return f"cpu={cpus},{held}mem={8 * cpus}G,node={nodes}"


def _node_list(nodes: list[str]) -> str:
    """Spell nodes that share the letters in front of their number as one bracket group."""
    if len(nodes) == 1:
        return nodes[0]
    stem = nodes[0].rstrip("0123456789")
    return f"{stem}[{','.join(node.removeprefix(stem) for node in nodes)}]"
