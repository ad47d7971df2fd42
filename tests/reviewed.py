"""Compare the wording of pages and errors with files next to the tests that a person reviewed.

A test module `test_x.py` has its texts in `golden/x.md`, with a section for each test. `just update-golden` rewrites
them, and a reviewer reads the diff.
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
    """Return the file with a test module's texts."""
    return module.parent / "golden" / f"{module.stem.removeprefix('test_')}.md"


def sections_of(file: Path) -> dict[str, str]:
    """Return a file's sections by the name of their test, or no sections if the file does not exist."""
    if not file.is_file():
        return {}
    _, *parts = _HEAD.split(file.read_text(encoding="utf-8"))
    return {name: text.rstrip("\n") for name, text in zip(parts[::2], parts[1::2], strict=True)}


class GoldenFiles:
    """The files that the tests of this run read."""

    def __init__(self, *, update: bool) -> None:
        self.update = update
        self._known: dict[Path, dict[str, str]] = {}
        self._found: dict[Path, dict[str, str]] = {}

    def expected(self, file: Path, name: str) -> str | None:
        """Return the reviewed text of a section, or None if there is none."""
        if file not in self._known:
            self._known[file] = sections_of(file)
        return self._known[file].get(name)

    def take(self, file: Path, name: str, text: str) -> None:
        """Store a new text for a section."""
        self._found.setdefault(file, {})[name] = text

    def write(self) -> None:
        """Write the stored texts, sorted by test. Sections of tests that did not run are kept."""
        for file, found in self._found.items():
            sections = sorted((sections_of(file) | found).items())
            file.parent.mkdir(exist_ok=True)
            file.write_text("\n".join(f"==== {name}\n{text}\n" for name, text in sections), encoding="utf-8")


class Golden:
    """Compares a test's texts with the reviewed texts."""

    def __init__(self, files: GoldenFiles, module: Path, test: str) -> None:
        self._files, self._file, self._test = files, golden_file(module), test

    def __call__(self, found: str | Iterable[str], name: str = "") -> None:
        """Compare one text, or several in order, with this test's section.

        Parameters
        ----------
        found : str or iterable of str
            Output of the program. Several texts become the items of a list.
        name : str
            Distinguishes the texts of a test that compares more than once.
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
