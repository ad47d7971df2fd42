"""tracekit policies."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from tracekit.cli.options import TextFormat
from tracekit.cli.replay_options import ModelsFile, show_assumptions
from tracekit.cli.streams import print_json
from tracekit.errors import UsageError

if TYPE_CHECKING:
    from tracekit.policies.interface import Card

__all__ = ["policies"]


def policies(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Show the card of this policy.", show_default=False)
    ] = None,
    models: ModelsFile = None,
    not_replayed: Annotated[
        bool,
        typer.Option(
            "--not-replayed", help="List the systems that a replay cannot simulate, why not, and the alternatives."
        ),
    ] = False,
    form: Annotated[TextFormat, typer.Option("-f", "--output-format", help="How to write it.")] = TextFormat.table,
) -> None:
    """List the scheduling policies, or show the card of one: rule, parameters, assumptions, sources.

    Example: tracekit policies srtf
    """
    from tracekit.cli.display import print_table
    from tracekit.replay.assumptions.models import load_models, used_assumptions
    from tracekit.replay.registry import broken_plugins, find_policy
    from tracekit.replay.registry import policies as known

    if not_replayed:
        if name is not None:
            raise UsageError(
                "--not-replayed lists all systems that tracekit does not replay", hint=f"leave out '{name[:60]}'"
            )
        _show_not_replayed(form)
        return
    if name is None:
        cards = [member.card for member in known().values()]
        if form is TextFormat.json:
            rows = [{"name": c.name, "title": c.title, "assumptions": list(c.assumptions)} for c in cards]
            print_json(rows)
        else:
            print_table(
                ("name", "what it is", "parameters", "assumes"),
                [(c.name, c.title, ", ".join(p.name for p in c.parameters), ", ".join(c.assumptions)) for c in cards],
            )
        for fault in broken_plugins().values():
            typer.echo(f"note: {fault}", err=True)
        return
    card = find_policy(name).card
    overhead = next((str(p.default) for p in card.parameters if p.name == "overhead"), None)
    assumptions = used_assumptions(load_models(models), card.assumptions, overhead)
    if form is TextFormat.json:
        print_json(_facts(card, assumptions))
    else:
        _show(card, assumptions)


def _show_not_replayed(form: TextFormat) -> None:
    from tracekit.cli.display import print_table
    from tracekit.policies.literature.not_replayed import NOT_REPLAYED

    if form is TextFormat.json:
        print_json([asdict(system) for system in NOT_REPLAYED])
        return
    rows = [(s.name, s.decides, s.why, s.instead, "; ".join((*s.policies, *s.assumptions))) for s in NOT_REPLAYED]
    print_table(("system", "what it decides", "why not", "alternative", "by"), rows)


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
    from tracekit.cli.display import print_table
    from tracekit.policies.interface import spell

    typer.echo(f"{card.name}: {card.title}\n\n{card.rule}\n")
    if card.parameters:
        rows = [(p.name, spell(p.read(p.default)), p.kind, p.meaning) for p in card.parameters]
        print_table(("parameter", "default", "values", "meaning"), rows)
    if assumptions:
        show_assumptions(assumptions)
    for title, lines in (("The same as others", card.equal_to), ("Sources", card.sources)):
        if lines:
            typer.echo(f"{title}:")
            for line in lines:
                typer.echo(f"  - {line}")
