"""tracekit wait."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal

import typer

from tracekit.cli.display import print_notes, print_table, write_frame
from tracekit.cli.needs import say_need
from tracekit.cli.options import Where, part_of
from tracekit.cli.streams import print_json
from tracekit.errors import UsageError
from tracekit.settings import Flag, MemoryLimit
from tracekit.text import duration, level_percent


def wait(
    history: Annotated[str, typer.Argument(metavar="HISTORY", help="Trace of recent weeks or months.")],
    gpus: Annotated[float | None, Flag("--gpus N", "GPUs of the job; required if the log records job sizes.")] = None,
    gpu_model: Annotated[str | None, Flag("--gpu-model NAME", "Requested GPU model.")] = None,
    partition: Annotated[str | None, Flag("--partition NAME", "Partition, queue or VC of the job.")] = None,
    qos: Annotated[str | None, Flag("--qos NAME", "Quality of service of the job.")] = None,
    account: Annotated[str | None, Flag("--account NAME", "Account that pays for the job.")] = None,
    time_limit: Annotated[
        str | None, Flag("--time-limit TIME", "Time limit of the job: 30min, 8h, 2d, or 1-12:00:00.")
    ] = None,
    cluster: Annotated[
        str | None, Flag("--cluster --cluster-name NAME", "Cluster, if the history has several.")
    ] = None,
    where: Where = None,
    queue: Annotated[
        Path | None,
        Flag(
            "--queue FILE",
            "Jobs waiting and running now, from 'squeue --json'; by default, those at the end of the history.",
        ),
    ] = None,
    level: Annotated[float, Flag("--level SHARE", "Share of waits that the interval should cover.")] = 0.8,
    form: Annotated[Literal["table", "csv", "json"], Flag("-f --output-format", "Format of the result.")] = "table",
    memory_limit: MemoryLimit = None,
) -> None:
    """Predict how long a job will wait, as an interval based on similar jobs in a similar queue.

    Similar jobs have the same cluster and size class and, if there are enough of them, the same partition, GPU model
    and so on. Of these, tracekit uses jobs that had about as much work ahead of them, and free GPUs or none. The
    prediction is for a job submitted at the end of the history or, with --queue, to the queue in a file. docs/wait.md
    explains the method. The query queuing/expected_wait_backtest tests it on the history itself.

    Example: tracekit wait my-trace --gpus 4 --partition gpu --time-limit 8h
    """
    import polars as pl

    from tracekit.characterize.expected_wait.ask import expected_wait
    from tracekit.ingest.squeue import read_squeue

    say_need(history, "wait", memory_limit)
    found = expected_wait(
        part_of(history, where),
        gpus,
        gpu_model=gpu_model,
        partition=partition,
        qos=qos,
        account=account,
        time_limit_s=None if time_limit is None else _seconds(time_limit),
        cluster=cluster,
        queue=None if queue is None else read_squeue(queue),
        level=level,
        memory_limit=memory_limit,
    )
    if form == "json":
        print_json(found.row())
    elif form == "csv":
        write_frame(pl.DataFrame([found.row()]), form, None, force=False, guard=True)
    elif found.enough:
        rows = [(level, found.low_s, found.high_s), *((share, None, s) for share, s in found.quantiles_s.items())]
        words = [(level_percent(share), *("" if s is None else duration(s) for s in ends)) for share, *ends in rows]
        print_table(("of such jobs", "wait at least", "wait at most"), words)
    if form == "table":
        for sentence in found.sentences():
            typer.echo(sentence)
    print_notes(found.notes)


_UNITS = {"s": 1, "min": 60, "h": 3600, "d": 86_400}


def _seconds(text: str) -> float:
    """Parse a time limit and return it in seconds.

    Raises
    ------
    UsageError
        The string is not a time.
    """
    number = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?) ?(s|min|h|d)", text.strip())
    if number is not None:
        return float(number[1]) * _UNITS[number[2]]
    clock = re.fullmatch(r"(?:(\d{1,5})-)?(\d{1,5}):(\d\d)(?::(\d\d))?", text.strip())
    if clock is None:
        raise UsageError(f"'{text[:60]}' is not a time", where="--time-limit", hint="write it like 30min, 8h or 2d")
    days, hours, minutes, seconds = (int(part or 0) for part in clock.groups())
    return float(days * 86_400 + hours * 3600 + minutes * 60 + seconds)
