"""Relations that need a sweep over time: computed in Python, used in SQL like any table.

A sweep is one module in `tracekit/characterize/sweeps/` with an object named `SWEEP`. A query that names it in
its SQL finds its rows there, be it a shipped one or a user's own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pkgutil import iter_modules
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    import duckdb
    import polars as pl

    from tracekit.answer import AnswerColumn, Param
    from tracekit.characterize.query import Query

__all__ = ["Sweep", "Swept", "all_sweeps", "sweeps_in"]


@dataclass(frozen=True)
class Swept:
    """What a sweep gave."""

    frame: pl.DataFrame
    notes: tuple[str, ...] = ()
    """Choices it made and what it left out, one sentence each; shown with every result that uses it."""


@dataclass(frozen=True)
class Sweep:
    """A relation computed in Python."""

    name: str
    """What SQL calls it."""
    title: str
    tables: tuple[str, ...]
    """Tables that the Trace must have."""
    columns: tuple[AnswerColumn, ...]
    rule: str
    """Formula, what is in and out, and the source, as free text."""
    compute: Callable[[duckdb.DuckDBPyConnection, Mapping[str, int | float | str]], Swept]
    """Given a connection with the tables and the shared views, and the value of each parameter."""
    also: tuple[str, ...] = ()
    """Tables that are read where the Trace has them, and are empty where it has not."""
    params: tuple[Param, ...] = ()
    """A query may declare one of them too, with a default of its own."""


@cache
def all_sweeps() -> dict[str, Sweep]:
    """Return every sweep by name, in alphabetical order."""
    package = import_module("tracekit.characterize.sweeps")
    modules = [import_module(f"{package.__name__}.{m.name}") for m in iter_modules(package.__path__)]
    found = [module.SWEEP for module in modules if hasattr(module, "SWEEP")]
    return {sweep.name: sweep for sweep in sorted(found, key=lambda s: s.name)}


def sweeps_in(query: Query) -> tuple[Sweep, ...]:
    """Return the sweeps that the SQL of a query names."""
    code = re.sub(r"--[^\n]*", "", query.sql)
    words = set(re.findall(r"\w+", code))
    return tuple(sweep for name, sweep in all_sweeps().items() if name in words)
