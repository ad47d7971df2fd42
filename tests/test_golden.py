"""Reviewed texts: how they are compared and written, and that each belongs to a test."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.reviewed import Golden, GoldenFiles, golden_file, sections_of

TESTS = Path(__file__).parent


def test_a_text_that_was_not_reviewed_fails_until_it_is_written(tmp_path: Path) -> None:
    module = tmp_path / "test_pages.py"
    for update, texts in ((True, ["one", "two\nlines"]), (True, ["one", "three"])):
        files = GoldenFiles(update=update)
        Golden(files, module, "test_a[x]")(texts)
        Golden(files, module, "test_a[x]")("a page\n", "again")
        files.write()
    assert sections_of(golden_file(module)) == {"test_a[x]": "- one\n- three", "test_a[x] again": "a page"}
    compared = Golden(GoldenFiles(update=False), module, "test_a[x]")
    compared(["one", "three"])
    with pytest.raises(AssertionError, match="update-golden"):
        compared(["one", "two"])
    with pytest.raises(AssertionError, match="update-golden"):
        Golden(GoldenFiles(update=False), module, "test_of_no_text")("one")
    with pytest.raises(AssertionError, match="head of a section"):
        compared("==== one\n")


def test_sections_of_tests_that_did_not_run_stay(tmp_path: Path) -> None:
    for name in ("test_b", "test_a"):
        files = GoldenFiles(update=True)
        Golden(files, tmp_path / "test_x.py", name)(name)
        files.write()
    assert list(sections_of(golden_file(tmp_path / "test_x.py")).items()) == [
        ("test_a", "test_a"),
        ("test_b", "test_b"),
    ]


def test_each_reviewed_text_belongs_to_a_test() -> None:
    files = sorted(TESTS.rglob("golden/*.md"))
    assert files
    for file in files:
        module = file.parent.parent / f"test_{file.stem}.py"
        code = module.read_text(encoding="utf-8")
        tests = {re.split(r"[\[ ]", name)[0] for name in sections_of(file)}
        assert [test for test in sorted(tests) if f"def {test}(" not in code] == [], file
