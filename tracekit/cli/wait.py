"""tracekit wait."""

from __future__ import annotations

import re
from enum import StrEnum
from typing import Annotated

import typer

from tracekit.cli.needs import say_need_of_wait
from tracekit.cli.options import MemoryLimit
from tracekit.cli.streams import print_data, print_json
from tracekit.errors import UsageError

__all__ = ["wait"]


class _Form(StrEnum):
    table = "table"
    csv = "csv"
    json = "json"


def wait(
    history: Annotated[
        str,
        typer.Argument(metavar="HISTORY", help="Trace of the last weeks or months.", show_default=False, path_type=str),
    ],
    gpus: Annotated[
        float | None,
        typer.Option("--gpus", metavar="N", help="GPUs of the job; required if the log records job sizes."),
    ] = None,
    gpu_model: Annotated[str | None, typer.Option("--gpu-model", metavar="NAME", help="Requested GPU model.")] = None,
    partition: Annotated[
        str | None, typer.Option("--partition", metavar="NAME", help="Partition, queue or VC of the job.")
    ] = None,
    qos: Annotated[str | None, typer.Option("--qos", metavar="NAME", help="Quality of service of the job.")] = None,
    account: Annotated[
        str | None, typer.Option("--account", metavar="NAME", help="Account that pays for the job.")
    ] = None,
    time_limit: Annotated[
        str | None,
        typer.Option("--time-limit", metavar="TIME", help="Time limit of the job: 30min, 8h, 2d, or 1-12:00:00."),
    ] = None,
    cluster: Annotated[
        str | None, typer.Option("--cluster", metavar="NAME", help="Cluster, if the history has several.")
    ] = None,
    level: Annotated[
        float, typer.Option("--level", metavar="SHARE", help="Share of waits that the interval should cover.")
    ] = 0.8,
    form: Annotated[_Form, typer.Option("-f", "--output-format", help="How to write the result.")] = _Form.table,
    memory_limit: MemoryLimit = None,
) -> None:
    """Predict how long a job will wait, as an interval based on recent similar jobs.

    Similar jobs have the same cluster and size class, and the same partition, model and so on if there are enough. The
    prediction is for a job submitted at the end of the history. docs/wait.md has the method; the query
    queuing/expected_wait_backtest checks it on the history itself.

    Example: tracekit wait my-trace --gpus 4 --partition gpu --time-limit 8h
    """
    import polars as pl

    from tracekit.characterize.expected_wait.ask import expected_wait
    from tracekit.cli.display import print_table
    from tracekit.spreadsheets import csv_safe
    from tracekit.text import duration, level_percent

    say_need_of_wait(history, memory_limit)
    found = expected_wait(
        history,
        gpus,
        gpu_model=gpu_model,
        partition=partition,
        qos=qos,
        account=account,
        time_limit_s=None if time_limit is None else _seconds(time_limit),
        cluster=cluster,
        level=level,
        memory_limit=memory_limit,
    )
    if form is _Form.json:
        print_json(found.row())
    elif form is _Form.csv:
        print_data(csv_safe(pl.DataFrame([found.row()])).write_csv())
    elif found.enough:
        rows = [(level, found.low_s, found.high_s), *((share, None, s) for share, s in found.quantiles_s.items())]
        words = [(level_percent(share), *("" if s is None else duration(s) for s in ends)) for share, *ends in rows]
        print_table(("of such jobs", "wait at least", "wait at most"), words)
    if form is _Form.table:
        for sentence in found.sentences():
            typer.echo(sentence)
    for note in found.notes:
        typer.echo(f"note: {note}", err=True)


_UNITS = {"s": 1, "min": 60, "h": 3600, "d": 86_400}


def _seconds(text: str) -> float:
    """Return a time in seconds.

    Raises
    ------
    UsageError
        It is none.
    """
    number = re.fullmatch(r"(\d{1,9}(?:\.\d{1,9})?) ?(s|min|h|d)", text.strip())
    if number is not None:
        return float(number[1]) * _UNITS[number[2]]
    clock = re.fullmatch(r"(?:(\d{1,5})-)?(\d{1,5}):(\d\d)(?::(\d\d))?", text.strip())
    if clock is None:
        raise UsageError(f"'{text[:60]}' is not a time", where="--time-limit", hint="write it like 30min, 8h or 2d")
    days, hours, minutes, seconds = (int(part or 0) for part in clock.groups())
    return float(days * 86_400 + hours * 3600 + minutes * 60 + seconds)
