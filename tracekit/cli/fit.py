"""tracekit fit."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tracekit.cli.needs import say_need_of_jobs
from tracekit.cli.options import Collect, Force, MemoryLimit, Shard, TraceFolder
from tracekit.cli.shards import asked_work, echo_shard

__all__ = ["fit"]


def fit(
    trace: TraceFolder,
    out: Annotated[Path, typer.Option("-o", "--output", metavar="FILE", help="Where to write the model (JSON).")],
    seed: Annotated[int, typer.Option(metavar="N", min=0, help="Seed of the goodness of fit and the bootstrap.")] = 0,
    bootstrap: Annotated[
        int, typer.Option(metavar="N", min=0, help="Samples drawn for each p-value; 0 leaves the p-values out.")
    ] = 99,
    scores: Annotated[
        int,
        typer.Option(
            metavar="N",
            min=0,
            help="Workloads of each generator that are judged on the log's last part; 0 leaves it out.",
        ),
    ] = 5,
    shard: Shard = None,
    collect: Collect = False,
    force: Force = False,
    memory_limit: MemoryLimit = None,
) -> None:
    """Fit a workload model to a Trace: arrivals, sizes, users, run times, failures.

    FILE is workload.json (docs/workload.md): every fit with its sample size, parameters in scipy's names, standard
    errors, log-likelihood, AIC, BIC and goodness, and how near to the log each method of 'tracekit generate' comes. The
    same Trace and seed give the same bytes.

    With --shard I/N only the workloads of --scores are drawn and judged, divided among N processes on machines that
    share FILE.runs; a shard that has done its part takes what the others have not finished. --collect then fits the
    model, with their scores. Give all of them the same --scores.

    Example: tracekit fit my-trace -o workload.json
    """
    from tracekit.cli.display import TerminalProgress, print_table
    from tracekit.fit.scored import fit as fit_trace
    from tracekit.fit.scored import make_scores
    from tracekit.fit.summary import score_rows, score_words, summary_rows
    from tracekit.outputs import check_files

    shared = asked_work(out, shard, collect=collect)
    if shared is not None and shard is not None:
        with TerminalProgress() as progress:
            reason = make_scores(trace, shared, scores=scores, progress=progress)
        if reason is not None:
            typer.echo(f"nothing is scored: {reason}")
        echo_shard(shared, "workloads")
        return
    check_files(out, force=force)
    say_need_of_jobs(trace, "fit", memory_limit)
    with TerminalProgress() as progress:
        model = fit_trace(
            trace,
            seed=seed,
            replicates=bootstrap,
            scores=scores,
            shared=shared,
            memory_limit=memory_limit,
            progress=progress,
        )
        model.write(out, force=force)
    print_table(*summary_rows(model))
    arrivals = model.document["arrivals"]
    if arrivals["process"] is not None:
        typer.echo(f"arrivals: {arrivals['process']}; {arrivals['why']}")
    if judged := score_rows(model):
        print_table(list(judged[0]), [list(row.values()) for row in judged])
    if scores:
        typer.echo(score_words(model))
    for note in model.document["notes"]:
        progress.note(note)
    typer.echo(f"model: {out}")
