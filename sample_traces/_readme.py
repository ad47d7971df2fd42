"""Write the description of the sample traces and the table of everything planted in them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sample_traces._draw import Quirk, write_rows

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["write_readme"]

INTRODUCTION = """# Sample traces

Small **synthetic** traces in the raw formats of public GPU-cluster releases. No record comes from a release:
`make.py` draws every job, user and machine from seeded random numbers. Use them to try tracekit without a
download and to test readers. Do not use them to draw conclusions about the real clusters. `slurm-dumps/` alone is no
invention: a real Slurm printed it about made-up jobs, and no script draws it again.

| folder | format | contents |
|---|---|---|
| `philly/` | Microsoft Philly, 2017 | about 800 jobs with GPU placement in five weeks, telemetry of 8 servers, 16 h |
| `helios/` | SenseTime Helios, 2020 | two clusters of about 1,500 jobs in four weeks, and daily quotas |
| `alibaba-pai/` | Alibaba PAI, cluster-trace-gpu-v2020 | 400 jobs, tasks, instances, machines; tags and use of some |
| `alibaba-openb/` | Alibaba openb, cluster-trace-gpu-v2023 | three pod lists of about 600 pods and two node lists |
| `alibaba-dlrm/` | Alibaba disaggregated DLRM, cluster-trace-gpu-v2025 | 300 inference instances |
| `alibaba-spot/` | Alibaba spot GPU, cluster-trace-v2026-spot-gpu | 300 jobs and 47 nodes |
| `acme/` | Shanghai AI Laboratory Acme, 2023 | 120 jobs of each of two clusters |
| `swf/` | Standard Workload Format 2.2 | 200 jobs, one of them swapped out |
| `slurm/` | Slurm accounting, sacct --parsable | about 270 jobs of one week, with steps, arrays and requeues |
| `slurm-outages/` | Slurm accounting, machines, node events | some 700 jobs and 70 outages of 24 nodes in 60 days |
| `slurm-dumps/` | Slurm 22.05, sacct in eight forms | some 30 jobs that really ran; its own README tells more |

## What shaped them

- **Philly**: Jeon et al., *Analysis of Large-Scale Multi-Tenant GPU Clusters for DNN Training Workloads*, USENIX ATC
  2019, and the notebook released with the trace. Status shares of jobs (69 / 13.5 / 17 %), run times per size class,
  and mean GPU utilization by size (52 % for 1 GPU, 45 % for 4). Its fall with the number of servers of a 16-GPU gang
  (44, 41 and 29 % on 2, 4 and 8) is a chosen target: the paper has such a table, its text was not at hand to check.
  Placement comes from a small gang scheduler: GPUs are exclusive, each virtual cluster has a quota, waiting attempts
  are tried every three minutes, and locality is relaxed after some tries. So jobs wait for quota and for fitting GPUs.
- **Helios**: Hu et al., *Characterization and Prediction of Deep Learning Workloads in Large-Scale GPU Datacenters*,
  SC 2021. Half of the jobs want no GPU; gang sizes, run times, final states and submissions per hour of the day.
- **PAI**: Weng et al., *MLaaS in the Wild*, NSDI 2022. Shares of states, requests of 25 to 200 % of a GPU, GPU types,
  run times and waits. We chose what workers and machines use, and only some of the jobs have it.
- **openb**: Weng et al., *Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient
  Descent*, USENIX ATC 2023. Shares of requests, service classes and phases, waits and lifetimes.
- **slurm-outages**: no study. Every node goes down 0.05 times a day, `hgx07` 0.4 times, for 6.7 h on average. 16-node
  jobs train one after the other, next to smaller jobs; a job that a node failure stops resumes from the last full 4 h
  of its run.
  So the best interval between checkpoints of such a job is known by Young's formula.

The samples differ from the studies in these points: the Philly cluster is tiny (72 GPUs), so that its queues fill; a
planned set of gangs runs during telemetry, so that each layout has samples; the small Helios virtual clusters give
fewer but longer waits than the published means; PAI gangs have at most 32 instances.

## Generate the samples again

    python sample_traces/make.py [--seed 2017] [-o DIR]

This needs only Python 3.11. The same seed gives the same bytes on every machine: random values use only the
four basic operations, archives carry no times, and they are stored without compression. This file and `quirks.csv`
are written by the same run; change `_readme.py` instead.
"""

TABLE_TEXT = """
## Planted oddities

Most of these occur in the releases or follow from their documentation. Rows marked **unusable** are invented: a
reader must reject the record, or only the one cell if the rest is readable, and count it; all other records must be
kept. The same list is in `quirks.csv`.
"""


def write_readme(folder: Path, seed: int, quirks: Sequence[Quirk]) -> None:
    """Write ``README.md`` and ``quirks.csv`` into the folder."""
    lines = [*INTRODUCTION.split("\n")[:-1], *TABLE_TEXT.split("\n")[:-1], "", f"Seed: {seed}.", ""]
    lines += ["| file | record | kind | what |", "|---|---|---|---|"]
    lines += [_line(quirk) for quirk in quirks]
    write_rows(folder / "README.md", lines)
    rows = ["file,record,kind,usable,what"]
    for quirk in quirks:
        cells = [quirk.file, quirk.record, quirk.kind, "yes" if quirk.usable else "no", quirk.what]
        rows.append(",".join(f'"{cell}"' for cell in cells))
    write_rows(folder / "quirks.csv", rows)


def _line(quirk: Quirk) -> str:
    mark = "" if quirk.usable else "**unusable**: "
    what = quirk.what.replace("|", "\\|")
    return f"| `{quirk.file}` | {quirk.record} | {quirk.kind} | {mark}{what} |"
