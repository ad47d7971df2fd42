"""Questions about a Trace and their answers, whoever answers them: a query, a replay, a fit, two periods compared.

One answer goes from the engine that found it to the page that shows it; report.json holds it as JSON.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal

from tracekit import text
from tracekit.notebook import Brief
from tracekit.tenant import INGESTED

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import polars as pl

    from tracekit.tenant import Tenant

Value = int | float | str
"""Type of a parameter's value."""

Row = dict[str, Any]
"""One row of an answer as JSON values, by column name."""

Kind = Literal["query", "replay", "fit", "comparison", "bill"]
"""Where an answer comes from: SQL over the Trace, replays, a fitted model, a comparison of two periods, or prices."""

_NUMBER_OF_TENANTS = "vcs"
"""The metric that counts tenants."""

_SENTENCE_LIMIT = 2000
"""Most characters kept of a cell that holds sentences; a name is cut earlier."""


@dataclass(frozen=True)
class AnswerColumn:
    """A column of an answer."""

    name: str
    unit: str
    """What a number counts; text, class, ... where it is not a number."""
    meaning: str


@dataclass(frozen=True)
class Param:
    """A parameter of a question."""

    name: str
    default: Value
    """Its type is the type of the parameter."""
    meaning: str
    choices: tuple[str, ...] = ()
    """The words allowed; empty when any value is allowed."""


@dataclass(frozen=True)
class Interval:
    """A column with a confidence interval, and the method of the interval."""

    column: str
    method: Literal["proportion", "median"]
    """proportion: exact (Clopper and Pearson, 1934) for a share of n observations. median: between the order statistics
    that hold it with at least this confidence whatever the distribution, their ranks by the normal approximation; read
    off the quantiles that the query gives in the hidden column _<column>."""
    count: str
    """Column with the number of observations n."""
    pooled: bool = False
    """Whether n is the sum of `count` over all rows, as for shares of a whole."""

    @property
    def hidden(self) -> str:
        """Name of the column with the quantiles."""
        return f"_{self.column}"


@dataclass(frozen=True, kw_only=True)
class Question:
    """What is asked, and what the columns of the answer mean."""

    name: str
    """'queuing/run_time': its group, and what it is called in it."""
    kind: Kind
    title: str
    question: str
    """In plain words."""
    columns: tuple[AnswerColumn, ...]
    """In order, the key first."""
    rule: str = ""
    """The definition of the numbers: formula, what is in and out, and the source, as free text."""
    paper: str = ""
    """Where a study answers it; '' where none does."""
    params: tuple[Param, ...] = ()
    intervals: tuple[Interval, ...] = ()
    """Columns with confidence intervals."""

    @property
    def group(self) -> str:
        """The section of the report that shows it."""
        return self.name.rpartition("/")[0] or "other"

    def answered(self, rows: Iterable[Mapping[str, Any]], notes: Iterable[str] = ()) -> Answer:
        """Return an answer with these rows; a column that a row lacks is NULL."""
        import polars as pl

        names = [column.name for column in self.columns]
        frame = pl.DataFrame([{n: row.get(n) for n in names} for row in rows], infer_schema_length=None)
        return Answer(self, frame, notes=tuple(notes))

    def unanswered(self, *reasons: str, failed: bool = False) -> Unanswered:
        """Return the question as unanswered, for these reasons, one sentence each.

        `failed` says that an error is the reason, not the Trace.
        """
        return Unanswered(self, reasons, failed)


@dataclass(frozen=True)
class Answer:
    """The answer to a question: its rows, and what a reader has to know about them."""

    question: Question
    frame: pl.DataFrame
    """All rows; columns are those that the question lists, or some of them."""
    params: Mapping[str, Value] = field(default_factory=dict)
    """The value of every parameter that was used."""
    notes: tuple[str, ...] = ()
    """Choices made and things left out, one sentence each."""
    intervals: pl.DataFrame | None = None
    """<column>_low and <column>_high of the 95 % confidence interval of each column that has one, row by row."""
    coverage: Mapping[str, float | None] = field(default_factory=dict)
    """For each capability that the answer needs, the share of the records that carry it [0..1]; None: unknown."""
    files: tuple[str, ...] = ()
    """Where all rows are written, relative to the report."""
    commands: tuple[str, ...] = ()
    """Commands of the shell that compute it again, in turn, in the folder of the report; of a query, none is needed."""

    def __repr__(self) -> str:
        return str(self._brief)

    def _repr_html_(self) -> str:
        return self._brief.html() + self.frame._repr_html_()

    @property
    def _brief(self) -> Brief:
        params = ", ".join(f"{name} = {value}" for name, value in self.params.items())
        return Brief.of(
            self.question.question,
            [
                ("name", self.name),
                ("rows", f"{text.count(self.frame.height)}, in {text.counted(self.frame.width, 'columns')}"),
                ("parameters", params or None),
                ("notes", "; ".join(self.notes) or None),
            ],
        )

    @property
    def name(self) -> str:
        """Name of the question."""
        return self.question.name

    def named(self, tenant: Tenant) -> Answer:
        """Return this answer with tenants called by their own name: their column, and the metric that counts them.

        A tenant that was ingested keeps the name `vc`. Where the answer has the column already, such as the user of a
        job, `vc` would repeat it and is left out.
        """
        if tenant.column == INGESTED:
            return self
        import polars as pl

        frame = self.frame
        if INGESTED in frame.columns:
            known = tenant.column in frame.columns
            frame = frame.drop(INGESTED) if known else frame.rename({INGESTED: tenant.column})
        if {"metric", "unit"}.issubset(frame.columns):
            counts = pl.col("metric") == _NUMBER_OF_TENANTS
            frame = frame.with_columns(
                metric=pl.when(counts).then(pl.lit(tenant.metric)).otherwise("metric"),
                unit=pl.when(counts).then(pl.lit(tenant.many)).otherwise("unit"),
            )
        described = {column.name: column for column in self.question.columns}
        columns = tuple(
            replace(column, name=tenant.column) if name == INGESTED else column
            for name, column in described.items()
            if name != INGESTED or tenant.column not in described
        )
        return replace(self, question=replace(self.question, columns=columns), frame=frame)

    def rows(self, limit: int | None = None) -> list[Row]:
        """Return the first `limit` rows, or all, as JSON values; names and sentences of the log are cut."""
        sentences = {c.name for c in self.question.columns if c.unit == "sentence"}
        frame = self.frame if limit is None else self.frame.head(limit)
        return [
            {
                k: text.cut(v, _SENTENCE_LIMIT) if k in sentences and isinstance(v, str) else text.plain(v)
                for k, v in row.items()
            }
            for row in frame.iter_rows(named=True)
        ]


@dataclass(frozen=True)
class Unanswered:
    """A question that a Trace does not answer."""

    question: Question
    reasons: tuple[str, ...]
    """Why not, one sentence each."""
    failed: bool = False
    """Whether an error is the reason; the Trace may hold the answer."""

    @property
    def name(self) -> str:
        """Name of the question."""
        return self.question.name
