"""A small dump of every kind of job, kept as sample_traces/slurm-dumps."""

from __future__ import annotations

import gzip
import re
import shutil
from typing import TYPE_CHECKING

from tests.services import dumps, planted

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tests.services.conftest import Records

__all__ = ["keep_sample"]

_SCENES = (
    "sweep", "cpu", "h100", "gang", "uneven", "het", "odd", "capped", "grouped", "limit", "deadline", "begin", "failed",
    "later", "held", "cancelled", "after", "requeued", "requeued_task", "requeued_het", "suspended", "resized", "lost",
    "victim", "urgent", "drained", "down",
)  # fmt: skip
_TASKS = {"sweep": "_0", "cpu": "_1", "h100": "_1", "capped": "_6", "grouped": "_6"}
"""Scenes with arrays, of which one task is kept."""
_PAIRS = ("uneven", "odd")
"""Scenes of which two jobs are kept instead of one."""
_SAMPLED = ("gang", "uneven", "het", "requeued", "resized", "urgent")
"""Scenes for which scontrol's output during the run is kept."""
_COMPRESSED = ("all-columns", "json", "telemetry")
"""Forms of dumps whose text is large."""
_STEP_S = 5
"""Interval between points of each GPU series [s]."""


def keep_sample(ran: Records, folder: Path) -> None:
    """Write each form of dump of some of the jobs to `folder`, exactly as the cluster printed it."""
    jobs = [
        f"{job}{_TASKS.get(scene, '')}"
        for scene in _SCENES
        for job in ran.done.jobs[scene][: 2 if scene in _PAIRS else 1]
    ]
    for name in [*dumps.VARIANTS, "site", "telemetry"]:
        shutil.rmtree(folder / name, ignore_errors=True)
    variants = [variant for variant in dumps.VARIANTS if variant != "more-columns"]
    dumps.dump_sacct(ran.services, folder, [*variants, "more-columns"], jobs)
    (folder / "more-columns").rename(folder / "site")
    numbers = {line.split("|")[1] for line in (folder / "site" / "sacct.txt").read_text("utf-8").splitlines()}
    samples = list(_first_seen(ran.done.samples, {job for scene in _SAMPLED for job in ran.done.jobs[scene]} & numbers))
    dumps.dump_machines(ran.services, folder / "machines", samples)
    for path in (folder / "machines").iterdir():
        path.rename(folder / "site" / path.name)
    (folder / "machines").rmdir()
    start, end = ran.samples[0].time, ran.samples[-1].time
    mine = "|".join(sorted((number for number in numbers if number.isdigit()), key=int))
    planted.range_queries(ran.services, start, end, folder / "telemetry", _STEP_S, f'{{hpc_job=~"|{mine}"}}')
    for path in sorted(file for file in folder.rglob("*") if file.is_file() and file.name != "README.md"):
        # The folder and the kernel are those of the machine that ran everything.
        text = path.read_text("utf-8").replace(str(ran.services.base), "/cluster")
        text = re.sub(r"OS=Linux .*|(?<=\"Linux) [^\"]*", lambda match: match[0].partition(" ")[0], text)
        path.unlink()
        if path.parent.name in _COMPRESSED:
            path.with_name(f"{path.name}.gz").write_bytes(gzip.compress(text.encode(), mtime=0))
        else:
            path.write_text(text, encoding="utf-8")


def _first_seen(samples: Iterable[str], numbers: set[str]) -> Iterable[str]:
    """Return the first line of each of these jobs' runs, after the time at which it was requested."""
    seen, moment = set(), ""
    for line in samples:
        if line.startswith("#"):
            moment = line
            continue
        run = re.search(r"\bJobId=(\d+) .*\bRestarts=(\d+) .*\bNumNodes=(\d+)", line)
        if run is not None and run[1] in numbers and run.groups() not in seen:
            seen.add(run.groups())
            yield from [moment, line] if moment else [line]
            moment = ""
