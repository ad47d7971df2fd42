"""tracekit sweep."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from tracekit.cli.display import TerminalProgress, print_frame
from tracekit.cli.needs import manifest_of, say_need
from tracekit.errors import TracekitError, UsageError
from tracekit.settings import Flag, Shard, Workers
from tracekit.text import counted


def sweep(
    file: Annotated[
        Path | None,
        typer.Argument(metavar="FILE.toml", help="File that lists the combinations; --template prints an example."),
    ] = None,
    out: Annotated[
        Path | None, Flag("-o --output OUT", "Folder for the results. If it contains a sweep, the sweep is resumed.")
    ] = None,
    twin: Annotated[
        Path | None,
        Flag(
            "--twin FILE.toml",
            "Replay in this twin from 'tracekit calibrate', instead of the twin named in the file.",
        ),
    ] = None,
    workers: Workers = None,
    shard: Shard = None,
    collect: Annotated[
        bool, Flag("--collect", "Replay nothing; write the table and the plot from the results of the shards.")
    ] = False,
    allow_missing: Annotated[
        bool, Flag("--allow-missing", "With --collect, write missing runs as rows without values.")
    ] = False,
    template: Annotated[bool, Flag("--template", "Print an example of FILE.toml and exit.")] = False,
) -> None:
    """Replay every combination of policies, placements, clusters, loads, seeds and windows that a file lists.

    Finished runs are kept in OUT/runs. After an interruption or a change to the file, the same command performs only
    the missing runs. OUT/sweep.parquet has one row per run, and OUT/tradeoffs.svg plots the runs. With a twin, each
    combination is compared with the twin's own run. The effect on the recorded times is reported if the twin's grade
    allows it.

    With --shard I/N, the command performs only the runs of shard I of N and writes no table. Shards may run at the same
    time on machines that share OUT. A restarted shard performs its missing runs. --collect then writes the table, or
    names the shards with missing runs.

    Example: tracekit sweep sweep.toml -o out
    """
    import polars as pl

    from tracekit.replay.jobs import TWIN
    from tracekit.report.replay_pictures import tradeoff_svg
    from tracekit.sweeps.file import TEMPLATE
    from tracekit.sweeps.sweep import EFFECTS, PARAMETERS
    from tracekit.sweeps.sweep import sweep as run_sweep

    if template:
        typer.echo(TEMPLATE, nl=False)
        return
    if file is None or out is None:
        raise UsageError("needs FILE.toml and -o OUT", where="sweep", hint="--template prints an example")
    _say_need(file, twin, workers)
    with TerminalProgress() as progress:
        table = run_sweep(
            file,
            out,
            twin=twin,
            workers=workers,
            shard=shard,
            collect=collect,
            allow_missing=allow_missing,
            draw=tradeoff_svg,
            progress=progress,
        )
    if shard is not None:
        done = int(table["error"].is_null().sum())
        typer.echo(f"shard {shard}: {done:,} of {counted(table.height, 'runs')} done")
        in_twin = "" if twin is None else f" --twin {twin}"
        typer.echo(f"when all shards are done: tracekit sweep {file} -o {out}{in_twin} --collect")
        return
    varied = [c for c in PARAMETERS if table[c].n_unique() > 1 or c == "policy"]
    figures = ["avg_jct_s", "avg_queue_s", "p95_queue_s", "gpu_utilization_share", "jain_fairness_vc"]
    known = [c for c in (*(c for c in EFFECTS if "queue" in c), "error") if table[c].is_not_null().any()]
    print_frame(table.select(*varied, *figures, *known))
    for reason in table.filter(pl.col("policy") != TWIN)["effect_reason"].drop_nulls().unique(maintain_order=True):
        typer.echo(f"No effect on the recorded times: {reason}.")
    typer.echo(f"sweep: {out / 'sweep.parquet'}")


def _say_need(file: Path, twin: Path | None, workers: int | None) -> None:
    """Print what the runs need, estimated for the largest Trace and including existing runs."""
    from tracekit.sweeps.file import read_sweep

    try:
        runs = read_sweep(file, twin)
    except TracekitError:  # the sweep itself reports the error
        return
    manifests = {trace: manifest_of(trace) for trace in {run.trace for run in runs}}
    jobs = {t: m.tables["jobs"].rows for t, m in manifests.items() if m is not None and "jobs" in m.tables}
    if not jobs:
        return
    largest = max(sorted(jobs), key=jobs.__getitem__)
    limits = [run.limit for run in runs if run.trace == largest]
    known = [limit for limit in limits if limit is not None]
    limit = max(known) if len(known) == len(limits) else None
    workers = min(workers or os.cpu_count() or 1, len(runs))
    say_need(largest, "replay", limit=limit, runs=len(runs), workers=workers)
