"""An interrupted run: what it undoes before it ends, and what it never leaves half done.

A signal may come while a library is at work in compiled code, or where an exception would be swallowed. So a run of the
command line is not stopped by an exception: the main thread is parked where it is, and a thread that waits for nothing
else undoes what is unfinished and ends the process. The library itself installs nothing: there Python's own
KeyboardInterrupt unwinds the work.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import socket
import threading
import time
from functools import partial
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path
    from types import FrameType

__all__ = [
    "cleanup_on_interrupt",
    "end_process",
    "handle_signals",
    "register_cleanup",
    "remove_folder",
    "remove_when_interrupted",
    "uninterrupted",
    "unregister_cleanup",
]

_PARKED_S = 0.2
"""Longest time that the main thread is waited for; compiled code may keep it, which then writes nothing by itself."""
_GRACE_S = 5.0
"""Time that a process of ours has to end by itself."""

_SIGNALS = (signal.SIGINT, signal.SIGTERM)

_undo: dict[object, Callable[[], None]] = {}
_undivided = threading.Lock()
_within = threading.Event()
_told = threading.Event()
_parked = threading.Event()


def register_cleanup(undo: Callable[[], None]) -> object:
    """Have `undo` called when the run is interrupted, until its key, which is returned, is forgotten.

    It runs in a thread of its own while the main thread stands still anywhere, so it must not wait for a lock.
    """
    key = object()
    _undo[key] = undo
    return key


def remove_when_interrupted(folder: Path) -> None:
    """Have a folder of intermediate files removed when the run is interrupted."""
    _undo[folder] = partial(remove_folder, folder)


def unregister_cleanup(key: object) -> None:
    """Take back what `remember` was told."""
    _undo.pop(key, None)


@contextlib.contextmanager
def cleanup_on_interrupt(undo: Callable[[], None]) -> Iterator[None]:
    """Have `undo` called when the run is interrupted inside the block."""
    key = register_cleanup(undo)
    try:
        yield
    finally:
        unregister_cleanup(key)


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Keep a block of few and short steps whole: an interruption waits for its end."""
    _within.set()  # first: the main thread must not be parked with the lock
    try:
        with _undivided:
            yield
    finally:
        _within.clear()
    if _told.is_set() and threading.current_thread() is threading.main_thread():
        _park()


@contextlib.contextmanager
def handle_signals() -> Iterator[None]:
    """End the run, with exit code 130 and one line, when a signal tells it to stop inside the block.

    Behind the block signals have no effect any more: the work is done. A block inside another changes nothing.
    """
    if signal.getsignal(signal.SIGINT) is _stand_still:
        yield
        return
    listening, waking = socket.socketpair()
    waking.setblocking(False)
    # Python writes the signal's number there at once, whatever the main thread is doing.
    signal.set_wakeup_fd(waking.fileno(), warn_on_full_buffer=False)
    thread = threading.Thread(target=_wait, args=(listening,), name="tracekit-interruption", daemon=True)
    thread.start()
    for number in _SIGNALS:
        signal.signal(number, _stand_still)
    try:
        yield
    finally:
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        signal.set_wakeup_fd(-1)
        if _told.is_set():  # it came before all of this
            _park()
        waking.close()
        thread.join()
        listening.close()


def _wait(listening: socket.socket) -> None:
    while number := listening.recv(1):
        if number[0] in _SIGNALS:
            break
    else:
        return
    _told.set()
    try:
        _parked.wait(_PARKED_S)
        _undivided.acquire()
        for undo in reversed(list(_undo.values())):
            with contextlib.suppress(Exception):
                undo()
    finally:
        _end()


def _end() -> None:
    """End the process at once: threads of the libraries are at work, and the interpreter cannot be taken down."""
    with contextlib.suppress(OSError):
        if select.select([], [2], [], 1)[1]:  # a pipe that nobody reads must not keep us
            os.write(2, b"tracekit: interrupted; nothing was left half-written\n")
    os._exit(130)


def _stand_still(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 -- the signature of a handler
    _told.set()
    if not _within.is_set():
        _park()


def _park() -> None:
    _parked.set()
    while True:
        time.sleep(_GRACE_S)


def remove_folder(path: Path) -> None:
    """Remove a folder although threads may still be writing into it."""
    # Under another name nobody adds to it; the number at its end still tells whose it is.
    stem, dash, number = path.name.rpartition("-")
    with contextlib.suppress(OSError):
        path = path.rename(path.with_name(f"{stem}{dash}0{number}"))
    for _ in range(50):
        shutil.rmtree(path, ignore_errors=True)
        if not os.path.lexists(path):
            return
        time.sleep(0.01)


def end_process(number: int) -> None:
    """End a process of ours by its number, and wait for it; the hard way when it takes too long."""
    for way in (signal.SIGTERM, getattr(signal, "SIGKILL", signal.SIGTERM)):
        try:
            os.kill(number, way)
            until = time.monotonic() + _GRACE_S
            while time.monotonic() < until:
                if os.waitpid(number, getattr(os, "WNOHANG", 0)) != (0, 0):
                    return
                time.sleep(0.01)
        except OSError:  # it has ended, and somebody asked for it already
            return
