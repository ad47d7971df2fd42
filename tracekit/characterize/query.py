"""Queries: questions answered by SQL, their files, and how to find them.

A file begins with its header, which consists of comment lines:

    -- title: Run time by job size
    -- question: How long do jobs run, and do larger jobs run longer?
    -- paper: Philly Fig 2 (ATC'19)
    -- tables: jobs                            tables that the Trace must have
    -- also: attempts                          tables that are used if they exist and are empty otherwise
    -- one_of: gpu_utilization, job_usage      the Trace must have one of these tables; the others are empty
    -- needs: run_time, gpu_count              capabilities that the Trace must have
    -- merge: counted                         common tables that can be computed by day of telemetry and merged
    -- tenant: compared                        'split' if there is a row per tenant (the default with a vc column),
                                               'own' if vc stays in addition to the column that is the tenant,
                                               'compared' if it depends on tenants in another way, or 'none'
    -- param min_gpus: 0 | smallest job to count, in GPUs
    -- param rule: clean {clean, notebook} | a choice of words, the default first
    -- column gpu_class: class | size class of the job
    -- interval jobs_share: proportion of all jobs      columns with a confidence interval, and the column with the
    -- interval p50_s: median of jobs                   number of observations ('all': its sum over all rows); the
                                                        interval of a median needs percentiles(...) AS _p50_s in the SQL
    -- rule:
    -- Free text up to the end of the comment: formula, included and excluded data, source.

`views`, which only the header of a shared view has, names the views that it depends on. Placeholders such as
{tenant.one} become the site's word (`Tenant.fill`).
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from tracekit import resources
from tracekit.answer import AnswerColumn, Interval, Param, Question
from tracekit.errors import QueryError, nearest
from tracekit.manifest import CAPABILITIES
from tracekit.schema import COMMON_TABLES
from tracekit.tenant import INGESTED, VC

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tracekit.answer import Kind
    from tracekit.tenant import Tenant


@lru_cache(maxsize=1000)
def words_of(sql: str) -> frozenset[str]:
    """Return the words of SQL in lower case, without comments; these include all names."""
    return frozenset(re.findall(r"\w+", re.sub(r"--[^\n]*", "", sql).lower()))


RESERVED_PARAMS = ("time_base", "timezone")
"""Parameters that are bound to values from the manifest if a query uses them."""


@dataclass(frozen=True, kw_only=True)
class Query(Question):
    """A question and the SQL that answers it. A user's file need not describe its columns."""

    kind: Kind = "query"
    sql: str
    """The text of the whole file, because errors give line numbers in it."""
    path: Path
    tables: tuple[str, ...] = ()
    """Tables that the Trace must have."""
    needs: tuple[str, ...] = ()
    """Capabilities that the Trace must have."""
    also: tuple[str, ...] = ()
    """Tables that are read if the Trace has them and are empty otherwise."""
    one_of: tuple[str, ...] = ()
    """The Trace must have at least one of these tables; the missing ones are empty."""
    tenant: str = "none"
    """How the answer depends on the tenant: 'split', 'own', 'compared' or 'none'."""
    views: tuple[str, ...] = ()
    """For a shared view, the views that it depends on."""
    merge: tuple[str, ...] = ()
    """Common tables, in order, that read telemetry and only group, count, sum, and take the minimum or maximum. Merging
    their daily rows in the same way gives the rows for all days. Nothing else in the query reads telemetry."""
    shipped: bool = True
    """Whether the file came with tracekit."""
    described: bool = True
    """Whether the file has a header."""

    @property
    def takes_tenant(self) -> bool:
        """Whether the answer depends on the choice of tenant; for a user's own SQL this is unknown."""
        return not self.shipped or self.tenant != "none"

    @property
    def own_column(self) -> bool:
        """Whether `vc` stays in the answer even if the answer also has the column that is the tenant."""
        return self.tenant == "own"

    def of(self, tenant: Tenant) -> Query:
        """Return this query in the site's words; only comments and units change in the SQL."""
        query = _shipped(self.path, tenant) if self.shipped else self
        if tenant.column == INGESTED:
            return query
        sql = f"-- Here jobs.vc is jobs.{tenant.column}.\n{query.sql}"
        return replace(query, columns=query.columns_for(tenant), sql=sql)

    @classmethod
    def of_text(cls, sql: str, path: Path, *, also: tuple[str, ...] = (), merge: tuple[str, ...] = ()) -> Query:
        """Return a query without a header, made from its SQL alone; errors name `path`."""
        return cls(
            name="sql",
            title="",
            question="",
            columns=(),
            sql=sql,
            path=path,
            also=also,
            merge=merge,
            shipped=False,
            described=False,
        )


QUERY_PARTS = ("title", "question", "paper", "tables", "column", "rule")
"""Keys that the header of a shipped query must have."""
VIEW_PARTS = ("title", "tables", "column", "rule")
"""Keys that the header of a shared view must have."""
USER_PARTS = ()
"""No keys, because a user's own file needs no header."""

_NAMED = ("param", "column", "interval")
_KEYS = ("title", "question", "paper", "tables", "also", "one_of", "needs", "tenant", "views", "merge", "rule", *_NAMED)
_TENANT = ("split", "own", "compared", "none")
_LINE = re.compile(r"--\s*(?P<key>\w+)(?:\s+(?P<name>\S+))?\s*:(?P<text>.*)")
_DEFAULT = re.compile(r"(?P<default>[^{}]*?)\s*(?:\{(?P<choices>[^{}]*)\})?")
_INTERVAL = re.compile(r"(?P<method>proportion|median) of (?P<all>all )?(?P<count>\w+)")
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")


@dataclass
class _QueryHeader:
    """A header while it is being read."""

    path: Path
    texts: dict[str, str] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)
    params: list[Param] = field(default_factory=list)
    columns: list[AnswerColumn] = field(default_factory=list)
    intervals: list[Interval] = field(default_factory=list)

    def error(self, what: str, line: int, hint: str | None = None) -> QueryError:
        return QueryError(what, where=self.path, line=line, hint=hint)

    def read(self, text: str) -> None:
        """Read the comment lines at the start of `text`."""
        for number, raw in enumerate(text.splitlines(), start=1):
            line = raw.strip()
            if not line.startswith("--"):
                if line or self.lines:
                    return
            elif "rule" in self.texts:
                self.texts["rule"] += f"\n{line[2:].strip()}"
            else:
                self._take(line, number)

    def _take(self, line: str, number: int) -> None:
        match = _LINE.fullmatch(line)
        if match is None:
            raise self.error("not a header line", number, "write '-- key: text'; free text goes below '-- rule:'")
        key, name, text = match["key"], match["name"], match["text"].strip()
        if key not in _KEYS:
            raise self.error(f"unknown header key '{key}'", number, nearest(key, _KEYS))
        if (name is not None) != (key in _NAMED):
            form = f"-- {key} NAME: ..." if name is None else f"-- {key}: ..."
            raise self.error(f"misshapen '{key}' line", number, f"write '{form}'")
        if key == "param":
            self.params.append(self._param(name, text, number))
        elif key == "column":
            self.columns.append(self._column(name, text, number))
        elif key == "interval":
            self.intervals.append(self._interval(name, text, number))
        elif key in self.texts:
            raise self.error(f"the header has '{key}' twice", number)
        elif not text and key != "rule":
            raise self.error(f"the header's '{key}' is empty", number)
        else:
            self.texts[key] = text
        self.lines.setdefault(key, number)

    def _param(self, name: str, text: str, number: int) -> Param:
        value, bar, meaning = (part.strip() for part in text.partition("|"))
        match = _DEFAULT.fullmatch(value)
        if not bar or not meaning or match is None or not match["default"]:
            raise self.error(f"malformed param '{name}'", number, "write '-- param NAME: DEFAULT {A, B} | meaning'")
        if not name.isidentifier() or name in RESERVED_PARAMS:
            raise self.error(f"'{name}' cannot name a parameter", number, f"reserved: {', '.join(RESERVED_PARAMS)}")
        if name in {p.name for p in self.params}:
            raise self.error(f"the header has the param '{name}' twice", number)
        choices = _words(match["choices"] or "")
        default = match["default"]
        if choices and default not in choices:
            raise self.error(f"the default '{default}' of '{name}' is not one of its choices", number)
        return Param(name, default if choices else number_or_text(default), meaning, choices)

    def _column(self, name: str, text: str, number: int) -> AnswerColumn:
        unit, _, meaning = (part.strip() for part in text.partition("|"))
        if not unit or not meaning:
            raise self.error(f"malformed column '{name}'", number, "write '-- column NAME: UNIT | meaning'")
        if name in {c.name for c in self.columns}:
            raise self.error(f"the header has the column '{name}' twice", number)
        return AnswerColumn(name, unit, meaning)

    def _interval(self, name: str, text: str, number: int) -> Interval:
        match = _INTERVAL.fullmatch(text)
        if match is None:
            form = f"-- interval {name}: proportion of jobs', 'proportion of all jobs' or 'median of jobs"
            raise self.error(f"misshapen interval '{name}'", number, f"write '{form}'")
        for column in (name, match["count"]):
            # Names with a leading underscore are columns of the SQL that results do not show.
            if not column.startswith("_") and column not in {c.name for c in self.columns}:
                raise self.error(f"the interval names '{column}', which is not a column above it", number)
        method: Literal["proportion", "median"] = "median" if match["method"] == "median" else "proportion"
        return Interval(name, method, match["count"], pooled=match["all"] is not None)

    def words(self, key: str, known: Iterable[str] | None = None) -> tuple[str, ...]:
        """Return the comma-separated words of a part; each must be one of `known`."""
        found = _words(self.texts.get(key, ""))
        for word in found:
            if known is not None and word not in known:
                raise self.error(f"'{word}' is unknown to '{key}'", self.lines[key], nearest(word, known))
        return found


def parse_query(text: str, path: Path, *, name: str, parts: tuple[str, ...], shipped: bool = True) -> Query:
    """Return the query in the text of an SQL file.

    Parameters
    ----------
    text : str
        The whole file.
    path : Path
        Path of the file, used in messages.
    name : str
        Name of the query.
    parts : tuple of str
        Keys that the header must have. If there are none, a file that does not begin with '-- title:' has no header,
        and its comments are ignored.
    shipped : bool
        Whether the file came with tracekit.

    Raises
    ------
    QueryError
        The header is malformed or a key is missing; the error names the file and the line.
    """
    header = _QueryHeader(path)
    described = bool(parts) or re.match(r"\s*--\s*title\s*:", text) is not None
    if described:
        header.read(text)
        missing = [part for part in parts if part not in header.lines]
        if missing:
            raise header.error(f"the header lacks '{missing[0]}'", 1, f"it needs {', '.join(parts)}")
    columns = {column.name for column in header.columns}
    return Query(
        name=name,
        title=header.texts.get("title", ""),
        question=header.texts.get("question", ""),
        paper=header.texts.get("paper", ""),
        tables=header.words("tables", COMMON_TABLES),
        also=header.words("also", COMMON_TABLES),
        one_of=header.words("one_of", COMMON_TABLES),
        needs=header.words("needs", CAPABILITIES),
        tenant=next(iter(header.words("tenant", _TENANT)), "split" if INGESTED in columns else "none"),
        views=header.words("views"),
        merge=header.words("merge"),
        params=tuple(header.params),
        columns=tuple(header.columns),
        intervals=tuple(header.intervals),
        rule=header.texts.get("rule", "").strip(),
        sql=text,
        path=path,
        shipped=shipped,
        described=described,
    )


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(",") if word.strip())


def number_or_text(text: str) -> int | float | str:
    """Return `text` as a number if it is a finite number, otherwise unchanged.

    Examples
    --------
    >>> number_or_text("4"), number_or_text("0.5"), number_or_text("all"), number_or_text("1e999")
    (4, 0.5, 'all', '1e999')
    """
    if _NUMBER.fullmatch(text) is None:
        return text
    value = float(text)
    if not math.isfinite(value):
        return text
    return int(text) if text.lstrip("+-").isdecimal() else value


_LARGEST_FILE = 1 << 20


@cache
def list_queries() -> tuple[Query, ...]:
    """Return the shipped queries, sorted by name.

    Raises
    ------
    QueryError
        The header of a shipped file is damaged.
    """
    files = sorted(resources.folder("queries").glob("*/*.sql"))
    return tuple(_shipped(path) for path in files if path.parent.name != "views")


def find_query(name_or_path: str | Path) -> Query:
    """Return a query by its name, or read a user's own file.

    Parameters
    ----------
    name_or_path : str or Path
        'queuing/run_time', or the path of a file that ends in .sql. A user's file needs no header.

    Raises
    ------
    QueryError
        The query does not exist or the file cannot be read.
    """
    if isinstance(name_or_path, Path) or name_or_path.endswith(".sql"):
        path = Path(name_or_path)
        return parse_query(read_sql(path), path, name=path.stem, parts=USER_PARTS, shipped=False)
    queries = {query.name: query for query in list_queries()}
    if name_or_path not in queries:
        raise QueryError(f"no query '{name_or_path}'", hint=_suggest(name_or_path, queries))
    return queries[name_or_path]


def read_sql(path: Path) -> str:
    """Return the text of an SQL file.

    Raises
    ------
    QueryError
        The file is missing, is not text, or is too large for a query.
    """
    try:
        if path.stat().st_size > _LARGEST_FILE:
            raise QueryError("is too large for a query", where=path, hint="give an SQL text file")
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise QueryError(f"cannot read the query: {error.strerror}", where=path) from error
    except UnicodeDecodeError as error:
        raise QueryError("is not UTF-8 text", where=path, hint="give an SQL text file") from error


@cache
def _shipped(path: Path, tenant: Tenant = VC) -> Query:
    name = f"{path.parent.name}/{path.stem}"
    return parse_query(tenant.fill(read_sql(path)), path, name=name, parts=QUERY_PARTS)


def _suggest(name: str, names: dict[str, Query]) -> str:
    """Return a hint for an unknown name. Users often remember only the last part."""
    same = sorted(n for n in names if n.rpartition("/")[2] == name.rpartition("/")[2])
    return nearest(same[0], same) if same else nearest(name, names)
