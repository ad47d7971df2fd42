"""A site's mix in one log: MIG slices, GPUs without counters, an NPU, no time limits, a lost end, an array that waits.

Every number of the first screen is worked by hand, over the six hours from 08:00 to the last submission at 14:00.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.report.asking import asking
from tracekit.analysis import analyze
from tracekit.characterize import answer_query
from tracekit.trace import Trace

if TYPE_CHECKING:
    from pathlib import Path

HEADER = (
    "JobID|User|Account|Partition|Submit|Start|End|State|Timelimit|AllocTRES|ReqTRES|NNodes|NodeList|TRESUsageInTot"
)
ZEROS, HALF = "gres/gpumem=0,gres/gpuutil=0", "gres/gpumem=30G,gres/gpuutil=200"
NODES = """NodeName=mig1 CPUTot=64 RealMemory=512000 Gres=gpu:1g.10gb:7 State=IDLE Partitions=mig
NodeName=amd1 CPUTot=64 RealMemory=512000 Gres=gpu:mi250:4 State=IDLE Partitions=amd
NodeName=n1 CPUTot=64 RealMemory=512000 Gres=gpu:a100:4 State=IDLE Partitions=a100
NodeName=n2 CPUTot=64 RealMemory=512000 Gres=gpu:a100:4 State=IDLE Partitions=a100
NodeName=npu1 CPUTot=64 RealMemory=512000 Gres=npu:8 State=IDLE Partitions=npu
"""


def job(
    number: int, user: str, times: tuple[str, str, str], state: str, limit: str, gres: str, node: str, use: str = ""
) -> str:
    """Return the lines of a job and its only step; times are those of submission, start and end."""
    submit, start, end = (f"2026-03-02T{time}:00" if time else "Unknown" for time in times)
    tail = f"gres/{gres},node=1|gres/{gres}|1|{node}|"
    account = {"ana": "physics", "ben": "speech", "cyd": "vision"}[user]
    row = f"{user}|{account}|p|{submit}|{start}|{end}|{state}|{limit}|{tail}"
    return f"{number}|{row}\n{number}.0||{account}||{start}|{start}|{end}|{state}||{tail}{use}\n"


LOG = "".join(
    [
        f"{HEADER}\n",
        job(1, "ana", ("08:00", "08:00", "12:00"), "COMPLETED", "1-00:00:00", "gpu:1g.10gb=7", "mig1"),
        job(2, "ben", ("08:00", "08:30", "12:30"), "COMPLETED", "1-00:00:00", "gpu:mi250=4", "amd1", ZEROS),
        job(3, "ben", ("09:00", "12:30", "14:30"), "FAILED", "1-00:00:00", "gpu:mi250=2", "amd1", ZEROS),
        job(4, "ana", ("08:00", "08:00", "10:00"), "COMPLETED", "UNLIMITED", "gpu:a100=4", "n1", HALF),
        job(5, "ana", ("08:00", "10:00", "14:00"), "COMPLETED", "UNLIMITED", "gpu:a100=2", "n1", ZEROS),
        job(6, "cyd", ("08:00", "08:00", "12:00"), "COMPLETED", "Partition_Limit", "npu=8", "npu1"),
        # It was to end at 10:00.
        job(8, "cyd", ("08:00", "08:00", ""), "RUNNING", "02:00:00", "gpu:a100=4", "n2"),
        "7_[0-9]|cyd|vision|p|2026-03-02T14:00:00|Unknown|Unknown|PENDING|UNLIMITED||gres/gpu=4|1|None assigned|\n",
    ]
)


@pytest.fixture(scope="module")
def analysed(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Any], Trace]:
    """Return report.json of the log, and its Trace."""
    folder = tmp_path_factory.mktemp("site")
    source: Path = folder / "logs"
    source.mkdir()
    (source / "sacct.txt").write_text(LOG)
    (source / "nodes.txt").write_text(NODES)
    asked = (
        "overview/summary",
        "overview/status",
        "queuing/gpu_time_held",
        "utilization/held_gpus",
        "failures/lost_work",
        "overview/through_time",
    )
    with asking(*asked):
        done = analyze(source, folder / "out", fit=False, replay_jobs=0)
    return json.loads(done.data.read_text()), Trace.open(done.trace)


def test_every_number_of_the_first_screen_by_hand(analysed: tuple[dict[str, Any], Trace]) -> None:
    report, _ = analysed
    opening = report["opening"]
    # Seven slices are one card; the NPUs are none that is known: 1 + 4 + 4 + 4 GPUs. The array is ten jobs.
    assert opening["about"] == (
        "A cluster of 5 nodes with 13 GPUs (stated by scontrol) in 3 accounts. 3 users submitted 16 GPU jobs "
        "(1 more of unknown size). The log spans 6.5 hours."
    )
    # Waits of 0, 0, 0, 0.5, 2 and 3.5 h: 6 h of 6 jobs; their 90th percentile lies half way from 2 h to 3.5 h.
    # Held by 14:00: 1 x 4, 4 x 4, 2 x 1.5, 4 x 2, 2 x 4 and 4 x 2 = 47 of 13 x 6 = 78 GPU-hours: the job without an
    # end counts up to its limit.
    assert opening["state"] == (
        "Jobs wait 1 h on average, and one in ten waits longer than 2.75 h. Of the GPU time, 39.7 % is unallocated."
    )
    numbers = {one["label"]: (one["value"], one["note"]) for one in report["headline"]}
    assert numbers == {
        "mean wait of GPU jobs": (3600.0, "one in ten jobs waits longer than 2.75 h; 10 jobs never started"),
        "total waiting time": (6.0, "until their first start"),
        "GPUs allocated": (
            pytest.approx(47 / 78),
            "of 13 GPUs, up to the last submission (including running jobs)",
        ),
        # 4 + 16 + 8 + 8 of the 40 GPU-hours, and 4 of 16 jobs.
        "of the GPU time spent on jobs that completed": (pytest.approx(36 / 40), "25.0 % of the jobs completed"),
        "GPU-hours": (40.0, "of finished runs (1 job still running at the end took 8 more)"),
    }
    lacks = [(lack["name"], lack["text"]) for lack in opening["lacks"]]
    assert lacks == [
        ("devices", "The GPUs of 1 job are unknown because of devices such as npu."),
        ("zone", "Times are interpreted as UTC because the time zone is unknown."),
    ]
    assert "No problem found" not in opening["heading"]


def test_what_was_not_measured_is_unknown_beside_what_was(analysed: tuple[dict[str, Any], Trace]) -> None:
    _, trace = analysed
    frame = answer_query(trace, "utilization/efficiency", {"by": "gpu_model"}).frame
    rows = {r["key"]: (r["held_gpu_h"], r["used_gpu_h"], r["idle_gpu_h"]) for r in frame.to_dicts()}
    # Job 4 used half of 8 GPU-hours, job 5 none of 8, and job 8 held 8; the mi250 show nothing in any job, and slices
    # have no counter.
    assert rows == {
        "a100": (24.0, 4.0, 12.0),
        "mi250": (20.0, None, None),
        "1g.10gb": (pytest.approx(4.0), None, None),
        None: (None, None, None),
    }
    jobs = trace.scan("jobs").select("job_id", "gpu_count", "time_limit_s").collect()
    known = {job.removeprefix("slurm/"): (gpus, limit) for job, gpus, limit in jobs.iter_rows()}
    assert known["1"] == (pytest.approx(1.0), 86400.0)
    assert known["5"] == (2.0, None)
    assert known["6"] == (None, None)
    assert [known[f"7_{task}"] for task in range(10)] == [(4.0, None)] * 10
    found = {name: check.count for name, check in trace.manifest.checks.items() if check.count}
    assert found == {
        "unknown_devices_of_jobs": 1,
        "unknown_devices_of_machines": 1,
        "unmeasured_gpu_use": 2,
        "running_past_limit": 1,
    }
