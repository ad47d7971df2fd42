"""The output files of an export. They get their final names only when all are complete."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from tracekit.outputs import StagedFolder, check_files, output_errors, place_files
from tracekit.places import refuse_remote

if TYPE_CHECKING:
    from collections.abc import Iterable
    from types import TracebackType


MARKER = "export.json"
"""File in an export's folder that records what was exported and how."""


class Output:
    """The files of one export, which are staged next to their final location.

    Use it as a context manager. Leaving it without `commit` removes everything.

    Parameters
    ----------
    target : Path
        The file or folder that the user named.
    folder : bool
        Whether the target is a folder.
    companions : iterable of str
        Suffixes of the files next to the main file, which must not exist either.
    force : bool
        Whether to replace the files of an earlier export.

    Raises
    ------
    OutputError
        The output exists already, or cannot be written.
    """

    def __init__(self, target: Path, *, folder: bool, companions: Iterable[str] = (), force: bool = False) -> None:
        refuse_remote(target)
        self.target = Path(os.path.abspath(target))  # noqa: PTH100 -- resolve() would follow a link that is to be replaced
        self._ends = tuple(companions)
        self._files: list[tuple[Path, Path]] = []
        self._folder = folder
        self._force = force
        if not folder:
            with output_errors(self.target):
                check_files(self.target, *(self._beside(end) for end in self._ends), force=force)
                self.target.parent.mkdir(parents=True, exist_ok=True)
        marker = MARKER if folder else None
        self._staged_folder = StagedFolder(self.target, force=force, marker=marker, kind="an export")
        self.path = self._staged_folder.path
        self.scratch = self.path / ".scratch"
        """A folder for intermediate files, which is removed before the output appears."""
        with output_errors(self.target):
            self.scratch.mkdir()

    def _beside(self, end: str) -> Path:
        return self.target.with_name(self.target.stem + end)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._staged_folder.discard()

    @property
    def main(self) -> Path:
        """Path at which the main file is written."""
        return self._staged(self.target)

    def companion(self, end: str) -> Path:
        """Return the path at which the companion file with the suffix `end` is written."""
        return self._staged(self._beside(end))

    def member(self, name: str) -> Path:
        """Return the path at which a file in the folder is written, and make its parent folders."""
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        return path

    def _staged(self, final: Path) -> Path:
        path = self.path / final.name
        if (path, final) not in self._files:
            self._files.append((path, final))
        return path

    def commit(self, facts: dict[str, Any]) -> list[Path]:
        """Move the files to their final names and return them, the main file last.

        If the output is a folder, `facts` is written to export.json.

        Raises
        ------
        OutputError
            Another process has written one of the files in the meantime and `force` is not set, or the output cannot be
            written.
        """
        shutil.rmtree(self.scratch, ignore_errors=True)
        with output_errors(self.target):
            if self._folder:
                (self.path / MARKER).write_text(json.dumps(facts, indent=2) + "\n", encoding="utf-8")
                members = sorted(p.relative_to(self.path) for p in self.path.rglob("*") if p.is_file())
                self._staged_folder.commit()
                return [self.target / name for name in members]
            ordered = sorted(self._files, key=lambda pair: pair[1] == self.target)
            place_files(ordered, force=self._force)
            return [final for _, final in ordered]
