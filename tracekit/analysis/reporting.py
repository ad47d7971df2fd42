"""The report of a Trace as a Python object, for notebooks: an analysis's answers before they are written."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from tracekit.analysis.answering import answer_all, check_settings
from tracekit.analysis.one import REPORT_MARKER, analysis_in, settings_of
from tracekit.analysis.source import (
    copy_part,
    copy_trace,
    open_whole,
    part_of,
    refuse_ingesting,
    refuse_replacing_source,
)
from tracekit.analysis.writing import write_analysis
from tracekit.anonymous import HiddenTrace
from tracekit.answer import Answer, Unanswered
from tracekit.damage import explain_damage
from tracekit.errors import QueryError, UsageError, nearest
from tracekit.faults import Faults
from tracekit.interruption import cleanup_on_interrupt, remove_folder
from tracekit.notebook import Brief
from tracekit.outputs import StagedFolder
from tracekit.progress import Progress
from tracekit.settings import AnalysisSettings, merge_settings
from tracekit.text import counted, shorten
from tracekit.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import altair as alt
    import polars as pl

    from tracekit.analysis.answering import Answered
    from tracekit.analysis.one import Analysis
    from tracekit.faults import Fault
    from tracekit.fit.model import WorkloadModel
    from tracekit.report.structure import Report

__all__ = ["TraceReport", "report"]

_OUT = Path("report")
"""Output folder in a report's command, until the report is saved to another folder."""
_HEIGHT = 800
"""Height of a page's frame [px]."""


class TraceReport:
    """The report of a Trace: the content of the page from `tracekit.analyze`, as Python objects.

    `tracekit.report` creates this object. In a notebook, the object displays its most important numbers, and `show`
    displays the page.
    """

    def __init__(self, found: Answered, source: Path, settings: AnalysisSettings) -> None:
        self._found, self._source, self._settings = found, source, settings

    @property
    def data(self) -> Report:
        """The content of report.json, with the keys of schemas/report-1.json."""
        return self._found.report

    @cached_property
    def findings(self) -> pl.DataFrame:
        """The findings, with one row per answered question, in reading order.

        section
            Title of the section on the page.
        name
            Name of the question, for `answer`.
        question
            The question in plain words.
        finding
            The finding in one sentence, or NULL if no sentence would be true and useful.
        rows
            Number of rows in the answer [1].
        """
        import polars as pl

        kinds = {"section": pl.String, "name": pl.String, "question": pl.String, "finding": pl.String, "rows": pl.Int64}
        rows = [
            (section["title"], one["name"], one["question"], one["finding"], one["row_count"])
            for section in self.data["sections"]
            for one in section["answers"]
        ]
        return pl.DataFrame(rows, schema=kinds, orient="row")

    @cached_property
    def charts(self) -> Mapping[str, Sequence[alt.Chart | alt.LayerChart]]:
        """The charts of each question with charts, by name and in reading order, as Altair objects.

        If the charts of a question fail, it has no charts, and `html` shows the reason. Charts have tracekit's theme
        in light colors as their `config`. Set ``chart.config = alt.Undefined`` to combine a chart with others. With
        Altair's default renderer, the notebook loads Vega from the network. After ``alt.renderers.enable("svg")``,
        charts are images and need no network. In a name that contains '</', '<!--' or '<script', an invisible
        character (U+2060) follows the '<', so the name cannot end the script that contains the chart.
        """
        from tracekit.report.in_notebook import charts_of

        return charts_of(self.data)

    @property
    def unanswered(self) -> Mapping[str, tuple[str, ...]]:
        """Why each of the other questions has no answer, by name."""
        return {one.name: one.reasons for one in self._found.answers if isinstance(one, Unanswered)}

    @property
    def answered(self) -> Mapping[str, Answer]:
        """Each answer with all of its rows, notes and intervals, by question name."""
        return {one.name: one for one in self._found.answers if isinstance(one, Answer)}

    @property
    def faults(self) -> tuple[Fault, ...]:
        """Parts that failed because of an error. All other parts are complete."""
        return self._found.faults

    @property
    def workload(self) -> WorkloadModel | None:
        """The fitted workload, or None if it was not requested or the Trace cannot be fitted."""
        return self._found.model

    def answer(self, name: str) -> pl.DataFrame:
        """Return all rows of an answer, as in the answer's file in tables/.

        Parameters
        ----------
        name : str
            Name of the question, such as 'queuing/queue_delay' (see `findings`).

        Raises
        ------
        QueryError
            The Trace does not answer the question, or the question does not exist.
        """
        found = next((one for one in self._found.answers if one.name == name), None)
        if isinstance(found, Answer):
            return found.frame
        if found is not None:
            raise QueryError(f"no answer: {' '.join(found.reasons).rstrip('.')}", where=name)
        names = [one.name for one in self._found.answers]
        raise QueryError(f"there is no question '{shorten(name)}'", hint=nearest(name, names))

    def html(self) -> str:
        """Return the page as HTML that needs no network. Only `save` writes the files to which the page links."""
        from tracekit.report.page import render_report

        return render_report(self.data)

    def show(self, height: int = _HEIGHT) -> None:
        """Show the page in the notebook.

        The notebook stores the page (about two megabytes) with the cell's output.

        Parameters
        ----------
        height : int
            Height of the scrolling frame [px].

        Raises
        ------
        UsageError
            The code is not running in a notebook, or the height is not above 0.
        """
        from tracekit.report.in_notebook import frame_of

        if height < 1:
            raise UsageError(f"must be above 0, not {height}", where="height")
        hint = "run it in Jupyter, or use save('FOLDER') and open report.html in a browser"
        try:
            from IPython import get_ipython
            from IPython.display import display
        except ImportError as error:
            raise UsageError("show() needs a notebook", hint=hint) from error
        if get_ipython() is None:
            raise UsageError("show() needs a notebook", hint=hint)
        shown = {"text/html": frame_of(self.html(), height), "text/plain": repr(self)}
        display(shown, raw=True)  # type: ignore[no-untyped-call]  # IPython does not type it

    def save(self, folder: str | Path, *, force: bool = False) -> Analysis:
        """Write the same files as `tracekit.analyze`, including a copy of the Trace, without recomputing anything.

        Parameters
        ----------
        folder : str or Path
            Folder of the report.
        force : bool
            Whether to replace an existing report.

        Raises
        ------
        OutputError
            The folder exists or cannot be written.
        UsageError
            The folder contains the Trace, which would be replaced.
        TraceError
            The Trace no longer exists.
        """
        out = Path(folder)
        refuse_replacing_source(self._source, out)
        command = self._settings.command(self._source, out)
        staged = StagedFolder(out, force=force, marker=REPORT_MARKER, kind="a report")
        try:
            copy_trace(self._source, staged.path / "trace", part_of(self._settings), self._settings)
            written = write_analysis(staged.path, replace(self._found, report={**self.data, "command": command}))
            staged.commit()
        finally:
            staged.discard()
        return analysis_in(out, written.answers, written.faults)

    def __repr__(self) -> str:
        return str(self._brief)

    def _repr_html_(self) -> str:
        return self._brief.html()

    @property
    def _brief(self) -> Brief:
        data = self.data
        changes = data["opening"]["changes"]
        answered = sum(len(section["answers"]) for section in data["sections"])
        return Brief.of(
            data["opening"]["about"],
            [
                ("period", data["time"]["text"]),
                *((number["label"], number["text"]) for number in data["headline"]),
                *((f"change {i}", change["title"]) for i, change in enumerate(changes, 1)),
                ("answers", f"{counted(answered, 'questions')}, {len(data['unanswered'])} without an answer"),
            ],
        )


@explain_damage()
def report(
    trace: Trace | str | Path,
    settings: AnalysisSettings | None = None,
    *,
    progress: Progress | None = None,
    **changes: Any,
) -> TraceReport:
    """Answer all questions about a Trace, judge it by the guidelines, and return the report without writing files.

    If a part fails, the others are still made. `TraceReport.faults` lists it, and a message replaces it on the page.

    The content is the same as that of `tracekit.analyze` for the same Trace and settings. To save time, the workload is
    fitted and jobs are replayed only on request: ``fit=True``, ``replay_jobs=100_000``.

    >>> import tracekit
    >>> found = tracekit.report("my-trace")  # doctest: +SKIP
    >>> found.show()  # doctest: +SKIP
    >>> found.charts["queuing/queue_delay"][0]  # doctest: +SKIP

    Parameters
    ----------
    trace : Trace, str or Path
        The Trace or its folder. If a Trace was opened in part (`Trace.window`) or with a tenant (`Trace.by`), the
        report covers this part with this tenant.
    settings : AnalysisSettings, optional
        Settings of the analysis, including the fit and replays. Settings for output files are not allowed.
    progress : Progress, optional
        Shows the current step.
    **changes
        Settings by name, such as ``by="account"`` or ``replay_jobs=10_000``.

    Raises
    ------
    TraceError
        The Trace does not exist, or one of its tables cannot be read.
    UsageError
        A setting is invalid or is for output files.
    """
    opened, progress = Trace.of(trace).divided, progress or Progress()
    brief = AnalysisSettings(fit=False, replay_jobs=0)
    chosen = settings_of(opened, merge_settings(AnalysisSettings, settings or brief, changes))
    _refuse_files(chosen)
    refuse_ingesting(chosen)
    with TemporaryDirectory(prefix="tracekit-") as folder, cleanup_on_interrupt(lambda: remove_folder(Path(folder))):
        return TraceReport(_answered(opened.path, Path(folder), chosen, progress), opened.path, chosen)


def _answered(source: Path, scratch: Path, settings: AnalysisSettings, progress: Progress) -> Answered:
    def opened() -> HiddenTrace:
        trace = open_whole(source, part_of(settings), settings)
        return HiddenTrace(copy_part(trace, scratch / "trace", settings.memory_limit) if trace.notes else trace)

    prices, faults = check_settings(source, settings, scratch, progress), Faults(progress)
    return answer_all(source, settings, scratch, opened, out=_OUT, prices=prices, progress=progress, faults=faults)


def _refuse_files(settings: AnalysisSettings) -> None:
    """Reject settings for output files."""
    if settings.pdf:
        raise UsageError(
            "tracekit.report writes no files, so it cannot write a PDF", where="pdf", hint="use tracekit.analyze"
        )
    if settings.anonymize or settings.salt_file is not None:
        raise UsageError(
            "pseudonyms are only for files that you share",
            where="anonymize" if settings.anonymize else "salt_file",
            hint="use tracekit.analyze, which writes a Trace with pseudonyms that you can open",
        )
