"""Read mapping files (TOML), which map a log's columns to the columns of a Trace."""

from __future__ import annotations

from tracekit.ingest.mapping.model import LogMap, load_mapping, template

__all__ = ["LogMap", "load_mapping", "template"]
