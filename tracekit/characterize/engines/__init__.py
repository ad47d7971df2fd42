"""Engines: what answers the SQL of a query. DuckDB is the default, and what every other one is compared with."""

from __future__ import annotations

from tracekit.characterize.engines.choice import engine_of
from tracekit.characterize.engines.interface import Asked, Engine

__all__ = ["Asked", "Engine", "engine_of"]
