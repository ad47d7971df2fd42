"""Find the processes that Spark starts below one of ours."""

from __future__ import annotations

import os
from pathlib import Path

__all__ = ["executors", "javas"]


def _below(parent: int) -> dict[int, list[bytes]]:
    """Return the command-line words of every process that descends from `parent`, by process number."""
    parents, words = {}, {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                status = (folder / "stat").read_text().rpartition(")")[2].split()
                words[int(folder.name)] = (folder / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
            parents[int(folder.name)] = int(status[1])

    def descends(pid: int) -> bool:
        while pid > 1:
            pid = parents.get(pid, 0)
            if pid == parent:
                return True
        return False

    return {pid: line for pid, line in words.items() if descends(pid)}


def executors() -> list[int]:
    """Return the executor processes that descend from this one."""
    return [pid for pid, line in _below(os.getpid()).items() if any(b"CoarseGrainedExecutorBackend" in w for w in line)]


def javas(parent: int) -> list[int]:
    """Return the Java processes that descend from `parent`."""
    return [pid for pid, line in _below(parent).items() if b"java" in line[0]]
