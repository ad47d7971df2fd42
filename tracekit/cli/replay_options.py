"""Options that the commands of the replay share."""

from __future__ import annotations

import datetime as dt
import math
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tracekit.errors import UsageError

if TYPE_CHECKING:
    from tracekit.progress import Progress
    from tracekit.replay.scenario import Scenario

__all__ = [
    "ForceReplay",
    "ModelsFile",
    "OutFolder",
    "Switch",
    "moment",
    "show_assumptions",
    "show_before",
]


class Switch(StrEnum):
    """On or off."""

    on = "on"
    off = "off"


OutFolder = Annotated[Path, typer.Option("-o", "--output", metavar="OUT", help="Folder for the results.")]


ModelsFile = Annotated[
    Path | None, typer.Option("--models", metavar="FILE", help="Assumptions (TOML) that replace the built-in ones.")
]

ForceReplay = Annotated[
    bool,
    typer.Option(
        "--force", help="Replace an earlier output, and replay although most of the work can never run on this cluster."
    ),
]

_EPOCH = dt.datetime(1970, 1, 1)


def moment(text: str | None, option: str) -> dt.datetime | None:
    """Return a time given as ISO 8601, or as seconds after 1970, for logs whose times are relative; UTC.

    Raises
    ------
    UsageError
        It is neither.
    """
    if text is None:
        return None
    try:
        found = dt.datetime.fromisoformat(text)
    except ValueError:
        try:
            seconds = float(text)
            if not math.isfinite(seconds):
                raise ValueError(text)
            found = _EPOCH + dt.timedelta(seconds=seconds)
        except (ValueError, OverflowError):
            raise UsageError(
                f"'{text[:60]}' is not a time", where=option, hint="write it like 2017-10-03 or 2017-10-03T12:00"
            ) from None
    return found if found.tzinfo is None else found.astimezone(dt.UTC).replace(tzinfo=None)


def show_before(scenario: Scenario, progress: Progress) -> None:
    """Print, before the first replay, which jobs are left out and what the cluster cannot do."""
    from tracekit.replay.run_policies import left_out_sentences

    found = scenario.feasibility
    for sentence in () if found is None else found.sentences:
        progress.note(f"warning: {sentence}")
    for sentence in left_out_sentences(scenario):
        progress.note(sentence)


def show_assumptions(assumptions: dict[str, dict[str, Any]]) -> None:
    """Print the assumptions that results rest on, one line each."""
    typer.echo("Assumptions used:")
    for key, a in assumptions.items():
        line = f"  {key}, {a['title']}: {a['value']} ({a['source']})"
        typer.echo("".join(c if c.isprintable() else "?" for c in line))
