"""The file of a sweep: which values each thing takes; every combination is one run.

`TEMPLATE` is an example with everything that a file may hold.
"""

from __future__ import annotations

import datetime as dt
import math
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracekit.errors import TracekitError, UsageError, nearest
from tracekit.outputs import real_path
from tracekit.replay.engine.placement import RULES
from tracekit.replay.registry import named_policy
from tracekit.toml_text import TomlText

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["TEMPLATE", "Run", "read_sweep"]

TEMPLATE = """\
# A sweep: every combination of the lists below is one run.
#     tracekit sweep this-file.toml -o out
# Only traces and policies are needed; the other lines show what holds when they are left out.

# A trace is a folder, seen from this file; of several clusters {path = "my-trace", cluster = "Venus"}.
traces = ["my-trace"]
policies = ["fifo", "srtf", "srtf,overhead=helios", "las"]

placements = ["consolidate"]
clusters = ["trace"]                   # "trace", "auto" (what the log shows in use), or cluster files
gpus = [1.0]                           # factors of the nodes, such as [0.8, 1.0, 1.2]
loads = [1.0]                          # factors of the offered load
seeds = [0]
partitions = ["default"]               # "on", "off", or "default": each VC a cluster of its own
windows = [{}]                         # such as [{from = 2017-10-03, to = 2017-11-01}, {from = 2017-11-01}]

force = false                          # replay even where most of the work can never run
# limit = 10000                        # take only the first jobs
# models = "my-models.toml"
"""

_LARGEST_RUNS = 1_000_000
_KEYS = (
    "clusters",
    "force",
    "gpus",
    "limit",
    "loads",
    "models",
    "partitions",
    "placements",
    "policies",
    "seeds",
    "traces",
    "windows",
)


@dataclass(frozen=True)
class Run:
    """One combination. Paths are absolute, times ISO texts, None is the default."""

    trace: str
    cluster_name: str | None
    cluster: str | None
    partitioned: bool | None
    start: str | None
    end: str | None
    load: float
    gpus: float
    limit: int | None
    models: str | None
    force: bool
    placement: str
    seed: int
    policy: str

    def facts(self) -> dict[str, Any]:
        """Return the parameters by name."""
        return asdict(self)

    def scenario_key(self) -> tuple[Any, ...]:
        """Return what tells the jobs and the cluster: runs that have it in common share their work."""
        return (
            self.trace,
            self.cluster_name,
            self.cluster,
            self.partitioned,
            self.start,
            self.end,
            self.load,
            self.gpus,
            self.limit,
            self.models,
            self.force,
        )


def read_sweep(path: Path) -> list[Run]:
    """Return the runs of a file, those of one scenario side by side.

    Raises
    ------
    UsageError
        The file cannot be read, is not TOML, or has a key or value that cannot be used, with the line.
    """
    document = TomlText(path, "sweep")
    data = document.data
    for key in data:
        if key not in _KEYS:
            raise document.error((key,), "no such key", nearest(key[:80], _KEYS))
    for key in ("traces", "policies"):
        if key not in data:
            raise UsageError(f"lacks the key {key}", where=path, hint="'tracekit sweep --template' prints an example")
    folder = real_path(path).parent
    each = _Reader(document)
    traces = each.values("traces", [], lambda v: _trace(v, folder))
    clusters = each.values("clusters", ["trace"], lambda v: _cluster(v, folder))
    partitions = each.values("partitions", ["default"], _partition)
    windows = each.values("windows", [{}], _window)
    loads = each.values("loads", [1.0], _factor)
    gpus = each.values("gpus", [1.0], _factor)
    placements = each.values("placements", ["consolidate"], _placement)
    seeds = each.values("seeds", [0], _seed)
    policies = each.values("policies", [], lambda v: _policy(v, folder))
    limit = each.value("limit", None, _limit)
    models = each.value("models", None, lambda v: _place(v, folder))
    force = bool(each.value("force", False, _flag))
    lists = (traces, clusters, partitions, windows, loads, gpus, placements, seeds, policies)
    total = math.prod(len(values) for values in lists)
    if total > _LARGEST_RUNS:
        raise UsageError(f"has {total:,} combinations, more than {_LARGEST_RUNS:,}", where=path, hint="make it smaller")
    return [
        Run(
            trace=trace[0],
            cluster_name=trace[1],
            cluster=cluster,
            partitioned=divided,
            start=window[0],
            end=window[1],
            load=load,
            gpus=factor,
            limit=limit,
            models=models,
            force=force,
            placement=placement,
            seed=seed,
            policy=policy,
        )
        for trace, cluster, divided, window, load, factor, placement, seed, policy in product(*lists)
    ]


class _Reader:
    """Reads keys, so that whatever is wrong tells its line."""

    def __init__(self, document: TomlText) -> None:
        self._document = document

    def values(self, key: str, default: list[Any], read: Callable[[Any], Any]) -> list[Any]:
        given = self._document.data.get(key, default)
        if not isinstance(given, list):
            raise self._document.error((key,), "is not a list", f"write {key} = [...]")
        if not given:
            raise self._document.error((key,), "is empty", "write at least one value")
        found = [self._read(key, value, read) for value in given]
        for place, value in enumerate(found):
            if value in found[:place]:
                raise self._document.error((key,), f"has {_shown(given[place])} twice", "leave one out")
        return found

    def value(self, key: str, default: Any, read: Callable[[Any], Any]) -> Any:
        data = self._document.data
        return self._read(key, data[key], read) if key in data else default

    def _read(self, key: str, value: Any, read: Callable[[Any], Any]) -> Any:
        try:
            return read(value)
        except TracekitError as error:
            raise self._document.error((key,), str(error)) from None


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _text(value: Any) -> str:
    if not isinstance(value, str) or not value or "\0" in value:
        raise UsageError(f"{_shown(value)} is not a text")
    return value


def _place(value: Any, folder: Path) -> str:
    return str(folder / Path(_text(value)).expanduser())


def _trace(value: Any, folder: Path) -> tuple[str, str | None]:
    if not isinstance(value, dict):
        return _place(value, folder), None
    for key in value:
        if key not in ("path", "cluster"):
            raise UsageError(f"a trace has no key '{key[:60]}'", hint=nearest(key[:80], ("path", "cluster")))
    if "path" not in value:
        raise UsageError("a trace lacks its path", hint='write {path = "my-trace", cluster = "name"}')
    return _place(value["path"], folder), _text(value["cluster"]) if "cluster" in value else None


def _cluster(value: Any, folder: Path) -> str | None:
    text = _text(value)
    return None if text == "trace" else text if text == "auto" else _place(text, folder)


def _partition(value: Any) -> bool | None:
    words = {"on": True, "off": False, "default": None}
    if not isinstance(value, str) or value not in words:
        raise UsageError(f"{_shown(value)} is not a way of partitioning", hint=nearest(str(value)[:80], words))
    return words[value]


def _window(value: Any) -> tuple[str | None, str | None]:
    if not isinstance(value, dict):
        raise UsageError(f"{_shown(value)} is not a window", hint="write {from = 2017-10-03, to = 2017-11-01}")
    for key in value:
        if key not in ("from", "to"):
            raise UsageError(f"a window has no key '{key[:60]}'", hint=nearest(key[:80], ("from", "to")))
    return _moment(value.get("from")), _moment(value.get("to"))


def _moment(value: Any) -> str | None:
    """Return a TOML date or time, or its text, as ISO text in UTC."""
    if value is None:
        return None
    if isinstance(value, str):
        try:
            value = dt.datetime.fromisoformat(value)
        except ValueError:
            raise UsageError(f"{_shown(value)} is not a time", hint="write it like 2017-10-03") from None
    if isinstance(value, dt.datetime):
        naive = value if value.tzinfo is None else value.astimezone(dt.UTC).replace(tzinfo=None)
        return naive.isoformat()
    if isinstance(value, dt.date):
        return value.isoformat()
    raise UsageError(f"{_shown(value)} is not a time", hint="write it like 2017-10-03")


def _factor(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not (math.isfinite(value) and 0 < value <= 1e6):
        raise UsageError(f"{_shown(value)} is not a number above 0 and up to a million")
    return float(value)


def _placement(value: Any) -> str:
    text = _text(value)
    if text not in RULES:
        raise UsageError(f"{_shown(text)} is not a placement", hint=nearest(text[:80], RULES))
    return text


def _seed(value: Any) -> int:
    return _whole(value, 0, 2**63 - 1)


def _limit(value: Any) -> int:
    return _whole(value, 1, 2**62)


def _whole(value: Any, least: int, most: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
        raise UsageError(f"{_shown(value)} is not a whole number from {least}")
    return value


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise UsageError(f"{_shown(value)} is neither true nor false")
    return value


def _policy(value: Any, folder: Path) -> str:
    """Return a policy's text, checked; a file of the user's is seen from the sweep's folder."""
    text = _text(value)
    name, comma, rest = text.partition(",")
    path = name.rpartition(":")[0] or name
    if path.endswith(".py"):
        name = str(folder / path) + name[len(path) :]
        text = f"{name}{comma}{rest}"
        named_policy(text)
        return text
    return str(named_policy(text).label)
