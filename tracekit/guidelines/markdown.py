"""The guidelines as Markdown."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

__all__ = ["markdown"]

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>|#!&~])")

_HEADS = (
    ("holds", "What to change"),
    ("cannot tell", "What cannot be told"),
    ("does not hold", "What the trace does not show"),
)


def markdown(document: Mapping[str, Any]) -> str:
    """Return the document of `document_of` as Markdown; every text is escaped."""
    lines = [f"# Guidelines for {_text(document['trace'])}", ""]
    count = len(document["guidelines"])
    lines += [
        f"{document['holds']} of {count} guidelines hold. Advice stands only where a finding crossed its threshold."
    ]
    for verdict, title in _HEADS:
        entries = [e for e in document["guidelines"] if e["verdict"] == verdict]
        if entries:
            lines += ["", f"## {title}"]
        for entry in entries if verdict == "holds" else ():
            lines += ["", *_advice(entry)]
        if entries and verdict != "holds":
            lines += ["", *(_short(entry) for entry in entries)]
    lines += ["", f"tracekit {_text(document['tracekit_version'])}; intervals are of 95 %.", ""]
    return "\n".join(lines)


def _short(entry: Mapping[str, Any]) -> str:
    why = _text(" ".join(entry["why"]))
    return f"- **{_text(entry['title'])}** ({entry['id']}): {why}"


def _advice(entry: Mapping[str, Any]) -> list[str]:
    finding, practice = entry["finding"], entry["practice"]
    lines = [f"### {_text(entry['title'])}", "", f"*{_text(entry['question'])}*", "", _text(finding["text"]), ""]
    heads = ("what", "measured (95 % interval)", "n", "threshold")
    limits = {t["key"]: t["limit"] for t in entry["thresholds"]}
    rows = [(m["what"], m["text"], f"{m['n']:,} {m['n_of']}", limits.get(m["key"], "")) for m in finding["numbers"]]
    lines += [*_table(heads, rows), ""]
    if finding["rows"]:
        lines += [f"{_text(finding['rows_title'])}:", ""]
        lines += [*_table(finding["rows"][0], (row.values() for row in finding["rows"])), ""]
        if finding["rows_left_out"]:
            lines += [f"{finding['rows_left_out']:,} more rows are left out.", ""]
    lines += [f"**Advice.** {_text(entry['advice'])}", "", f"**Expected effect.** {_effect(entry)}", ""]
    lines += [f"**Cost.** {_text(entry['cost'])}", "", f"**Risk.** {_text(entry['risk'])}", "", "**How.**", ""]
    for name, title in (("slurm", "Slurm"), ("kubernetes", "Kubernetes"), ("yarn", "YARN")):
        lines.append(f"- {title}: {_text(practice[name])}")
    thresholds = "; ".join(f"{t['what']} {t['limit']} ({t['source']})" for t in entry["thresholds"])
    lines += ["", f"Thresholds: {_text(thresholds)}.", ""]
    lines += [f"Note: {_text(note)}" + "\n" for note in finding["notes"]]
    lines.append(f"Sources: {_text('; '.join(entry['sources']))}.")
    return lines


def _effect(entry: Mapping[str, Any]) -> str:
    effect = entry["effect"]
    if effect is None:
        return _text(entry["no_effect"] or "Not tried.")
    text = _text(effect["text"])
    best = "; ".join(f"{b['gpu_class']}: {b['policy']}" for b in effect["best_by_gpu_class"])
    return f"{text} Best by size of job (GPUs): {_text(best)}." if best else text


def _table(heads: Iterable[Any], rows: Iterable[Iterable[Any]]) -> list[str]:
    names = list(heads)
    lines = [_row(names), _row(["---"] * len(names), raw=True)]
    return lines + [_row(row) for row in rows]


def _row(cells: Iterable[Any], *, raw: bool = False) -> str:
    return "| " + " | ".join(str(c) if raw else _text(_cell(c)) for c in cells) + " |"


def _cell(value: object) -> str:
    if value is None:
        return "\N{EN DASH}"
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    return str(value)


def _text(text: object) -> str:
    r"""Return a text that Markdown shows as it is.

    Examples
    --------
    >>> _text("a*b <i>")
    'a\\*b \\<i\\>'
    """
    return _SPECIAL.sub(r"\\\1", str(text))
