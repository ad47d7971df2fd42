"""The texts of the guidelines in this package: one Markdown file each, next to the rules."""

from __future__ import annotations

import re
from pathlib import Path
from string import Template
from typing import Any

from tracekit.guidelines.interface import Practice

_FOLDER = Path(__file__).parent / "rules"


def texts(name: str, **values: float) -> dict[str, Any]:
    """Return the texts of the guideline `name` as arguments of `Guideline`.

    `rules/<name>.md` begins with the title and the question. Each section below, such as '## Advice' or '## No trial',
    is one argument; 'Slurm', 'Kubernetes' and 'YARN' make up the practice, and 'Sources' is a list. `values` replaces
    '$key' by a number, so the texts repeat no constants.
    """
    whole = (_FOLDER / f"{name}.md").read_text(encoding="utf-8")
    numbers = {key: f"{value:g}" for key, value in values.items()}
    top, *sections = re.split(r"^## (.+)$", Template(whole).substitute(numbers), flags=re.MULTILINE)
    title, _, question = top.removeprefix("# ").partition("\n")
    found: dict[str, Any] = {"id": name, "title": title, "question": _flat(question)}
    for head, body in zip(sections[::2], sections[1::2], strict=True):
        found[head.lower().replace(" ", "_")] = _flat(body)
    found["practice"] = Practice(*(found.pop(scheduler) for scheduler in ("slurm", "kubernetes", "yarn")))
    found["sources"] = tuple(filter(None, re.split(r"(?:^| )- ", found["sources"])))
    return found


def _flat(text: str) -> str:
    return " ".join(text.split())
