"""Alibaba PAI, cluster-trace-gpu-v2020: jobs, tasks, instances, their measured use, group tags and machines.

Origin: github.com/alibaba/clusterdata, CC BY 4.0. Study: Weng et al., MLaaS in the Wild, NSDI'22. Times are
seconds with a constant shift: calendar dates mean nothing, hours and weekdays hold in UTC+8.

A PAI job is a set of tasks (worker, parameter server, ...), each a gang of instances. A job's start_time is its
submission; when it got resources shows only in its instances. A job here is a PAI job, its request the sum over
tasks of instances times their plan; `--option unit=task` makes each task a job, as the study's figures count.

A job's group comes from the group tag table; where it has none, the group is unknown, although the published notebook
lets the user stand in. The same table tags about one instance in eleven with the model that it computes (bert, ctr,
graphlearn). That does not distinguish training from inference, so `workload` is derived only from a tag that is one of
the words training, inference and other; the tag itself is the job's `name`, which the source leaves free (with
unit=task the name is the task's, and the tag has no place). Of several tags for one alias the first in the file is
used.

Measured use (job_usage) is each worker's average over its life, CPU and GPU in percent of one core and one GPU. The use
of machines is stated over the lives of their workers only; it is offered as one DERIVED sample for each, at its start.

Known faults: waiting jobs have no times, running rows no end, most failed jobs no end either, so the ends come from
the instances; a worker that was retried has several rows, the last by (status, start, end) is its placement, as in
the published notebook, while a job starts and ends with the first and last of all rows; 0 as a start means unknown;
machines may be missing from the specification; fewer than half of the instances have a measured use.

Lost: which GPU of its machine a worker held, largest memory use, network traffic, GPU use and load of machines, the GPU
type that a group tag asks for (it is only compared).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from tracekit.ingest.formats._pai_jobs import write_jobs
from tracekit.ingest.formats._pai_machines import write_host_samples, write_machines
from tracekit.ingest.formats._pai_staging import PaiTables
from tracekit.ingest.formats._pai_usage import write_usage
from tracekit.ingest.interface import Format, FoundFiles, Option, RawFile, Sink, TimeFrame

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["FORMAT", "TIMEZONE"]

TIMEZONE = "Asia/Shanghai"

_OF_JOBS = ("pai_task_table", "pai_instance_table", "pai_group_tag_table")
"""Tables that give rows only together with the job table."""


def _never(head: bytes) -> bool:  # noqa: ARG001 -- the files have no header to recognize
    return False


def _raw_table(key: str, title: str) -> RawFile:
    return RawFile(key, f"{title}, no header line", rf"{key}(\.csv)?", _never)


class AlibabaPaiFormat(Format):
    """The seven tables of the PAI release."""

    name = "alibaba-pai"
    title = "Alibaba PAI 2020 (cluster-trace-gpu-v2020)"
    raw_files = (
        _raw_table("pai_job_table", "jobs"),
        _raw_table("pai_task_table", "tasks of jobs"),
        _raw_table("pai_instance_table", "instances of tasks"),
        _raw_table("pai_sensor_table", "measured use of instances"),
        _raw_table("pai_group_tag_table", "group and model of jobs"),
        _raw_table("pai_machine_spec", "machines"),
        _raw_table("pai_machine_metric", "use of machines over the lives of instances"),
        RawFile("header", "column order of a table", r"pai_\w+\.header", _never),
    )
    options: ClassVar[Mapping[str, Option]] = {
        "unit": Option("job", "what becomes a job: a PAI job, or each of its tasks", ("job", "task"))
    }

    def read(self, found: FoundFiles, sink: Sink) -> TimeFrame:
        """Copy the machines and their use, then join the other tables into jobs, attempts, placements and usage."""
        tables = PaiTables(found, sink)
        machines = write_machines(tables, sink)
        if tables.has("pai_machine_metric"):
            write_host_samples(tables, sink, machines)
        with sink.connect() as con:
            if tables.has("pai_job_table"):
                write_jobs(con, tables, sink)
            else:
                _read_for_the_account(tables, sink)
            if tables.has("pai_sensor_table"):
                write_usage(con, tables, sink)
        sink.note("PAI states memory in GB; it is taken as GiB, as the machines' sizes (512, 768) suggest")
        return TimeFrame("shifted", TIMEZONE, note="times carry a constant shift: only hours and weekdays hold")


def _read_for_the_account(tables: PaiTables, sink: Sink) -> None:
    """Read the tables that give nothing without jobs, so that their records are counted."""
    alone = [key for key in _OF_JOBS if tables.has(key)]
    for key in alone:
        for _ in tables.rows(key):
            pass
    if alone:
        sink.note(f"there is no pai_job_table, so {', '.join(alone)} is read and checked but gives no jobs")


FORMAT = AlibabaPaiFormat()
