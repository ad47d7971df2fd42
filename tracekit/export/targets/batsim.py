"""Batsim: a JSON workload of jobs, with profiles that describe what they run.

Source: github.com/oar-team/batsim, docs/input-workload.rst. A job has id, subtime [s], res, profile, and optionally a
walltime [s]. A delay profile runs for a fixed time [s] on any platform. Its type is DelayProfile from version 5 on, and
delay before that. From version 5 on, fields unknown to Batsim are in the string extra_data. A resource is a GPU, so the
platform needs one host per GPU.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import orjson
import polars as pl

from tracekit.export.interface import FRACTIONS, ExportLog, Field, JobSelection, Option, Options, Output, Target
from tracekit.export.targets._cluster import cluster_size
from tracekit.export.text import whole_seconds
from tracekit.text import counted

if TYPE_CHECKING:
    from collections.abc import Mapping


_EXTRA = ("job_id", "cluster", "vc", "user", "gpu_model", "cpu_count", "memory_gib")


class BatsimTarget(Target):
    """One workload of delay profiles."""

    name = "batsim"
    title = "Batsim workload"
    reads = "--workload FILE"
    fields = (
        Field("nb_res", "resources of the platform", "the nodes' GPUs, else the most used at once (option resources)"),
        Field("jobs[].id", "identifies the job", "from 1, in submission order"),
        Field("jobs[].subtime", "s since the first submission", "submit_time"),
        Field("jobs[].res", "resources", "gpu_count"),
        Field("jobs[].walltime", "s after which the job is killed", "time_limit_s; left out if unknown"),
        Field("jobs[].profile", "name of the job's profile", "the run time in seconds"),
        Field("jobs[].extra_data", "for the scheduler", ", ".join(_EXTRA)),
        Field("profiles[].delay", "s", "sum of the attempts' run times, at least 1"),
    )
    options: ClassVar[Mapping[str, Option]] = {
        "fractions": FRACTIONS,
        "resources": Option(
            "",
            "GPUs of the platform; if empty, those in the Trace, else as many as its jobs used at once",
            form="count",
        ),
        "walltimes": Option("yes", "whether time limits are written", ("yes", "no")),
        "version": Option("5", "Batsim version, which determines how profiles and extra data are written", ("5", "4")),
    }
    lost = "nodes, attempts, statuses"
    sources = ("github.com/oar-team/batsim, docs/input-workload.rst",)

    def write(self, jobs: JobSelection, out: Output, log: ExportLog, options: Options) -> None:
        """Write the workload, with one profile per distinct run time."""
        resources = options.count("resources") or jobs.machines[2]
        if options.sized:
            nodes, gpus = cluster_size(jobs, log, options)
            resources = nodes * gpus
        if not resources:
            resources = max(jobs.peak, jobs.number("ceil(max(size))"))
            log.note(
                f"the Trace lists no GPUs, so {resources:,} are assumed, the most allocated at one time (option "
                "resources)"
            )
        log.setting(f"the platform needs {counted(resources, 'hosts')}, because a resource is a GPU")
        limits = options.yes("walltimes")
        new = options.values["version"] == "5"
        delays: set[int] = set()
        shorter = 0
        with out.main.open("wb") as file:
            file.write(b'{"nb_res": %d,\n"jobs": [' % resources)
            between = b"\n"
            for block in jobs.blocks("submit_s", "work_s", "size", "time_limit_s", *_EXTRA):
                shorter += int((block["time_limit_s"] < block["work_s"]).sum()) if limits else 0
                rows = block.with_columns(delay=whole_seconds("work_s").clip(lower_bound=1))
                delays.update(rows["delay"].unique())
                lines = rows.select(_job(new=new, limits=limits)).to_series()
                file.write(between + ",\n".join(lines).encode())
                between = b",\n"
            file.write(b'],\n"profiles": {')
            kind = "DelayProfile" if new else "delay"
            for number, delay in enumerate(sorted(delays)):
                file.write(b"," * bool(number) + b"\n" + orjson.dumps(str(delay)) + b": ")
                file.write(orjson.dumps({"type": kind, "delay": delay}))
            file.write(b"}}\n")
        log.changed(shorter, "they ran longer than their time limit, so Batsim kills them (option walltimes)")


def _job(*, new: bool, limits: bool) -> pl.Expr:
    """Return each job as JSON. An unknown time limit is left out, and other unknown values are null."""
    must = [
        pl.col("n").cast(pl.String).alias("id"),
        pl.col("submit_s").alias("subtime"),
        pl.col("size").cast(pl.Int64).alias("res"),
        pl.col("delay").cast(pl.String).alias("profile"),
    ]
    extra = [pl.struct(_EXTRA).struct.json_encode().alias("extra_data")] if new else [pl.col(name) for name in _EXTRA]
    without = pl.struct(*must, *extra).struct.json_encode()
    limit = pl.col("time_limit_s")
    walltime = pl.struct(*must, limit.alias("walltime"), *extra).struct.json_encode()
    return pl.when((limit > 0) & limits).then(walltime).otherwise(without)


MEMBERS = (BatsimTarget(),)
