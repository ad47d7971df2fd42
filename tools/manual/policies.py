"""The reference page of all policies and assumptions, generated from the policies' cards and models.toml."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tools.manual.markdown import bullets, code, head, plain, sentence, table
from tracekit.policies.interface import spell
from tracekit.policies.literature.not_replayed import NOT_REPLAYED
from tracekit.replay.assumptions.models import load_models, used_assumptions
from tracekit.replay.registry import policies

if TYPE_CHECKING:
    from tracekit.policies.interface import Card, Policy

__all__ = ["page"]

_INTRO = """\
`tracekit replay TRACE -p NAME,key=value -o OUT` runs the jobs of a Trace under one of these policies, and
`tracekit policies NAME` prints a policy's card. Durations are in seconds. "The same as" lists the parameters or inputs
with which the policy behaves like another policy. [Replaying a trace](../replay.md) explains how a replay works, and
[Write a policy](../howto/policy.md) shows how to add a policy."""

_ASSUMED = """\
A replay must assume these values because no log records them. A policy's card lists their ids. The values shown are the
defaults, which `--models FILE` changes. The evidence shows how far you can trust a number."""

_NOT_REPLAYED = """\
A replay of jobs cannot simulate these systems under any assumption. `tracekit policies --not-replayed` prints the same
list."""


def page() -> str:
    """Return the page as Markdown."""
    cards = [known.card for known in _own()]
    lines = head("Policies", "the cards in tracekit/policies/", _INTRO)
    lines += table(("name", "what it is"), [(f"[{c.name}](#{c.name})", plain(c.title)) for c in cards])
    for card in cards:
        lines += _card(card)
    return "\n".join([*lines, *_not_replayed(), *_assumptions()]) + "\n"


def _own() -> list[type[Policy]]:
    return [kind for kind in policies().values() if kind.__module__.startswith("tracekit.")]


def _card(card: Card) -> list[str]:
    lines = ["", f"## {card.name}", "", f"**{plain(card.title)}**", "", plain(sentence(card.rule))]
    rows = [
        (code(p.name), code(spell(p.read(p.default))), plain(p.kind.replace("|", ", ")), plain(p.meaning))
        for p in card.parameters
    ]
    lines += table(("parameter", "default", "values", "meaning"), rows)
    if card.assumptions:
        lines += ["", f"Assumes {', '.join(f'[{name}](#{_anchor(name)})' for name in card.assumptions)}."]
    if card.equal_to:
        lines += ["", "The same as:", *bullets(card.equal_to)]
    if card.sources:
        lines += ["", "Sources:", *bullets(card.sources)]
    return lines


def _not_replayed() -> list[str]:
    rows = [
        (
            plain(s.name),
            plain(s.decides),
            plain(s.why),
            plain(s.instead),
            ", ".join([code(p) for p in s.policies] + [f"[{a}](#{_anchor(a)})" for a in s.assumptions]),
            plain(s.source),
        )
        for s in NOT_REPLAYED
    ]
    titles = ("system", "what it decides", "why not", "what can be shown instead", "by", "source")
    return ["", "## Not replayed", "", _NOT_REPLAYED, *table(titles, rows)]


def _anchor(name: str) -> str:
    """Return the anchor of the section that contains an assumption."""
    models = load_models()
    return f"assumption-{models.ids[name].replace('_', '-')}"


def _assumptions() -> list[str]:
    models = load_models()
    lines = ["", "## Assumptions", "", _ASSUMED]
    for section in models.notes:
        names = [name for name, where in models.ids.items() if where == section]
        (told,) = used_assumptions(models, names[:1]).values()
        anchor = f'<a id="assumption-{section.replace("_", "-")}"></a>'
        lines += ["", f"{anchor}**{', '.join(names)}: {plain(told['title'])}** (section {code(section)})"]
        lines += ["", plain(sentence(told["value"])), "", f"Source: {plain(sentence(told['source']))}"]
    return lines
