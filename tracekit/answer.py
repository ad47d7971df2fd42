"""Questions about a Trace, and their answers from a query, a replay, a fit or a comparison of two periods.

The page shows the same object that the engine computed, and report.json contains it as JSON.
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
"""Origin of an answer: SQL on the Trace, replays, a fitted model, a comparison of two periods, or prices."""

_SENTENCE_LIMIT = 2000
"""Maximum number of characters in a cell with sentences. Names are cut earlier."""


@dataclass(frozen=True)
class AnswerColumn:
    """A column of an answer."""

    name: str
    unit: str
    """Unit of a number, or the kind of any other column (text, class, ...)."""
    meaning: str


@dataclass(frozen=True)
class Param:
    """A parameter of a question."""

    name: str
    default: Value
    """Default value, which also sets the parameter's type."""
    meaning: str
    choices: tuple[str, ...] = ()
    """Allowed words, or empty if any value is allowed."""


@dataclass(frozen=True)
class Interval:
    """A column with a confidence interval, and the method of the interval."""

    column: str
    method: Literal["proportion", "median"]
    """With 'proportion', the interval is exact (Clopper and Pearson, 1934) for a share of n observations. With
    'median', it lies between the order statistics that contain the median with at least this confidence for any
    distribution. Their ranks come from the normal approximation, and their values from the quantiles in the query's
    hidden _<column> column."""
    count: str
    """Column with the number of observations n."""
    pooled: bool = False
    """Whether n is the sum of `count` over all rows, as for parts of a whole."""

    @property
    def hidden(self) -> str:
        """Name of the column with the quantiles."""
        return f"_{self.column}"


@dataclass(frozen=True, kw_only=True)
class Question:
    """A question, and the meaning of the answer's columns."""

    name: str
    """Group and name within the group, such as 'queuing/run_time'."""
    kind: Kind
    title: str
    question: str
    """The question in plain words."""
    columns: tuple[AnswerColumn, ...]
    """Columns in order, key first."""
    rule: str = ""
    """How the numbers are defined: the formula, the included and excluded data, and the source."""
    paper: str = ""
    """The study that answers the question, or '' if no study does."""
    params: tuple[Param, ...] = ()
    intervals: tuple[Interval, ...] = ()
    """Columns with confidence intervals."""

    @property
    def own_column(self) -> bool:
        """Whether `vc` stays in the answer even if the answer also has the tenant column."""
        return False

    @property
    def group(self) -> str:
        """Section of the report that shows the answer."""
        return self.name.rpartition("/")[0] or "other"

    def of(self, tenant: Tenant) -> Question:
        """Return this question in the site's words, with the site's name for the tenant column."""
        fill = tenant.fill
        return replace(
            self,
            title=fill(self.title),
            question=fill(self.question),
            rule=fill(self.rule),
            columns=self.columns_for(tenant),
            params=tuple(replace(param, meaning=fill(param.meaning)) for param in self.params),
        )

    def columns_for(self, tenant: Tenant) -> tuple[AnswerColumn, ...]:
        """Return the columns in the site's words, with the site's name for the tenant column."""
        names = {column.name for column in self.columns}
        known = tenant.column != INGESTED and tenant.column in names
        return tuple(
            replace(
                column,
                name=tenant.column if column.name == INGESTED and not known else column.name,
                meaning=tenant.fill(column.meaning),
            )
            for column in self.columns
            if column.name != INGESTED or not known or self.own_column
        )

    def answered(self, rows: Iterable[Mapping[str, Any]], notes: Iterable[str] = ()) -> Answer:
        """Return an answer with these rows. Columns missing from a row are NULL."""
        import polars as pl

        names = [column.name for column in self.columns]
        frame = pl.DataFrame([{n: row.get(n) for n in names} for row in rows], infer_schema_length=None)
        return Answer(self, frame, notes=tuple(notes))

    def unanswered(self, *reasons: str, failed: bool = False) -> Unanswered:
        """Return the question without an answer, with one sentence per reason.

        `failed` means that the reason is an error, not a gap in the Trace.
        """
        return Unanswered(self, reasons, failed)


@dataclass(frozen=True)
class Answer:
    """The answer to a question: its rows, and notes that the reader needs."""

    question: Question
    frame: pl.DataFrame
    """All rows, with some or all of the question's columns."""
    params: Mapping[str, Value] = field(default_factory=dict)
    """Values of all parameters used."""
    notes: tuple[str, ...] = ()
    """One sentence for each choice or omission."""
    intervals: pl.DataFrame | None = None
    """The 95 % confidence intervals, row by row, as <column>_low and <column>_high for each column that has them."""
    coverage: Mapping[str, float | None] = field(default_factory=dict)
    """Share of records with each capability that the answer needs [0..1], or None if unknown."""
    files: tuple[str, ...] = ()
    """Path of the file with all rows, relative to the report."""
    commands: tuple[str, ...] = ()
    """Shell commands that recompute the answer, run in order in the report's folder. Empty for a query."""

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

    def of(self, tenant: Tenant) -> Answer:
        """Return this answer in the site's words, with the site's name for the tenant column."""
        frame = tenant.named(self.frame, own_column=self.question.own_column)
        return replace(self, question=self.question.of(tenant), frame=frame)

    def rows(self, limit: int | None = None) -> list[Row]:
        """Return the first `limit` rows, or all rows, as JSON values, with long names and sentences cut."""
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
    """A question that a Trace cannot answer."""

    question: Question
    reasons: tuple[str, ...]
    """Reasons, one sentence each."""
    failed: bool = False
    """Whether the reason is an error, so that the Trace may still contain the answer."""

    @property
    def name(self) -> str:
        """Name of the question."""
        return self.question.name

    def of(self, tenant: Tenant) -> Unanswered:
        """Return this result with its question in the site's words."""
        return replace(self, question=self.question.of(tenant))
