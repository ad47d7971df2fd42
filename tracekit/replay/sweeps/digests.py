"""Digests of runs: of all that one hangs on, wherever the files lie."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from tracekit.places import place_of
from tracekit.replay.native import kernel
from tracekit.replay.registry import find_policy
from tracekit.replay.results.recorded_times import TWIN
from tracekit.shards.digests import code_of, content_of, digest_of_facts
from tracekit.trace import MANIFEST_NAME

if TYPE_CHECKING:
    from tracekit.replay.sweeps.file import SweepRun

__all__ = ["code_of_replays", "digest_of", "kind_of", "policy_facts", "trace_facts"]

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
"""Packages and modules whose code decides what comes out of a run."""
_TWIN_ROOMS = ("calibration",)


def digest_of(run: SweepRun) -> str:
    """Return a digest of all that a run depends on: its parameters, and the contents of all files that it reads.

    These are the Trace's manifest, the files of cluster, models, twin and policy, and the program itself; where files
    lie does not matter.
    """
    facts = asdict(run)
    facts["policy"], source = policy_facts(run.policy)
    facts["trace"] = trace_facts(run.trace)
    for key in ("cluster", "models", "twin"):
        if facts[key] not in (None, "auto"):
            facts[key] = content_of(facts[key])
    facts["code"] = [code_of_replays(*(() if run.twin is None else _TWIN_ROOMS)), source]
    return digest_of_facts(facts)


def kind_of(run: SweepRun) -> str:
    """Return a text that runs have in common which take about as long: the same policy on jobs of the same Trace."""
    return digest_of_facts({"policy": policy_facts(run.policy)[0], "trace": trace_facts(run.trace)})


def trace_facts(folder: str) -> str:
    """Return a digest of what a Trace holds."""
    return content_of(str(place_of(folder) / MANIFEST_NAME))


def policy_facts(policy: str) -> tuple[str, str]:
    """Return a policy as written, less the folder of a user's file, and the digest of the file that it comes from."""
    name = policy.partition(",")[0]
    path = name.rpartition(":")[0] or name
    short = policy[len(path) :] if path.endswith(".py") else policy
    if name == TWIN:
        return short, ""
    module = sys.modules.get(find_policy(name).__module__)
    source: Any = getattr(module, "__file__", None)
    return short, "" if source is None else content_of(source)


def code_of_replays(*more: str) -> str:
    """Return the digest of the engine and of the code around it, and of `more` packages."""
    return code_of(*_ROOMS, *more, compiled=kernel().SOURCES)
