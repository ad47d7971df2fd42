"""The fixed texts that an expression cannot match without."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tracekit.characterize.joblogs.classify import required_literals
from tracekit.characterize.joblogs.rules import load_rules, matches

if TYPE_CHECKING:
    from types import ModuleType


@pytest.mark.parametrize(
    ("pattern", "expected"),
    [
        ("CUDA out of memory", ("cuda out of memory",)),
        (r"\bXid \d+ error", (" error",)),
        ("(?i)(?:abc|def)", ("abc", "def")),
        ("(?:abcde|fghij)?klmno", ("klmno",)),
        ("(?:abcde|fghij)klm", ("abcde", "fghij")),
        ("(?:abc(?:de|fgh)|ijklm)no", ("abc", "ijklm")),
        ("abcd*e", ("abc",)),
        ("abcd?e", ("abc",)),
        ("abcd+e", ("abcd",)),
        ("abcd{0}e", ("abc",)),
        ("abcd{0,}?e", ("abc",)),
        ("abcd{2,}efghi", ("efghi",)),
        ("abcd{,2}", ("abcd{,2}",)),
        ("(abcde)+x", ("abcde",)),
        ("(?:abcde)*fgh", ("fgh",)),
        ("(?:abcde){0,3}fghijk", ("fghijk",)),
        (r"a\.b\[c\]d", ("a.b[c]d",)),
        (r"foo\bbar", ("foobar",)),
        ("^foobar$", ("foobar",)),
        ("(?P<name>foobar)", ("foobar",)),
        ("(?<name>foobar)", ("foobar",)),
        ("(?i-s:foobar)", ("foobar",)),
        ("a[bc]defghi", ("defghi",)),
        ("a[]x]defghi", ("defghi",)),
        ("[[:alpha:]]defghi", ("defghi",)),
        (r"[^\]x]defghi", ("defghi",)),
        ("abcd|", ()),
        ("abcd|xy", ()),
        ("abcd.*efg", ("abcd",)),
        (r"\w+Error: \d", ("error: ",)),
        (r"\Qfoo?bar\E", ()),
        (r"\x41bcdef", ()),
        (r"\pLbcdef", ()),
        ("\u00e4rger \u00fcb", ("rger ",)),
        ("\u00fc+\u00e4?ab", ()),
        ("(?:" * 2000 + "abc" + ")" * 2000, ()),
        (r"\d+", ()),
    ],
)
def test_the_texts_of_an_expression(pattern: str, expected: tuple[str, ...]) -> None:
    assert required_literals(pattern) == expected


def test_every_line_of_the_corpora_that_matches_a_rule_has_one_of_its_texts(score_classifier: ModuleType) -> None:
    corpus = score_classifier.corpus_module()
    texts = [t for part in score_classifier.PARTS for several in corpus.messages(part).values() for t in several]
    lines = sorted({line.encode() for text in texts for line in text.split("\n")})
    checked = 0
    for rule in load_rules().rules:
        for pattern in rule.signatures:
            literals = required_literals(pattern)
            for line, hit in zip(lines, matches(lines, (pattern,)), strict=True):
                if hit and literals:
                    assert any(literal.encode() in line.lower() for literal in literals), (pattern, line)
                    checked += 1
    assert checked > 300
