"""Read Flux jobs: each job's eventlog, its allocated resources R, and its jobspec.

Flux stores these in its key-value store under these names (RFC 16). `flux jobs` prints neither events nor GPUs. A file
contains one object per job, one per line or in an array: {"id": ..., "eventlog": ..., "R": ..., "jobspec": ...}. Each
value is JSON or the text printed by `flux job info ID KEY`. These commands write a file of this kind:

    flux jobs -A -a --count=0 -no '{id.dec}' | while read id; do
      for key in eventlog R jobspec; do flux job info $id $key > $key.txt 2> /dev/null; done
      jq -cn --arg id $id --rawfile eventlog eventlog.txt --rawfile R R.txt --rawfile jobspec jobspec.txt '$ARGS.named'
    done > flux.jsonl

flux-accounting's job archive has the same columns: sqlite3 -json job-archive.sqlite 'select * from jobs'.

Event times (RFC 18 and 21; flux-framework.readthedocs.io) are seconds since 1970. A job is submitted at `submit`,
eligible from `depend`, has its resources from `alloc`, and ends at `finish` or, if that is missing, at `free` or
`clean`. An exception of severity 0 shows why it ended: cancel means cancelled, timeout means timeout, and anything else
means failed. Without an exception, the job is completed if the wait status of `finish` is 0, and failed if it is not. A
job has one run.

R (RFC 20) lists ranks and the cores and GPUs on each. A job's GPUs are counted in R, and a node without `gpu` has none.
Any other kind of child may be an accelerator, so the number of GPUs is unknown unless the gpu_resource option sets how
many GPUs the child counts as. Host names are in rank order. If R lists ranks in another order, the GPUs of each node
are unknown unless all nodes have equally many. Without R, a job's GPUs are those that the jobspec (RFC 14) requests, or
unknown if it requests a whole node or a range of numbers.

Ids are written in decimal. Ids in the f58 form (fABC, or with a florin sign) are converted. The time limit is the
duration in the jobspec or in the latest jobspec-update, and 0 means no limit.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import orjson

from tracekit.ingest.cells import LAST_SECOND
from tracekit.ingest.devices import GPU_RESOURCE, factor_of, is_gres_device
from tracekit.ingest.formats._records import Devices, Fault, RecordFormat, at, rows_of, write_records
from tracekit.ingest.interface import FoundFiles, Option, RawFile, Sink, TimeFrame
from tracekit.ingest.json_array import json_items
from tracekit.ingest.node_lists import MAX_NODES, expand_nodes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tracekit.ingest.cells import LostValues
    from tracekit.ingest.job_records import Row
    from tracekit.ingest.sink import OpenedFile


# Nodes, cores and GPUs that were allocated to a Flux job (R, RFC 20) or requested (jobspec, RFC 14).

_NUMBERS = re.compile(r"\[?(\d{1,9}(?:-\d{1,9})?(?:,\d{1,9}(?:-\d{1,9})?)*)\]?", re.ASCII)
_MOST = 4_096
"""Maximum number of cores or devices of a node."""
_DEEPEST = 20
_NOT_DEVICES = frozenset({"core", "socket", "numa", "pu", "memory", "node", "slot", "rack", "cluster"})


@dataclass
class Resources:
    """Nodes, cores and GPUs of a job. Unknown values are None or empty."""

    nodes: list[str] = field(default_factory=list)
    node_count: int | None = None
    cores: float | None = None
    gpus: float | None = None
    each: list[float | None] = field(default_factory=list)
    """GPUs of each named node."""
    indices: list[list[int] | None] = field(default_factory=list)
    unknown: set[str] = field(default_factory=set)
    """Devices that may be accelerators."""

    def row(self, *, counted: bool) -> dict[str, Any]:
        """Return the columns of a record row. GPUs are included only if `counted`."""
        found: dict[str, Any] = {"node_count": self.node_count, "cpu_count": self.cores}
        if counted:
            found["gpu_count"] = self.gpus
        if self.nodes:
            found["place_node"] = self.nodes
            found["place_gpu_count"] = self.each if counted else [None] * len(self.nodes)
            found["place_gpu_index"] = self.indices if counted else [None] * len(self.nodes)
        return found


def given(held: Mapping[str, Any], factors: Mapping[str, float]) -> Resources:
    """Return the resources allocated to a job, according to R.

    Parameters
    ----------
    held : mapping
        The R document.
    factors : mapping
        GPUs per device, by device name, from the gpu_resource option.
    """
    entries, nodelist = (at(held, "execution", name) for name in ("R_lite", "nodelist"))
    if not isinstance(entries, list) or not entries:
        raise ValueError("has no list R_lite")
    ranks: list[int] = []
    children: list[Mapping[str, list[int]]] = []
    for entry in entries:
        if not isinstance(entry, dict) or not isinstance(entry.get("children"), dict):
            raise ValueError("has an entry of R_lite without rank and children")  # noqa: TRY004 -- a value of the log
        listed = numbers(entry.get("rank"), MAX_NODES)
        ranks += listed
        children += [{name: numbers(text, _MOST) for name, text in entry["children"].items()}] * len(listed)
        if len(ranks) > MAX_NODES:
            raise ValueError(f"names more than {MAX_NODES} nodes")
    found = Resources(node_count=len(ranks), cores=float(sum(len(one.get("core", ())) for one in children)))
    kinds = {name for one in children for name in one}
    weights = {name: 1.0 if factor is None else factor for name in kinds
               if (factor := factor_of(factors, name)) is not None or name == "gpu"}  # fmt: skip
    found.unknown = {name[:80] for name in kinds - set(weights) - _NOT_DEVICES if is_gres_device(name)}
    counts = [sum(weight * len(one.get(name, ())) for name, weight in weights.items()) for one in children]
    found.gpus = sum(counts)
    whole = weights.get("gpu") == 1.0 and not any(weights[name] for name in weights if name != "gpu")
    found.nodes = _node_names(nodelist, entries, len(ranks))
    if found.nodes:
        in_order = ranks == sorted(ranks) or not isinstance(nodelist, list)
        same = len(set(counts)) == 1
        found.each = [count if in_order or same else None for count in counts]
        found.indices = [one.get("gpu") or None if in_order and whole else None for one in children]
    return found


def _node_names(nodelist: Any, entries: list[dict[str, Any]], count: int) -> list[str]:
    """Return the names of the `count` nodes in R, or [] if R does not name all of them."""
    if isinstance(nodelist, list) and nodelist:
        if not all(isinstance(text, str) for text in nodelist):
            raise ValueError("has a nodelist that is not a list of names")
        names = expand_nodes(",".join(nodelist))
        if len(names) != count:
            raise ValueError("has a nodelist with a different number of nodes than ranks")
        return names
    # An earlier version of R names the host in each entry.
    names = [host for entry in entries if isinstance(host := entry.get("node"), str) and host]
    return names if len(names) == count else []


def numbers(text: Any, most: int) -> list[int]:
    """Parse a set of numbers such as `0-3,7` or `[0-3]` (RFC 22).

    Raises
    ------
    ValueError
        `text` is not a set of numbers, or has more than `most` numbers.
    """
    if text == "":
        return []
    if isinstance(text, int) and not isinstance(text, bool):
        text = str(text)
    match = _NUMBERS.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise ValueError("has a set of numbers that is not like 0-3,7")
    found: list[int] = []
    for part in match[1].split(","):
        first, _, last = part.partition("-")
        low, high = int(first), int(last or first)
        if high < low or len(found) + high - low >= most:
            raise ValueError(f"has a set of more than {most} numbers")
        found += range(low, high + 1)
    return found


def asked_for(spec: Mapping[str, Any], factors: Mapping[str, float]) -> Resources:
    """Return the request in a jobspec. GPUs are unknown if it requests whole nodes or a range of numbers."""
    found = Resources(gpus=0.0, cores=0.0)
    nodes = _add(found, spec.get("resources"), 1.0, factors, 0)
    found.node_count = int(nodes) if nodes is not None and 0 < nodes <= MAX_NODES else None
    return found


def _add(found: Resources, listed: Any, times: float | None, factors: Mapping[str, float], depth: int) -> float | None:
    """Add resources, multiplied by `times`, and return the number of nodes, or None if a number is unknown."""
    if not isinstance(listed, list) or depth > _DEEPEST:
        raise ValueError("has no list of resources")
    nodes: float | None = 0.0
    for one in listed:
        if not isinstance(one, dict) or not isinstance(one.get("type"), str):
            raise ValueError("has a resource without type")  # noqa: TRY004 -- a value of the log
        kind, count = one["type"], one.get("count", 1)
        known = isinstance(count, int) and not isinstance(count, bool) and 0 <= count < 1 << 31
        each = times * count if known and times is not None else None
        factor = factor_of(factors, kind)
        factor = 1.0 if factor is None and kind == "gpu" else factor
        if kind == "core":
            found.cores = None if each is None or found.cores is None else found.cores + each
        elif factor is not None:
            found.gpus = None if each is None or found.gpus is None else found.gpus + each * factor
        elif kind not in _NOT_DEVICES and is_gres_device(kind):
            found.unknown.add(kind[:80])
        if kind == "node":
            nodes = None if each is None or nodes is None else nodes + each
            if one.get("exclusive") is True:
                found.gpus = None
        if "with" in one:
            inner = _add(found, one["with"], each, factors, depth + 1)
            nodes = None if inner is None or nodes is None else nodes + inner
    return nodes


_BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_F58 = re.compile(rf"[f\u0192]([{_BASE58}]{{1,12}})")
_FATAL = {"cancel": "cancelled", "timeout": "timeout"}
"""The status for each type of exception that ends a job. Any other type means failed."""
_DURATION = "attributes.system.duration"


class _Event(NamedTuple):
    time_s: float
    name: str
    context: Mapping[str, Any]


def read_jobs(opened: OpenedFile, devices: Devices) -> Iterator[list[Row]]:
    """Yield the rows of a file in blocks."""
    for items in json_items(opened, "jobs"):
        rows = rows_of(opened, items, lambda held, lost: [_row(held, opened.sink.options, devices, lost)])
        devices.count(len(rows))
        yield rows


def _row(held: Mapping[str, Any], options: Mapping[str, str], devices: Devices, lost: LostValues) -> Row:
    job = _job_id(held.get("id"))
    events = _events(held.get("eventlog"))
    first = {event.name: event for event in reversed(events)}
    if "submit" not in first:
        raise Fault("eventlog", "has no event submit")
    start = first.get("alloc") or first.get("start")
    end = next((first[name] for name in ("finish", "free", "clean") if name in first), None)
    status, word = _status(events, start is not None, end is not None)
    spec = lost.read("jobspec", _text_of(held.get("jobspec")), _object) or {}
    resources = _resources(held, spec, start is not None, devices.factors, lost)
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
    devices.add(job, resources.unknown)
    return row


def _resources(
    held: Mapping[str, Any], spec: Mapping[str, Any], ran: bool, factors: Mapping[str, float], lost: LostValues
) -> Resources:
    """Return the resources allocated to a job according to R, or the requested resources if R is missing."""
    text = _text_of(held.get("R"))
    found = lost.read("R", text, lambda text: given(_object(text), factors))
    if found is not None:
        return found
    # A job may have had more than it requested: the scheduler may allocate whole nodes.
    if ran or not spec or "R" in lost:
        return Resources()
    try:
        return asked_for(spec, factors)
    except ValueError as error:
        lost.add("jobspec", str(spec.get("resources"))[:80], str(error))
        return Resources()


def _job_id(value: Any) -> str:
    """Convert a job id to decimal."""
    text = str(value) if isinstance(value, int | str) and not isinstance(value, bool) else ""
    match = _F58.fullmatch(text)
    if match:
        number = 0
        for letter in match[1]:
            number = number * 58 + _BASE58.index(letter)
        return str(number)
    if not re.fullmatch(r"[\w.\-]{1,200}", text):
        raise Fault("id", "is not a job id")
    return text


def _events(value: Any) -> list[_Event]:
    """Return the events of a log in order. The log is text with one event per line, or a list."""
    if isinstance(value, str):
        try:
            value = [orjson.loads(line) for line in value.splitlines() if line.strip()]
        except ValueError:
            raise Fault("eventlog", "is not JSON with one event per line") from None
    if isinstance(value, dict):
        value = [value]
    if not isinstance(value, list) or not value:
        raise Fault("eventlog", "is missing")
    return [_event(one) for one in value]


def _event(value: Any) -> _Event:
    time, name, context = (at(value, key) for key in ("timestamp", "name", "context"))
    if not isinstance(name, str) or isinstance(time, bool) or not isinstance(time, int | float):
        raise Fault("eventlog", "has an event without timestamp or name")
    if not math.isfinite(time) or not 0 < time <= LAST_SECOND:
        raise Fault("eventlog", "has a timestamp that is not in seconds since 1970")
    return _Event(float(time), name, context if isinstance(context, dict) else {})


def _status(events: list[_Event], started: bool, ended: bool) -> tuple[str, str]:
    """Return the status, and the event that shows it."""
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
    """Return a job's names, queue and time limit."""
    system = at(spec, "attributes", "system")
    duration = at(system, "duration")
    names = {name: _word(at(system, name)) for name in ("queue", "bank", "project")}
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
        "name": _word(at(system, "job", "name")),
        "time_limit_s": limit or None,
    }


def _seconds(text: str) -> float:
    if not re.fullmatch(r"\d{1,10}(\.\d{1,9})?", text, re.ASCII):
        raise ValueError("is not a number of seconds")
    return float(text)


def _word(value: Any) -> str | None:
    """Return a name, truncated to a reasonable length, or None if the value is not a name."""
    if isinstance(value, bool) or not isinstance(value, str | int) or value == "":
        return None
    return str(value)[:1_000]


def _text_of(value: Any) -> str | None:
    """Convert an object to a string if it is not one. Return None if it is missing."""
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


def _looks_right(head: bytes) -> bool:
    """Return whether the first bytes are JSON with a job's eventlog."""
    begins = head.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] in (b"{", b"[")
    # An eventlog is either a JSON string, with escaped quotes, or JSON itself.
    log = re.search(rb'"eventlog"\s*:\s*["\[{][^}]{0,2000}?name\\?"\s*:\s*\\?"submit', head)
    return begins and (log is not None or (b"R_lite" in head and b'"jobspec"' in head))


class FluxFormat(RecordFormat):
    """Eventlogs of one Flux instance."""

    name = "flux"
    title = "Flux eventlogs with R and jobspec"
    raw_files = (RawFile("jobs", "objects with id, eventlog, R and jobspec, one per job", "", _looks_right),)
    options: ClassVar[Mapping[str, Option]] = {
        "cluster": Option("flux", "name of the cluster"),
        "vc": Option("bank", "the tenant unit", ("bank", "project", "queue")),
        "gpu_resource": GPU_RESOURCE,
    }

    def read(self, found: FoundFiles, sink: Sink) -> TimeFrame:
        """Read all files of the source as one log."""
        write_records(((file, read_jobs, None) for file in found.get("jobs")), sink)
        sink.retries = True
        return TimeFrame("absolute", "UTC")


FORMAT = FluxFormat()
