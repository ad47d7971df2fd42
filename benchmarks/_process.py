"""Run a command as a separate process, and return its resource usage as reported by the operating system."""

from __future__ import annotations

import subprocess
import sys
from typing import NamedTuple

__all__ = ["Usage", "run"]


_LAUNCHER = """
import os, sys, time
begin = time.perf_counter()
pid = os.fork()
if not pid:
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    os.execv(sys.argv[1], sys.argv[1:])
_, status, usage = os.wait4(pid, 0)
print(time.perf_counter() - begin, usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024)
sys.exit(bool(status))
"""


class Usage(NamedTuple):
    """The resource usage of one process."""

    wall_s: float
    cpu_s: float
    peak_mib: float


def run(*arguments: str) -> Usage:
    """Run Python with `arguments` and return its resource usage.

    Raises
    ------
    RuntimeError
        The process failed.
    """
    # A process's peak starts at its parent's memory, so the process is started by a small one.
    launcher = [sys.executable, "-I", "-S", "-c", _LAUNCHER, sys.executable, *arguments]
    done = subprocess.run(launcher, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False)
    if done.returncode:
        message = f"{arguments} ended with status {done.returncode}"
        raise RuntimeError(message)
    wall_s, cpu_s, peak_mib = map(float, done.stdout.split())
    return Usage(wall_s, cpu_s, peak_mib)
