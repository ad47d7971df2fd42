"""The commands that compute an answer again, to be run in the folder of its report, where the Trace is `trace`."""

from __future__ import annotations

import shlex
from dataclasses import replace
from typing import TYPE_CHECKING

from tracekit.answer import Answer
from tracekit.calibration.workbench import UNNAMED
from tracekit.tenant import INGESTED

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tracekit.answer import Unanswered
    from tracekit.calibration.twins import TwinReplays, Twins

__all__ = ["calibrate_commands", "fit_command", "plan_command", "query_command", "replay_command", "with_commands"]

_TRACE = "trace"
_TWIN = "twin.toml"


def with_commands(answers: Iterable[Answer | Unanswered], *commands: str) -> list[Answer | Unanswered]:
    """Return the answers, each with the commands that compute it again."""
    return [replace(one, commands=commands) if isinstance(one, Answer) else one for one in answers]


def query_command(answer: Answer, tenant_column: str) -> str:
    """Return the command that asks a query again, with the parameters that are not its own defaults."""
    words = ["tracekit", "query", _TRACE, answer.name]
    defaults = {param.name: param.default for param in answer.question.params}
    for name, value in answer.params.items():
        if value != defaults.get(name):
            words += ["--param", f"{name}={value}"]
    return shlex.join(words if tenant_column == INGESTED else [*words, "--by", tenant_column])


def calibrate_commands(twins: Twins, *chosen: TwinReplays) -> list[str]:
    """Return the commands that find the chosen twins again; none where a file of the user states them."""
    if twins.file is not None:
        return []
    words = ["tracekit", "calibrate", _TRACE, "-o", _TWIN]
    return [
        shlex.join([*words, *_named("--cluster-name", one), "--limit", str(len(one.found.bench.jobs))])
        for one in chosen
    ]


def replay_command(twins: Twins, chosen: TwinReplays | None) -> str:
    """Return the command that replays the standard panel again, in a twin or on the cluster that the source states."""
    words = ["tracekit", "replay", _TRACE, "-o", "replayed"]
    if chosen is None:
        return shlex.join([*words, "--limit", str(twins.limit)])
    return shlex.join([*words, *_twin(twins), *_named("--cluster-name", chosen)])


def plan_command(twins: Twins, chosen: TwinReplays, resamples: int) -> str:
    """Return the command that draws the same months again, and replays them on the same numbers of nodes."""
    words = ["tracekit", "plan", _TRACE, "-o", "plan", *_twin(twins), "--resamples", str(resamples)]
    name = chosen.found.name
    return shlex.join(words if name == UNNAMED else [*words, "--for", f"cluster={name}"])


def fit_command(replicates: int, scores: int) -> str:
    """Return the command that fits the workload again."""
    words = ["tracekit", "fit", _TRACE, "-o", "fitted.json"]
    return shlex.join([*words, "--bootstrap", str(replicates), "--scores", str(scores)])


def _twin(twins: Twins) -> tuple[str, str]:
    return "--twin", _TWIN if twins.file is None else str(twins.file)


def _named(option: str, one: TwinReplays) -> tuple[str, ...]:
    return () if one.found.name == UNNAMED else (option, one.found.name)
