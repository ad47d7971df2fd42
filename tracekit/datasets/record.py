"""The record beside fetched files: their dataset, licence and checksums."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from tracekit.errors import OutputError, UsageError

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.datasets.catalog import Dataset

__all__ = ["RECORD_NAME", "DatasetRecord", "FileRecord"]

RECORD_NAME = "tracekit-dataset.json"


@dataclass(frozen=True)
class FileRecord:
    """One fetched file."""

    url: str
    """Where it came from, '' when it existed before the first run."""
    bytes: int
    sha256: str
    checked: str
    """What the SHA-256 was compared with: 'publisher', 'git-lfs', 'recorded', or 'nothing'."""
    fetched: str
    """When it was fetched, or first found in the folder, in UTC."""


class DatasetRecord:
    """The record of the files in one folder.

    Raises
    ------
    UsageError
        The folder holds another dataset.
    OutputError
        Its record cannot be read.
    """

    def __init__(self, folder: Path, dataset: Dataset) -> None:
        self._path = folder / RECORD_NAME
        self._dataset = dataset
        self.files: dict[str, FileRecord] = {}
        if not self._path.exists():
            return
        try:
            facts = json.loads(self._path.read_text(encoding="utf-8"))
            owner = str(facts["dataset"])
            self.files = {str(name): FileRecord(**file) for name, file in facts["files"].items()}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise OutputError(
                "is not a record of fetched files", where=self._path, hint="remove it, or choose another folder"
            ) from error
        if owner != dataset.name:
            raise UsageError(
                f"holds the dataset {owner} already", where=folder, hint="give each dataset a folder of its own"
            )

    def add(self, name: str, file: FileRecord, staging: Path) -> None:
        """Add a file and write the record at once, by way of a folder on the same disk."""
        self.files[name] = file
        facts: dict[str, Any] = {
            "dataset": self._dataset.name,
            "title": self._dataset.title,
            "licence": self._dataset.licence,
            "citation": self._dataset.citation,
            "paper": self._dataset.paper,
            "origin": self._dataset.origin,
            "files": {name: asdict(file) for name, file in sorted(self.files.items())},
        }
        unfinished = staging / RECORD_NAME
        unfinished.write_text(json.dumps(facts, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        unfinished.replace(self._path)
