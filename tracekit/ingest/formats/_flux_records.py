"""From the eventlogs of Flux jobs to rows of `tracekit.ingest.job_records`."""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

from tracekit.ingest.cells import LAST_SECOND
from tracekit.ingest.devices import UnknownDevices, device_factors, is_gres_device
from tracekit.ingest.formats._flux_resources import Resources, asked_for, given
from tracekit.ingest.job_records import record_frame
from tracekit.ingest.json_items import json_items
from tracekit.ingest.lost_cells import LostValues
from tracekit.ingest.record_times import RecordTimes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import polars as pl

    from tracekit.ingest.files import SourceFile
    from tracekit.ingest.job_records import Row
    from tracekit.ingest.sink import Sink

__all__ = ["read_jobs"]

_FILE_RECORDS = 1 << 40
_BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_F58 = re.compile(rf"[f\u0192]([{_BASE58}]{{1,12}})")
_FATAL = {"cancel": "cancelled", "timeout": "timeout"}
"""The status of an exception that ended a job, by its type; failed for any other."""
_DURATION = "attributes.system.duration"


class _Event(NamedTuple):
    time_s: float
    name: str
    context: Mapping[str, Any]


def read_jobs(files: list[SourceFile], sink: Sink) -> Iterator[pl.DataFrame]:
    """Yield the usable records of files in frames to stage."""
    factors = device_factors(sink.options["gpu_resource"])
    unknown = UnknownDevices(sink, "jobs")
    for number, file in enumerate(files):
        with sink.opened(file) as opened:
            times = RecordTimes(sink, opened.path)
            place = number * _FILE_RECORDS
            for items in json_items(opened, "jobs"):
                rows, holders = [], []
                for item in items:
                    place += 1
                    lost = LostValues()
                    try:
                        row, devices = _row(item.value, sink.options, factors, lost)
                    except ValueError as error:
                        column, _, reason = str(error).partition(": ")
                        opened.reject(item.line, column, reason, item.raw)
                        continue
                    lost.count(sink)
                    if devices:
                        holders.append((str(row["job_id"]), "|".join(sorted(devices))))
                    rows.append(row | {"line": item.line, "ord": place})
                unknown.add(holders, len(rows))
                if rows:
                    yield record_frame(rows, times)
    unknown.report()


def _row(
    held: Mapping[str, Any], options: Mapping[str, str], factors: Mapping[str, float], lost: LostValues
) -> tuple[Row, set[str]]:
    """Return the row of a job, and its devices that nobody knows."""
    job = _job_id(held.get("id"))
    events = _events(held.get("eventlog"))
    first = {event.name: event for event in reversed(events)}
    if "submit" not in first:
        raise ValueError("eventlog: has no event submit")
    start = first.get("alloc") or first.get("start")
    end = next((first[name] for name in ("finish", "free", "clean") if name in first), None)
    status, word = _status(events, start is not None, end is not None)
    spec = lost.read("jobspec", _text_of(held.get("jobspec")), _object) or {}
    resources = _resources(held, spec, start is not None, factors, lost)
    row: Row = {
        "job_id": job,
        "cluster": options["cluster"],
        "told": max(event.time_s for event in events),
        "submit_s": first["submit"].time_s,
        "eligible_s": first["depend"].time_s if "depend" in first else None,
        "start_s": None if start is None else start.time_s,
        "end_s": None if end is None else end.time_s,
        "closes": start is None and end is not None,
        "status": status,
        "run_status": status,
        "source_status": word,
        "user": _word(first["submit"].context.get("userid")),
    }
    row |= _attributes(spec, events, options, lost) | resources.row(counted=not resources.unknown)
    return row, resources.unknown


def _resources(
    held: Mapping[str, Any], spec: Mapping[str, Any], ran: bool, factors: Mapping[str, float], lost: LostValues
) -> Resources:
    """Return what a job got where R says so, else what it asked for."""
    text = _text_of(held.get("R"))
    found = lost.read("R", text, lambda text: given(_object(text), factors, is_gres_device))
    if found is not None:
        return found
    # What a job that ran asked for is not what it got: the scheduler may give nodes as a whole.
    if ran or not spec or "R" in lost:
        return Resources()
    try:
        return asked_for(spec, factors, is_gres_device)
    except ValueError as error:
        lost.add("jobspec", str(spec.get("resources"))[:80], str(error))
        return Resources()


def _job_id(value: Any) -> str:
    """Return an id in decimal."""
    text = str(value) if isinstance(value, int | str) and not isinstance(value, bool) else ""
    match = _F58.fullmatch(text)
    if match:
        number = 0
        for letter in match[1]:
            number = number * 58 + _BASE58.index(letter)
        return str(number)
    if not re.fullmatch(r"[\w.\-]{1,200}", text):
        raise ValueError("id: is not the id of a job")
    return text


def _events(value: Any) -> list[_Event]:
    """Return the events of a log in their order, given as text with one a line, or as a list."""
    if isinstance(value, str):
        try:
            value = [orjson.loads(line) for line in value.splitlines() if line.strip()]
        except ValueError:
            raise ValueError("eventlog: is not JSON, one event a line") from None
    if isinstance(value, dict):
        value = [value]
    if not isinstance(value, list) or not value:
        raise ValueError("eventlog: is missing")
    return [_event(one) for one in value]


def _event(value: Any) -> _Event:
    time, name = (value.get("timestamp"), value.get("name")) if isinstance(value, dict) else (None, None)
    if not isinstance(name, str) or isinstance(time, bool) or not isinstance(time, int | float):
        raise ValueError("eventlog: has an event without timestamp or name")  # noqa: TRY004 -- a value of the log
    if not math.isfinite(time) or not 0 < time <= LAST_SECOND:
        raise ValueError("eventlog: has a timestamp that is no time in seconds since 1970")
    context = value.get("context")
    return _Event(float(time), name, context if isinstance(context, dict) else {})


def _status(events: list[_Event], started: bool, ended: bool) -> tuple[str, str]:
    """Return the status, and the event that says it."""
    for event in events:
        if event.name == "exception" and event.context.get("severity") == 0:
            kind = _word(event.context.get("type")) or "exception"
            return (_FATAL.get(kind, "failed") if ended else "running" if started else "pending"), f"exception {kind}"
    if not ended:
        return ("running" if started else "pending"), events[-1].name[:200]
    finish = next((event for event in events if event.name == "finish"), None)
    code = None if finish is None else finish.context.get("status")
    if isinstance(code, bool) or not isinstance(code, int):
        return "unknown", events[-1].name[:200] if finish is None else "finish"
    return ("completed" if code == 0 else "failed"), f"finish status={code}"[:200]


def _attributes(
    spec: Mapping[str, Any], events: list[_Event], options: Mapping[str, str], lost: LostValues
) -> dict[str, Any]:
    """Return names, queue and time limit."""
    system = _under(spec, "attributes", "system")
    duration = system.get("duration")
    names = {name: _word(system.get(name)) for name in ("queue", "bank", "project")}
    for event in events:
        if event.name == "jobspec-update":
            duration = event.context.get(_DURATION, duration)
            names |= {
                name: _word(event.context[f"attributes.system.{name}"])
                for name in names
                if f"attributes.system.{name}" in event.context
            }
    limit = lost.read("duration", None if duration is None else str(duration), _seconds)
    return {
        "vc": names[options["vc"]],
        "account": names["bank"],
        "partition": names["queue"],
        "name": _word(_under(system, "job").get("name")),
        "time_limit_s": limit or None,
    }


def _seconds(text: str) -> float:
    if not re.fullmatch(r"\d{1,10}(\.\d{1,9})?", text, re.ASCII):
        raise ValueError("is not a number of seconds")
    return float(text)


def _word(value: Any) -> str | None:
    """Return a name of a reasonable length; None where it is none."""
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        return None
    return str(value)[:1_000]


def _under(value: Any, *keys: str) -> Mapping[str, Any]:
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value if isinstance(value, dict) else {}


def _text_of(value: Any) -> str | None:
    """Return an object as text, as it stands where it is text; None where it is not there."""
    if value is None or isinstance(value, str):
        return value or None
    return orjson.dumps(value).decode()


def _object(text: str) -> dict[str, Any]:
    try:
        value = orjson.loads(text)
    except ValueError:
        raise ValueError("is not JSON") from None
    if not isinstance(value, dict):
        raise ValueError("is not a JSON object")  # noqa: TRY004 -- a value of the log
    return value
