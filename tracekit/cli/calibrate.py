"""tracekit calibrate."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tracekit.cli.needs import say_need_of_jobs
from tracekit.cli.options import Collect, Shard, TraceFolder
from tracekit.cli.shards import asked_work, echo_shard
from tracekit.places import refuse_remote

__all__ = ["calibrate"]

_SHOWN = 8
"""Candidates of each cluster that the terminal shows."""


def calibrate(
    trace: TraceFolder,
    out: Annotated[Path, typer.Option("-o", "--out", metavar="FILE.toml", help="Where the twin is written.")],
    cluster: Annotated[
        list[str] | None,
        typer.Option("--cluster-name", metavar="NAME", help="Only this cluster; may be repeated. All by default."),
    ] = None,
    limit: Annotated[
        int, typer.Option("--limit", min=1, metavar="N", help="Look at the first N jobs of each cluster only.")
    ] = 100_000,
    seed: Annotated[int, typer.Option("--seed", min=0, help="Seed of the start-up delays drawn.")] = 0,
    shard: Shard = None,
    collect: Collect = False,
) -> None:
    """Find the replay settings that best reproduce the log: the twin of each cluster.

    Settings are chosen by the first 60 % of the time, and graded by how near the replay comes to the waits of the rest:
    close, fair, rough or poor. Effects of changes are reported for close and fair twins. FILE.toml is a scenario to
    read, to edit, and to give to replay, sweep, guidelines, plan and analyze with --twin.

    With --shard I/N the candidates of each stage of the search are divided among N processes, on machines that share
    FILE.toml.runs. A stage needs all results of the one before. A shard that has done its part therefore takes over
    unfinished work of the others, and any shard gets to the end. --collect then writes FILE.toml.

    Example: tracekit calibrate my-trace -o twin.toml
    """
    from tracekit.calibration.api import calibrate as search
    from tracekit.calibration.twin import write_twin
    from tracekit.cli.display import TerminalProgress, print_table

    refuse_remote(out)
    say_need_of_jobs(trace, "calibrate", limit=limit)
    shared = asked_work(out, shard, collect=collect)
    with TerminalProgress() as progress:
        found = search(trace, clusters=cluster or None, limit=limit, seed=seed, shared=shared, progress=progress)
        if shard is None:
            write_twin(found.twin, out)
    if shared is not None and shard is not None:
        echo_shard(shared, "candidates")
        return
    for one in found.clusters:
        table = one.candidates().drop_nulls("distance").head(_SHOWN)
        headers = ["", "distance", "mean wait [s]", "capacity", "rules"]
        rows = [
            ["chosen" if r["chosen"] else "", r["distance"], r["mean_wait_s"], r["capacity"], r["rules"]]
            for r in table.iter_rows(named=True)
        ]
        typer.echo("")
        print_table(headers, rows)
        for line in one.sentences:
            typer.echo(line)
    for name, why in found.left_out.items():
        typer.echo(f"{name}: no twin: {why}")
    typer.echo(f"twin: {out}")
