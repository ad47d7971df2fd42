"""One run of a sweep, and the process that does many."""

from __future__ import annotations

import datetime as dt
import signal
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol

from tracekit.errors import DamagedTraceError, TracekitError
from tracekit.replay.api import scenario_of
from tracekit.replay.scenario import Scenario, placement_named
from tracekit.shards import digests

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection

    from tracekit.replay.sweeps.file import SweepRun

__all__ = ["InTwin", "carry_out", "forget_files", "work"]

_LARGEST_ERROR = 500
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


def forget_files() -> None:
    """Forget what was read of files, which may have changed since."""
    digests.forget_files()
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
