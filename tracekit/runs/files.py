"""Atomic writes into a folder shared by processes of several machines, and removal of unfinished files.

A file is written under a unique hidden name, `.NAME.partial-HOST-SPACE-PID-COUNT`, and then renamed, which atomically
replaces an earlier file. HOST is the machine's name. SPACE identifies the machine's last boot and the container's
process namespace, within which PID is unique. No locks or clocks are used, because neither is reliable across machines.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
from functools import cache
from hashlib import blake2b
from itertools import count
from pathlib import Path

from tracekit.interruption import register_cleanup, unregister_cleanup
from tracekit.outputs import output_errors

_PARTIAL = re.compile(
    r"\.(?P<name>.+)\.partial-(?P<host>[A-Za-z0-9.-]*)-(?P<space>[0-9a-f]{12}|unknown)-(?P<pid>\d+)-\d+"
)
_LONGEST_HOST = 40
_UNKNOWN = "unknown"
_counter = count()


def write_whole(path: Path, content: bytes) -> None:
    """Write or replace a file atomically: readers see either the old content or all of the new.

    Raises
    ------
    OutputError
        The file cannot be written, or the disk is full. The old file stays.
    """
    part = path.with_name(f".{path.name}.partial-{_host()}-{_space()}-{os.getpid()}-{next(_counter)}")
    key = register_cleanup(lambda: part.unlink(missing_ok=True))
    try:
        with output_errors(path):
            part.write_bytes(content)
            part.replace(path)
    finally:
        with contextlib.suppress(OSError):
            part.unlink(missing_ok=True)
        unregister_cleanup(key)


def remove_own_leftovers(folder: Path) -> None:
    """Remove unfinished files of dead processes of this machine.

    Files of other machines, other containers and earlier boots stay, because this process cannot know whether their
    writers are alive.
    """
    if _space() == _UNKNOWN:
        return
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            match = _PARTIAL.fullmatch(entry.name)
            if match and match["space"] == _space() and not _is_alive(int(match["pid"])):
                with contextlib.suppress(OSError):
                    Path(entry.path).unlink(missing_ok=True)


@cache
def _host() -> str:
    return re.sub(r"[^A-Za-z0-9.-]", "", socket.gethostname())[:_LONGEST_HOST]


@cache
def _space() -> str:
    """Return an identifier of the space in which process ids are unique; 'unknown' if the system provides none."""
    try:
        started = Path("/proc/sys/kernel/random/boot_id").read_bytes()
        namespace = Path("/proc/self/ns/pid").readlink()
    except OSError:
        return _UNKNOWN
    return blake2b(started + os.fsencode(namespace), digest_size=6).hexdigest()


def _is_alive(pid: int) -> bool:
    """Return whether a process with this id runs here; the id may have been reused by another process."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:  # the process belongs to another user
        return True
    return True
