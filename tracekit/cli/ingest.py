"""tracekit ingest."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tracekit.cli.display import TerminalProgress
from tracekit.cli.needs import say_need_of_files
from tracekit.cli.options import with_map
from tracekit.settings import Flag, Force, IngestSettings, MapFile, Master


def ingest(
    source: Annotated[
        str,
        typer.Argument(
            metavar="SRC",
            help="Folder, file or archive with raw logs, also in a bucket (docs/buckets.md); slurm: runs sacct.",
        ),
    ],
    out: Annotated[Path, Flag("-o --output TRACE", "Folder for the new Trace.")],
    settings: IngestSettings,
    map_file: MapFile = None,
    force: Force = False,
    engine: Annotated[
        str,
        Flag(
            "--engine NAME",
            "Engine that reads telemetry files: duckdb (this process) or spark (one task per file; docs/telemetry.md).",
        ),
    ] = "duckdb",
    master: Master = None,
    append: Annotated[
        bool, Flag("--append", "Add a newer export to TRACE. A job's newer records replace its older ones.")
    ] = False,
) -> None:
    """Read raw logs into a Trace: a folder of Parquet tables in one common schema.

    Unusable records go to the 'rejects' table with file, line, column and reason. For every file, records = kept +
    rejected.

    With --append, daily dumps build up a history. Files already in TRACE change nothing, and a job that is exported
    again counts once. If TRACE does not exist, it is created. A dump without jobs (an idle day) adds nothing.

    With --engine spark, one Spark task reads each telemetry file, on machines that see SRC and TRACE's folder at the
    same paths. The resulting Trace is the same. This pays off for months of telemetry files, not for job logs.

    With SRC slurm:, the command calls sacct once per day and saves its output in TRACE.slurm.

    Example: tracekit ingest sample_traces/philly -o my-trace
    """
    from tracekit.characterize.engines import engine_of
    from tracekit.ingest import ingest_logs

    settings = with_map(map_file, settings)
    say_need_of_files(source, settings.memory_limit)
    with engine_of(engine, master) as runs, TerminalProgress() as progress:
        trace = ingest_logs(
            source, out, settings, force=force, append=append, progress=progress, workers=runs.workers()
        )
    manifest = trace.manifest
    kept = manifest.records - manifest.rejected
    tables = ", ".join(f"{info.rows:,} {name}" for name, info in manifest.tables.items())
    typer.echo(f"{manifest.records:,} records: {kept:,} kept, {manifest.rejected:,} rejected")
    typer.echo(f"Trace: {out} ({tables})")
