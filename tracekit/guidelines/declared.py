"""The declarations of the built-in guidelines: one Markdown file each, next to the function for the finding."""

from __future__ import annotations

import re
from pathlib import Path
from string import Template
from typing import Any

from tracekit.guidelines.interface import Measure, Practice, Threshold

_FOLDER = Path(__file__).parent / "rules"


def declared(name: str, **values: float) -> dict[str, Any]:
    """Return the wording, measures and thresholds of the guideline `name` as arguments of `Guideline`.

    `rules/<name>.md` begins with the title and the question. Each further section, such as '## Advice' or '## No
    trial', is one argument. 'Measures' and 'Thresholds' are tables, 'Sources' is a list, and 'Slurm', 'Kubernetes' and
    'YARN' form the practice. `values` replaces '$key' with a number, so the file does not repeat constants from the
    code.
    """
    whole = (_FOLDER / f"{name}.md").read_text(encoding="utf-8")
    numbers = {key: f"{value:g}" for key, value in values.items()}
    top, *sections = re.split(r"^## (.+)$", Template(whole).substitute(numbers), flags=re.MULTILINE)
    bodies = dict(zip(sections[::2], sections[1::2], strict=True))
    title, _, question = top.removeprefix("# ").partition("\n")
    practice = Practice(*(_flat(bodies.pop(scheduler)) for scheduler in ("Slurm", "Kubernetes", "YARN")))
    thresholds = _rows(bodies.pop("Thresholds"))
    return {
        "id": name,
        "title": title,
        "question": _flat(question),
        "measures": tuple(Measure(*row) for row in _rows(bodies.pop("Measures"))),
        "thresholds": tuple(Threshold(key, side, _number(value), why) for key, side, value, why in thresholds),
        "practice": practice,
        "sources": tuple(filter(None, re.split(r"(?:^| )- ", _flat(bodies.pop("Sources"))))),
        **{head.lower().replace(" ", "_"): _flat(body) for head, body in bodies.items()},
    }


def _flat(text: str) -> str:
    return " ".join(text.split())


def _rows(table: str) -> list[list[Any]]:
    """Return the cells of a table below its heading."""
    lines = [line.strip().strip("|") for line in table.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.split("|")] for line in lines[2:]]


def _number(text: str) -> float:
    return int(text) if text.isdigit() else float(text)
