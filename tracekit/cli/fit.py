"""tracekit fit."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from tracekit.cli.needs import say_need_of_jobs
from tracekit.cli.options import Force, MemoryLimit, TraceFolder

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
    force: Force = False,
    memory_limit: MemoryLimit = None,
) -> None:
    """Fit a workload model to a Trace: arrivals, sizes, users, run times, failures.

    FILE is workload.json (docs/workload.md): every fit with its sample size, parameters in scipy's names, standard
    errors, log-likelihood, AIC, BIC and goodness, and how near to the log each method of 'tracekit generate' comes. The
    same Trace and seed give the same bytes.

    Example: tracekit fit my-trace -o workload.json
    """
    from tracekit.cli.display import TerminalProgress, print_table
    from tracekit.fit.scored import fit as fit_trace
    from tracekit.fit.summary import score_rows, score_words, summary_rows
    from tracekit.outputs import check_files

    check_files(out, force=force)
    say_need_of_jobs(trace, "fit", memory_limit)
    with TerminalProgress() as progress:
        model = fit_trace(
            trace, seed=seed, replicates=bootstrap, scores=scores, memory_limit=memory_limit, progress=progress
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
