"""Traces in the form that earlier versions of tracekit wrote."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import polars as pl

from tracekit import schema

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["LATER", "as_version_1"]

LATER = tuple(c.name for c in schema.common("jobs").columns if c.since > 1)
"""Columns of jobs that schema version 1 did not have."""


def as_version_1(folder: Path) -> None:
    """Convert the Trace in a folder to schema version 1."""
    manifest = folder / "manifest.json"
    raw = json.loads(manifest.read_bytes())
    raw["schema_version"] = "1"
    for name, info in raw["tables"].items():
        later = [c.name for c in schema.common(name).columns if c.since > 1]
        if later:
            table = folder / f"{name}.parquet"
            pl.read_parquet(table).drop(later).write_parquet(table)
            info["columns"] = [c for c in info["columns"] if c not in later]
            info["sha256"] = None
    manifest.write_text(json.dumps(raw))
