"""One run of a sweep: its digest, the run itself, and the process that does many."""

from __future__ import annotations

import datetime as dt
import signal
import sys
from dataclasses import asdict, replace
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import orjson

from tracekit.errors import DamagedTraceError, TracekitError
from tracekit.places import place_of
from tracekit.replay.api import scenario_of
from tracekit.replay.native import kernel
from tracekit.replay.registry import find_policy
from tracekit.replay.results.recorded_times import TWIN
from tracekit.replay.scenario import Scenario, placement_named
from tracekit.trace import MANIFEST_NAME

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection

    from tracekit.replay.sweeps.file import SweepRun

__all__ = ["InTwin", "carry_out", "digest_of", "forget_files", "work"]

_PACKAGE = Path(__file__).parents[2]
_LARGEST_ERROR = 500
_ROOMS, _TWIN_ROOMS = ("replay", "policies"), ("calibration",)
"""Packages whose code decides what comes out of a run, and of one in a twin."""
_SCENARIO_SETTINGS = ("cluster", "cluster_name", "partitioned", "load", "gpus", "limit", "models", "force")


class InTwin(Protocol):
    """Makes the runs of a sweep in a twin; it goes to the worker processes by pickling."""

    def check(self, runs: list[SweepRun]) -> list[SweepRun]:
        """Return the runs with what the twin states of them.

        Raises
        ------
        TracekitError
            The twin cannot be read, or is not that of their Traces.
        """

    def carry_out(self, run: SweepRun) -> dict[str, Any]:
        """Return the summary of a run, with its effect on the recorded times as 'effect'."""


def digest_of(run: SweepRun) -> str:
    """Return a digest of all that a run depends on: its parameters, and the contents of all files that it reads.

    These are the Trace's manifest, the files of cluster, models, twin and policy, and the program itself; where files
    lie does not matter.
    """
    facts = asdict(run)
    name = run.policy.partition(",")[0]
    path = name.rpartition(":")[0] or name
    if path.endswith(".py"):
        facts["policy"] = run.policy[len(path) :]
    facts["trace"] = _content(str(place_of(run.trace) / MANIFEST_NAME))
    for key in ("cluster", "models", "twin"):
        if facts[key] not in (None, "auto"):
            facts[key] = _content(facts[key])
    facts["code"] = [_code(*_ROOMS, *(() if run.twin is None else _TWIN_ROOMS)), "" if name == TWIN else _module(name)]
    text = orjson.dumps(facts, option=orjson.OPT_SORT_KEYS)
    return blake2b(text, digest_size=12).hexdigest()


@cache
def _content(path: str) -> str:
    try:
        return blake2b(place_of(path).read_bytes(), digest_size=16).hexdigest()
    except OSError:
        return f"missing {path}"  # the run itself reports what is wrong


@cache
def _module(name: str) -> str:
    """Return the digest of the file that a policy comes from."""
    module = sys.modules.get(find_policy(name).__module__)
    source = getattr(module, "__file__", None)
    return "" if source is None else _content(source)


@cache
def _code(*rooms: str) -> str:
    """Return the digest of the engine, compiled or not, and of some packages of this program."""
    found = blake2b(kernel().SOURCES.encode(), digest_size=16)
    for room in rooms:
        for path in sorted((_PACKAGE / room).rglob("*")):
            if path.suffix in (".py", ".toml"):
                found.update(path.relative_to(_PACKAGE).as_posix().encode() + b"\0" + path.read_bytes())
    return found.hexdigest()


def forget_files() -> None:
    """Forget what was read of files, which may have changed since."""
    _content.cache_clear()
    _LastScenario.key = _LastScenario.scenario = None


class _LastScenario:
    """The last scenario, since runs that share it come one after the other."""

    key: SweepRun | None = None
    scenario: Scenario | None = None


def _scenario(run: SweepRun) -> Scenario:
    if _LastScenario.scenario is None or _LastScenario.key != run.scenario_key():
        _LastScenario.scenario = None  # frees the old before the new is made
        settings: dict[str, Any] = {name: getattr(run, name) for name in _SCENARIO_SETTINGS}
        settings |= {"start": _time(run.start), "end": _time(run.end)}
        _LastScenario.scenario = scenario_of(run.trace, **settings)
        _LastScenario.key = run.scenario_key()
    return replace(_LastScenario.scenario, placement=placement_named(run.placement), seed=run.seed)


def _time(text: str | None) -> dt.datetime | None:
    return None if text is None else dt.datetime.fromisoformat(text)


def carry_out(run: SweepRun, in_twin: InTwin | None = None) -> dict[str, Any]:
    """Return the summary of a run, or {'error': why it failed}.

    A run in a twin is made by `in_twin`.

    Raises
    ------
    DamagedTraceError
        The Trace cannot be read: no run of it could succeed.
    """
    try:
        if in_twin is not None:
            return in_twin.carry_out(run)
        return dict(_scenario(run).run(run.policy).summary)
    except DamagedTraceError:
        raise
    except TracekitError as error:
        return {"error": str(error)[:_LARGEST_ERROR]}
    except MemoryError:
        return {"error": "memory ran out; use fewer workers or a smaller window"}
    except Exception as error:  # noqa: BLE001 -- a policy may do anything; the other runs go on
        text = f"{type(error).__name__}: {error}".splitlines()[0]
        return {"error": f"the policy failed: {text}"[:_LARGEST_ERROR]}


def work(link: Connection, perform: Callable[[SweepRun], dict[str, Any]]) -> None:
    """Perform the runs that come over a link until it is closed; the body of a worker process."""
    # Ctrl-C reaches all processes of a terminal; who started this one ends it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        try:
            run = link.recv()
        except (EOFError, OSError):
            return
        if run is None:
            return
        try:
            link.send(_outcome(run, perform))
        except OSError:
            return


def _outcome(run: SweepRun, perform: Callable[[SweepRun], dict[str, Any]]) -> dict[str, Any] | DamagedTraceError:
    try:
        return perform(run)
    except DamagedTraceError as error:
        return error
