"""tracekit sweep."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tracekit.cli.needs import say_need_of_sweep
from tracekit.cli.options import Shard
from tracekit.errors import UsageError

__all__ = ["sweep"]


def sweep(
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE.toml",
            help="File that lists what to combine; --template prints an example.",
            show_default=False,
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "-o", "--output", metavar="OUT", help="Folder for the results; an earlier sweep there is resumed."
        ),
    ] = None,
    twin: Annotated[
        Path | None,
        typer.Option(
            "--twin",
            metavar="FILE.toml",
            help="Make the runs in this twin from 'tracekit calibrate', instead of the one that the file names.",
        ),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(metavar="N", help="Processes; by default one per processor.", min=1)
    ] = None,
    shard: Shard = None,
    collect: Annotated[
        bool,
        typer.Option("--collect", help="Replay nothing; write the table and the plot from the results of the shards."),
    ] = False,
    allow_missing: Annotated[
        bool, typer.Option("--allow-missing", help="With --collect: write missing runs as rows without figures.")
    ] = False,
    template: Annotated[bool, typer.Option("--template", help="Print an example of FILE.toml and exit.")] = False,
) -> None:
    """Replay every combination of policies, placements, clusters, loads, seeds and windows that a file names.

    Finished runs stay in OUT/runs: after an interruption, or a change of the file, the same command makes only the
    missing runs. OUT/sweep.parquet has one row per run, OUT/tradeoffs.svg plots them. In a twin, each combination is
    compared with the twin's own run, and its effect on the recorded times is reported if the twin's grade allows it.

    With --shard I/N the command makes only the runs of one shard of N, and no table. Shards may run at the same time on
    machines that share OUT; if you run a killed shard again, it makes its missing runs. --collect then writes the
    table, or names the shards whose runs are missing.

    Example: tracekit sweep sweep.toml -o out
    """
    import polars as pl

    from tracekit.calibration.sweep import sweep as run_sweep
    from tracekit.cli.display import TerminalProgress, print_frame
    from tracekit.replay.results.recorded_times import TWIN
    from tracekit.replay.sweeps.file import TEMPLATE
    from tracekit.replay.sweeps.table import EFFECTS, PARAMETERS
    from tracekit.report.replay_pictures import tradeoff_svg
    from tracekit.text import counted

    if template:
        typer.echo(TEMPLATE, nl=False)
        return
    if file is None or out is None:
        raise UsageError("needs FILE.toml and -o OUT", where="sweep", hint="--template prints an example")
    say_need_of_sweep(file, twin, workers)
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
        typer.echo(f"when all shards are: tracekit sweep {file} -o {out}{in_twin} --collect")
        return
    varied = [c for c in PARAMETERS if table[c].n_unique() > 1 or c == "policy"]
    figures = ["avg_jct_s", "avg_queue_s", "p95_queue_s", "gpu_utilization_share", "jain_fairness_vc"]
    known = [c for c in (*(c for c in EFFECTS if "queue" in c), "error") if table[c].is_not_null().any()]
    print_frame(table.select(*varied, *figures, *known))
    for reason in table.filter(pl.col("policy") != TWIN)["effect_reason"].drop_nulls().unique(maintain_order=True):
        typer.echo(f"No effect on the recorded times: {reason}.")
    typer.echo(f"sweep: {out / 'sweep.parquet'}")
