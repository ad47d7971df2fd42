"""Write what a site with Slurm would dump: sacct, scontrol show node and sacctmgr show event."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.worlds.site import Job, Run, Site

START = dt.datetime(2026, 3, 1, tzinfo=dt.UTC)
"""Time 0 of every site."""

_COLUMNS = (
    "JobID|JobIDRaw|JobName|Cluster|Submit|Eligible|Start|End|State|Elapsed|Timelimit|AllocTRES|ReqTRES|NNodes|NCPUS"
    "|NodeList|Account|Partition|QOS|User|Reason"
)
_STATES = {"completed": "COMPLETED", "timeout": "TIMEOUT", "node_fail": "NODE_FAIL", "preempted": "PREEMPTED"}


def write_logs(
    site: Site, runs: Sequence[Sequence[Run]], folder: Path, limits: Sequence[str | None] | None = None
) -> None:
    """Write the site's logs to a new folder, with times in UTC.

    `limits` is the word of the last limit that held each job back. By default, every Reason is None.
    """
    folder.mkdir()
    words = limits or [None] * len(runs)
    lines = [
        line for job, ran, word in zip(site.jobs, runs, words, strict=True) for line in _records(site, job, ran, word)
    ]
    (folder / "sacct.txt").write_text("\n".join([_COLUMNS, *lines]) + "\n")
    (folder / "nodes.txt").write_text("\n".join(_nodes(site)))
    if site.outages:
        (folder / "events.psv").write_text("\n".join(_events(site)) + "\n")


def _at(seconds: int) -> str:
    return (START + dt.timedelta(seconds=seconds)).strftime("%Y-%m-%dT%H:%M:%S")


def _length(seconds: int) -> str:
    days, rest = divmod(seconds, 86_400)
    return f"{days}-" * bool(days) + f"{rest // 3600:02}:{rest % 3600 // 60:02}:{rest % 60:02}"


def _records(site: Site, job: Job, ran: Sequence[Run], word: str | None) -> list[str]:
    """Return a line for each run. A requeued job is submitted again when its run ends."""
    lines, submit = [], job.submit
    name = str(job.number) if job.array is None else f"{job.array}_{job.number - job.array}"
    for run in ran:
        models = {site.nodes[n].model for n in run.nodes}
        asked = f"cpu={job.cpus}," + f"gres/gpu={job.gpus}," * bool(job.gpus) + f"mem={job.memory}G,node={job.nodes}"
        typed = "".join(f"gres/gpu:{m}={job.gpus}," for m in models if len(models) == 1 and job.gpus)
        lines.append(
            "|".join(
                [
                    name,
                    str(job.number),
                    "train",
                    "site",
                    _at(submit),
                    _at(submit),
                    _at(run.start),
                    _at(run.end),
                    _STATES[run.how],
                    _length(run.end - run.start),
                    _length(job.limit),
                    typed + asked,
                    asked,
                    str(job.nodes),
                    str(job.cpus),
                    ",".join(site.nodes[n].name for n in run.nodes),
                    job.account,
                    job.partition,
                    job.qos,
                    job.user,
                    word or "None",
                ]
            )
        )
        submit = run.end
    return lines


def _nodes(site: Site) -> list[str]:
    return [
        f"NodeName={n.name} Arch=x86_64\n   CPUAlloc=0 CPUEfctv={n.cpus} CPUTot={n.cpus} CPULoad=0.1\n"
        f"   AvailableFeatures={n.model}\n   ActiveFeatures={n.model}\n   Gres=gpu:{n.model}:{n.gpus}\n"
        f"   RealMemory={n.memory * 1024} AllocMem=0\n   State=IDLE ThreadsPerCore=1 Weight=1\n"
        f"   Partitions={','.join(n.partitions)}\n   CfgTRES=cpu={n.cpus},mem={n.memory}G,gres/gpu={n.gpus}\n"
        for n in site.nodes
    ]


def _events(site: Site) -> list[str]:
    head = "Cluster|NodeName|TimeStart|TimeEnd|State|Reason|User"
    return [head] + [
        f"site|{site.nodes[o.node].name}|{_at(o.begin)}|{_at(o.end)}|DOWN|Not responding|root"
        for o in sorted(site.outages)
    ]
