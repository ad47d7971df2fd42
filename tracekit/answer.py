"""Questions about a Trace and their answers, whether from a query, a replay, a fit or a comparison of two periods.

The same answer object goes from the engine that computes it to the page that shows it; report.json contains it as JSON.
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
"""Maximum characters kept in a cell with sentences; a name is cut earlier."""


@dataclass(frozen=True)
class AnswerColumn:
    """A column of an answer."""

    name: str
    unit: str
    """Unit of a number; text, class, ... for other columns."""
    meaning: str


@dataclass(frozen=True)
class Param:
    """A parameter of a question."""

    name: str
    default: Value
    """Default value; its type is the type of the parameter."""
    meaning: str
    choices: tuple[str, ...] = ()
    """Allowed words; empty if any value is allowed."""


@dataclass(frozen=True)
class Interval:
    """A column with a confidence interval, and the method of the interval."""

    column: str
    method: Literal["proportion", "median"]
    """proportion: exact (Clopper and Pearson, 1934) for a share of n observations. median: between the order statistics
    that contain it with at least this confidence for any distribution, with ranks from the normal approximation; read
    from the quantiles that the query returns in the hidden column _<column>."""
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
    """Definition of the numbers as free text: formula, included and excluded data, and the source."""
    paper: str = ""
    """The study that answers the question, or '' if no study does."""
    params: tuple[Param, ...] = ()
    intervals: tuple[Interval, ...] = ()
    """Columns with confidence intervals."""

    @property
    def own_column(self) -> bool:
        """Whether `vc` stays in the answer even if the answer also has the column that is the tenant."""
        return False

    @property
    def group(self) -> str:
        """Section of the report that shows the answer."""
        return self.name.rpartition("/")[0] or "other"

    def of(self, tenant: Tenant) -> Question:
        """Return this question in the site's words, with the name of the tenant's column."""
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
        """Return the columns in the site's words, with the name of the tenant's column."""
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
        """Return an answer with these rows; columns missing from a row are NULL."""
        import polars as pl

        names = [column.name for column in self.columns]
        frame = pl.DataFrame([{n: row.get(n) for n in names} for row in rows], infer_schema_length=None)
        return Answer(self, frame, notes=tuple(notes))

    def unanswered(self, *reasons: str, failed: bool = False) -> Unanswered:
        """Return the question as unanswered, with one sentence per reason.

        `failed` means that the reason is an error rather than the Trace.
        """
        return Unanswered(self, reasons, failed)


@dataclass(frozen=True)
class Answer:
    """The answer to a question: its rows, and the notes that a reader must know."""

    question: Question
    frame: pl.DataFrame
    """All rows, with some or all of the question's columns."""
    params: Mapping[str, Value] = field(default_factory=dict)
    """Values of all parameters used."""
    notes: tuple[str, ...] = ()
    """Choices and omissions, one sentence each."""
    intervals: pl.DataFrame | None = None
    """<column>_low and <column>_high of the 95 % confidence interval of each column with one, row by row."""
    coverage: Mapping[str, float | None] = field(default_factory=dict)
    """For each capability that the answer needs, the share of records that have it [0..1]; None means unknown."""
    files: tuple[str, ...] = ()
    """Path of the file with all rows, relative to the report."""
    commands: tuple[str, ...] = ()
    """Shell commands that compute the answer again, in order, in the report's folder; none for a query."""

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
        """Return this answer with the tenant's own name for its column, and with a question in the site's words."""
        frame = tenant.named(self.frame, own_column=self.question.own_column)
        return replace(self, question=self.question.of(tenant), frame=frame)

    def rows(self, limit: int | None = None) -> list[Row]:
        """Return the first `limit` rows, or all rows, as JSON values; names and sentences from the log are cut."""
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
    """Whether an error is the reason; the Trace may still contain the answer."""

    @property
    def name(self) -> str:
        """Name of the question."""
        return self.question.name

    def of(self, tenant: Tenant) -> Unanswered:
        """Return this result with its question in the site's words."""
        return replace(self, question=self.question.of(tenant))
