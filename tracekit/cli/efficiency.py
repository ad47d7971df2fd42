"""tracekit efficiency."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from tracekit.cli.display import file_of, print_notes, write_frame
from tracekit.cli.needs import say_need
from tracekit.cli.options import TraceFolder, Where, part_of
from tracekit.errors import UsageError
from tracekit.settings import Anonymize, Flag, Force, MemoryLimit, OutFile, SaltFile, TableForm


def efficiency(
    trace: TraceFolder,
    by: Annotated[
        str | None,
        Flag(
            "--by NAME",
            "One row per user, account, partition, qos, gpu_model, vc or cluster. By default user, or account with "
            "--prices.",
        ),
    ] = None,
    form: TableForm = "table",
    out: OutFile = None,
    jobs: Annotated[int | None, Flag("--jobs N", "Instead, list the N most wasteful jobs, with the reason.", 1)] = None,
    prices: Annotated[
        Path | None, Flag("--prices FILE", "Instead, write the bill with these prices (docs/efficiency.md).")
    ] = None,
    month: Annotated[str | None, Flag("--month YYYY-MM", "Only this month of the bill.")] = None,
    where: Where = None,
    anonymize: Anonymize = False,
    salt_file: SaltFile = None,
    force: Force = False,
    memory_limit: MemoryLimit = None,
) -> None:
    """Show who uses GPU-hours, worst first, and how many of them are busy, idle, failed or preempted.

    Example: tracekit efficiency my-trace --by account -f csv -o efficiency.csv
    """
    from tracekit.gpu_hours.efficiency import efficiency as measure

    if jobs is not None and prices is not None:
        raise UsageError(
            "cannot be combined with --prices, because they print two tables",
            where="--jobs",
            hint="give only one of the two options",
        )
    file = file_of(out, force=force)
    say_need(trace, "use", memory_limit)
    found = measure(
        part_of(trace, where, anonymize=anonymize, quiet=True),
        by,
        jobs=jobs or 0,
        prices=prices,
        month=month,
        anonymize=anonymize,
        salt_file=salt_file,
        memory_limit=memory_limit,
    )
    frame = found.frame if found.jobs is None else found.jobs
    write_frame(frame if found.bill is None else found.bill.frame, form, file, force=force, guard=True)
    print_notes(found.notes)
