"""Logs of IBM Spectrum LSF: lsb.acct, and what bhist -l, bacct -l and bjobs -o ... -json print.

lsb.acct (ibm.com/docs, lsb.acct): a line is a finished job, its fields in a fixed order, times in seconds since 1970.
It has no jobs that still wait or run. The manual lists options3 before runLimit; records of known jobs have the run
limit first, which is what is read here. What each host used takes six fields a host (the last one counts pairs behind
it), in some records five; the layout in which the effective resource requirement looks like one counts. Versions add
fields at the end; a line that ends before that requirement, or fits neither layout, is used without it, and counted
(short_records). exitInfo numbers why LSF ended a job, as the manual's table
of termination reasons says.

bhist -l reads the event log, so it tells every run of a job; bacct -l tells the last one. Their times, and those of
bjobs, are a wall clock without zone (option timezone), and without a year unless LSB_DISPLAY_YEAR is set (option year).

A job starts when it is dispatched. GPUs are those of the table GPU_ALLOCATION or GPU_ALLOC, else what the effective
resource requirement reserves: rusage[ngpus_physical=2.00/host] for each host, /task for each slot. Where neither is
there, and for compound requirements, they are unknown. A resource that the option gpu_resource names counts too.
Another one whose name is that of an accelerator makes the number unknown, and so do hosts that a job has for itself
(bsub -x) without a word about GPUs.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar

from tracekit.errors import UsageError
from tracekit.ingest.devices import GPU_RESOURCE
from tracekit.ingest.formats._lsf_acct import read_acct
from tracekit.ingest.formats._lsf_bjobs import read_bjobs
from tracekit.ingest.formats._lsf_cells import Devices
from tracekit.ingest.formats._lsf_history import read_history
from tracekit.ingest.formats._record_append import merge_records
from tracekit.ingest.interface import Format, FoundFiles, Option, RawFile, Sink, TimeFrame
from tracekit.ingest.job_records import combine_records, record_frame
from tracekit.ingest.job_tables import write_job_tables
from tracekit.ingest.localtime import DOUBLED_HOUR, DOUBLED_HOUR_MEANING, require_zone, zone_note
from tracekit.ingest.record_times import RecordTimes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import duckdb
    import polars as pl

__all__ = ["FORMAT"]


class LsfFormat(Format):
    """Accounting and history of one cluster."""

    name = "lsf"
    gpu_cure = "bhist -a -l -u all > bhist.txt"
    title = "IBM Spectrum LSF (lsb.acct, bhist, bacct, bjobs)"
    raw_files = (
        RawFile("acct", "finished jobs: lsb.acct", r"lsb\.acct(\.\d+)?", lambda head: _first(head, rb'"JOB_FINISH" "')),
        RawFile(
            "history", "events of jobs, printed by bhist -l or bacct -l", "",
            lambda head: re.search(rb"(?m)^Job <\d+(\[\d+\])?>, ", head) is not None,
        ),
        RawFile(
            "bjobs", 'jobs of a moment, printed by bjobs -o "..." -json', "",
            lambda head: re.match(rb'\s*\{\s*"COMMAND"\s*:\s*"bjobs"', head) is not None,
        ),
    )  # fmt: skip
    options: ClassVar[Mapping[str, Option]] = {
        "cluster": Option("lsf", "name of the cluster"),
        "timezone": Option("UTC", "IANA name of the zone in which bhist, bacct and bjobs printed their times"),
        "doubled_hour": Option("bounded", DOUBLED_HOUR_MEANING, DOUBLED_HOUR),
        "year": Option("", "year of printed times that carry none; without it such records are rejected"),
        "vc": Option("queue", "what the tenant unit is", ("queue", "project")),
        "gpu_resource": GPU_RESOURCE,
    }
    nodes_from_jobs: ClassVar[bool] = True

    def fill_options(self, given: Mapping[str, str]) -> dict[str, str]:
        """Return the options with defaults filled in.

        Raises
        ------
        UsageError
            An option or a value does not exist.
        """
        filled = super().fill_options(given)
        if filled["year"] and not re.fullmatch(r"(19|20)\d\d", filled["year"], re.ASCII):
            raise UsageError(f"'{filled['year']}' is not a year", where="--option year", hint="give it like 2024")
        return filled

    def merge_jobs(self, con: duckdb.DuckDBPyConnection, options: Mapping[str, str]) -> None:
        """Combine the runs that both exports tell of."""
        merge_records(con, options)

    def read(self, found: FoundFiles, sink: Sink) -> TimeFrame:
        """Read every file of the source as one log."""
        zone = sink.options["timezone"]
        require_zone(zone)
        staged = sink.stage("records", _frames(found, sink))
        several = 0
        if staged is not None:
            with sink.connect() as con:
                combine_records(con, staged, sink)
                several = write_job_tables(con, sink)
        sink.retries = bool(found.get("history")) or several > 0
        if found.get("history") or found.get("bjobs"):
            sink.note(f"printed times carry no zone and are {zone_note(zone, stated='timezone' in sink.stated)}")
        return TimeFrame("absolute", zone)


def _first(head: bytes, begin: bytes) -> bool:
    """Return whether one of the first lines begins so; lsb.acct may begin with other records."""
    return any(line.startswith(begin) for line in head.removeprefix(b"\xef\xbb\xbf").splitlines()[:20])


def _frames(found: FoundFiles, sink: Sink) -> Iterator[pl.DataFrame]:
    options = sink.options
    number = 0
    devices = Devices(sink)
    for kind in ("acct", "history", "bjobs"):
        for file in found.get(kind):
            with sink.opened(file) as opened:
                times = RecordTimes(sink, opened.path)
                blocks = (
                    read_acct(opened, sink, devices)
                    if kind == "acct"
                    else read_history(opened, options["year"], sink, devices)
                    if kind == "history"
                    else read_bjobs(opened, options["year"], sink, devices)
                )
                for rows in blocks:
                    for row in rows:
                        number += 1
                        row["ord"] = number
                        row["cluster"] = options["cluster"]
                        row["vc"] = row.get("partition" if options["vc"] == "queue" else "account")
                    wall = None if kind == "acct" else (options["timezone"], options["doubled_hour"])
                    yield record_frame(rows, times, wall)
    devices.report()


FORMAT = LsfFormat()
