"""Read mapping files (TOML), which say which columns of a log fill which columns of a Trace."""

from __future__ import annotations

from tracekit.ingest.mapping.model import LogMap, load_mapping, template

__all__ = ["LogMap", "load_mapping", "template"]
