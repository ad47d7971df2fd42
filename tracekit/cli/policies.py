"""tracekit policies."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tracekit.cli.display import print_assumptions, print_list, print_notes, print_table
from tracekit.cli.streams import print_json
from tracekit.errors import UsageError
from tracekit.settings import Flag, ListForm, ModelsFile

if TYPE_CHECKING:
    from tracekit.policies.interface import Card


def policies(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="A policy whose card to show.")] = None,
    models: ModelsFile = None,
    not_replayed: Annotated[
        bool,
        Flag("--not-replayed", "List the systems that a replay cannot simulate, with the reasons and alternatives."),
    ] = False,
    form: ListForm = "table",
) -> None:
    """List the scheduling policies, or show one policy's card with its rule, parameters, assumptions and sources.

    Example: tracekit policies srtf
    """
    from tracekit.policies.literature.not_replayed import NOT_REPLAYED
    from tracekit.replay.assumptions.models import load_models, used_assumptions
    from tracekit.replay.registry import broken_plugins, find_policy
    from tracekit.replay.registry import policies as known

    if not_replayed:
        if name is not None:
            raise UsageError(
                "--not-replayed lists all systems that tracekit does not replay", hint=f"leave out '{name[:60]}'"
            )
        rows = [(s.name, s.decides, s.why, s.instead, "; ".join((*s.policies, *s.assumptions))) for s in NOT_REPLAYED]
        heads = ("system", "what it decides", "why not", "alternative", "by")
        print_list([asdict(system) for system in NOT_REPLAYED], heads, rows, form)
        return
    if name is None:
        cards = [member.card for member in known().values()]
        print_list(
            [{"name": c.name, "title": c.title, "assumptions": list(c.assumptions)} for c in cards],
            ("name", "what it is", "parameters", "assumes"),
            [(c.name, c.title, ", ".join(p.name for p in c.parameters), ", ".join(c.assumptions)) for c in cards],
            form,
        )
        print_notes(broken_plugins().values())
        return
    card = find_policy(name).card
    overhead = next((str(p.default) for p in card.parameters if p.name == "overhead"), None)
    assumptions = used_assumptions(load_models(None if models is None else Path(models)), card.assumptions, overhead)
    if form == "json":
        print_json(_facts(card, assumptions))
    else:
        _show(card, assumptions)


def _facts(card: Card, assumptions: dict[str, dict[str, str]]) -> dict[str, object]:
    return {
        "name": card.name,
        "title": card.title,
        "rule": card.rule,
        "parameters": [
            {"name": p.name, "default": p.default, "values": p.kind, "meaning": p.meaning} for p in card.parameters
        ],
        "assumptions": assumptions,
        "equal_to": list(card.equal_to),
        "sources": list(card.sources),
    }


def _show(card: Card, assumptions: dict[str, dict[str, str]]) -> None:
    from tracekit.policies.interface import spell

    typer.echo(f"{card.name}: {card.title}\n\n{card.rule}\n")
    if card.parameters:
        rows = [(p.name, spell(p.read(p.default)), p.kind, p.meaning) for p in card.parameters]
        print_table(("parameter", "default", "values", "meaning"), rows)
    if assumptions:
        print_assumptions(assumptions)
    for title, lines in (("The same as others", card.equal_to), ("Sources", card.sources)):
        if lines:
            typer.echo(f"{title}:")
            for line in lines:
                typer.echo(f"  - {line}")
