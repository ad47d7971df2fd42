"""The reference page of all guidelines, generated from their registry."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tools.manual.markdown import bullets, code, codes, head, plain, sentence, table
from tracekit.guidelines.interface import GUIDELINES, LossTrial
from tracekit.tenant import VC

if TYPE_CHECKING:
    from tracekit.guidelines.interface import Guideline, Threshold

__all__ = ["page"]

_INTRO = """\
`tracekit guidelines TRACE` judges a Trace by these rules. A guideline holds if every threshold is crossed. Its advice
is shown only if it holds. [Guidelines](../guidelines.md) explains the verdict and the expected effect, and
[Write a guideline](../howto/guideline.md) shows how to add a guideline."""


def page() -> str:
    """Return the page as Markdown."""
    own = [g.of(VC) for g in GUIDELINES.all().values() if g.find.__module__.startswith("tracekit.")]
    lines = head("Guidelines", "tracekit/guidelines/rules/", _INTRO)
    lines += table(("id", "title"), [(f"[{g.id}](#{g.id})", plain(g.title)) for g in own])
    for guideline in own:
        lines += _guideline(guideline)
    return "\n".join(lines) + "\n"


def _guideline(g: Guideline) -> list[str]:
    lines = ["", f"## {g.id}", "", f"**{plain(sentence(g.title))}** *{plain(g.question)}*"]
    limits = {t.key: t for t in g.thresholds}
    rows = [(code(m.key), plain(m.what), plain(m.unit), plain(m.n_of), _limit(limits.get(m.key))) for m in g.measures]
    lines += table(("measure", "what it is", "unit", "counted over", "holds from"), rows)
    lines += ["", f"The headline {code(g.measures[0].key)} needs at least {g.least_n} {plain(g.measures[0].n_of)}."]
    if g.tables:
        lines[-1] += f" Needs tables {codes(g.tables)}."
    if g.needs:
        lines[-1] += f" Needs capabilities {codes(g.needs)}."
    lines += [
        "",
        "Thresholds:",
        *bullets(f"`{t.key}` {t.side} {t.value:g}: {sentence(t.source)}" for t in g.thresholds),
    ]
    if g.trial is None:
        lines += ["", f"Effect by replay: none. {plain(sentence(g.no_trial))}"]
    elif isinstance(g.trial, LossTrial):
        lines += ["", "The effect on the cost of outages is estimated by replays in the twin with recorded outages."]
    else:
        changes = ", ".join(code(c) if isinstance(c, str) else c.name for c in g.trial.changed)
        lines += ["", f"Changes replayed in the log's twin to estimate the effect: {changes}."]
    texts = {"Advice": g.advice, "Cost": g.cost, "Risk": g.risk}
    texts |= {"In Slurm": g.practice.slurm, "In Kubernetes": g.practice.kubernetes, "In YARN": g.practice.yarn}
    for name, text in texts.items():
        lines += ["", f"{name}: {plain(sentence(text))}"]
    return [*lines, "", "Sources:", *bullets(g.sources)]


def _limit(threshold: Threshold | None) -> str:
    return "" if threshold is None else f"{threshold.side} {threshold.value:g}"
