"""What a guideline may ask of a Trace: the queries by name, and SQL over tables, shared views and sweeps."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.characterize import answer_query, find_query, lacks
from tracekit.characterize.sweep import all_sweeps
from tracekit.characterize.views import connect_with_views
from tracekit.damage import damage_told
from tracekit.errors import QueryError
from tracekit.guidelines.interface import LackingError
from tracekit.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Mapping

    import duckdb
    import polars as pl

    from tracekit.characterize import QueryAnswer
    from tracekit.characterize.run import SweepKey
    from tracekit.characterize.sweep import Swept

__all__ = ["Evidence"]


class Evidence:
    """A Trace that answers each question once.

    Parameters
    ----------
    trace : Trace
        What to ask.
    memory_limit : str, optional
        Most memory DuckDB may use before it spills to disk, such as '2GB'.
    """

    def __init__(self, trace: Trace, memory_limit: str | None = None) -> None:
        self.trace = trace
        self._memory_limit = memory_limit
        self._answers: dict[tuple[str, tuple[tuple[str, object], ...]], QueryAnswer] = {}
        self._frames: dict[str, pl.DataFrame] = {}
        self._swept: dict[SweepKey, Swept] = {}

    def lacks(self, tables: tuple[str, ...], needs: tuple[str, ...]) -> list[str]:
        """Return which capabilities the Trace lacks, or else which tables, one sentence each."""
        sentences = []
        for name in needs:
            found = self.trace.capabilities.get(name)
            if found is None or not found.available:
                note = f": {found.note.rstrip('.')}" if found and found.note else ""
                sentences.append(f"The trace does not tell {name.replace('_', ' ')}{note}.")
        # A capability tells more than the table that it stands on.
        return sentences or [f"The trace has no table '{table}'." for table in tables if not self.trace.has(table)]

    def query(self, name: str, **params: object) -> QueryAnswer:
        """Return the answer of a query.

        Raises
        ------
        LackingError
            The Trace lacks what the query needs.
        """
        missing = lacks(find_query(name), self.trace)
        if missing:
            raise LackingError(*missing)
        key = (name, tuple(sorted(params.items())))
        if key not in self._answers:
            self._answers[key] = answer_query(
                self.trace, name, params, memory_limit=self._memory_limit, swept=self._swept
            )
        return self._answers[key]

    @damage_told()
    def sql(
        self,
        text: str,
        params: Mapping[str, object] | None = None,
        *,
        also: tuple[str, ...] = (),
        sweep: str | None = None,
        keep: bool = False,
    ) -> pl.DataFrame:
        """Return the rows of an SQL statement over the tables, the shared views and a sweep with its defaults.

        Parameters
        ----------
        text : str
            One SELECT statement; nothing from a log may be pasted into it.
        params : mapping, optional
            Values that are bound to its parameters, such as $timezone.
        also : tuple of str
            Tables that are empty where the Trace has none.
        sweep : str, optional
            A sweep that the statement names.
        keep : bool
            Keep the rows for other guidelines that ask the same; only of statements without parameters.

        Raises
        ------
        LackingError
            The Trace lacks a table that the sweep needs.
        QueryError
            The statement fails.
        """
        import duckdb

        if text in self._frames:
            return self._frames[text]
        tables = also if sweep is None else (*also, *all_sweeps()[sweep].also)
        trace, limit = Trace.of(self.trace), self._memory_limit
        with connect_with_views(trace, also=tables, memory_limit=limit) as con:
            if sweep is not None:
                con.register(sweep, self._sweep(con, sweep).frame.to_arrow())
            try:
                frame: pl.DataFrame = con.sql(text, params=dict(params) if params else None).pl()
            except duckdb.OutOfMemoryException as error:
                raise QueryError("ran out of memory", where=self.trace.path, hint="raise --memory-limit") from error
            except duckdb.Error as error:
                raise QueryError(str(error).splitlines()[0], where=self.trace.path) from error
        if keep:
            self._frames[text] = frame
        return frame

    def notes_of(self, sweep: str) -> tuple[str, ...]:
        """Return the choices that a sweep made, when it was used."""
        return next((swept.notes for (name, _), swept in self._swept.items() if name == sweep), ())

    def _sweep(self, con: duckdb.DuckDBPyConnection, name: str) -> Swept:
        sweep = all_sweeps()[name]
        missing = [f"The trace has no table '{table}'." for table in sweep.tables if not self.trace.has(table)]
        if missing:
            raise LackingError(*missing)
        params = {param.name: param.default for param in sweep.params}
        key = (name, tuple(sorted(params.items())))
        if key not in self._swept:
            self._swept[key] = sweep.compute(con, params)
        return self._swept[key]
