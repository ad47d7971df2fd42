"""Options that the commands of the replay share."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from tracekit.progress import Progress
    from tracekit.replay.scenario import Scenario

__all__ = [
    "ForceReplay",
    "ModelsFile",
    "OutFolder",
    "show_assumptions",
    "show_before",
]


OutFolder = Annotated[Path, typer.Option("-o", "--output", metavar="OUT", help="Folder for the results.")]


ModelsFile = Annotated[
    Path | None, typer.Option("--models", metavar="FILE", help="Assumptions (TOML) that replace the built-in ones.")
]

ForceReplay = Annotated[
    bool,
    typer.Option(
        "--force", help="Replace an earlier output, and replay even if most of the work cannot run on this cluster."
    ),
]


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
