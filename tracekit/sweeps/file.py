"""The sweep file: a list of values for each parameter. Every combination is one run.

`TEMPLATE` is an example with every key that the file may contain.
"""

from __future__ import annotations

import datetime as dt
import math
from dataclasses import dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from tracekit.decode import Count, NonEmpty, Range, Text, abbreviated
from tracekit.errors import TracekitError, UsageError
from tracekit.outputs import real_path
from tracekit.places import is_remote, place_of
from tracekit.replay.jobs import TWIN
from tracekit.replay.registry import named_policy
from tracekit.replay.scenario import placement_named
from tracekit.toml_text import TomlText

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

TEMPLATE = """\
# A sweep: every combination of the lists below is one run.
#     tracekit sweep this-file.toml -o out
# Only traces and policies are required; the other lines show the defaults.

# A trace is a folder relative to this file. If it has several clusters, write {path = "my-trace", cluster = "Venus"}.
traces = ["my-trace"]
policies = ["fifo", "srtf", "srtf,overhead=helios", "las"]

placements = ["consolidate"]
clusters = ["trace"]                   # "trace", "auto" (GPUs in use in the log), or cluster files
gpus = [1.0]                           # factors of the number of nodes, such as [0.8, 1.0, 1.2]
loads = [1.0]                          # factors of the offered load
seeds = [0]
partitions = ["default"]               # each VC has its own nodes: "on", "off" or "default"
windows = [{}]                         # such as [{from = 2017-10-03, to = 2017-11-01}, {from = 2017-11-01}]

force = false                          # replay even if most of the work can never run
# limit = 10000                        # use only the first jobs
# models = "my-models.toml"
# twin = "twin.toml"                   # run in this twin from 'tracekit calibrate', next to the twin's own run; it sets
#                                      # placements, clusters, gpus, partitions and models, so omit these
"""

_LARGEST_RUNS = 1_000_000
_OF_TWIN = ("placements", "clusters", "gpus", "partitions", "models")
"""Keys whose values a twin sets."""
_Factor = Annotated[float, Range(1e-6, 1e6)]


@dataclass(frozen=True)
class _TraceAt:
    path: Text
    cluster: Text | None = None


@dataclass(frozen=True)
class _Window:
    from_: dt.date | Text | None = None
    to: dt.date | Text | None = None


@dataclass(frozen=True)
class _SweepFile:
    traces: Annotated[tuple[Text | _TraceAt, ...], NonEmpty()]
    policies: Annotated[tuple[Text, ...], NonEmpty()]
    placements: Annotated[tuple[Text, ...], NonEmpty()] = ("consolidate",)
    clusters: Annotated[tuple[Text, ...], NonEmpty()] = ("trace",)
    gpus: Annotated[tuple[_Factor, ...], NonEmpty()] = (1.0,)
    loads: Annotated[tuple[_Factor, ...], NonEmpty()] = (1.0,)
    seeds: Annotated[tuple[Count, ...], NonEmpty()] = (0,)
    partitions: Annotated[tuple[Literal["on", "off", "default"], ...], NonEmpty()] = ("default",)
    windows: Annotated[tuple[_Window, ...], NonEmpty()] = (_Window(),)
    force: bool = False
    limit: Annotated[int, Range(1, 2**62)] | None = None
    models: Text | None = None
    twin: Text | None = None


@dataclass(frozen=True)
class SweepRun:
    """One combination. Paths are absolute, times are ISO strings, and None means the default.

    In a twin, the policy 'twin' is the twin's own run, and the twin sets cluster, partitioned, gpus, models and
    placement.
    """

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
    twin: str | None
    force: bool
    placement: str
    seed: int
    policy: str

    def scenario_key(self) -> SweepRun:
        """Return the run with only the fields that determine its scenario: its jobs and cluster."""
        # The seed determines a twin's start-up delays.
        return replace(self, placement="", seed=0 if self.twin is None else self.seed, policy="")


def read_sweep(path: Path, twin: Path | None = None) -> list[SweepRun]:
    """Return the runs that a file defines. Runs of the same scenario are adjacent.

    If `twin` or the file gives a twin, the twin's own run comes before the policies of each scenario.

    Raises
    ------
    UsageError
        The file cannot be read, is not TOML, or has a key or value that is invalid or set by a twin. The error names
        the line.
    """
    document = TomlText(path, "sweep")
    for key in ("traces", "policies"):
        if key not in document.data:
            raise UsageError(f"has no {key}", where=path, hint="'tracekit sweep --template' prints an example")
    file = document.decode(_SweepFile)
    folder = real_path(path).parent
    read = partial(_each, document, file)
    traces = read("traces", lambda trace: _trace(trace, folder))
    clusters = read("clusters", lambda name: _cluster(name, folder))
    partitions = read("partitions", {"on": True, "off": False, "default": None}.__getitem__)
    windows = read("windows", lambda window: (_moment(window.from_), _moment(window.to)))
    loads, gpus, seeds = read("loads", float), read("gpus", float), read("seeds", int)
    placements = read("placements", placement_named)
    policies = read("policies", lambda text: _policy(text, folder))
    models = None if file.models is None else _place(file.models, folder)
    in_twin = str(twin.absolute()) if twin is not None else None if file.twin is None else _place(file.twin, folder)
    if in_twin is not None:
        policies.insert(0, TWIN)
        for key in document.data:
            if key in _OF_TWIN:
                raise document.error(
                    (key,), "cannot be combined with a twin, which sets it", f"edit '{in_twin}' instead"
                )
    lists = (traces, clusters, partitions, windows, loads, gpus, placements, seeds, policies)
    total = math.prod(len(values) for values in lists)
    if total > _LARGEST_RUNS:
        raise UsageError(f"has {total:,} combinations, more than {_LARGEST_RUNS:,}", where=path, hint="make it smaller")
    return [
        SweepRun(
            trace=trace[0],
            cluster_name=trace[1],
            cluster=cluster,
            partitioned=divided,
            start=window[0],
            end=window[1],
            load=load,
            gpus=factor,
            limit=file.limit,
            models=models,
            twin=in_twin,
            force=file.force,
            placement=placement,
            seed=seed,
            policy=policy,
        )
        for trace, cluster, divided, window, load, factor, placement, seed, policy in product(*lists)
    ]


def _each(document: TomlText, file: _SweepFile, key: str, read: Callable[[Any], T]) -> list[T]:
    """Return the values of a list's entries. Duplicates are an error."""
    found: list[T] = []
    for number, value in enumerate(getattr(file, key)):
        try:
            one = read(value)
        except TracekitError as error:
            raise document.error((key, number), str(error)) from None
        if one in found:
            raise document.error((key,), f"has {abbreviated(document.data[key][number])} twice", "remove one of them")
        found.append(one)
    return found


def _place(text: str, folder: Path) -> str:
    return str(place_of(text)) if is_remote(text) else str(folder / Path(text).expanduser())


def _trace(given: str | _TraceAt, folder: Path) -> tuple[str, str | None]:
    trace = _TraceAt(given) if isinstance(given, str) else given
    return _place(trace.path, folder), trace.cluster


def _cluster(name: str, folder: Path) -> str | None:
    return None if name == "trace" else name if name == "auto" else _place(name, folder)


def _moment(value: dt.date | str | None) -> str | None:
    """Convert a date or time, which may be a string, to an ISO string in UTC."""
    if isinstance(value, str):
        try:
            value = dt.datetime.fromisoformat(value)
        except ValueError:
            raise UsageError(f"{abbreviated(value)} is not a time", hint="write it like 2017-10-03") from None
    if isinstance(value, dt.datetime) and value.tzinfo is not None:
        value = value.astimezone(dt.UTC).replace(tzinfo=None)
    return None if value is None else value.isoformat()


def _policy(text: str, folder: Path) -> str:
    """Check and return a policy's notation. The path of a user's policy file is relative to the sweep file."""
    name, comma, rest = text.partition(",")
    path = name.rpartition(":")[0] or name
    if path.endswith(".py"):
        name = str(folder / path) + name[len(path) :]
        text = f"{name}{comma}{rest}"
        named_policy(text)
        return text
    return str(named_policy(text).label)
