"""The fixed texts that an expression cannot match without."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tracekit.characterize.joblogs.literals import required_literals
from tracekit.characterize.joblogs.matcher import matches
from tracekit.characterize.joblogs.rules import load_rules

if TYPE_CHECKING:
    from types import ModuleType


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("CUDA out of memory", ("cuda out of memory",)),
        (r"\bXid \d+ error", (" error",)),
        ("(?i)(?:abcde|fghij)", ("abcde", "fghij")),
        ("(?:abcde|fghij)?klmno", ("abcdeklmno", "fghijklmno", "klmno")),
        ("abcde*f", ("abcd",)),
        ("abcde+f", ("abcd",)),
        ("abcd{2,}efghi", ("efghi",)),
        ("(abcde)+x", ("abcde",)),
        ("(?:abcde){0,3}fghijk", ("fghijk",)),
        (r"a\.b\[c\]d", ("a.b[c]d",)),
        (r"foo\bbar", ("foobar",)),
        ("^foobar$", ("foobar",)),
        ("(?P<name>foobar)", ("foobar",)),
        ("a[bc]defghi", ("defghi",)),
        ("a[]x]defghi", ("defghi",)),
        ("abcd|", ()),
        ("abcd|x", ()),
        ("abcd.*efgh", ("abcd",)),
        (r"\w+Error: \d", ("error: ",)),
        (r"\QfooXbar\E", ()),
        (r"\x41bcdef", ()),
        ("(abcdef", ()),
        ("[abcdef", ()),
        ("ärger über", ()),
        (r"\d+", ()),
    ],
)
def test_the_texts_of_an_expression(pattern: str, expected: tuple[str, ...]) -> None:
    assert required_literals(pattern, 4) == expected


def test_of_several_texts_the_rarest_is_chosen() -> None:
    def commonness(text: str) -> float:
        return float("error" in text)

    assert required_literals("errors.*watchdog", 5) == ("watchdog",)
    assert required_literals("a long error text.*seldom", 5, commonness) == ("seldom",)


def test_a_choice_of_many_texts_is_not_spelled_out_without_end() -> None:
    pattern = "".join(f"(?:{letter}1|{letter}2)" for letter in "abcdefghij") + "-fixed"
    assert all("-fixed" in text or len(text) >= 4 for text in required_literals(pattern, 4))
    assert len(required_literals(pattern, 4)) <= 32


def test_every_line_of_the_corpora_that_matches_a_rule_has_one_of_its_texts(score_classifier: ModuleType) -> None:
    corpus = score_classifier.corpus_module()
    texts = [t for part in score_classifier.PARTS for several in corpus.messages(part).values() for t in several]
    lines = sorted({line.encode() for text in texts for line in text.split("\n")})
    checked = 0
    for rule in load_rules().rules:
        for pattern in rule.signatures:
            literals = required_literals(pattern, 5)
            for line, hit in zip(lines, matches(lines, pattern), strict=True):
                if hit and literals:
                    assert any(literal.encode() in line.lower() for literal in literals), (pattern, line)
                    checked += 1
    assert checked > 300
