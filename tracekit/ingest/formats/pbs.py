"""Accounting files of PBS: OpenPBS, PBS Professional and Torque, one a day, named YYYYMMDD.

A line is `MM/DD/YYYY HH:MM:SS;TYPE;JOB;attribute=value ...`. Torque's manual lists the types A, C, D, E, Q, R, S, T and
the times ctime, qtime, etime, start (docs.adaptivecomputing.com, Accounting records); OpenPBS's header acct.h adds
those of reservations, licences and phases of a job, which are counted and not used. Times inside a record are seconds
since 1970; only the deletion, the abort and the rerun of a job, and Torque's Q, have no other time than the wall clock
in front, which is in no stated zone (option timezone).

A job is what its records say together, whatever file they are in: submission (ctime), from when it could start (etime),
a run for each start, with the end of its E record, or of the R, C or A record that closed it. A run that another one
followed without a word of its end has no end, and its nodes are left out.

Exit_status 0 is completed; OpenPBS states limits as -26, -27 (memory: out_of_memory), -28 and -29 (processor time, wall
time: timeout), as job.h names them; any other is failed, 271 (ended by SIGTERM) among them, which both a limit and
qdel cause. A run that ends otherwise than well after a D record asked for it is cancelled.

GPUs are those of exec_vnode (OpenPBS) or exec_gpus (Torque), else those that Resource_List asks for: ngpus, select,
or nodes=2:ppn=8:gpus=2, where sites also write gpu=2. A resource that the option gpu_resource names counts too.
Another one whose name is that of an accelerator (npu, nmics, ngpus_a100) makes the number unknown, and so do nodes
that a job has for itself (place=excl, place=exclhost, naccesspolicy=singlejob) without a word about GPUs. A vnode
such as n1[0] is a part of its host. Members of arrays are jobs of their own, in the group of their array. The cluster
is the server in a job's id; without one it is unknown, and the machines of such a job keep their plain names. A line
may begin with the name of its file, as grep writes it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from tracekit.ingest.devices import GPU_RESOURCE
from tracekit.ingest.formats._pbs_records import LINE, read_records
from tracekit.ingest.formats._record_append import merge_records
from tracekit.ingest.interface import Format, FoundFiles, Option, RawFile, Sink, TimeFrame
from tracekit.ingest.job_records import combine_records
from tracekit.ingest.job_tables import write_job_tables
from tracekit.ingest.localtime import DOUBLED_HOUR, DOUBLED_HOUR_MEANING, require_zone, zone_note

if TYPE_CHECKING:
    from collections.abc import Mapping

    import duckdb

__all__ = ["FORMAT"]

_TRIED = 20


def _looks_right(head: bytes) -> bool:
    """Return whether most of the first lines are accounting records."""
    lines = [line for line in head.decode("utf-8", "replace").lstrip("\ufeff").splitlines()[:_TRIED] if line.strip()]
    if len(lines) > 1 and len(head.splitlines()) <= len(lines):
        lines = lines[:-1]  # the last one may be cut
    return bool(lines) and 2 * sum(LINE.fullmatch(line) is not None for line in lines) > len(lines)


class PbsFormat(Format):
    """Accounting files of one or several servers."""

    name = "pbs"
    title = "PBS accounting (OpenPBS, PBS Professional, Torque)"
    raw_files = (
        RawFile("accounting", "records of jobs, a file a day: server_priv/accounting/YYYYMMDD", "", _looks_right),
    )
    options: ClassVar[Mapping[str, Option]] = {
        "timezone": Option("UTC", "IANA name of the zone of the wall clock in front of each record"),
        "doubled_hour": Option("bounded", DOUBLED_HOUR_MEANING, DOUBLED_HOUR),
        "vc": Option("queue", "what the tenant unit is", ("queue", "account", "project", "group")),
        "gpu_resource": GPU_RESOURCE,
        "model_resource": Option("accelerator_model", "name of the resource that tells a GPU's model"),
    }
    nodes_from_jobs: ClassVar[bool] = True

    def merge_jobs(self, con: duckdb.DuckDBPyConnection, options: Mapping[str, str]) -> None:
        """Combine what both exports say of a job: its records may lie in files of several days."""
        merge_records(con, options)

    def read(self, found: FoundFiles, sink: Sink) -> TimeFrame:
        """Read every file of the source as one log."""
        zone = sink.options["timezone"]
        require_zone(zone)
        staged = sink.stage("records", read_records(found.get("accounting"), sink))
        if staged is not None:
            with sink.connect() as con:
                combine_records(con, staged, sink)
                write_job_tables(con, sink)
        sink.retries = True
        read = zone_note(zone, stated="timezone" in sink.stated)
        sink.note(f"the wall clock in front of each record carries no zone and is {read}")
        return TimeFrame("absolute", zone)


FORMAT = PbsFormat()
