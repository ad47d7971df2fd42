"""The mapping file: a TOML text that says which column of an operator's log is which column of a Trace."""

from __future__ import annotations

from tracekit.ingest.mapping.model import LogMap, load_mapping, template

__all__ = ["LogMap", "load_mapping", "template"]
