"""One log: which line is taken, whatever the log looks like and however it is read."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracekit.characterize.joblogs import Classifier, LogRule, RuleBook
from tracekit.characterize.joblogs.classify import PIECE
from tracekit.characterize.joblogs.rules import Reason

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.characterize.joblogs import LogFinding

    Classify = Callable[..., LogFinding]

RULES = """
ignore = ['^# ']
ends_well = ['^all is well$']
parting = ['^warning: ']
failure_signs = ['went wrong']
[[rule]]
reason = "root"
category = "engine"
signatures = ['root cause', '^cause \\d+$']
unless = ['harmless']
[[rule]]
reason = "echo"
category = "user"
signatures = ['(?i)echo of it']
[[rule]]
reason = "late"
category = "user"
within_last_kib = 1
signatures = ['late sign']
"""
ROOT, ECHO, LATE = 0, 1, 2


def found(finding: LogFinding) -> tuple[int, int] | None:
    return None if finding.hit is None else (finding.hit.rank, finding.hit.line)


@pytest.mark.parametrize(
    ("log", "expected"),
    [
        (b"", None),
        (b"\n\n", None),
        (b"nothing here\n", None),
        (b"root cause", (ROOT, 1)),
        (b"a\nb\nroot cause\nroot cause\n", (ROOT, 3)),
        (b"ECHO OF IT\nroot cause\n", (ROOT, 2)),
        (b"root cause\necho of it\n", (ROOT, 1)),
        (b"ROOT CAUSE\necho of it\n", (ECHO, 2)),
        (b"a\r\nb\r\nroot cause\r\n", (ROOT, 3)),
        (b"a\r\ncause 12\r\n", (ROOT, 2)),
        (b"1%\r2%\r3%\rroot cause\r4%\nx\n", (ROOT, 1)),
        (b"1%\r2%\n5%\r6%\rcause 7", (ROOT, 2)),
        (b"\x1b[31mcause 7\x1b[0m\n", (ROOT, 1)),
        (b"x\x1b]0;title\x07root cause\n", (ROOT, 1)),
        (b"a\nroo\x1b[1mt c\x1b[0maus\x1b[0me\n", (ROOT, 2)),
        (b"\xff\xfe\x00root cause\x00\n", (ROOT, 1)),
        (b"harmless root cause\n", None),
        (b"harmless root cause\nroot cause\n", (ROOT, 2)),
        (b"# root cause\n", None),
        (b"# root cause\necho of it\n", (ECHO, 2)),
        (b"late sign\n", (LATE, 1)),
        (b"late sign\nlate sign\n", (LATE, 2)),
        (b"late sign\necho of it\n", (ECHO, 2)),
        (b"late sign\n" + b"x\n" * 507, (LATE, 1)),
        (b"late sign\n" + b"x\n" * 507 + b"y", None),
        (b"root cause\n" + b"x\n" * 600, (ROOT, 1)),
        (b"root cause\nall is well\n", None),
        (b"root cause\nall is well\necho of it\n", (ECHO, 3)),
        (b"root cause\nall is well\nroot cause\n", (ROOT, 3)),
        (b"root cause\nall is well\n" + b"x\n" * 3000, (ROOT, 1)),
        (b"warning: root cause\n", (ROOT, 1)),
        (b"root cause\nall is well\nwarning: root cause\nwarning: late sign\n", None),
        (b"all is well\nwarning: root cause\necho of it\n", (ECHO, 3)),
    ],
)
@pytest.mark.parametrize("chunk", [1, 7, 1 << 20])
def test_the_line_that_is_taken(classify: Classify, log: bytes, expected: tuple[int, int] | None, chunk: int) -> None:
    assert found(classify(RULES, log, chunk)) == expected


@pytest.mark.parametrize(
    ("log", "ends_well", "sign"),
    [
        (b"", False, False),
        (b"all is well\n", True, False),
        (b"all is well", True, False),
        (b"it went wrong\nall is well\n", True, False),
        (b"all is well\nit went wrong\n", False, True),
        (b"all is well\nroot cause\n", False, False),
        (b"all is well\nwarning: it went wrong\n", True, False),
        (b"warning: it went wrong\n", False, True),
        (b"it went wrong\n" + b"x\n" * 3000, False, False),
        (b"it went wrong " + b"x" * 9000, False, False),
        (b"x" * 9000 + b" it went wrong\r\n", False, True),
    ],
)
def test_signs_near_the_end(classify: Classify, log: bytes, ends_well: bool, sign: bool) -> None:
    finding = classify(RULES, log)
    assert (finding.ends_well, finding.failure_sign, finding.bytes) == (ends_well, sign, len(log))


@pytest.mark.parametrize("chunk", [1000, 1 << 14, 1 << 20])
@pytest.mark.parametrize(
    ("log", "expected"),
    [
        (b"root cause" + b"x" * 100_000 + b"\n", (ROOT, 1)),
        (b"\n" + b"x" * 100_000 + b"root cause\n", (ROOT, 2)),
        (b"x" * 50_000 + b"root cause" + b"x" * 50_000 + b"\n", None),
        (b"x" * (PIECE - 10) + b"root cause" + b"x" * 50_000, (ROOT, 1)),
        (b"x" * (PIECE - 9) + b"root cause" + b"x" * 50_000, None),
        (b"x" * 100_000 + b"\nroot cause\n", (ROOT, 2)),
        (b"x" * (2 * PIECE - 10) + b"root cause\n", (ROOT, 1)),
        (b"\x1b[1m" + b"x" * 100_000 + b"root cause\x1b[0m", (ROOT, 1)),
    ],
)
def test_of_an_overlong_line_beginning_and_end_are_looked_at(
    classify: Classify, log: bytes, expected: tuple[int, int] | None, chunk: int
) -> None:
    assert found(classify(RULES, log, chunk)) == expected


def test_the_evidence_is_one_short_printable_line(classify: Classify) -> None:
    hit = classify(RULES, b"  \x1b[1mroot\x1b[0m cause\t\xff\x07" + b"y" * 9000 + b"\n").hit
    assert hit is not None
    assert hit.text.startswith("root cause \N{REPLACEMENT CHARACTER} yyy")
    assert len(hit.text) == 500
    assert hit.signature == "root cause"


PIECES = st.sampled_from(
    [b"root cause", b"cause 5", b"echo of it", b"late sign", b"all is well", b"it went wrong", b"harmless ", b"# ",
     b"\n", b"\r\n", b"\r", b"x", b"y" * 700, b"z" * 40_000, b"\x1b[0m", b"\0", b"\xff"]
)  # fmt: skip


@pytest.fixture(scope="module")
def small() -> Classifier:
    reasons = [Reason(name, name, "user") for name in ("root", "echo", "late")]
    rules = (
        LogRule(reasons[0], ("root cause", r"^cause \d+$"), unless=("harmless",)),
        LogRule(reasons[1], ("(?i)echo of it",)),
        LogRule(reasons[2], ("late sign",), within_last_kib=1),
    )
    return Classifier(RuleBook(rules, ("^# ",), ("^all is well$",), ("went wrong",)))


@given(log=st.lists(PIECES, max_size=30).map(b"".join), chunk=st.integers(1, 50_000))
def test_the_result_does_not_depend_on_how_the_log_is_read(small: Classifier, log: bytes, chunk: int) -> None:
    assert small.classify(io.BytesIO(log), chunk) == small.classify(io.BytesIO(log), 1 << 24)


@given(log=st.lists(PIECES, max_size=30).map(b"".join))
def test_the_first_line_of_the_best_rule_is_taken(small: Classifier, log: bytes) -> None:
    if any(len(line) > 2 * PIECE for line in log.split(b"\n")) or b"well" in log or b"late" in log:
        return
    expected = None
    for rank, texts in ((ECHO, (b"echo of it",)), (ROOT, (b"root cause",))):
        for number, line in enumerate(log.split(b"\n"), 1):
            parts = [part.replace(b"\x1b[0m", b"") for part in line.split(b"\r")]
            ok = [p for p in parts if not p.startswith(b"# ") and not (rank == ROOT and b"harmless" in p)]
            if any(t in p for p in ok for t in texts) or (rank == ROOT and b"cause 5" in ok):
                expected = (rank, number)
                break
    assert found(small.classify(io.BytesIO(log))) == expected


def test_a_signature_without_a_fixed_text_is_matched_with_every_line(classify: Classify) -> None:
    rules = """
    [[rule]]
    reason = "short"
    category = "user"
    signatures = ['^E\\d+$']
    """
    log = b"abc\nE12\r\nE13\n"
    for chunk in (1, 5, 100):
        assert found(classify(rules, log, chunk)) == (0, 2)


def test_an_expression_that_would_backtrack_without_end_is_quick(classify: Classify) -> None:
    rules = """
    [[rule]]
    reason = "evil"
    category = "user"
    signatures = ['(?:a+)+b$']
    """
    assert classify(rules, b"a" * 16_000 + b"\n").hit is None


def test_many_candidates_are_sifted_together(classify: Classify) -> None:
    log = b"harmless root cause\n" * 5000 + b"root cause\n" + b"echo of it\n" * 5000
    assert found(classify(RULES, log)) == (ROOT, 5001)
    assert found(classify(RULES, b"echo of IT\n" * 5000)) == (ECHO, 1)
    assert found(classify(RULES, b"# echo of it\n" * 5000 + b"x\r\necho of it\n")) == (ECHO, 5002)
