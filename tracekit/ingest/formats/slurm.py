"""Slurm's accounting database, as `sacct --parsable2` (or `--parsable`, or `--json`) prints it.

Manual: slurm.schedmd.com/sacct.html. Any columns in any order, as long as JobID, Submit, Start, End and State are among
them and a header line, or the option fields, names them. Another delimiter than | is read off the header, and so are
quotes, in which pandas and Excel put cells when they save a table. Times are the wall clock of the machine that printed
them, in no stated zone, unless SLURM_TIME_FORMAT made them instants (`%s`, `%FT%T%z`); those of --json are instants. In
the hour that a clock change doubles, Elapsed decides.

What is lost or assumed: who cancelled a job; when inside a run it was suspended; which GPUs of a node a job held; steps
count only for measured use. The GPUs of a gang on each of its nodes are known where it filled them, had one on each, or
asked for so many on each; else unknown. `sacct` lists a job when it was in any state inside its window, so the window
cuts jobs on both sides, and leaves out those that never became eligible. Without `--duplicates` only the last run of a
requeued job is listed, and its submission is the moment of the requeue. A job whose size was changed has an attempt for
each size. Machines are those that jobs name, with the most GPUs held there at once. Ids wrap around: a row submitted
more than a day after every earlier row of its id ended is another job (`7#2`).
Account, Partition and QOS have columns of their own, whichever is the tenant. Eligible, of a job's first submission, is
its eligible_time: begin times, dependencies and holds end then. Reason, of the first run, is its wait_reason; Slurm
keeps limits and conditions there, and None where only priority or resources held a job. Flags tell started_by:
SchedBackfill, else SchedMain or SchedSubmit, both 'main'.
A delimiter or a line break in a name, comment or command is put right where the columns around it leave one way, else
the row is set aside. GRES 7696487 is gpu: Slurm numbers a resource by the letters of its name. AllocGRES counts for the
whole job, ReqGRES for each node. A type that names a MIG profile (gpu:1g.10gb) is a part of a GPU, 1/7. A GRES of any
other kind may be an accelerator, unless it is a known disk, network, licence or display: the GPUs of its jobs are then
unknown, it is counted by name, and the option gpu_resource says what it counts. Where AccountingStorageTRES lacks
gres/gpu no record lists GPUs: they are unknown, or as gpus_from says. TotalCPU is a step's cpu_s, and a run's own where
the dump has no steps of it.
The tasks of an array that wait are one row of sacct, and a job each here (CLUSTER/ARRAY_TASK) with what one task asks
for. A job that another cluster of a federation started (REVOKED) has no outcome and is left out.
Measured memory is that of a step's largest task (MaxRSS); GPU use is summed over its tasks where NTasks tells them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from tracekit.errors import UsageError
from tracekit.ingest.devices import GPU_RESOURCE
from tracekit.ingest.formats._append import merge_runs
from tracekit.ingest.formats._slurm_json import looks_like_json
from tracekit.ingest.formats._slurm_rows import SacctReader
from tracekit.ingest.formats._slurm_tables import check_gpus_from, write_tables
from tracekit.ingest.formats._slurm_text import COMMAND, check_delimiter, looks_like_sacct
from tracekit.ingest.interface import Format, FoundFiles, Option, RawFile, Sink, TimeFrame
from tracekit.ingest.localtime import DOUBLED_HOUR, DOUBLED_HOUR_MEANING, require_zone, zone_note

if TYPE_CHECKING:
    from collections.abc import Mapping

    import duckdb


class SlurmFormat(Format):
    """Exports of one or several clusters' accounting."""

    name = "slurm"
    title = "Slurm accounting (sacct)"
    raw_files = (
        RawFile(
            "sacct",
            "jobs and steps, printed by sacct --parsable2 or --json",
            r"(?i:(?!.*sacctmgr).*sacct.*\.(txt|csv|psv|log|out|json)|sacct)",
            lambda head: looks_like_json(head) or looks_like_sacct(head),
        ),
    )
    gpu_cure = COMMAND
    no_gpus_cure = "AccountingStorageTRES=gres/gpu in slurm.conf, and AllocTRES in sacct --format"
    time_cure = "write it again with SLURM_TIME_FORMAT=standard sacct ..., or with %s in place of standard"
    options: ClassVar[Mapping[str, Option]] = {
        "timezone": Option("UTC", "IANA name of the zone in which sacct printed its times"),
        "doubled_hour": Option("bounded", DOUBLED_HOUR_MEANING, DOUBLED_HOUR),
        "vc": Option("account", "what the tenant unit is", ("account", "partition", "qos")),
        "queue_from": Option(
            "submit",
            "when a job's wait begins: eligible leaves out dependencies and begin times",
            ("submit", "eligible"),
        ),
        "fields": Option("", "columns of files without header line, as sacct --format named them"),
        "delimiter": Option(
            "", "what parts the columns (sacct --delimiter), one character; read off the header if empty"
        ),
        "gpus_from": Option(
            "listed",
            "GPUs of runs in GPU partitions whose AllocTRES lists none: listed leaves them unknown, partition takes "
            "the command's request, else whole nodes of the partition's typical size; gpu:4,dgx:8 states the sizes",
        ),
        "shards_per_gpu": Option("", "shards into which gres/shard divides a GPU; empty when unknown"),
        "gpu_resource": GPU_RESOURCE,
    }

    nodes_from_jobs: ClassVar[bool] = True

    def merge_jobs(self, con: duckdb.DuckDBPyConnection, options: Mapping[str, str]) -> None:
        """Combine the runs of both exports, as if they were read at once."""
        merge_runs(con, options["queue_from"])

    def read(self, found: FoundFiles, sink: Sink) -> TimeFrame:
        """Read every export of the source as one."""
        zone = sink.options["timezone"]
        require_zone(zone)
        shards = sink.options["shards_per_gpu"]
        if shards and not (shards.isascii() and shards.isdigit() and 0 < int(shards) <= 1_000_000):
            raise UsageError(
                f"'{shards}' is not a number of shards", where="--option shards_per_gpu", hint="give it like 4"
            )
        check_delimiter(sink.options["delimiter"])
        check_gpus_from(sink.options["gpus_from"])
        reader = SacctReader(sink)
        rows = sink.stage("sacct", reader.rows(found.get("sacct")))
        requeued = 0
        if rows is not None:
            with sink.connect() as con:
                requeued = write_tables(con, rows, sink)
        # Only --duplicates makes sacct list every run.
        sink.retries = requeued > 0
        sink.note(
            f"{requeued} jobs have several runs, which become their attempts"
            if requeued
            else (
                "no job has several runs, so attempts are derived, and a requeued job may count only from its "
                "last requeue"
            )
        )
        if reader.wall_clocks:
            sink.note(f"times have no zone and are {zone_note(zone, stated='timezone' in sink.stated)}")
        if sink.options["queue_from"] == "eligible":
            sink.note("waits count from when a job was eligible (queue_from=eligible), not from its submission")
        return TimeFrame("absolute", zone)


FORMAT = SlurmFormat()
