"""Files that appear whole in a folder that processes of several machines write into, and whose leftovers are whose.

A file is written under a hidden name of its own, `.NAME.partial-HOST-SPACE-PID-COUNT`, and then renamed, which replaces
an earlier file of that name at once. HOST is the machine's name, SPACE stands for its last start and the process
namespace of the container, within which PID is unique. No lock is taken and no clock is read: neither can be trusted
across machines.
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
    """Write a file, or replace it; whoever reads it sees all of it, or what was there before.

    Raises
    ------
    OutputError
        The place cannot be written, or is full. What was there before stays.
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
    """Remove what processes of this machine, which are dead, left unfinished.

    Those of other machines, of other containers, and of a time before the machine was last started stay: nothing tells
    from here whether who wrote them is alive.
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
    """Return what tells within which numbers of processes are unique; 'unknown' where the system does not say."""
    try:
        started = Path("/proc/sys/kernel/random/boot_id").read_bytes()
        namespace = Path("/proc/self/ns/pid").readlink()
    except OSError:
        return _UNKNOWN
    return blake2b(started + os.fsencode(namespace), digest_size=6).hexdigest()


def _is_alive(pid: int) -> bool:
    """Return whether a process of this number runs here; it may be another than the one that was meant."""
    try:
        os.kill(pid, 0)
    except (ProcessLookupError, OverflowError):
        return False
    except OSError:  # it belongs to another user
        return True
    return True
