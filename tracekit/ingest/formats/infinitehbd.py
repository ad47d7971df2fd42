"""InfiniteHBD-Trace (StepFun, 2024): faults of servers that train large language models. It contains no jobs.

Origin: github.com/stepfun-ai/InfiniteHBD-Trace, Apache-2.0. Study: Shou et al., InfiniteHBD, SIGCOMM'25. By its
description, it covers 400 GPU servers over 348 days, starting on 2024-03-30. 231 of them had a fault. A server is
unavailable from fault_start until fault_end. Times are days since the beginning, with four decimals, so their
resolution is 8.64 s. The time of day at which the trace begins and the number of GPUs per server are unknown.

Known faults: the description says that times count from the first event, but that event is at 3.8955. Servers without a
fault have no name: the `servers` option sets the total number, and they are called unnamed-1 and so on. Some faults end
when they begin. A fault may lie inside another fault of the same server.
"""

from __future__ import annotations

from collections import defaultdict, deque
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import orjson
import polars as pl

from tracekit.errors import SourceError, UsageError
from tracekit.ingest.formats._records import Fault, record
from tracekit.ingest.interface import Format, FoundFiles, Option, RawFile, Sink, SourceFile, TimeFrame
from tracekit.ingest.json_array import json_runs
from tracekit.ingest.node_events import cause_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tracekit.ingest.sink import OpenedFile

_TRACE, _STATISTICS = "fault_trace", "fault_statistics"
_CLUSTER = "infinitehbd"
_BEGIN = datetime(1970, 1, 1)
_DAYS = 36_500
_LARGEST_STATISTICS = 16 * 1024 * 1024

_PLANNED = frozenset({"Change", "Test"})
"""Fault classes of servers that people took out of service without any failed part."""

_CAUSES = {
    "Parameter Plane Cable": "network cable",
    "NIC": "nic",
    "Power Supply": "power",
    "Fan": "fan",
    "File System": "file system",
    "Software Tool": "software",
    "Operating System": "software",
    "Firmware": "software",
    "Motherboard": "host",
    "Motherboard Battery": "host",
    "CPU": "host",
    "RAID Card": "host",
    "Riser Card": "host",
    "System Crash": "host",
    "Change": "maintenance",
    "Test": "maintenance",
    "Stress Test Failure": "unknown",
    "Training Task Troubleshooting": "unknown",
    "Unknown Error": "unknown",
    "Other Failures": "unknown",
}
"""Our word for each class. For GPU faults and other classes, it comes from the description."""

_GPU_CAUSES = {
    "GPU DBE(Double Bit ECC) > Threshold": "gpu memory",
    "GPU SBE(Single Bit ECC) > Threshold": "gpu memory",
    "GPU device not found": "gpu lost",
    "GPU Temperature High": "fan",
    "GPU PCI link width low": "host",
    "GPU P2P Bandwidth Low": "unknown",
    "GPU device unknow error": "unknown",
    "Silent Data Corruption": "unknown",
}


class _Moment(NamedTuple):
    """A record that marks the beginning or the end of a fault."""

    day: float
    ends: bool
    node: str
    kind: tuple[str, str, str]
    line: int
    raw: bytes


def _require_number(text: str, name: str, most: int) -> None:
    if text and not (text.isascii() and text.isdigit() and int(text) <= most):
        raise UsageError(f"'{text}' is not a whole number up to {most:,}", where=f"--option {name}")


class InfiniteHbdFormat(Format):
    """Faults of servers."""

    name = "infinitehbd"
    title = "StepFun InfiniteHBD-Trace 2024 (server faults, no jobs)"
    raw_files = (
        RawFile(
            _TRACE,
            "starts and ends of faults",
            r"fault_trace\.json",
            lambda head: b'"fault_type"' in head and b'"event_type"' in head and head.lstrip()[:1] == b"[",
        ),
        RawFile(
            _STATISTICS,
            "fault statistics by level, class and description, used for checks",
            r"fault_statistics\.json",
            lambda head: b'"LevelTotal"' in head and head.lstrip()[:1] == b"{",
        ),
    )
    options: ClassVar[Mapping[str, Option]] = {
        "servers": Option(
            "400",
            "number of monitored servers, including those without a fault, or 0 for only those with a fault",
            check=partial(_require_number, name="servers", most=1_000_000),
        ),
        "gpus_per_server": Option(
            "", "GPUs of a server; empty if unknown", check=partial(_require_number, name="gpus_per_server", most=4_096)
        ),
    }
    no_append: ClassVar[str] = "its times count from the start of the release"

    def read(self, found: FoundFiles, sink: Sink) -> TimeFrame:
        """Read the faults, and compare them with the statistics if present."""
        files = found.get(_TRACE)
        if len(files) != 1:
            raise SourceError(
                f"contains {len(files)} fault files",
                hint="keep only one fault_trace.json: its times count from its start",
            )
        faults = _read_faults(files[0], sink)
        sink.write("node_events", _events(faults, sink))
        sink.write("nodes", _servers(faults, sink))
        for file in found.get(_STATISTICS):
            _compare(file, faults, sink)
        sink.note("the source contains server faults but no jobs")
        return TimeFrame.relative("times are days since the start of the trace, 2024-03-30")


def _read_faults(file: SourceFile, sink: Sink) -> pl.DataFrame:
    """Return one row per fault, ordered by start. `kind` is its level, class and description."""
    with sink.opened(file) as opened:
        moments = sorted(_moments(opened), key=lambda m: (m.day, m.ends))
        began: dict[tuple[str, tuple[str, str, str]], deque[int]] = defaultdict(deque)
        faults: list[tuple[_Moment, float | None]] = []
        twice: list[str] = []
        for moment in moments:
            pending = began[moment.node, moment.kind]
            if not moment.ends:
                if pending and faults[pending[-1]][0].day == moment.day:
                    opened.reject(
                        moment.line, "event_type", "starts a fault that already started at this time", moment.raw
                    )
                    continue
                if pending:
                    twice.append(moment.node)
                pending.append(len(faults))
                faults.append((moment, None))
            elif pending:
                first = pending.popleft()
                faults[first] = (faults[first][0], moment.day)
            else:
                opened.reject(moment.line, "event_type", "ends a fault that has no start", moment.raw)
    sink.check("faults_that_began_twice", len(twice), len(faults), "faults that started again before they ended", twice)
    last = [moment.node for moment, end in faults if end is None]
    sink.check("faults_without_end", len(last), len(faults), "faults without an end; they continue", last)
    rows = [
        {
            "node_id": moment.node,
            "start_time": _time(moment.day),
            "end_time": None if end is None else _time(end),
            "state": "maintenance" if moment.kind[1] in _PLANNED else "down",
            "cause": _cause(*moment.kind[1:]),
            "source_cause": ": ".join(moment.kind),
            "source": "fault_trace",
            "kind": moment.kind,
        }
        for moment, end in faults
    ]
    times = {name: pl.Datetime("us") for name in ("start_time", "end_time")}
    texts = dict.fromkeys(("state", "cause", "source_cause", "source"), pl.String())
    return pl.DataFrame(rows, schema={"node_id": pl.String(), **times, **texts, "kind": pl.List(pl.String)})


def _events(faults: pl.DataFrame, sink: Sink) -> pl.DataFrame:
    """Return one row per outage. A server's faults that begin together are one outage, until the last has ended."""
    keys = ("node_id", "start_time", "state", "source")
    end = pl.when(pl.col("end_time").is_null().any()).then(None).otherwise(pl.col("end_time").max()).alias("end_time")
    events = faults.group_by(keys, maintain_order=True).agg(
        end, pl.col("cause").first(), pl.col("source_cause").unique(maintain_order=True).str.join("; ")
    )
    sink.check(
        "faults_that_begin_together", len(faults) - len(events), len(faults),
        "faults that start at the same time as another fault of the same server; they count as one outage",
    )  # fmt: skip
    return events


def _moments(opened: OpenedFile) -> list[_Moment]:
    moments: list[_Moment] = []
    for run in json_runs(opened.stream, opened.path):
        opened.count(len(run.texts) + len(run.bad))
        for stray in run.bad:
            opened.reject(stray.line, None, stray.reason, stray.raw)
        for line, raw in zip(run.lines.tolist(), run.texts, strict=True):
            with record(opened, line, raw):
                moments.append(_moment(line, raw))
    return moments


def _moment(line: int, raw: bytes) -> _Moment:
    """Parse one record.

    Raises
    ------
    Fault
        A value is missing or invalid.
    """
    try:
        held = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise Fault(None, f"is not JSON: {str(error)[:120]}") from None
    day, what, node = (held.get(name) for name in ("event_time", "event_type", "node_id"))
    if not isinstance(node, str) or not node:
        raise Fault("node_id", "is missing")
    if isinstance(day, bool) or not isinstance(day, int | float) or not 0 <= day <= _DAYS:
        raise Fault("event_time", f"is not a number of days from 0 to {_DAYS:,}")
    if what not in ("fault_start", "fault_end"):
        raise Fault("event_type", "is neither fault_start nor fault_end")
    # The kind shows which end belongs to which start. Without a kind, a fault would never end.
    kind = held.get("fault_type")
    if kind is not None and not isinstance(kind, dict):
        raise Fault("fault_type", "is not an object")
    level, part, text = ((kind or {}).get(name) or "" for name in ("Level", "Class", "Desc"))
    if not all(isinstance(word, str) for word in (level, part, text)):
        raise Fault("fault_type", "has a part that is not text")
    return _Moment(float(day), what == "fault_end", node, (level, part, text), line, raw)


def _time(day: float) -> datetime:
    """Convert a day to a time rounded to 0.01 s, because days with four decimals have a resolution of 8.64 s."""
    return _BEGIN + timedelta(seconds=round(day * 86_400, 2))


def _cause(part: str, text: str) -> str:
    own = _GPU_CAUSES.get(text) if part == "GPU" else _CAUSES.get(part)
    return own or cause_of(f"{part}: {text}") or "unknown"


def _servers(faults: pl.DataFrame, sink: Sink) -> pl.DataFrame:
    """Return the servers with a fault, and unnamed servers up to the number of monitored servers."""
    names = faults["node_id"].unique().sort().to_list()
    watched = int(sink.options["servers"] or 0)
    more = max(0, watched - len(names))
    if more:
        sink.note(
            f"{more:,} of {watched:,} servers had no fault, so they have no name and are called unnamed-1, "
            "unnamed-2, ... (option servers)"
        )
    sink.check(
        "servers_beyond_those_watched",
        max(0, len(names) - watched) if watched else 0,
        len(names),
        "servers with faults in excess of the monitored number (option servers)",
    )
    gpus = int(sink.options["gpus_per_server"]) if sink.options["gpus_per_server"] else None
    every = [*names, *(f"unnamed-{number}" for number in range(1, more + 1))]
    return pl.DataFrame({"node_id": every}).with_columns(
        cluster=pl.lit(_CLUSTER), gpu_count=pl.lit(gpus, dtype=pl.Int64)
    )


def _compare(file: SourceFile, faults: pl.DataFrame, sink: Sink) -> None:
    """Find the kinds of faults whose count differs from the statistics.

    Raises
    ------
    SourceError
        The file is not a table of faults by level, class and description.
    """
    with sink.opened(file) as opened:
        text = opened.stream.read(_LARGEST_STATISTICS)
        try:
            stated = dict(_stated(orjson.loads(text)))
        except (orjson.JSONDecodeError, AttributeError, TypeError) as error:
            raise SourceError("is not a table of faults by level, class and description", where=file.path) from error
        opened.count(len(stated))
    ours = {tuple(kind): count for kind, count in faults.group_by("kind").len().iter_rows()}
    other = sorted(": ".join(kind) for kind in {*ours, *stated} if ours.get(kind, 0) != stated.get(kind, 0))
    sink.check(
        "faults_against_statistics", len(other), len({*ours, *stated}),
        "kinds of faults whose number in the trace differs from the number in its statistics", other,
    )  # fmt: skip


def _stated(levels: dict[str, Any]) -> Iterator[tuple[tuple[str, ...], int | None]]:
    """Yield each kind of fault with its count in the statistics, or None if the count is not a number."""
    for level, classes in levels.items():
        for part, texts in classes.items():
            if part != "LevelTotal":
                for text, number in texts.items():
                    if text != "ClassTotal":
                        yield (level, part, text), number if type(number) is int else None


FORMAT = InfiniteHbdFormat()
