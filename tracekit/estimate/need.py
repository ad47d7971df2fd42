"""What work on so many rows needs, and the sentences that say it.

An estimate is a plane through measured peaks, times `HIGH`: it shall be above what is used, and below four times that.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tracekit.estimate.costs import COSTS, HIGH, MIB, QUERIES, SLOW_QUERIES, SPILL, START_MIB
from tracekit.estimate.machine import bytes_of
from tracekit.text import size

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tracekit.estimate.machine import Machine
    from tracekit.manifest import Manifest

__all__ = ["ENGINE_ROWS", "LONG_S", "Need", "of_all_queries", "of_files", "of_jobs", "of_query", "sentences"]

LONG_S = 10.0
"""Work of less processor time is not announced [s]: people wait so long without asking what is going on."""

ENGINE_ROWS = 2_000_000_000
"""Rows from which several machines answer a query sooner than one: some minutes of reading (docs/scale.md)."""

_SAMPLES = ("gpu_utilization", "node_utilization")
_INFLATION = 10
"""What a byte of a compressed log becomes, about; text logs come to 5 to 12."""
_COMPRESSED = (".gz", ".bz2", ".xz", ".zst", ".zip", ".tgz")


@dataclass(frozen=True)
class Need:
    """What some work will need."""

    rows: int
    """Rows of the tables that are read; 0 where only bytes are known."""
    read: int
    """Bytes of these tables, or of the files."""
    arrays: int
    """Bytes of memory that no --memory-limit bounds: the start of the process, arrays of jobs."""
    tables: int
    """Bytes that DuckDB would take; what exceeds its limit goes to disk."""
    cpu_s: float
    """Processor time [s]."""
    limited: bool = True
    """Whether the command has a --memory-limit."""
    sliced: bool = True
    """Whether --from and --to would make it less."""
    engine: bool = False
    """Whether --engine spark can do it."""
    default_limit: int | None = None
    """Most memory of DuckDB where no limit is given; its own default, most of the machine, when None."""

    def limit_of(self, memory_limit: str | None) -> int | None:
        """Return the limit of DuckDB's memory [bytes]; None where the machine is the limit."""
        return self.default_limit if memory_limit is None else bytes_of(memory_limit)

    def memory(self, limit: int | None) -> int:
        """Return the most memory used under a limit of DuckDB [bytes]."""
        return self.arrays + (self.tables if limit is None else min(self.tables, limit))

    def disk(self, limit: int | None) -> int:
        """Return the most disk for what does not fit [bytes]."""
        return 0 if limit is None or self.tables <= limit else round(self.tables * SPILL)


def _need(kind: str, rows: int, read: int, cpu_s: float | None = None, **more: bool) -> Need:
    cost = COSTS[kind]
    return Need(
        rows,
        read,
        round(HIGH * (START_MIB * MIB + cost.array_bytes * rows)),
        round(HIGH * cost.table_bytes * rows),
        cost.cpu_us * rows / 1e6 if cpu_s is None else cpu_s,
        **more,
    )


def _rows(manifest: Manifest, tables: Iterable[str]) -> tuple[int, int]:
    found = [manifest.tables[name] for name in dict.fromkeys(tables) if name in manifest.tables]
    return sum(table.rows for table in found), sum(table.bytes for table in found)


def of_query(manifest: Manifest, tables: Iterable[str], name: str = "", *, engine: bool = True) -> Need:
    """Return what a query needs that reads these tables of a Trace.

    Parameters
    ----------
    tables : iterable of str
        What it reads, timelines included; those that the Trace does not have count nothing.
    name : str
        Of the query, for those that take much longer than others.
    engine : bool
        Whether it can be asked of another engine.
    """
    names = set(tables)
    samples, sample_bytes = _rows(manifest, names.intersection(_SAMPLES))
    others, other_bytes = _rows(manifest, names.difference(_SAMPLES))
    of_samples, of_others = _need("samples", samples, sample_bytes), _need("query", others, other_bytes)
    slow_s = SLOW_QUERIES.get(name, 0.0) * others / 1e6
    return Need(
        samples + others,
        sample_bytes + other_bytes,
        of_samples.arrays + of_others.arrays - round(HIGH * START_MIB * MIB),
        of_samples.tables + of_others.tables,
        of_samples.cpu_s + of_others.cpu_s + slow_s,
        engine=engine,
    )


def of_all_queries(manifest: Manifest) -> Need:
    """Return what all queries of a Trace need, one after the other: the memory of the largest, the time of all."""
    return replace(
        of_query(manifest, manifest.tables, engine=True),
        cpu_s=sum(
            cost.cpu_us * QUERIES * _rows(manifest, names)[0] / 1e6
            for cost, names in (
                (COSTS["query"], set(manifest.tables).difference(_SAMPLES)),
                (COSTS["samples"], _SAMPLES),
            )
        ),
    )


def of_jobs(
    manifest: Manifest, kind: str, *, limit: int | None = None, runs: int = 1, workers: int = 1, limited: bool = False
) -> Need:
    """Return what work on the jobs of a Trace needs.

    Parameters
    ----------
    kind : str
        A name of `costs.COSTS`, such as 'replay'.
    limit : int, optional
        Most jobs that are taken.
    runs, workers : int
        How often it is done, and in how many processes at a time.
    limited : bool
        Whether the command has a --memory-limit.
    """
    rows, read = _rows(manifest, ("jobs",))
    taken = rows if limit is None else min(rows, limit)
    one = _need(kind, taken, read, limited=limited)
    return Need(
        rows,
        read,
        one.arrays * workers,
        one.tables * workers,
        one.cpu_s * runs,
        limited=limited,
        sliced=kind == "replay",
    )


def of_files(source: str | Path) -> Need | None:
    """Return what reading raw logs needs, by the size of the files; None where there are no such files.

    Compressed ones count ten times: what they hold is known when they have been read.
    """
    place = Path(source)
    found = 0
    try:
        walk = (Path(folder) / name for folder, _, names in os.walk(place) for name in names)
        for path in walk if place.is_dir() else [place]:
            found += path.stat().st_size * (_INFLATION if path.suffix.lower() in _COMPRESSED else 1)
    except OSError:
        return None
    cost = COSTS["ingest"]
    arrays = HIGH * (START_MIB * MIB + min(cost.array_bytes * found, cost.most_mib * MIB))
    return Need(
        0, found, round(arrays), round(HIGH * cost.table_bytes * found), cost.cpu_us * found / 1e6, sliced=False,
        default_limit=10**9,
    )  # fmt: skip


def sentences(need: Need, machine: Machine, memory_limit: str | None = None) -> list[str]:
    """Return what to say before the work: nothing where it is short, and warnings where it does not fit."""
    limit = need.limit_of(memory_limit)
    memory, disk = need.memory(limit), need.disk(limit)
    found = []
    if need.cpu_s >= LONG_S:
        what = f"{_counted(need.rows)} ({size(need.read)})" if need.rows else size(need.read)
        text = f"reads {what}; needs about {size(memory)} of memory"
        if disk:
            room = "" if machine.free_disk is None else f" ({machine.spill} has {size(machine.free_disk)})"
            text += f" and up to {size(disk)} of disk for what does not fit{room}"
        found.append(text)
    found += _warnings(need, machine, memory_limit, memory, disk)
    if need.engine and need.rows >= ENGINE_ROWS:
        found.append(
            f"{_counted(need.rows)} are more than one machine answers soon: --engine spark asks several, and "
            "docs/scale.md says from when on that pays"
        )
    return found


def _warnings(need: Need, machine: Machine, memory_limit: str | None, memory: int, disk: int) -> list[str]:
    fewer = ", or take fewer days with --from and --to" if need.sliced else ""
    found = []
    limit = None if memory_limit is None else bytes_of(memory_limit)
    if limit is not None and need.cpu_s >= LONG_S and need.arrays > limit:
        found.append(
            f"--memory-limit {memory_limit} bounds joins alone: about {size(need.arrays)} beside them are the program "
            f"and its arrays{fewer.replace(', or take', '; take')}"
        )
    if machine.memory is not None and memory > machine.memory:
        do = "give --memory-limit, so that joins go to disk" if need.limited and need.tables > need.arrays else ""
        do = f"{do}{fewer}" if do else fewer.removeprefix(", or ") or "use a machine with more, or fewer jobs"
        found.append(f"about {size(memory)} of memory are more than the {size(machine.memory)} here: {do}")
    if machine.free_disk is not None and disk > machine.free_disk:
        found.append(
            f"{machine.spill} has {size(machine.free_disk)} free, and up to {size(disk)} may be needed: set TMPDIR to "
            f"a folder on a larger disk, or give a larger --memory-limit{fewer}"
        )
    return found


def _counted(rows: int) -> str:
    """Return a number of rows in words.

    Examples
    --------
    >>> _counted(812_345), _counted(45_000_000), _counted(10_200_000_000)
    ('812,345 rows', '45 million rows', '10.2 billion rows')
    """
    for unit, name in ((1e9, "billion"), (1e6, "million")):
        if rows >= unit:
            return f"{rows / unit:.3g} {name} rows"
    return f"{rows:,} rows"
