"""What `nvidia-smi --query-gpu=timestamp,index,... --format=csv -l SECONDS` prints, with units or without.

docs.nvidia.com/deploy/nvidia-smi. A record is a line of one GPU at one time. Times are wall clock of the machine; the
file does not name it, so its name (or that of its folder) has to hold the machine's, as the log has it. A logger that
is started again writes its header once more; those lines are counted as records and left out. A cell such as [N/A] is
no value.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import polars as pl

from tracekit.errors import SourceError
from tracekit.ingest.fields import parse_block
from tracekit.ingest.localtime import to_utc
from tracekit.ingest.records import RecordReader
from tracekit.ingest.telemetry._interface import Labels, Samples, TelemetryReader

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tracekit.ingest.interface import TimeFrame
    from tracekit.ingest.records import Block
    from tracekit.ingest.sink import OpenedFile, Sink

__all__ = ["READER"]

_COLUMNS: Final = {
    "utilization.gpu": "DCGM_FI_DEV_GPU_UTIL",
    "memory.used": "DCGM_FI_DEV_FB_USED",
    "power.draw": "DCGM_FI_DEV_POWER_USAGE",
}
"""The metric of the same meaning and unit (percent, MiB, W) by the name of the column."""

_TIME = r"^\s*(\d{4}/\d\d/\d\d \d\d:\d\d:\d\d(?:\.\d+)?)\s*$"
_NUMBER = r"^\s*([+-]?\d+(?:\.\d+)?)\s*(?:%|MiB|W)?\s*$"
_HEADERS = "header lines inside a file of nvidia-smi, whose logger was started again"


def _names(line: bytes) -> list[str]:
    """Return the names in a header, without units: utilization.gpu [%] is utilization.gpu."""
    text = line.removeprefix(b"\xef\xbb\xbf").decode("utf-8", "replace")
    return [re.sub(r"\s*\[.*\]\s*$", "", name).strip() for name in text.split(",")]


class NvidiaSmiReader(TelemetryReader):
    """Reads logs of nvidia-smi."""

    name = "nvidia-smi"
    title = "samples as nvidia-smi --query-gpu=timestamp,index,... --format=csv prints them"

    def looks_right(self, name: str, head: bytes) -> bool:  # noqa: ARG002 -- any name will do
        """Return whether the first line is a header of nvidia-smi's."""
        names = set(_names(head.partition(b"\n")[0]))
        return "timestamp" in names and bool(names & {"index", "uuid"}) and bool(names & set(_COLUMNS))

    def read(self, opened: OpenedFile, frame: TimeFrame, hosts: frozenset[str], sink: Sink) -> Iterator[Samples]:
        """Yield the samples of a machine.

        Raises
        ------
        SourceError
            The file's name holds no machine of the log, or several.
        """
        host = _host(opened.path, hosts)
        reader = RecordReader(opened.stream)
        names = _names(reader.first_line() or b"")
        for block, bad in reader.blocks(len(names)):
            opened.count(len(block.lines) + len(bad))
            for record in bad:
                opened.reject(record.line, None, record.reason, record.raw)
            if len(block.lines):
                text, parsed = parse_block(block, opened, len(names), ",")
                yield from _samples(
                    text.rename(dict(zip(text.columns, names, strict=True))), parsed, host, frame, opened, sink
                )


def _samples(
    text: pl.DataFrame, block: Block, host: str, frame: TimeFrame, opened: OpenedFile, sink: Sink
) -> Iterator[Samples]:
    again = (text["timestamp"].str.strip_chars() == "timestamp").fill_null(value=False)
    sink.check("repeated_headers", int(again.sum()), None, _HEADERS)
    cells = text.with_columns(
        pl.lit(None, dtype=pl.String).alias(name) for name in ("index", "uuid") if name not in text.columns
    ).select(
        pl.col("timestamp").str.extract(_TIME).str.to_datetime("%Y/%m/%d %H:%M:%S%.f", strict=False, time_unit="us"),
        pl.col("index").str.strip_chars().cast(pl.Int64, strict=False),
        pl.col("uuid").str.strip_chars(),
        *(
            pl.col(name).str.extract(_NUMBER).cast(pl.Float64, strict=False).alias(metric)
            for name, metric in _COLUMNS.items()
            if name in text.columns
        ),
    )
    unnamed = cells["index"].is_null() & cells["uuid"].is_null()
    for mask, column, reason in (
        (cells["timestamp"].is_null(), "timestamp", "is not a time like 2026/01/31 12:00:00.000"),
        (unnamed & cells["timestamp"].is_not_null(), "index", "names no GPU"),
    ):
        for row in (mask & ~again).arg_true().to_list():
            opened.reject(int(block.lines[row]), column, reason, block.raw(row))
    utc = to_utc(cells["timestamp"], frame.timezone)
    cells = cells.with_columns(time=utc).filter(utc.is_not_null() & ~unnamed)
    for (index, uuid), part in cells.group_by("index", "uuid", maintain_order=True):
        labels = Labels(host, index, uuid, None, None, None, None)
        for metric in set(_COLUMNS.values()) & set(part.columns):
            known = part.select("time", metric).drop_nulls()
            if known.height:
                yield Samples(labels, metric, known["time"].dt.epoch("us").to_numpy(), known[metric].to_numpy())


def _host(path: str, hosts: frozenset[str]) -> str:
    """Return the machine whose name is a whole word of the file's path, the longest of several."""
    words = [path.rpartition(".")[0], path]
    found = [
        host
        for host in hosts
        if any(re.search(rf"(?<![0-9A-Za-z]){re.escape(host)}(?![0-9A-Za-z])", word) for word in words)
    ]
    longest = max((len(host) for host in found), default=0)
    best = [host for host in found if len(host) == longest]
    if len(best) == 1:
        return best[0]
    what = (
        f"its name holds several machines of the log: {', '.join(sorted(best)[:4])}"
        if best
        else "its name holds no machine of the log"
    )
    raise SourceError(what, where=path, hint="name the file after its machine, such as node7.csv")


READER = NvidiaSmiReader()
