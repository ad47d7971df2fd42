"""Commands that recompute an answer. Run them in the report's folder, where the Trace is called `trace`."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import TYPE_CHECKING

from tracekit.answer import Answer
from tracekit.calibration.workbench import UNNAMED
from tracekit.characterize.query import RESERVED_PARAMS
from tracekit.tenant import INGESTED

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tracekit.answer import Unanswered
    from tracekit.calibration.twins import TwinReplays, Twins
    from tracekit.characterize import Query

_TRACE = "trace"
_MOST = 10
"""Maximum number of clusters for which commands are listed."""
_TWIN = "twin.toml"
"""Name of a twin's file, even if the user supplied the twin."""


def with_commands(answers: Iterable[Answer | Unanswered], commands: Iterable[str]) -> list[Answer | Unanswered]:
    """Return the answers, each with the commands that recompute it."""
    lines = tuple(commands)
    return [replace(one, commands=lines) if isinstance(one, Answer) else one for one in answers]


def query_command(answer: Answer, query: Query, tenant_column: str) -> str:
    """Return the command that reruns a query, with all non-default parameters."""
    words = ["tracekit", "query", _TRACE, query.name]
    defaults = {param.name: param.default for param in query.params}
    for name, value in answer.params.items():
        if name not in RESERVED_PARAMS and value != defaults.get(name):
            words += ["--param", f"{name}={value}"]
    chosen = query.takes_tenant and tenant_column != INGESTED
    return shlex.join([*words, "--by", tenant_column] if chosen else words)


def twin_commands(twins: Twins, clusters: Iterable[TwinReplays], *, replayed: bool = False) -> list[str]:
    """Return the commands that recalibrate the twins of at most ten clusters and replay the panel in them.

    Twins from a user's file need no calibration command. The file is called twin.toml, because its real path may
    contain names that the report hides.
    """
    commands = []
    for one, number in zip(clusters, ("", *(f"-{k}" for k in range(2, _MOST + 1))), strict=False):
        name = () if one.found.name == UNNAMED else ("--cluster-name", one.found.name)
        file = f"twin{number}.toml"
        if twins.file is None:
            limit = str(len(one.found.bench.jobs))
            commands.append(shlex.join(["tracekit", "calibrate", _TRACE, "-o", file, *name, "--limit", limit]))
        if replayed:
            twin = file if twins.file is None else _TWIN
            words = ["tracekit", "replay", _TRACE, "-o", f"replayed{number}", "--twin", twin, *name]
            commands.append(shlex.join(words))
    return commands


def replay_command(limit: int) -> str:
    """Return the command that replays the standard panel on the cluster that the source describes."""
    return shlex.join(["tracekit", "replay", _TRACE, "-o", "replayed", "--limit", str(limit)])


def plan_commands(twins: Twins, one: TwinReplays, resamples: int) -> list[str]:
    """Return the commands that resample a cluster's months and replay them with the same numbers of nodes."""
    words = ["tracekit", "plan", _TRACE, "-o", "plan", "--twin"]
    words += [_TWIN, "--resamples", str(resamples)]
    name = one.found.name
    return [
        *twin_commands(twins, [one]),
        shlex.join(words if name == UNNAMED else [*words, "--for", f"cluster={name}"]),
    ]


def fit_command(replicates: int, scores: int) -> str:
    """Return the command that refits the workload."""
    words = ["tracekit", "fit", _TRACE, "-o", "fitted.json"]
    return shlex.join([*words, "--bootstrap", str(replicates), "--scores", str(scores)])
