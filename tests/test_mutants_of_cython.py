"""The mutation run changes Cython's text one token at a time, and only where a token does something."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tools.mutating.mutants import find
from tools.mutating.tokens import changes

if TYPE_CHECKING:
    from pathlib import Path

TEXT = '''\
# a comment: 1 < 2
cpdef enum:
    NONE = -1


cdef inline int64_t best(State s, Node* nodes, int64_t gpus=0):
    """Not 1 + 1."""
    cdef Node* node = &nodes[0]
    if gpus * 8 <= <int64_t>node.free and not s.full:
        return gpus
    s.bits &= 0x10


def other(uint64_t bits):
    return True if bits & ONE else -gpus
'''


def test_each_token_that_does_something_is_changed_and_no_other() -> None:
    assert [(c.within, c.line, c.what) for c in changes(TEXT)] == [
        ("", 3, "1 to 2"),
        ("", 3, "1 to 0"),
        ("best", 6, "0 to 1"),
        ("best", 6, "0 to -1"),
        ("best", 8, "0 to 1"),
        ("best", 8, "0 to -1"),
        ("best", 9, "* to +"),
        ("best", 9, "8 to 9"),
        ("best", 9, "8 to 7"),
        ("best", 9, "<= to <"),
        ("best", 9, "<= to >"),
        ("best", 9, "and to or"),
        ("best", 9, "not to nothing"),
        ("best", 11, "&= to |="),
        ("best", 11, "0x10 to 17"),
        ("best", 11, "0x10 to 15"),
        ("other", 15, "True to False"),
        ("other", 15, "& to |"),
    ]


def test_a_change_is_made_in_one_place_and_found_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "a.pxi").write_text(TEXT)
    mutants = find(tmp_path, "a.pxi")
    assert len(mutants) == 18
    (mutant,) = [m for m in mutants if m.change == "<= to <"]
    assert str(mutant) == "a.pxi, best, <= to <: if gpus * 8 <= <int64_t>node.free and not s.full:"
    assert mutant.applied(tmp_path) == TEXT.replace("8 <= <", "8 < <")
    (mutant,) = [m for m in mutants if m.change == "not to nothing"]
    assert mutant.applied(tmp_path) == TEXT.replace("and not s", "and  s")
    assert (tmp_path / "a.pxi").read_text() == TEXT
    assert len(set(mutants)) == len(mutants)
