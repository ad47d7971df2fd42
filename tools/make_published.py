"""Generate reports/published/*.csv from a folder of reference numbers.

    python tools/make_published.py FOLDER

FOLDER contains openb_fgd.csv with scheduling results, and <study>_published.csv files with one number per line and the
columns trace, artefact, metric, group, value, unit, source and note. The rules in tools/publishing/ define which query
measures a number and how. Numbers that no query measures are excluded. The terminal shows how many and why.
"""

from __future__ import annotations

import csv
import re
import sys
from collections import Counter
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tools.publishing import alibaba, helios, philly  # noqa: E402 -- found through the line above
from tools.publishing.numbers import Reference, placed, pooled, read_references  # noqa: E402 -- found through the path set above
from tracekit.characterize import list_queries  # noqa: E402 -- found through the path set above
from tracekit.characterize.published import PublishedValue  # noqa: E402 -- found through the path set above

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tools.publishing.rules import Rule, Skip

OUT = ROOT / "reports" / "published"
STUDIES: dict[str, tuple[tuple[Rule, ...], tuple[Skip, ...], dict[str, str]]] = {
    "philly": (philly.RULES, philly.SKIPS, philly.NOTES),
    "helios": (helios.HELIOS_RULES, helios.HELIOS_SKIPS, helios.HELIOS_NOTES),
    "acme": (helios.ACME_RULES, helios.ACME_SKIPS, helios.ACME_NOTES),
    "alibaba-pai": (alibaba.PAI_RULES, alibaba.PAI_SKIPS, alibaba.PAI_NOTES),
    "alibaba-openb": (alibaba.OPENB_RULES, alibaba.OPENB_SKIPS, alibaba.OPENB_NOTES),
}


def make(references: Iterable[Reference], study: str, left: Counter[str]) -> list[PublishedValue]:
    """Return a study's published numbers. `left` counts the reasons for excluding others."""
    rules, skips, notes = STUDIES[study]
    queries = {query.name: query for query in list_queries()}
    found: list[PublishedValue] = []
    for reference in references:
        if "cdf" in reference.metric and reference.value in {"0", "100"}:
            left["an end of a curve"] += 1
            continue
        fitting = [r for r in rules if r.fits(reference.artefact, reference.metric, reference.group)]
        numbers = [n for r in fitting if (n := placed(reference, r, queries, notes))]
        if not numbers:
            missing = next((r.query for r in fitting if r.query not in queries), None)
            reasons = [s.reason for s in skips if s.fits(reference.artefact, reference.metric)]
            left[f"the query {missing} is not there" if missing else (reasons or ["no query measures it"])[0]] += 1
            continue
        for number in numbers[:1]:
            if not _joined(found, number):
                found.append(number)
            else:
                left["another number, rounded or repeated"] += 1
    return found


def _joined(found: list[PublishedValue], number: PublishedValue) -> bool:
    """Merge `number` with an equal earlier number, keeping the more exact one. Return whether there was one."""
    for i, other in enumerate(found):
        if _place(other) == _place(number) and _agree(other, number):
            first = number if _step(number) < _step(other) else other
            artefacts = dict.fromkeys([*other.artefact.split("; "), number.artefact])
            found[i] = replace(first, artefact="; ".join(artefacts))
            return True
    return False


def _agree(one: PublishedValue, other: PublishedValue) -> bool:
    if one.value is None or other.value is None:
        return (one.kind, one.low, one.high) == (other.kind, other.low, other.high)
    # Numbers are equal if rounding one gives the other.
    return abs(one.value - other.value) <= 0.51 * max(_step(one), _step(other))


def _step(number: PublishedValue) -> float:
    """Return the value of a number's last printed digit in the number's unit."""
    printed = re.search(r"[\d.]+", number.as_printed)
    if number.value is None or printed is None or not float(printed[0]):
        return 0.0
    digits = len(printed[0].partition(".")[2])
    return float(10**-digits * number.value / float(printed[0]))


def _place(number: PublishedValue) -> tuple[str, ...]:
    return (number.query, number.params, number.options, number.cluster, number.row, number.of, number.column)


def write(numbers: Iterable[PublishedValue], path: Path) -> None:
    """Write numbers to a CSV file in the order of queries."""
    names = [f.name for f in fields(PublishedValue)]
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, names, lineterminator="\n")
        writer.writeheader()
        for number in sorted(numbers, key=lambda n: n.query):
            line = asdict(number)
            writer.writerow({k: f"{v:.12g}" if isinstance(v, float) else v or "" for k, v in line.items()})


def main(arguments: list[str]) -> int:
    """Generate every file, or return 2 if no folder is given."""
    if len(arguments) != 1:
        print(__doc__)
        return 2
    references = read_references(Path(arguments[0]))
    references += pooled([r for r in references if r.trace == "acme"])
    OUT.mkdir(exist_ok=True)
    for study in STUDIES:
        left: Counter[str] = Counter()
        # A study's numbers for its own trace come before other studies' numbers for it.
        about = sorted((r for r in references if r.trace == study), key=lambda r: not study.startswith(r.study))
        numbers = make(about, study, left)
        write(numbers, OUT / f"{study}.csv")
        print(f"{study}: {len(numbers)} numbers, {left.total()} left out")
        for reason, count in left.most_common():
            print(f"    {count:5}  {reason}")
    others = Counter(r.trace for r in references if r.trace not in STUDIES)
    for trace, count in others.items():
        print(f"{trace}: all {count} left out: no query measures them")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
