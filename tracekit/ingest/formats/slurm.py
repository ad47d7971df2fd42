"""Slurm's accounting database, as `sacct --parsable2` (or `--parsable`) prints it.

Manual: slurm.schedmd.com/sacct.html. Any columns in any order, as long as JobID, Submit, Start, End and State are among
them and a header line names them. Times are the wall clock of the machine that printed them, in no stated zone.

What is lost or assumed: who cancelled a job; suspension inside a run; which GPUs of a node a job held, and how an
uneven gang was laid out; steps count only for measured use. `sacct` lists a job when it was in any state inside its
window, so the window cuts jobs on both sides. Without `--duplicates` only the last run of a requeued job is listed, and
its submission is the moment of the requeue. Machines are those that jobs name, with the most GPUs held there at once.
Ids wrap around: a row submitted more than a day after every earlier row of its id ended is another job (`7#2`).
Account, Partition and QOS have columns of their own, whichever is the tenant. Eligible, of a job's first submission, is
its eligible_time: begin times, dependencies and holds end then.
Measured memory is that of a step's largest task (MaxRSS); GPU use is summed over its tasks where NTasks tells them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar
from zoneinfo import ZoneInfo

import polars as pl

from tracekit.errors import UsageError
from tracekit.ingest.formats._slurm_append import merge_runs
from tracekit.ingest.formats._slurm_records import header_names
from tracekit.ingest.formats._slurm_rows import read_rows
from tracekit.ingest.formats._slurm_tables import write_tables
from tracekit.ingest.interface import Format, FoundFiles, Option, RawFile, Sink, TimeFrame
from tracekit.ingest.localtime import DOUBLED_HOUR, DOUBLED_HOUR_MEANING

if TYPE_CHECKING:
    from collections.abc import Mapping

    import duckdb

__all__ = ["FORMAT"]


class SlurmFormat(Format):
    """Exports of one or several clusters' accounting."""

    name = "slurm"
    title = "Slurm accounting (sacct)"
    raw_files = (
        RawFile(
            "sacct",
            "jobs and steps, printed by sacct --parsable2",
            r"(?i:.*sacct.*\.(txt|csv|psv|log|out)|sacct)",
            lambda head: {"jobid", "state"} <= set(header_names(head.partition(b"\n")[0])),
        ),
    )
    options: ClassVar[Mapping[str, Option]] = {
        "timezone": Option("UTC", "IANA name of the zone in which sacct printed its times"),
        "doubled_hour": Option("bounded", DOUBLED_HOUR_MEANING, DOUBLED_HOUR),
        "vc": Option("account", "what the tenant unit is", ("account", "partition", "qos")),
        "queue_from": Option(
            "submit",
            "when a job's wait begins: eligible leaves out dependencies and begin times",
            ("submit", "eligible"),
        ),
        "shards_per_gpu": Option("", "shards into which gres/shard divides a GPU; empty when unknown"),
    }

    nodes_from_jobs: ClassVar[bool] = True

    def merge_jobs(self, con: duckdb.DuckDBPyConnection, options: Mapping[str, str]) -> None:
        """Combine the runs of both exports, as if they were read at once."""
        merge_runs(con, options)

    def read(self, found: FoundFiles, sink: Sink) -> TimeFrame:
        """Read every export of the source as one."""
        zone = sink.options["timezone"]
        _check_zone(zone)
        _check_shards(sink.options["shards_per_gpu"])
        rows = sink.stage("sacct", read_rows(found.get("sacct"), sink))
        requeued = 0
        if rows is not None:
            with sink.connect() as con:
                requeued = write_tables(con, rows, sink)
        # Only --duplicates makes sacct list every run.
        sink.retries = requeued > 0
        sink.note(
            f"{requeued} jobs have several runs: attempts are what the source records"
            if requeued
            else "no job has several runs: attempts are derived, and a requeued job may count from its last requeue on"
        )
        how = "an assumption" if zone == "UTC" else "as the option says"
        sink.note(f"times carry no zone and are read as {zone}, {how}; --option timezone=NAME names another")
        if sink.options["queue_from"] == "eligible":
            sink.note("waits count from the moment a job was eligible (queue_from=eligible), not from its submission")
        return TimeFrame("absolute", zone)


def _check_zone(zone: str) -> None:
    try:
        ZoneInfo(zone)
        pl.Series([], dtype=pl.Datetime("us")).dt.replace_time_zone(zone)
    except (KeyError, OSError, ValueError, pl.exceptions.PolarsError) as error:
        hint = "give an IANA name such as Europe/Berlin"
        raise UsageError(f"'{zone}' is not a time zone", where="--option timezone", hint=hint) from error


def _check_shards(text: str) -> None:
    if text and not (text.isascii() and text.isdigit() and 0 < int(text) <= 1_000_000):
        raise UsageError(f"'{text}' is not a number of shards", where="--option shards_per_gpu", hint="give it like 4")


FORMAT = SlurmFormat()
