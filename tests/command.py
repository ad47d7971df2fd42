"""Run the command line as a user does, and return its output and exit code."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

import tracekit.cli

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["run", "run_alone"]

_ROOT = Path(__file__).parent.parent
_PLAIN = {"NO_COLOR": "1", "COLUMNS": "200"}


def run(*arguments: str | Path, cwd: Path | None = None, encoding: str = "utf-8") -> subprocess.CompletedProcess[str]:
    """Run tracekit inside this process, which saves the imports, and return its output.

    An error that a user would see as a traceback is raised here, as are warnings.
    """
    command = ["tracekit", *map(str, arguments)]
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding=encoding) for _ in range(2))
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.dict(os.environ, _PLAIN))
        stack.enter_context(mock.patch.object(sys, "argv", command))
        # An interruption must stop the tests and not only the command.
        stack.enter_context(mock.patch.object(tracekit.cli, "handle_signals", contextlib.nullcontext))
        stack.enter_context(contextlib.redirect_stdout(out))
        stack.enter_context(contextlib.redirect_stderr(err))
        stack.enter_context(contextlib.chdir(cwd or Path.cwd()))
        code = _exit_code_of(tracekit.cli.main)
    told = [_text(stream) for stream in (out, err)]
    return subprocess.CompletedProcess(command, code, *told)


def _exit_code_of(main: Callable[[], None]) -> int:
    try:
        main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    return 0


def _text(stream: io.TextIOWrapper) -> str:
    stream.flush()
    stream.seek(0)
    return stream.read()


def run_alone(*arguments: str | Path, cwd: Path | None = None) -> subprocess.CompletedProcess[str]:
    """Run tracekit as a separate process, and return its output."""
    env = {**os.environ, **_PLAIN, "PYTHONPATH": str(_ROOT)}
    command = [sys.executable, "-m", "tracekit", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=env, check=False)
