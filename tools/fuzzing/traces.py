"""The undamaged Traces, and the cases made from them."""

from __future__ import annotations

import random
import shutil
from typing import TYPE_CHECKING, NamedTuple

from tools.fuzzing.commands import run
from tools.fuzzing.damages import damage
from tools.fuzzing.seeds import seeds
from tracekit.ingest import ingest_logs

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

__all__ = ["NAMES", "Case", "Traces", "judge", "make_case"]

NAMES = ("philly", "helios", "alibaba-pai", "alibaba-openb", "slurm", "acme", "swf", "slurm-site")
"""Names of the sources whose Traces are damaged."""


class Traces:
    """The undamaged Traces, each made on first use in a folder that may be kept."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def source(self, name: str) -> Path:
        """Return the folder with the raw files of a source."""
        folder = self._folder / f"{name}-logs"
        if not folder.is_dir():
            for path, content in seeds()[name].files.items():
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                (folder / path).write_bytes(content)
        return folder

    def trace(self, name: str) -> Path:
        """Return the folder of the source's Trace."""
        folder = self._folder / name
        if not (folder / "manifest.json").is_file():
            ingest_logs(self.source(name), folder, format_name=seeds()[name].format, max_reject_share=1.0)
        return folder


class Case(NamedTuple):
    """A damaged Trace."""

    name: str
    """Name of the source."""
    trace: Path
    good: Path
    """The same Trace, undamaged."""
    source: Path
    how: list[str]


def make_case(number: int, run_number: int, traces: Traces, folder: Path, names: Sequence[str] = NAMES) -> Case:
    """Make case `number` of the run with the given seed in `folder`. It is the same each time."""
    name = names[number % len(names)]
    shutil.rmtree(folder, ignore_errors=True)
    trace = folder / "trace"
    shutil.copytree(traces.trace(name), trace)
    how = damage(trace, random.Random(f"{run_number}:{number}"))
    return Case(name, trace, traces.trace(name), traces.source(name), how)


def judge(case: Case, command: str) -> list[str]:
    """Run a command on a copy of the Trace, and return the faults in how it ended."""
    folder = case.trace.parent / "work"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(case.trace, folder / "trace", symlinks=True)
    faults = run(command, folder / "trace", case.good, case.source, folder / "place")
    shutil.rmtree(folder)
    return faults
