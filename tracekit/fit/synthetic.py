"""What every synthetic Trace has besides its jobs: machines and quotas, and a manifest that says what is not drawn."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from tracekit import schema
from tracekit.errors import UsageError
from tracekit.manifest import CAPABILITIES, Capability, Manifest
from tracekit.version import __version__

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracekit.fit.arrays import Whole


MOST_JOBS = 200_000_000
"""Most jobs of a synthetic Trace."""

LONGEST_DAYS = 36_500.0
"""Most days that a synthetic Trace may span, or a log whose arrivals are fitted: the work grows with its hours."""


@dataclass(frozen=True)
class Extent:
    """How large a synthetic Trace is to be.

    Raises
    ------
    UsageError
        A number cannot be used, or not exactly one of `jobs` and `days` is given.
    """

    jobs: int | None
    days: float | None
    seed: int
    scale_load: float
    """Factor on the arrivals."""
    scale_gpus: float
    """Factor on machines and quotas."""

    def __post_init__(self) -> None:
        if (self.jobs is None) == (self.days is None):
            raise UsageError("give either --jobs or --days", hint="for example --jobs 10000")
        if self.jobs is not None and not 1 <= self.jobs <= MOST_JOBS:
            raise UsageError(f"must be from 1 to {MOST_JOBS:,}, not {self.jobs}", where="--jobs")
        if self.days is not None and not (math.isfinite(self.days) and 0 < self.days <= LONGEST_DAYS):
            raise UsageError(f"must be above 0 and at most {LONGEST_DAYS:,.0f}, not {self.days:g}", where="--days")
        if self.seed < 0:
            raise UsageError(f"must be at least 0, not {self.seed}", where="--seed")
        for name, factor in (("scale-load", self.scale_load), ("scale-gpus", self.scale_gpus)):
            if not (math.isfinite(factor) and 0 < factor <= 1e6):
                raise UsageError(f"must be above 0 and at most 1,000,000, not {factor:g}", where=f"--{name}")

    def options(self, **others: str) -> dict[str, str]:
        """Return the options for the manifest."""
        found = {"jobs": self.jobs, "days": self.days, "seed": self.seed, **others}
        found |= {"scale_load": self.scale_load, "scale_gpus": self.scale_gpus}
        return {k: f"{v:g}" if isinstance(v, float) else str(v) for k, v in found.items() if v is not None}


def check_any(jobs: int) -> None:
    """Check that there is a job.

    Raises
    ------
    UsageError
        There is none.
    """
    if not jobs:
        raise UsageError("no job arrives in such a short time", where="--days", hint="ask for more days")


def whole_parts(counts: list[int], factor: float) -> Whole:
    """Return counts scaled to whole numbers, with running sums that are off by at most a half."""
    total = np.floor(np.cumsum(counts) * factor + 0.5).astype(np.int64)
    return np.diff(total, prepend=0)


def node_table(cluster: Mapping[str, Any], factor: float) -> pl.DataFrame:
    """Return the machines of `fit_cluster`, as many times as the factor says."""
    kinds = cluster["nodes"]
    times = whole_parts([k["nodes"] for k in kinds], factor)
    keys = ("cluster", "vc", "gpu_count", "gpu_model", "gpu_memory_gib", "cpu_count", "memory_gib")
    spec = schema.common("nodes").polars
    frame = pl.DataFrame(
        [tuple(k[n] for n in keys) for k in kinds], schema={n: spec[n] for n in keys}, orient="row", strict=False
    )
    nodes = frame[np.repeat(np.arange(len(kinds)), times)]
    return nodes.with_row_index("number", 1).with_columns(pl.format("n{}", "number").alias("node_id")).drop("number")


def capacity_table(cluster: Mapping[str, Any], start_us: int, factor: float) -> pl.DataFrame:
    """Return the quotas of `fit_cluster`, times a factor, from a moment on."""
    rows = cluster["capacity"]
    return pl.DataFrame(
        {
            "time": pl.Series([start_us] * len(rows), dtype=pl.Int64).cast(pl.Datetime("us")),
            "cluster": pl.Series([r["cluster"] for r in rows], dtype=pl.String),
            "vc": pl.Series([r["vc"] for r in rows], dtype=pl.String),
            "gpu_count": pl.Series([float(math.floor(r["gpu_count"] * factor + 0.5)) for r in rows], dtype=pl.Float64),
        }
    )


def synthetic_manifest(
    has: Mapping[str, bool], *, relative: bool, timezone: str, created: str, origin: str, absent: str
) -> Manifest:
    """Return the manifest of a synthetic Trace, without its tables and options.

    Parameters
    ----------
    has : mapping
        Capabilities that it may have, and whether it does.
    relative : bool
        Whether times have no date.
    created : str
        When that was made from which it is drawn, so that the same source gives the same bytes.
    origin : str
        What it is drawn from, one sentence.
    absent : str
        Why other capabilities are missing.
    """
    notes = {"queueing": "a synthetic Trace has no queue times before it is replayed"}
    return Manifest(
        format="generate",
        files=[],
        tracekit_version=__version__,
        schema_version=schema.SCHEMA_VERSION,
        time_base="relative" if relative else "shifted",
        timezone=timezone,
        created=created,
        capabilities={
            name: Capability(available=has.get(name, False), note=notes.get(name, "" if has.get(name) else absent))
            for name in CAPABILITIES
        },
        notes=[origin],
    )
