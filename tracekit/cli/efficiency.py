"""tracekit efficiency."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tracekit.cli.needs import say_need_of_use
from tracekit.cli.options import Anonymize, Force, MemoryLimit, SaltFile, TableFormat, TraceFolder
from tracekit.cli.tables import write_frame
from tracekit.errors import UsageError

if TYPE_CHECKING:
    import polars as pl

    from tracekit.gpu_hours.efficiency import Efficiency

__all__ = ["efficiency"]


def efficiency(
    trace: TraceFolder,
    by: Annotated[
        str | None,
        typer.Option(
            "--by",
            metavar="NAME",
            help=(
                "One row per user, account, partition, qos, gpu_model, vc or cluster. By default user, or account "
                "with --prices."
            ),
        ),
    ] = None,
    form: Annotated[
        TableFormat, typer.Option("-f", "--output-format", help="How to write the result.")
    ] = TableFormat.table,
    out: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Write to a file; '-' is stdout.")
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            "--jobs", metavar="N", min=1, help="Instead list the N jobs that wasted the most, with the reason."
        ),
    ] = None,
    prices: Annotated[
        Path | None,
        typer.Option("--prices", metavar="FILE", help="Instead write the bill with these prices (docs/efficiency.md)."),
    ] = None,
    month: Annotated[
        str | None, typer.Option("--month", metavar="YYYY-MM", help="Only this month of the bill.")
    ] = None,
    anonymize: Anonymize = False,
    salt_file: SaltFile = None,
    force: Force = False,
    memory_limit: MemoryLimit = None,
) -> None:
    """Show who uses GPU-hours, and how many of them are busy, idle, failed or preempted; worst first.

    Example: tracekit efficiency my-trace --by account -f csv -o efficiency.csv
    """
    from tracekit.gpu_hours.efficiency import efficiency as measure
    from tracekit.outputs import check_files

    if jobs is not None and prices is not None:
        raise UsageError(
            "cannot be combined with --prices, because they print two tables",
            where="--jobs",
            hint="give one of the options",
        )
    file = None if out is None or str(out) == "-" else out
    if file is not None:
        check_files(file, force=force)
    say_need_of_use(trace, memory_limit)
    found = measure(
        trace,
        by,
        jobs=jobs or 0,
        prices=prices,
        month=month,
        anonymize=anonymize,
        salt_file=salt_file,
        memory_limit=memory_limit,
    )
    write_frame(_chosen(found), form, file, force=force, guard=True)
    for note in found.notes:
        typer.echo(f"note: {note}", err=True)


def _chosen(found: Efficiency) -> pl.DataFrame:
    if found.bill is not None:
        return found.bill.frame
    return found.frame if found.jobs is None else found.jobs
