"""Clean up after an interrupted run and end it.

A signal may arrive in compiled code of a library, or where an exception would be swallowed. So we do not stop a
command-line run with an exception: the main thread is parked, and a second thread removes unfinished output and ends
the process. As a library, tracekit installs no handlers, so KeyboardInterrupt unwinds the call stack as usual.
"""

from __future__ import annotations

import contextlib
import os
import select
import shutil
import signal
import socket
import tempfile
import threading
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType


_PARKED_S = 0.2
"""Longest wait for the main thread to park [s]. If it does not park, it is in compiled code that writes no files."""
_GRACE_S = 5.0
"""Time within which a child process must exit after SIGTERM [s]."""

_SIGNALS = (signal.SIGINT, signal.SIGTERM)

_cleanups: dict[object, Callable[[], None]] = {}
_uninterrupted = threading.Lock()
_within = threading.Event()
_interrupted = threading.Event()
_parked = threading.Event()


def register_cleanup(cleanup: Callable[[], None]) -> object:
    """Register `cleanup` to be called if the run is interrupted, and return the key to unregister it.

    `cleanup` runs in another thread while the main thread is parked at any point, so it must not wait for a lock.
    """
    key = object()
    _cleanups[key] = cleanup
    return key


def remove_when_interrupted(folder: Path) -> None:
    """Register a folder of intermediate files to be removed if the run is interrupted."""
    _cleanups[folder] = partial(remove_folder, folder)


def unregister_cleanup(key: object) -> None:
    """Undo a call of `register_cleanup`."""
    _cleanups.pop(key, None)


@contextlib.contextmanager
def cleanup_on_interrupt(cleanup: Callable[[], None]) -> Iterator[None]:
    """Call `cleanup` if the run is interrupted inside the block."""
    key = register_cleanup(cleanup)
    try:
        yield
    finally:
        unregister_cleanup(key)


@contextlib.contextmanager
def uninterrupted() -> Iterator[None]:
    """Delay interruptions until the end of the block, which must be short."""
    _within.set()  # set first, because the main thread must not be parked while it holds the lock
    try:
        with _uninterrupted:
            yield
    finally:
        _within.clear()
    if _interrupted.is_set() and threading.current_thread() is threading.main_thread():
        _park()


@contextlib.contextmanager
def handle_signals() -> Iterator[None]:
    """End the run with exit code 130 and one line on SIGINT or SIGTERM inside the block.

    Signals after the block are ignored, because the work is done. A nested block has no effect.
    """
    if signal.getsignal(signal.SIGINT) is _park_on_signal:
        yield
        return
    listening, waking = socket.socketpair()
    waking.setblocking(False)
    # Python writes the signal's number to the pipe immediately, even if the main thread is busy.
    signal.set_wakeup_fd(waking.fileno(), warn_on_full_buffer=False)
    thread = threading.Thread(target=_wait, args=(listening,), name="tracekit-interruption", daemon=True)
    thread.start()
    for number in _SIGNALS:
        signal.signal(number, _park_on_signal)
    try:
        yield
    finally:
        for number in _SIGNALS:
            signal.signal(number, signal.SIG_IGN)
        signal.set_wakeup_fd(-1)
        if _interrupted.is_set():
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
    end_run("tracekit: interrupted; nothing was left half-written\n", 130)


def end_run(line: str, code: int) -> NoReturn:
    """Remove unfinished output, write a line to standard error, and end the process, all from another thread.

    The main thread is parked or in compiled code meanwhile.
    """
    _interrupted.set()
    try:
        _parked.wait(_PARKED_S)
        _uninterrupted.acquire()
        for cleanup in reversed(list(_cleanups.values())):
            with contextlib.suppress(Exception):
                cleanup()
    finally:
        _end(line, code)


def _end(line: str, code: int) -> NoReturn:
    """End the process immediately: the interpreter cannot shut down while library threads run."""
    with contextlib.suppress(OSError):
        if select.select([], [2], [], 1)[1]:  # an unread pipe must not block us
            os.write(2, line.encode(errors="replace"))
    os._exit(code)


def _park_on_signal(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 -- signature of a signal handler
    _interrupted.set()
    if not _within.is_set():
        _park()


def _park() -> None:
    _parked.set()
    while True:
        time.sleep(_GRACE_S)


@contextlib.contextmanager
def temporary_folder(purpose: str) -> Iterator[Path]:
    """Make the folder tracekit-PURPOSE-... for temporary files, and remove it at the end or on an interruption."""
    name = f"tracekit-{purpose}-"
    with tempfile.TemporaryDirectory(prefix=name, ignore_cleanup_errors=True) as folder:
        path = Path(folder)
        with cleanup_on_interrupt(lambda: remove_folder(path)):
            yield path


def remove_folder(path: Path) -> None:
    """Remove a folder even if threads may still be writing to it."""
    # Rename the folder first, so nothing more is added to it. The name still ends in the process's number.
    stem, dash, number = path.name.rpartition("-")
    with contextlib.suppress(OSError):
        path = path.rename(path.with_name(f"{stem}{dash}0{number}"))
    for _ in range(50):
        shutil.rmtree(path, ignore_errors=True)
        if not os.path.lexists(path):
            return
        time.sleep(0.01)


def end_process(number: int) -> None:
    """End a child process with SIGTERM, or with SIGKILL after a grace period, and wait for it."""
    for sent in (signal.SIGTERM, getattr(signal, "SIGKILL", signal.SIGTERM)):
        try:
            os.kill(number, sent)
            until = time.monotonic() + _GRACE_S
            while time.monotonic() < until:
                if os.waitpid(number, getattr(os, "WNOHANG", 0)) != (0, 0):
                    return
                time.sleep(0.01)
        except OSError:  # the process has already ended and was waited for
            return
