"""Traces as earlier versions of tracekit wrote them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["LATER", "as_version_1"]

LATER = ("account", "partition", "qos", "eligible_time")
"""Columns of jobs that schema version 2 brought."""


def as_version_1(folder: Path) -> None:
    """Turn the Trace in a folder into one of schema version 1."""
    manifest = folder / "manifest.json"
    raw = json.loads(manifest.read_bytes())
    raw["schema_version"] = "1"
    if "jobs" in raw["tables"]:
        jobs = folder / "jobs.parquet"
        pl.read_parquet(jobs).drop(LATER).write_parquet(jobs)
        raw["tables"]["jobs"]["columns"] = [c for c in raw["tables"]["jobs"]["columns"] if c not in LATER]
        raw["tables"]["jobs"]["sha256"] = None
    manifest.write_text(json.dumps(raw))
