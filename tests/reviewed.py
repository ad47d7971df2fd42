"""Wording that a person reviewed: what a page or an error says, kept in files beside the tests.

A test module `test_x.py` has its texts in `golden/x.md`, a section for each test. `just update-golden` writes them
again; the diff is what a reviewer reads.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

__all__ = ["Golden", "GoldenFiles", "golden_file", "sections_of"]

_HEAD = re.compile(r"^==== (.+)\n", flags=re.MULTILINE)


def golden_file(module: Path) -> Path:
    """Return the file with the texts of a test module."""
    return module.parent / "golden" / f"{module.stem.removeprefix('test_')}.md"


def sections_of(file: Path) -> dict[str, str]:
    """Return the sections of a file of texts, by the name of their test; none if there is no such file."""
    if not file.is_file():
        return {}
    _, *parts = _HEAD.split(file.read_text(encoding="utf-8"))
    return {name: text.rstrip("\n") for name, text in zip(parts[::2], parts[1::2], strict=True)}


class GoldenFiles:
    """The files that the tests of this run look at."""

    def __init__(self, *, update: bool) -> None:
        self.update = update
        self._known: dict[Path, dict[str, str]] = {}
        self._found: dict[Path, dict[str, str]] = {}

    def expected(self, file: Path, name: str) -> str | None:
        """Return the reviewed text of a section; None if there is none."""
        if file not in self._known:
            self._known[file] = sections_of(file)
        return self._known[file].get(name)

    def take(self, file: Path, name: str, text: str) -> None:
        """Remember a new text of a section."""
        self._found.setdefault(file, {})[name] = text

    def write(self) -> None:
        """Write the texts that were taken, sorted by test; sections of tests that did not run stay."""
        for file, found in self._found.items():
            sections = sorted((sections_of(file) | found).items())
            file.parent.mkdir(exist_ok=True)
            file.write_text("\n".join(f"==== {name}\n{text}\n" for name, text in sections), encoding="utf-8")


class Golden:
    """Compares texts of one test with those that were reviewed."""

    def __init__(self, files: GoldenFiles, module: Path, test: str) -> None:
        self._files, self._file, self._test = files, golden_file(module), test

    def __call__(self, found: str | Iterable[str], name: str = "") -> None:
        """Compare a text, or texts in their order, with the section of this test.

        Parameters
        ----------
        found : str or iterable of str
            What the program says; of several texts each is an item of a list.
        name : str
            Tells apart the texts of a test that compares more than once.
        """
        text = found if isinstance(found, str) else "\n".join(f"- {item}" for item in found)
        text = text.rstrip("\n")
        assert not _HEAD.search(text + "\n"), "a line of the text looks like the head of a section"
        section = f"{self._test} {name}".rstrip()
        if self._files.update:
            self._files.take(self._file, section, text)
            return
        expected = self._files.expected(self._file, section)
        assert text == expected, f"{self._file.name}: review the new text, then 'just update-golden'"
