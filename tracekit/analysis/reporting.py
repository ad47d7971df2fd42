"""The report of a Trace as a Python object, for notebooks: the answers of an analysis before they are files."""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from tracekit.analysis.answering import Named, answer_all
from tracekit.analysis.billing import find_prices
from tracekit.analysis.comparing import check_comparison, compare_with_other
from tracekit.analysis.one import (
    REPORT_MARKER,
    analysis_in,
    check_replays,
    copy_trace,
    of_other,
    open_whole,
    part_of,
    refuse_ingesting,
    refuse_replacing_source,
    settings_of,
    trace_at,
)
from tracekit.analysis.part import copy_part
from tracekit.analysis.writing import table_of, write_analysis
from tracekit.anonymous import HiddenTrace
from tracekit.answer import Answer, Unanswered
from tracekit.damage import explain_damage
from tracekit.errors import QueryError, UsageError, nearest
from tracekit.faults import Faults
from tracekit.interruption import cleanup_on_interrupt, remove_folder
from tracekit.notebook import Brief
from tracekit.outputs import StagedFolder, real_path
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
"""Where the command that a report states writes, until it is saved elsewhere."""
_HEIGHT = 800
"""Height of the frame of a page [px]."""


class TraceReport:
    """The report of a Trace: what the page of `tracekit.analyze` shows, as Python objects.

    Made by `tracekit.report`. In a notebook the object itself shows its most important numbers, and `show` the page.
    """

    def __init__(self, found: Answered, source: Path, settings: AnalysisSettings) -> None:
        self._found, self._source, self._settings = found, source, settings

    @property
    def data(self) -> Report:
        """What report.json holds, with the keys of schemas/report-1.json."""
        return self._found.report

    @cached_property
    def findings(self) -> pl.DataFrame:
        """What was found, one row an answered question, in reading order.

        section
            Title of its part of the page.
        name
            Of the question, as `answer` takes it.
        question
            In plain words.
        finding
            One sentence; NULL where there is nothing true and useful to say.
        rows
            Rows of the answer [1].
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
        """The charts of each question that has any, by its name, as Altair objects, in reading order.

        A question whose charts fail has none; `html` says why. They carry tracekit's theme as their `config`, in its
        light colours; without it, ``chart.config = alt.Undefined``, a chart can be joined with others. Altair's usual
        renderer has the notebook fetch Vega from the network; after ``alt.renderers.enable("svg")`` charts are
        pictures, which need none. In a name that holds '</', '<!--' or '<script' an invisible character (U+2060)
        follows the '<', so that it cannot end the script into which a chart is written.
        """
        from tracekit.report.in_notebook import charts_of

        return charts_of(self.data)

    @property
    def unanswered(self) -> Mapping[str, tuple[str, ...]]:
        """Why each other question has no answer, by its name."""
        return {one.name: one.reasons for one in self._found.answers if isinstance(one, Unanswered)}

    @property
    def answered(self) -> Mapping[str, Answer]:
        """Each answer with all of its rows, its notes and its intervals, by the name of its question."""
        return {one.name: one for one in self._found.answers if isinstance(one, Answer)}

    @property
    def faults(self) -> tuple[Fault, ...]:
        """Parts that could not be made because of an error; the others are complete."""
        return self._found.faults

    @property
    def workload(self) -> WorkloadModel | None:
        """The fitted workload; None where none was asked for, or the Trace cannot be fitted."""
        return self._found.model

    def answer(self, name: str) -> pl.DataFrame:
        """Return all rows of an answer, as its file in tables/ holds them.

        Parameters
        ----------
        name : str
            Of the question, such as 'queuing/queue_delay'; see `findings`.

        Raises
        ------
        QueryError
            The Trace does not answer it, or there is no such question.
        """
        found = next((one for one in self._found.answers if one.name == name), None)
        if isinstance(found, Answer):
            return table_of(found, self.data)
        if found is not None:
            raise QueryError(f"no answer: {' '.join(found.reasons).rstrip('.')}", where=name)
        names = [one.name for one in self._found.answers]
        raise QueryError(f"there is no question '{shorten(name)}'", hint=nearest(name, names))

    def html(self) -> str:
        """Return the page as HTML that needs no network; files that it links to are written by `save` alone."""
        from tracekit.report.page import render_report

        return render_report(self.data)

    def show(self, height: int = _HEIGHT) -> None:
        """Show the page in the notebook.

        The notebook keeps it with the cell's output: about two megabytes.

        Parameters
        ----------
        height : int
            Of the frame in which it scrolls [px].

        Raises
        ------
        UsageError
            This is no notebook, or the height is not above 0.
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
        display(shown, raw=True)  # type: ignore[no-untyped-call]  # IPython gives it no types

    def save(self, folder: str | Path, *, force: bool = False) -> Analysis:
        """Write what `tracekit.analyze` writes, a copy of the Trace included, without asking anything again.

        Parameters
        ----------
        folder : str or Path
            Folder of the report.
        force : bool
            Replace an earlier report there.

        Raises
        ------
        OutputError
            The folder exists or cannot be written.
        UsageError
            The folder holds the Trace, which would be replaced.
        TraceError
            The Trace is gone.
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
    """Ask every question of a Trace, judge by the guidelines, and return the report; nothing is written.

    A part that fails stops no other part; `TraceReport.faults` lists it, and the page says so in its place.

    It holds what `tracekit.analyze` would write for the same Trace and settings. Since somebody waits for it, the
    workload is fitted and jobs are replayed only where that is asked for: ``fit=True``, ``replay_jobs=100_000``.

    >>> import tracekit
    >>> found = tracekit.report("my-trace")  # doctest: +SKIP
    >>> found.show()  # doctest: +SKIP
    >>> found.charts["queuing/queue_delay"][0]  # doctest: +SKIP

    Parameters
    ----------
    trace : Trace, str or Path
        The Trace or its folder. Of a Trace the part that it was opened with is asked (`Trace.window`), with its tenant
        (`Trace.by`).
    settings : AnalysisSettings, optional
        Settings of the analysis, fit and replays among them; of the settings that make files, none may be set.
    progress : Progress, optional
        Shows the current step.
    **changes
        Settings by name, such as ``by="account"`` or ``replay_jobs=10_000``.

    Raises
    ------
    TraceError
        There is no such Trace, or a table of it cannot be read.
    UsageError
        A setting cannot be used, or says how files are made.
    """
    opened, progress = Trace.of(trace), progress or Progress()
    brief = AnalysisSettings(fit=False, replay_jobs=0)
    chosen = settings_of(opened, merge_settings(AnalysisSettings, settings or brief, changes))
    _refuse_files(chosen)
    refuse_ingesting(chosen)
    check_replays(chosen)
    with TemporaryDirectory(prefix="tracekit-") as folder, cleanup_on_interrupt(lambda: remove_folder(Path(folder))):
        check_comparison(chosen.compare, Path(folder))
        return TraceReport(_answered(opened.path, Path(folder), chosen, progress), opened.path, chosen)


def _answered(source: Path, scratch: Path, settings: AnalysisSettings, progress: Progress) -> Answered:
    from tracekit.characterize.engines import engine_of

    prices = find_prices(source, settings.prices, progress)
    faults = Faults(progress)
    engine = engine_of(settings.engine, settings.master)
    try:
        engine.start()
        trace = open_whole(source, part_of(settings), settings)
        if trace.notes:
            trace = copy_part(trace, scratch / "trace", settings.memory_limit)
        changed = compare_with_other(
            trace.by(settings.by),
            scratch,
            settings,
            lambda path, place: trace_at(place, path, of_other(path, settings), progress, None).trace,
            progress,
            faults,
        )
        return answer_all(
            HiddenTrace(trace),
            settings,
            scratch,
            Named(real_path(source).name, str(source), settings.command(source, _OUT)),
            prices=prices,
            changed=changed,
            engine=engine,
            progress=progress,
            faults=faults,
        )
    finally:
        engine.stop()


def _refuse_files(settings: AnalysisSettings) -> None:
    """Refuse settings that are about files to give away."""
    if settings.pdf:
        raise UsageError(
            "tracekit.report writes no files, so it cannot write a PDF", where="pdf", hint="use tracekit.analyze"
        )
    if settings.anonymize or settings.salt_file is not None:
        raise UsageError(
            "pseudonyms are only for files that you share",
            where="anonymize" if settings.anonymize else "salt_file",
            hint="use tracekit.analyze, whose folder has a Trace with pseudonyms to open",
        )
