"""Read Slurm's accounting database, as printed by `sacct --parsable2` (or `--parsable`, or `--json`).

Manual: slurm.schedmd.com/sacct.html. Columns may be in any order, but must include JobID, Submit, Start, End and State,
and must be named by a header line or the fields option. The header shows the delimiter, and whether pandas or Excel put
quotes around cells. Times are wall-clock times, without a zone, of the machine that printed them, unless
SLURM_TIME_FORMAT made them instants (`%s`, `%FT%T%z`). The times of --json are instants. In the hour that a clock
change repeats, Elapsed decides.

The Trace does not include who cancelled a job, when a run was suspended, or which GPUs of a node a job used. Steps are
used only for measured use. A multi-node job's GPUs on each of its nodes are known if it filled the nodes, had one GPU
on each, or requested a number per node. Otherwise, they are unknown. `sacct` lists jobs that were in any state inside
its time window, so the window cuts jobs on both sides, and jobs that never became eligible are missing. Without
`--duplicates`, only the last run of a requeued job is listed, and its submission is the time of the requeue. A resized
job has one attempt per size. The machines are those that jobs name, each with the most of its GPUs in use at once. Ids
wrap around, so a row submitted more than a day after every earlier row with its id ended is another job (`7#2`).
Account, Partition and QOS have separate columns, including the one used as the tenant. Eligible of a job's first
submission becomes its eligible_time, at which begin times, dependencies and holds end. Reason of the first run becomes
its wait_reason. Slurm records limits and conditions in Reason, and None if the job waited only for priority or
resources. started_by comes from Flags: SchedBackfill, or else SchedMain or SchedSubmit, which both become 'main'. A row
with a delimiter or a line break in a name, comment or command is repaired if the columns around it allow only one way.
Otherwise, the row is rejected. GRES 7696487 is gpu, because Slurm computes a resource's number from the letters of its
name. AllocGRES is for the whole job, and ReqGRES is per node. A type that names a MIG profile is part of a GPU, such as
1/7 for gpu:1g.10gb. A GRES of any other kind may be an accelerator, unless it is a known disk, network, licence or
display. If so, its jobs' GPUs are unknown, it is counted by name, and the gpu_resource option sets how many
GPUs it counts as. If gres/gpu is missing from AccountingStorageTRES, no record lists GPUs, and they are unknown unless
gpus_from gives a source. TotalCPU becomes a step's cpu_s, or the run's if the dump has no steps for the run. An array's
waiting tasks are one row in sacct. Each becomes a job (CLUSTER/ARRAY_TASK) with the request of one task. A job that
another cluster of the federation started (REVOKED) has no outcome and is skipped. Measured memory is the memory of a
step's largest task (MaxRSS). GPU use is summed over a step's tasks if NTasks gives their number.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from tracekit.errors import UsageError
from tracekit.ingest.devices import GPU_RESOURCE
from tracekit.ingest.formats._slurm_json import looks_like_json
from tracekit.ingest.formats._slurm_rows import SacctReader
from tracekit.ingest.formats._slurm_tables import check_gpus_from, write_tables
from tracekit.ingest.formats._slurm_text import COMMAND, check_delimiter, looks_like_sacct
from tracekit.ingest.interface import Format, FoundFiles, Option, RawFile, Sink, TimeFrame
from tracekit.ingest.localtime import DOUBLED_HOUR, DOUBLED_HOUR_MEANING, require_zone, zone_note
from tracekit.ingest.merge_jobs import merge_runs

if TYPE_CHECKING:
    from collections.abc import Mapping

    import duckdb


def _require_shards(text: str) -> None:
    if text and not (text.isascii() and text.isdigit() and 0 < int(text) <= 1_000_000):
        what = f"'{text}' is not a number of shards"
        raise UsageError(what, where="--option shards_per_gpu", hint="give a number such as 4")


class SlurmFormat(Format):
    """Accounting exports of one or several clusters."""

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
    time_cure = "export it again with SLURM_TIME_FORMAT=standard sacct ..., or with %s instead of standard"
    options: ClassVar[Mapping[str, Option]] = {
        "timezone": Option("UTC", "IANA name of the zone in which sacct printed its times", check=require_zone),
        "doubled_hour": Option("bounded", DOUBLED_HOUR_MEANING, DOUBLED_HOUR),
        "vc": Option("account", "the tenant unit", ("account", "partition", "qos")),
        "queue_from": Option(
            "submit",
            "when a job's wait begins: eligible excludes dependencies and begin times",
            ("submit", "eligible"),
        ),
        "fields": Option("", "columns of files without a header line, as given to sacct --format"),
        "delimiter": Option(
            "",
            "column delimiter (sacct --delimiter), one character; detected from the header if empty",
            check=check_delimiter,
        ),
        "gpus_from": Option(
            "listed",
            "GPUs of runs in GPU partitions whose AllocTRES lists none: listed leaves them unknown; partition uses "
            "the command's request, or whole nodes of the partition's typical size; gpu:4,dgx:8 sets the sizes",
            check=check_gpus_from,
        ),
        "shards_per_gpu": Option("", "number of shards per GPU in gres/shard; empty if unknown", check=_require_shards),
        "gpu_resource": GPU_RESOURCE,
    }

    nodes_from_jobs: ClassVar[bool] = True

    def merge_jobs(self, con: duckdb.DuckDBPyConnection, options: Mapping[str, str]) -> None:
        """Combine the runs of both exports as if they had been read together."""
        merge_runs(con, options["queue_from"])

    def read(self, found: FoundFiles, sink: Sink) -> TimeFrame:
        """Read all exports of the source as one log."""
        zone = sink.options["timezone"]
        reader = SacctReader(sink)
        rows = sink.stage("sacct", reader.rows(found.get("sacct")))
        requeued = 0
        if rows is not None:
            with sink.connect() as con:
                requeued = write_tables(con, rows, sink)
        # sacct lists every run only with --duplicates.
        sink.retries = requeued > 0
        sink.note(
            f"{requeued} jobs have several runs, which become their attempts"
            if requeued
            else ("no job has several runs, so attempts are derived, and a requeued job may start at its last requeue")
        )
        if reader.wall_clocks:
            sink.note(f"times have no zone and are {zone_note(zone, stated='timezone' in sink.stated)}")
        if sink.options["queue_from"] == "eligible":
            sink.note("waits count from when a job was eligible (queue_from=eligible), not from its submission")
        return TimeFrame("absolute", zone)


FORMAT = SlurmFormat()
