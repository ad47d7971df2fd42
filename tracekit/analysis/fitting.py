"""The fit of an analysis; a large Trace is fitted in a process of its own while the other steps run."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Self

from tracekit.analysis.steps import error_text
from tracekit.errors import DamagedTraceError, TracekitError
from tracekit.interruption import end_process, register_cleanup, unregister_cleanup
from tracekit.outputs import full_disk
from tracekit.report.structure import WORKLOAD

if TYPE_CHECKING:
    from types import TracebackType

    from tracekit.answer import Answer, Unanswered
    from tracekit.fit.model import WorkloadModel
    from tracekit.progress import Progress
    from tracekit.report.structure import WorkloadInfo
    from tracekit.settings import AnalysisSettings
    from tracekit.trace import Trace

__all__ = ["LARGE", "Fitting"]

LARGE = 500
"""Number of jobs from which a process of its own pays off."""
_REPLICATES = 19
"""Samples that a report's bootstrap draws: enough for a p-value of 0.05."""
_SCORED = 1
"""Workloads of each generator that a report's scores judge."""


class Fitting:
    """The fit of a Trace: a context that starts it and ends its process, if it has one.

    That process leaves workload.json in the folder.
    """

    def __init__(self, trace: Trace, folder: Path, settings: AnalysisSettings, progress: Progress) -> None:
        self._trace, self._folder, self._settings, self._progress = trace, folder, settings, progress
        self._process: subprocess.Popen[bytes] | None = None
        self._stderr: IO[bytes] | None = None
        self._key: object = None
        self.model: WorkloadModel | None = None
        """What was fitted, once the answers were asked for."""

    def __enter__(self) -> Self:
        tables = self._trace.manifest.tables
        if self._settings.fit and sys.executable and "jobs" in tables and tables["jobs"].rows >= LARGE:
            self._start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()
            self._process.wait()
        unregister_cleanup(self._key)
        if self._stderr is not None:
            self._stderr.close()

    def answers(self) -> tuple[list[Answer | Unanswered], WorkloadInfo]:
        """Return what the report shows; a fit that failed, or that was not asked for, has its reason instead.

        Raises
        ------
        DamagedTraceError
            A table cannot be read.
        """
        from tracekit.fit.scored import fit
        from tracekit.report.commands import fit_command, with_commands
        from tracekit.report.fit_answers import FITTED, fitted_answers

        info: WorkloadInfo = {"file": None, "reason": None, "seed": 0, "bootstrap_replicates": _REPLICATES}
        if not self._settings.fit:
            reason = info["reason"] = "No fit was asked for (--no-fit)."
            return [question.unanswered(reason) for question in FITTED], info
        try:
            if self._process is None:
                limit = self._settings.memory_limit
                model = fit(
                    self._trace, replicates=_REPLICATES, scores=_SCORED, memory_limit=limit, progress=self._progress
                )
            else:
                model = self._model_of(self._process)
            answers = with_commands(fitted_answers(model), [fit_command(_REPLICATES, _SCORED)])
        except DamagedTraceError:
            raise
        except Exception as error:
            if full_disk(error):
                raise
            what = error_text(error)
            reason = info["reason"] = f"The fit failed: {what}."
            self._progress.note(f"the workload could not be fitted: {what}")
            return [question.unanswered(reason) for question in FITTED], info
        info["file"], self.model = WORKLOAD, model
        return answers, info

    def _start(self) -> None:
        """Run `tracekit fit` of this very package, wherever Python would look for one."""
        home = str(Path(__file__).parents[2])
        paths = os.pathsep.join(filter(None, (home, os.environ.get("PYTHONPATH"))))
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115 -- closed at the end of the block
        target, limit = self._folder / WORKLOAD, self._settings.memory_limit
        self._process = subprocess.Popen(  # noqa: S603 -- our own program, and no shell
            [
                *(sys.executable, "-P", "-m", "tracekit", "fit", str(self._trace.path.resolve())),
                *("-o", str(target.resolve()), "--bootstrap", str(_REPLICATES), "--scores", str(_SCORED)),
                *(() if limit is None else ("--memory-limit", limit)),
            ],
            env={**os.environ, "PYTHONPATH": paths},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=self._stderr,
        )
        self._key = register_cleanup(partial(end_process, self._process.pid))

    def _model_of(self, process: subprocess.Popen[bytes]) -> WorkloadModel:
        """Return the model that the other process wrote.

        Raises
        ------
        TracekitError
            The process failed.
        """
        from tracekit.fit.model import WorkloadModel

        self._progress.stage("fitting")
        code = process.wait()
        if code:
            raise TracekitError(self._last_error_line() or f"its process ended with status {code}")
        return WorkloadModel.read(self._folder / WORKLOAD)

    def _last_error_line(self) -> str:
        if self._stderr is None:
            return ""
        self._stderr.seek(0)
        lines = self._stderr.read().decode("utf-8", "replace").strip().splitlines()
        return lines[-1].partition("error: ")[2] or lines[-1] if lines else ""
