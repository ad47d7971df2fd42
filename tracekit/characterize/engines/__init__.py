"""Engines that run the SQL of a query. DuckDB is the default and the reference for the other engines."""

from __future__ import annotations

from tracekit.characterize.engines.duckdb import DuckdbEngine
from tracekit.characterize.engines.interface import Asked, Engine
from tracekit.errors import UsageError, nearest

__all__ = ["ENGINES", "Asked", "Engine", "engine_of"]

ENGINES = ("duckdb", "spark")
"""Names of the engines, the default first."""


def engine_of(engine: Engine | str | None = None, master: str | None = None) -> Engine:
    """Return the engine with this name, or `engine` itself; DuckDB by default.

    Parameters
    ----------
    engine : Engine or str, optional
        'duckdb', 'spark', or an Engine.
    master : str, optional
        The Spark master, such as 'spark://host:7077', 'yarn' or 'local[4]'; by default all processors of this
        machine.

    Raises
    ------
    UsageError
        The engine does not exist or does not take a master.
    """
    if isinstance(engine, Engine):
        return engine
    name = engine or ENGINES[0]
    if name not in ENGINES:
        raise UsageError(f"there is no engine '{name}'", where="--engine", hint=nearest(name, ENGINES))
    if name == "spark":
        from tracekit.characterize.engines.spark import SparkEngine

        return SparkEngine(master)
    if master is not None:
        raise UsageError("works only with Spark", where="--master", hint="add --engine spark")
    return DuckdbEngine()
