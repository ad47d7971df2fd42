"""What determines a replay's result, for run ledgers: the Trace, the policy and the program."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tracekit.places import place_of
from tracekit.replay.jobs import TWIN
from tracekit.replay.native import kernel
from tracekit.replay.registry import find_policy
from tracekit.runs.ledger import code_of, content_of
from tracekit.trace import MANIFEST_NAME, Trace

if TYPE_CHECKING:
    from pathlib import Path

_ROOMS = (
    "databases",
    "decode",
    "gpu_parts",
    "manifest",
    "policies",
    "replay",
    "schema",
    "settings",
    "tables",
    "tenant",
    "timezones",
    "toml_text",
    "trace",
)
"""Packages and modules whose code affects the result of any replay."""


def replay_facts(what: str, trace: Trace | str | Path, *rooms: str) -> dict[str, Any]:
    """Return the facts that all runs of one kind share.

    Parameters
    ----------
    what : str
        The kind of run.
    trace : Trace or path
        The Trace, or its folder. Only its contents and its selected part matter, not its location.
    *rooms : str
        Further packages and modules whose code affects the result.
    """
    code = code_of(*_ROOMS, *rooms, compiled=kernel().SOURCES)
    folder, part = (trace.path, asdict(trace.limits)) if isinstance(trace, Trace) else (trace, None)
    return {"what": what, "trace": content_of_trace(folder), "code": code} | ({"part": str(part)} if part else {})


def content_of_trace(folder: str | Path) -> str:
    """Return a digest of the contents of a Trace."""
    return content_of(str(place_of(str(folder)) / MANIFEST_NAME))


def policy_facts(policy: str) -> tuple[str, str]:
    """Return a policy as written (without the folder of a user's file), and the digest of its file."""
    name = policy.partition(",")[0]
    path = name.rpartition(":")[0] or name
    short = policy[len(path) :] if path.endswith(".py") else policy
    if name == TWIN:
        return short, ""
    module = sys.modules.get(find_policy(name).__module__)
    source: Any = getattr(module, "__file__", None)
    return short, "" if source is None else content_of(source)
