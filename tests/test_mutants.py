"""The mutation run: Cython's text changes one token at a time, and tests that noticed a change run first."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tools.mutating.mutants import find
from tools.mutating.tokens import changes

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


TESTS = """\
from pathlib import Path

from value import VALUE


def _write(name):
    with Path("ran").open("a") as ran:
        print(name, file=ran)


def test_one():
    _write("one")


def test_two():
    _write("two")
    assert VALUE == 1
"""

TRIALS = """\
import sys
from pathlib import Path

from tools.mutating import trial

trial._LOADED = ()
tree = Path(sys.argv[1])
trials = trial.Trials(tree, ["test_value.py"], {})
for value in "231":
    Path(tree, "ran").unlink()
    noticed = trials.notices("value.py", f"VALUE = {value} + 0\\n")
    print(noticed, *Path(tree, "ran").read_text().split())
"""


def test_a_test_that_noticed_a_change_is_the_first_to_run_after_the_next(tmp_path: Path) -> None:
    (tmp_path / "value.py").write_text("VALUE = 1\n")
    (tmp_path / "test_value.py").write_text(TESTS)
    done = subprocess.run(
        [sys.executable, "-c", TRIALS, str(tmp_path)],
        cwd=Path(__file__).parent.parent,
        env={**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},  # which loads in half the time
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout.splitlines() == ["True one two", "True two", "False two one"], done.stderr
