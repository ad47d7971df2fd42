"""Write a synthetic Trace: jobs, block by block, machines with their failures, and the manifest.

The Trace has no queue times: jobs get a start, an end and a wait only in a replay.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import polars as pl
from scipy import special

from tracekit import schema
from tracekit.errors import UsageError
from tracekit.fit.job_draws import pick
from tracekit.fit.run_times import seeded
from tracekit.fit.splice import drawn_durations, longest_drawn
from tracekit.manifest import CAPABILITIES, Capability, Manifest
from tracekit.progress import Progress
from tracekit.trace_writer import TraceWriter
from tracekit.version import __version__

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from tracekit.array_types import Floats, Ints
    from tracekit.trace import Trace

    Blocks = Callable[[slice, pl.Series], tuple[pl.DataFrame, pl.DataFrame | None]]
    """Makes the rows of jobs and attempts for a range of jobs and their ids."""


MOST_JOBS = 200_000_000
"""Maximum number of jobs in a synthetic Trace."""

LONGEST_DAYS = 36_500.0
"""Maximum length of a synthetic Trace, or of a log with fitted arrivals [days]; the work grows with its hours."""

_BLOCK = 262_144
"""Number of jobs made and written at once."""
_SOURCE = "synthetic"


@dataclass(frozen=True)
class Recipe:
    """The requested size of a synthetic Trace, and the folder it is written to.

    Raises
    ------
    UsageError
        A number is invalid, or both or neither of `jobs` and `days` are given.
    """

    out: Path
    jobs: int | None
    days: float | None
    seed: int = 0
    scale_load: float = 1.0
    """Factor on arrivals."""
    scale_gpus: float = 1.0
    """Factor on machines and quotas."""
    load: float | None = None
    """Load that the jobs should offer (`tracekit.fit.offered_load`), as an alternative to `scale_load`."""
    force: bool = False
    """Whether an existing Trace is replaced."""
    progress: Progress = field(default_factory=Progress)

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

    @property
    def extent(self) -> dict[str, Any]:
        """The size as keyword arguments for the functions that draw arrivals."""
        return {"jobs": self.jobs, "days": self.days, "load": self.scale_load}

    def options(self, way: Mapping[str, str]) -> dict[str, str]:
        """Return the options for the manifest, including those of the method that makes the jobs."""
        found = {"jobs": self.jobs, "days": self.days, "seed": self.seed, **way, "load": self.load}
        found |= {"scale_load": self.scale_load, "scale_gpus": self.scale_gpus}
        return {k: f"{v:g}" if isinstance(v, float) else str(v) for k, v in found.items() if v is not None}


class Source(NamedTuple):
    """Properties that a synthetic Trace inherits from the log or model that its jobs come from."""

    has: Mapping[str, bool]
    """Whether the Trace has each possible capability, except for the capabilities of its machines."""
    cluster: Mapping[str, Any]
    """Result of `fit_cluster`."""
    failures: dict[str, Any] | None
    """See `draw_node_events`."""
    relative: bool
    """Whether times have no date."""
    timezone: str
    created: str
    """Creation time of the source, used because the same source must give the same bytes."""
    absent: str
    """Reasons why other capabilities are missing."""
    notes: tuple[str, ...] = ()

    def manifest(self, origin: str, options: dict[str, str]) -> Manifest:
        """Return the manifest of the synthetic Trace, without its tables."""
        has = {**self.has, "capacity": bool(self.cluster["capacity"]), "nodes": bool(self.cluster["nodes"])}
        notes = {"queueing": "a synthetic Trace has no queue times before it is replayed"}
        return Manifest(
            format="generate",
            files=[],
            tracekit_version=__version__,
            schema_version=schema.SCHEMA_VERSION,
            time_base="relative" if self.relative else "shifted",
            timezone=self.timezone,
            created=self.created,
            capabilities={
                name: Capability(
                    available=has.get(name, False), note=notes.get(name, "" if has.get(name) else self.absent)
                )
                for name in CAPABILITIES
            },
            notes=[origin, *self.notes],
            options=options,
        )


def write_synthetic(
    recipe: Recipe, submit_us: Ints, blocks: Blocks, source: Source, origin: str, way: Mapping[str, str]
) -> Trace:
    """Write a Trace.

    Parameters
    ----------
    recipe : Recipe
    submit_us : array (jobs,)
        Submissions [us since 1970] in increasing order, at least one.
    blocks : callable
        Function that returns the rows of jobs, and of attempts if the Trace has that table, for a range of jobs and
        their ids.
    source : Source
    origin : str
        Sentence for the manifest that names the source of the jobs.
    way : mapping
        Options to record in the manifest in addition to those of the recipe.

    Raises
    ------
    UsageError
        The Trace would have times before year 1 or after year 9999.
    OutputError
        The output folder already exists or cannot be written.
    """
    recipe.progress.stage("writing the Trace")
    manifest = source.manifest(origin, recipe.options(way))
    digits = len(str(submit_us.size))
    with TraceWriter(recipe.out, force=recipe.force) as writer:
        for low in range(0, submit_us.size, _BLOCK):
            part = slice(low, min(low + _BLOCK, submit_us.size))
            ids = pl.Series("job_id", np.arange(part.start, part.stop) + 1).cast(pl.String).str.zfill(digits)
            jobs, attempts = blocks(part, ids)
            writer.write("jobs", jobs)
            if attempts is not None:
                writer.write("attempts", attempts)
        span_us = int(submit_us[0]), int(submit_us[-1]) + 1_000_000
        _write_machines(writer, recipe, source.cluster, source.failures, span_us)
        writer.drain()
        manifest.tables = writer.tables()
        return writer.commit(manifest)


def check_any(jobs: int) -> None:
    """Check that there is at least one job.

    Raises
    ------
    UsageError
        There are no jobs.
    """
    if not jobs:
        raise UsageError("no job arrives in such a short time", where="--days", hint="ask for more days")


def whole_parts(counts: list[int], factor: float) -> Ints:
    """Return the scaled counts as integers whose running sums are off by at most one half."""
    total = np.floor(np.cumsum(counts) * factor + 0.5).astype(np.int64)
    return np.diff(total, prepend=0)


def node_table(cluster: Mapping[str, Any], factor: float) -> pl.DataFrame:
    """Return the machines of `fit_cluster`, with their numbers multiplied by a factor."""
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
    """Return the quotas of `fit_cluster`, multiplied by a factor, valid from a given time."""
    rows = cluster["capacity"]
    return pl.DataFrame(
        {
            "time": pl.Series([start_us] * len(rows), dtype=pl.Int64).cast(pl.Datetime("us")),
            "cluster": pl.Series([r["cluster"] for r in rows], dtype=pl.String),
            "vc": pl.Series([r["vc"] for r in rows], dtype=pl.String),
            "gpu_count": pl.Series([float(math.floor(r["gpu_count"] * factor + 0.5)) for r in rows], dtype=pl.Float64),
        }
    )


def draw_node_events(
    failures: dict[str, Any] | None, nodes: pl.Series, span_us: tuple[int, int], rng: np.random.Generator
) -> pl.DataFrame | None:
    """Draw the failures of machines, or return None if the model has none.

    On each machine, failures with different causes are independent, as fitted, so their times may overlap. A machine
    that fails in the span may return after its end. If no time away is known, it does not return.

    Parameters
    ----------
    failures : dict or None
        The `node_failures` part of workload.json; files written by earlier versions have none.
    nodes : Series
        node_id of each machine.
    span_us : (int, int)
        Beginning and end [us since 1970].
    rng : Generator
    """
    groups = (failures or {}).get("groups") or []
    drawn = [
        part
        for group in groups
        if group["group"] != "all" and group["until_failure"]["chosen"] is not None
        for part in _of_group(group, len(nodes), span_us, rng)
    ]
    if not drawn:
        return None
    begin = span_us[0]
    found = pl.concat(drawn).with_columns(nodes[pl.concat(drawn)["node"].to_numpy()].alias("node_id"))
    times = {name: (begin + (pl.col(name) * 1e6).cast(pl.Int64)).cast(pl.Datetime("us")) for name in ("since", "until")}
    return (
        found.select(
            "node_id",
            times["since"].alias("start_time"),
            times["until"].alias("end_time"),
            "state",
            "cause",
            pl.lit(_SOURCE).alias("source"),
        )
        .unique(["node_id", "start_time", "state", "source"], maintain_order=True)
        .sort("start_time", "node_id", "state")
    )


def _write_machines(
    writer: TraceWriter,
    recipe: Recipe,
    cluster: Mapping[str, Any],
    failures: dict[str, Any] | None,
    span_us: tuple[int, int],
) -> None:
    """Write the machines, their failures and the quotas."""
    nodes = node_table(cluster, recipe.scale_gpus)
    writer.write("nodes", nodes)
    found = draw_node_events(failures, nodes["node_id"], span_us, seeded(recipe.seed, "node events"))
    first, last = span_us
    if found is not None:
        writer.write("node_events", found)
        last = max(last, *found.select(pl.col("start_time", "end_time").max().dt.epoch("us").fill_null(last)).row(0))
    if first < schema.FIRST_US or last > schema.LAST_US:
        raise UsageError("would have times outside the years 1 to 9999", hint="ask for fewer jobs or days")
    writer.write("capacity", capacity_table(cluster, span_us[0], recipe.scale_gpus))


def _of_group(
    group: dict[str, Any], number: int, span_us: tuple[int, int], rng: np.random.Generator
) -> Iterator[pl.DataFrame]:
    """Yield each machine's first failure, then the second failures of machines that failed in the span, and so on."""
    length = (span_us[1] - span_us[0]) / 1e6
    node, now = np.arange(number), np.zeros(number)
    causes, counts = list(group["causes"]), np.array(list(group["causes"].values()), float)
    while node.size:
        since = now + drawn_until_failure(group["until_failure"], np.zeros(node.size), rng)
        inside = since < length
        node, since = node[inside], since[inside]
        until = since + drawn_away(group, node.size, rng)
        cause = pick(counts, rng.random(node.size))
        down = rng.random(node.size) < group["down_share"]
        yield _frame(node, since, until, down, pl.Series(causes, dtype=pl.String)[cause])
        back = np.isfinite(until)
        node, now = node[back], until[back]


def drawn_until_failure(entry: dict[str, Any], age_s: Floats, rng: np.random.Generator) -> Floats:
    """Draw the remaining times to failure of machines that have already worked for some time [s] (n,).

    Parameters
    ----------
    entry : dict
        `until_failure` of a group, with a chosen family: exponential (Weibull with shape 1), Weibull, or a mixture of
        two exponentials.
    age_s : array of float, shape (n,)
        Time for which each machine has worked [s].
    rng : Generator
    """
    p = next(f for f in entry["families"] if f["family"] == entry["chosen"])["parameters"]
    if "scale_2" in p:
        # Each part is memoryless, so the time worked only shows which part a machine probably belongs to.
        odds = np.log(p["weight_2"] / p["weight_1"]) + age_s / p["scale_1"] - age_s / p["scale_2"]
        second = rng.random(age_s.size) < special.expit(odds)
        return rng.standard_exponential(age_s.size) * np.where(second, p["scale_2"], p["scale_1"])
    shape, scale = p.get("c", 1.0), p["scale"]
    # The further cumulative hazard up to the failure is exponential, regardless of the hazard so far.
    used = (age_s / scale) ** shape
    found: Floats = scale * (used + rng.standard_exponential(age_s.size)) ** (1 / shape) - age_s
    return np.maximum(found, 0.0)


def drawn_away(group: dict[str, Any], number: int, rng: np.random.Generator) -> Floats:
    """Draw the times for which machines are away after a failure [s] (n,), or infinity if no end is known."""
    entry = group["away"]
    if entry["drawn_from"] is None:
        return np.full(number, np.inf)
    step = entry["resolution_s"]
    longest = longest_drawn(group["longest_away_s"], entry["n"], entry["right_censored"])
    return np.round(drawn_durations(entry, longest, rng.standard_normal(number)) / step) * step


def _frame(node: Ints, since: Floats, until: Floats, down: Any, cause: pl.Series) -> pl.DataFrame:
    return pl.DataFrame(
        {
            "node": node,
            "since": since,
            "until": pl.Series(np.where(np.isfinite(until), until, np.nan)).fill_nan(None),
            "state": pl.select(pl.when(pl.Series(down)).then(pl.lit("down")).otherwise(pl.lit("drained"))).to_series(),
            "cause": cause,
        }
    )
