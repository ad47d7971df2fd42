"""Run a command as a whole process and read what the operating system says of it."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import NamedTuple

__all__ = ["Usage", "run"]


class Usage(NamedTuple):
    """What one process used."""

    wall_s: float
    cpu_s: float
    peak_mib: float


def run(*arguments: str) -> Usage:
    """Run Python with `arguments` and return what it used.

    Raises
    ------
    RuntimeError
        The process failed.
    """
    begin = time.perf_counter()
    process = subprocess.Popen([sys.executable, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        message = f"{arguments} ended with status {status}"
        raise RuntimeError(message)
    return Usage(time.perf_counter() - begin, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)
