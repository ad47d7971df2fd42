"""tracekit fit."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tracekit.cli.display import TerminalProgress, print_notes, print_rows, print_shard, print_table, printable
from tracekit.cli.needs import say_need
from tracekit.cli.options import Where, part_of, shared_work
from tracekit.errors import UsageError
from tracekit.outputs import check_files
from tracekit.settings import Collect, FitSettings, Flag, Force, MemoryLimit, Shard

if TYPE_CHECKING:
    from tracekit.fit.model import WorkloadModel
    from tracekit.runs.ledger import Ledger
    from tracekit.trace import Trace


def fit(
    source: Annotated[
        str,
        typer.Argument(
            metavar="TRACE|MODEL.json",
            help="Folder made by 'tracekit ingest', also in a bucket (docs/buckets.md), or a model to plot.",
        ),
    ],
    out: Annotated[Path | None, Flag("-o --output FILE", "File for the model (JSON).")] = None,
    plots: Annotated[Path | None, Flag("--plots OUT", "Folder for plots of the model.")] = None,
    png: Annotated[bool, Flag("--png", "With --plots: also write PNG files.")] = False,
    *,
    settings: FitSettings,
    where: Where = None,
    shard: Shard = None,
    collect: Collect = False,
    force: Force = False,
    memory_limit: MemoryLimit = None,
) -> None:
    """Fit a workload model to a Trace: arrivals, sizes, users, run times, failures.

    FILE is workload.json (docs/workload.md). It contains every fit with its sample size, parameters under scipy's
    names, standard errors, log-likelihood, AIC, BIC and goodness of fit. It also records how well each method of
    'tracekit generate' matches the log. The same Trace and seed give the same bytes.

    With --shard I/N, N processes on machines that share FILE.runs divide the workloads of --scores. A shard that has
    finished its part takes over unfinished work from the others. --collect then fits the model and adds the scores. Use
    the same --scores in every command.

    With --plots, OUT contains arrivals.svg (arrivals over the week) and one file for each fitted group of run times,
    except VCs. Each file shows the distribution, the survival function on log axes, and observed against fitted
    quantiles. A size class too small for its own fit uses the fit of all jobs, shifted to its median. Notes name the
    groups without a plot.

    Example: tracekit fit my-trace -o workload.json --plots pictures
    """
    from tracekit.fit.model import WorkloadModel

    drawn_alone = Path(source).suffix == ".json"
    _check_outputs(out, plots, shard, png=png, drawn_alone=drawn_alone, collect=collect)
    if drawn_alone and where:
        raise UsageError("cannot be combined with a fitted model", where="--where", hint="give it when you fit")
    if drawn_alone:
        model: WorkloadModel | None = WorkloadModel.read(Path(source))
    else:
        shared = None if out is None else shared_work(out, shard, collect=collect)
        model = _fitted(source, part_of(source, where), out, settings, shared, memory_limit, force=force)
    if model is not None and plots is not None:
        _draw(model, plots, png=png, force=force)


def _check_outputs(
    out: Path | None, plots: Path | None, shard: str | None, *, png: bool, drawn_alone: bool, collect: bool
) -> None:
    """Reject outputs that cannot be combined, before the work starts."""
    if drawn_alone and (out is not None or shard is not None or collect):
        raise UsageError(
            "cannot be combined with a fitted model", where="-o", hint="give only --plots OUT, or fit a Trace"
        )
    if plots is None and png:
        raise UsageError("works only with --plots", where="--png", hint="add --plots OUT")
    if shard is not None and plots is not None:
        raise UsageError("cannot be combined with --shard", where="--plots", hint="give it with --collect")
    if out is None and (plots is None or shard is not None or collect):
        what = "give --plots OUT" if drawn_alone else "give -o FILE, --plots OUT or both"
        raise UsageError("no output is given", hint=what)


def _fitted(
    folder: str,
    source: Trace | str,
    out: Path | None,
    settings: FitSettings,
    shared: Ledger | None,
    memory_limit: str | None,
    *,
    force: bool,
) -> WorkloadModel | None:
    """Fit, write and show a model, or return None for a shard, which only computes scores."""
    from tracekit.fit.model import score_rows, score_words, summary_rows
    from tracekit.fit.scored import fit as fit_trace
    from tracekit.fit.scored import make_scores

    if shared is not None and shared.shard is not None:
        with TerminalProgress() as progress:
            reason = make_scores(source, shared, scores=settings.scores, progress=progress)
        if reason is not None:
            typer.echo(f"no scores: {reason}")
        print_shard(shared, "workloads")
        return None
    if out is not None:
        check_files(out, force=force)
    say_need(folder, "fit", memory_limit)
    with TerminalProgress() as progress:
        model = fit_trace(source, **vars(settings), shared=shared, memory_limit=memory_limit, progress=progress)
        if out is not None:
            model.write(out, force=force)
    print_table(*summary_rows(model))
    arrivals = model.document["arrivals"]
    if arrivals["process"] is not None:
        typer.echo(f"arrivals: {arrivals['process']}; {arrivals['why']}")
    if judged := score_rows(model):
        print_rows(judged, "table")
    if settings.scores:
        typer.echo(score_words(model))
    print_notes(map(printable, model.document["notes"]))
    if out is not None:
        typer.echo(f"model: {out}")
    return model


def _draw(model: WorkloadModel, folder: Path, *, png: bool, force: bool) -> None:
    from tracekit.report.fit_pictures import undrawn, workload_pictures
    from tracekit.report.pictures import write_pictures

    drawn = workload_pictures(model)
    write_pictures(folder, drawn, png=png, force=force)
    print_notes(map(printable, undrawn(model)))
    typer.echo(f"plots: {folder} ({', '.join(drawn)})")
