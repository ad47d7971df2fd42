"""Print the log classifier's precision and recall on the labelled corpora.

    python tools/score_classifier.py [--part messages|held_out] [--wrong] [--docs]

A log counts as found if the classifier reports the reason that was put into it. Logs of successful jobs must be
distinguished from those of failed jobs.
"""

from __future__ import annotations

import argparse
import importlib.util
import io
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tracekit.characterize.joblogs import Classifier, load_rules

if TYPE_CHECKING:
    from types import ModuleType

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "docs" / "classify-logs.md"
BEGIN = "<!-- from rules.toml; write again with: python tools/score_classifier.py --docs -->\n"
END = "<!-- end -->\n"
PARTS = ("messages", "held_out")


class Score(NamedTuple):
    """The classifier's score for one reason."""

    reason: str
    logs: int
    precision: float
    """Share of the logs classified with the reason that really have it [0..1], or 1 if there are none."""
    recall: float
    """Share of the logs with the reason that the classifier assigns it to [0..1]."""


class Outcome(NamedTuple):
    """Scores of a corpus."""

    scores: list[Score]
    overall: Score
    """Scores over all logs: precision among those classified as failed, and recall among those that failed."""
    wrong: list[tuple[str, str, str]]
    """True reason, reported reason and evidence of each misclassified log."""


def corpus_module() -> ModuleType:
    """Load the tests' module that makes the corpora."""
    name = "joblogs_corpus"
    if name not in sys.modules:
        path = ROOT / "tests" / "characterize" / "joblogs" / "corpus.py"
        spec = importlib.util.spec_from_file_location(name, path)
        if spec is None or spec.loader is None:
            raise FileNotFoundError(path)
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    return sys.modules[name]


def score(part: str) -> Outcome:
    """Classify every log of a corpus and compute the scores."""
    corpus = corpus_module()
    classifier = Classifier(load_rules())
    pairs: Counter[tuple[str, str]] = Counter()
    wrong = []
    for log in corpus.make_corpus(part):
        finding = classifier.classify(io.BytesIO(log.data))
        told = corpus.NOT_FAILED
        if finding.hit is not None:
            told = classifier.book.rules[finding.hit.rank].reason.name
        elif finding.failure_sign:
            told = "no_signature"
        pairs[log.reason, told] += 1
        if told != log.reason:
            wrong.append((log.reason, told, finding.hit.text if finding.hit else ""))
    reasons = sorted({reason for reason, _ in pairs} | {told for _, told in pairs})
    scores = [_score(pairs, reason) for reason in reasons]
    failed = sum(n for (reason, _), n in pairs.items() if reason != corpus.NOT_FAILED)
    claimed = sum(n for (_, told), n in pairs.items() if told != corpus.NOT_FAILED)
    right = sum(n for (reason, told), n in pairs.items() if reason == told != corpus.NOT_FAILED)
    return Outcome(scores, Score("all failures", failed, right / claimed, right / failed), wrong)


def _score(pairs: Counter[tuple[str, str]], name: str) -> Score:
    true = sum(n for (reason, _), n in pairs.items() if reason == name)
    claimed = sum(n for (_, told), n in pairs.items() if told == name)
    right = pairs[name, name]
    return Score(name, true, right / claimed if claimed else 1.0, right / true if true else 1.0)


def reasons_table() -> str:
    """Return the table of all reasons for docs/classify-logs.md."""
    lines = ["| reason | title | category | what to do |", "|---|---|---|---|"]
    for reason in load_rules().reasons:
        mark = " (P)" if reason.source == "philly" else ""
        lines.append(f"| `{reason.name}` | {reason.title}{mark} | {reason.category or '-'} | {reason.advice} |")
    return "\n".join(lines) + "\n"


def page_with_table(page: str) -> str:
    """Return the text of docs/classify-logs.md with the table of the current rules."""
    before, _, rest = page.partition(BEGIN)
    return f"{before}{BEGIN}{reasons_table()}{END}{rest.partition(END)[2]}"


def main() -> None:
    """Print a table for each corpus."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--part", choices=PARTS, help="only this corpus")
    parser.add_argument("--wrong", action="store_true", help="list misclassified logs")
    parser.add_argument("--docs", action="store_true", help="only rewrite the table of reasons in docs/")
    given = parser.parse_args()
    if given.docs:
        PAGE.write_text(page_with_table(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
        return
    for part in [given.part] if given.part else PARTS:
        outcome = score(part)
        print(f"{part}\n{'reason':28}{'logs':>6}{'precision':>11}{'recall':>8}")
        for line in (*outcome.scores, outcome.overall):
            print(f"{line.reason:28}{line.logs:6}{line.precision:11.3f}{line.recall:8.3f}")
        for reason, told, text in outcome.wrong if given.wrong else ():
            print(f"  {reason} -> {told}: {text[:160]}")
        print()


if __name__ == "__main__":
    main()
