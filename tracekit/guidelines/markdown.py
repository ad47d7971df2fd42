"""The guidelines as Markdown."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from tracekit.faults import Fault, Faults

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


_SPECIAL = re.compile(r"([\\`*_{}\[\]<>|#!&~])")

HEADS = (
    ("holds", "What to change"),
    ("cannot tell", "Could not be decided"),
    ("does not hold", "Not found in the trace"),
)
"""The verdicts in document order, with their headings."""


def markdown(document: Mapping[str, Any], faults: Faults | None = None) -> str:
    """Return the document from `document_of` as Markdown, with all text escaped.

    If a guideline cannot be written, the document says so, and `faults` records it.
    """
    faults = Faults() if faults is None else faults
    lines = [f"# Guidelines for {escaped(document['trace'])}", ""]
    count = len(document["guidelines"])
    lines += [
        (
            f"{document['holds']} of {count} guidelines hold. A guideline gives advice only if its finding crosses the "
            "threshold."
        )
    ]
    for verdict, title in HEADS:
        entries = [e for e in document["guidelines"] if e["verdict"] == verdict]
        if entries:
            lines += ["", f"## {title}"]
        for entry in entries if verdict == "holds" else ():
            lines += ["", *advice_lines(entry, faults)]
        if entries and verdict != "holds":
            lines += ["", *(_short(entry) for entry in entries)]
    lines += ["", f"tracekit {escaped(document['tracekit_version'])}. All intervals are 95 % intervals.", ""]
    return "\n".join(lines)


def _short(entry: Mapping[str, Any]) -> str:
    why = escaped(" ".join(entry["why"]))
    return f"- **{escaped(entry['title'])}** ({entry['id']}): {why}"


def advice_lines(entry: Mapping[str, Any], faults: Faults) -> list[str]:
    """Return the lines of a guideline that holds, under a level-3 heading, or why they cannot be written."""
    made = faults.run(f"the text of the guideline {entry['id']}", _advice, entry)
    return [f"### {escaped(entry['title'])}", "", escaped(made.remark)] if isinstance(made, Fault) else made


def _advice(entry: Mapping[str, Any]) -> list[str]:
    finding, practice = entry["finding"], entry["practice"]
    lines = [f"### {escaped(entry['title'])}", "", f"*{escaped(entry['question'])}*", "", escaped(finding["text"]), ""]
    heads = ("measure", "value (95 % interval)", "n", "threshold")
    limits = {t["key"]: t["limit"] for t in entry["thresholds"]}
    rows = [(m["what"], m["text"], f"{m['n']:,} {m['n_of']}", limits.get(m["key"], "")) for m in finding["numbers"]]
    lines += [*table(heads, rows), ""]
    if finding["rows"]:
        lines += [f"{escaped(finding['rows_title'])}:", ""]
        lines += [*table(finding["rows"][0], (row.values() for row in finding["rows"])), ""]
        if finding["rows_left_out"]:
            lines += [f"{finding['rows_left_out']:,} more rows are not shown.", ""]
    lines += [f"**Advice.** {escaped(entry['advice'])}", "", f"**Does it help?** {escaped(effect_text(entry))}", ""]
    lines += [f"**Cost.** {escaped(entry['cost'])}", "", f"**Risk.** {escaped(entry['risk'])}", "", "**How.**", ""]
    for name, title in (("slurm", "Slurm"), ("kubernetes", "Kubernetes"), ("yarn", "YARN")):
        lines.append(f"- {title}: {escaped(practice[name])}")
    thresholds = "; ".join(f"{t['what']} {t['limit']} ({t['source']})" for t in entry["thresholds"])
    lines += ["", f"Thresholds: {escaped(thresholds)}.", ""]
    lines += [f"Note: {escaped(note)}" + "\n" for note in finding["notes"]]
    lines.append(f"Sources: {escaped('; '.join(entry['sources']))}.")
    return lines


def effect_text(entry: Mapping[str, Any]) -> str:
    """Describe the expected effect of a guideline that holds, or why it is unknown."""
    effect = entry["effect"]
    return expected_text(entry) + (_best_by_size(effect) if effect is not None else "")


def expected_text(entry: Mapping[str, Any]) -> str:
    """Describe the expected effect, except for the best change for each job size, or why it is unknown."""
    expected = entry["effect"] or entry["losses"]
    return expected["text"] if expected else entry["no_effect"] or "Not tried."


def _best_by_size(effect: Mapping[str, Any]) -> str:
    """Name the best change for each job size, or return '' if the same change is best for all sizes."""
    found = effect["best_by_gpu_class"]
    if len({best["policy"] for best in found}) < 2:
        return ""
    parts = "; ".join(f"{best['gpu_class']}: {best['policy']}" for best in found)
    return f" Best by job size (GPUs): {parts}."


def table(heads: Iterable[Any], rows: Iterable[Iterable[Any]]) -> list[str]:
    """Return the lines of a table, with every cell escaped."""
    names = list(heads)
    lines = [_row(names), _row(["---"] * len(names), raw=True)]
    return lines + [_row(row) for row in rows]


def _row(cells: Iterable[Any], *, raw: bool = False) -> str:
    return "| " + " | ".join(str(c) if raw else escaped(cell_text(c)) for c in cells) + " |"


def cell_text(value: object) -> str:
    """Convert the value of a table cell to text."""
    if value is None:
        return "\N{EN DASH}"
    if isinstance(value, float):
        return f"{value:,.4g}" if abs(value) < 1000 else f"{value:,.0f}"
    return str(value)


def escaped(text: object) -> str:
    r"""Escape text so that Markdown shows it literally.

    Examples
    --------
    >>> escaped("a*b <i>")
    'a\\*b \\<i\\>'
    """
    return _SPECIAL.sub(r"\\\1", str(text))
