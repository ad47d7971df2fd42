"""The data-quality section of a report: which records were read, set aside, contradictory or unknown."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, cast

import polars as pl

from tracekit.text import cut

if TYPE_CHECKING:
    from tracekit.report.structure import FileInfo, Quality, RejectInfo
    from tracekit.trace import Trace

FILE_LIMIT = 200
"""Maximum number of source files listed. A trace may have one file per node and day."""

EXAMPLES = 3
"""Number of examples shown for each reason and check."""


def quality(trace: Trace) -> Quality:
    """Return the record counts, rejects by reason, checks and capabilities of a Trace."""
    manifest = trace.manifest
    # Files with rejected records come first, because not all files may fit.
    files = sorted(manifest.files, key=lambda f: (f.rejected == 0, f.path))[:FILE_LIMIT]
    checks = sorted(manifest.checks.items(), key=lambda item: (item[1].count == 0, -item[1].count, item[0]))
    capabilities = sorted(manifest.capabilities.items(), key=lambda item: (not item[1].available, item[0]))
    return {
        "files": [cast("FileInfo", {**asdict(f), "path": cut(f.path)}) for f in files],
        "file_count": len(manifest.files),
        "records": manifest.records,
        "kept": sum(f.kept for f in manifest.files),
        "rejected": manifest.rejected,
        "rejects": _rejects(trace),
        "checks": [
            {
                "name": name,
                "count": check.count,
                "of": check.of,
                "meaning": cut(check.meaning, 2000),
                "examples": [cut(e) for e in check.examples[:EXAMPLES]],
            }
            for name, check in checks
        ],
        "capabilities": [
            {
                "name": name,
                "available": can.available,
                "coverage": can.coverage,
                "window": None if can.window is None else list(can.window),
                "note": cut(can.note, 2000),
            }
            for name, can in capabilities
        ],
        "notes": [cut(n, 2000) for n in manifest.notes],
    }


def _rejects(trace: Trace) -> list[RejectInfo]:
    if not trace.has("rejects"):
        return []
    file = pl.col("source_file").str.slice(0, 200)
    place = pl.coalesce(pl.format("{}, line {}", file, pl.col("line")), file)
    # The raw record may have any length.
    example = pl.concat_str(place, pl.lit(": "), pl.col("raw").fill_null("").str.slice(0, 400))
    rows = (
        trace.scan("rejects")
        .group_by(pl.col("column").str.slice(0, 100), pl.col("reason").str.slice(0, 400))
        .agg(pl.len().alias("count"), example.head(EXAMPLES).alias("examples"))
        .sort("count", "column", "reason", descending=[True, False, False])
        .head(FILE_LIMIT)
        .collect(engine="streaming")
    )
    return [
        cast("RejectInfo", {**row, "reason": cut(row["reason"]), "examples": [cut(e) for e in row["examples"]]})
        for row in rows.iter_rows(named=True)
    ]
