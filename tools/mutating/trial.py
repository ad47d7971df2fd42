"""Run an area's tests on one mutant after another."""

from __future__ import annotations

import importlib
import os
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import pytest

__all__ = ["Trials"]

# Third-party modules that tracekit and the tests use are loaded once. Each trial is a fork of the process that loaded
# them.
_LOADED: tuple[str, ...] = (
    "pytest",
    "polars",
    "duckdb",
    "hypothesis",
    "numpy",
    "scipy.stats",
    "scipy.optimize",
    "pyarrow.parquet",
)
_LOADED += ("orjson", "jsonschema", "jinja2", "typer", "rich")
_ARGUMENTS: tuple[str, ...] = ("-x", "-q", "-p", "no:randomly", "-p", "no:cacheprovider", "-p", "no:faulthandler")
_ARGUMENTS += ("-W", "ignore::pytest.PytestAssertRewriteWarning")  # because hypothesis is already loaded


class Trials:
    """The tests of an area, run on a copy of the checkout.

    The tests that noticed the latest changes run first, because the next change is most often in the same function.

    Parameters
    ----------
    tree : Path
        The copy. A mutated file is restored after its trial.
    tests : sequence of str
        Arguments for pytest.
    environment : mapping
        Environment variables for the trials.
    build : sequence of str
        Arguments for Python that compile the changed copy, or empty if nothing is compiled.

    Raises
    ------
    SystemExit
        The tests fail on the unchanged code, or it cannot be compiled.
    """

    def __init__(
        self, tree: Path, tests: Sequence[str], environment: Mapping[str, str], build: Sequence[str] = ()
    ) -> None:
        warnings.filterwarnings("ignore", message=".*fork", category=DeprecationWarning)
        for name in _LOADED:
            importlib.import_module(name)
        self._tree, self._tests, self._environment, self._command = tree, tests, environment, build
        self._latest: list[str] = []
        if not self.build():
            raise SystemExit(f"this fails on the unchanged code: python {' '.join(build)}")
        # The first run also writes compiled files, which the second run and the trials use.
        for _ in range(2):
            begun = time.monotonic()
            if self._failed(3600):
                raise SystemExit(f"these tests fail on the unchanged code: {' '.join(tests)}")
        self._most_s = 30 + 5 * (time.monotonic() - begun)

    def notices(self, file: str, changed: str) -> bool | None:
        """Return whether a test fails or does not finish when a file has the changed text.

        Return None if the text cannot be compiled, because it is then not a mutant. Compiled files are kept until
        `build`.
        """
        path = self._tree / file
        text = path.read_text(encoding="utf-8")
        # Python identifies a compiled file by its time in seconds and its size, which a change may leave as they are.
        for compiled in path.parent.glob(f"__pycache__/{path.stem}.*.pyc"):
            compiled.unlink()
        try:
            path.write_text(changed, encoding="utf-8")
            return self._failed(self._most_s, write=False) if self.build() else None
        finally:
            path.write_text(text, encoding="utf-8")

    def build(self) -> bool:
        """Compile the current copy if the area needs it, and return whether that succeeded."""
        if not self._command:
            return True
        environment = {**os.environ, **self._environment}
        done = subprocess.run(
            [sys.executable, *self._command], cwd=self._tree, env=environment, capture_output=True, check=False
        )
        return done.returncode == 0

    def _failed(self, most_s: float, *, write: bool = True) -> bool:
        """Run the tests in a separate process, and return whether a test failed or the time ran out."""
        sys.stdout.flush()
        with tempfile.TemporaryFile("w+", encoding="utf-8") as noticing:
            child = os.fork()
            if not child:
                self._run(noticing, write=write)
            until = time.monotonic() + most_s
            while time.monotonic() < until:
                done, status = os.waitpid(child, os.WNOHANG)
                if done:
                    noticing.seek(0)
                    failed = noticing.read().splitlines()
                    self._latest = failed + [name for name in self._latest if name not in failed]
                    return os.waitstatus_to_exitcode(status) != 0
                time.sleep(0.02)
        os.killpg(child, signal.SIGKILL)
        os.waitpid(child, 0)
        return True

    def _run(self, noticing: IO[str], *, write: bool) -> None:
        code = 1
        try:
            os.setsid()
            os.chdir(self._tree)
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, 1)
            os.dup2(nowhere, 2)
            os.environ.update(self._environment, PYTHONPATH=str(self._tree))
            if not write:
                os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
                sys.dont_write_bytecode = True
            sys.path.insert(0, str(self._tree))
            import pytest

            code = int(pytest.main([*_ARGUMENTS, *self._tests], plugins=[_Order(self._latest, noticing)]))
        finally:
            sys.stdout.flush()
            os._exit(code)


class _Order:
    """A plugin for pytest: some tests run first, and the names of failed tests are written to a file."""

    def __init__(self, first: Sequence[str], failed: IO[str]) -> None:
        self._place = {name: number for number, name in enumerate(first)}
        self._failed = failed

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items.sort(key=lambda item: self._place.get(item.nodeid, len(self._place)))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            print(report.nodeid, file=self._failed, flush=True)
