"""What work on so many rows will need - memory, disk, processor time - and the sentences that say it before it begins.

An estimate is a line through measured peaks, times `HIGH`: it shall be above what is used, and below four times that.
Every cost is from benchmarks/scale.py: the slope of peaks and processor seconds of whole processes at three sizes,
rounded up. tests/test_estimate.py holds the estimates to all these figures, and to some processes that it runs.
"""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tracekit.text import size

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tracekit.manifest import Manifest

MIB = 2**20

HIGH = 1.25
"""By how much an estimate of memory is above the plane through what was measured: releases of DuckDB and Polars differ,
and so do logs."""
SPILL = 1.5
"""Bytes of disk for each byte of DuckDB's that has to go there, at most."""
START_MIB = 270.0
"""Memory of a process before the first row: Python, NumPy, Polars, DuckDB, and what a query needs of its own [MiB]."""
LONG_S = 10.0
"""Work of less processor time is not announced [s]: people wait so long without asking what is going on."""
ENGINE_ROWS = 2_000_000_000
"""Rows from which several machines answer a query sooner than one: some minutes of reading (docs/scale.md)."""
QUERIES = 20
"""Of the queries, about so many read a table that a Trace has."""


class Cost(NamedTuple):
    """What a row, or a byte of a raw log, costs."""

    array_bytes: float
    """Memory that no limit bounds [bytes]."""
    table_bytes: float
    """Memory of DuckDB, which its limit bounds [bytes]."""
    cpu_us: float
    """Processor time [us]."""
    most_mib: float = float("inf")
    """Where the arrays stop growing [MiB]."""
    start_mib: float = START_MIB
    """Memory before the first row [MiB]."""
    tables: tuple[str, ...] = ("jobs",)
    """Tables whose rows count; all if there are none here."""
    sliced: bool = False
    """Whether --from and --to make it less."""


COSTS = {
    # The keys of all tables are looked at together.
    "validate": Cost(0, 100, 0.5, tables=()),
    "wait": Cost(0, 130, 0.5, tables=("jobs", "attempts"), sliced=True),
    # How GPUs were used: efficiency, digest.
    "use": Cost(0, 250, 1.3, tables=("jobs", "attempts", "placements", "gpu_utilization", "job_usage"), sliced=True),
    "replay": Cost(430, 0, 4, sliced=True),
    "calibrate": Cost(450, 0, 60),
    "fit": Cost(800, 0, 200),
    "generate": Cost(750, 0, 3),
    # Blocks of jobs wait to be written where the processor is busy elsewhere.
    "export": Cost(0, 700, 5, start_mib=START_MIB + 60),
    "analyze": Cost(1200, 0, 150, start_mib=555),
    # A byte of a raw log: blocks are read, parsed and written a few at a time, whatever the size of the file.
    "ingest": Cost(4, 2, 0.03, 400),
}
"""Work of commands."""
QUERY = Cost(0, 130, 0.5, tables=(), sliced=True)
"""A row of jobs, attempts or placements."""
QUERY_COSTS = {
    "failures/by_user": QUERY._replace(table_bytes=20, cpu_us=0.2),
    "queuing/delay_causes": QUERY._replace(cpu_us=2),
    "queuing/expected_wait_backtest": QUERY._replace(array_bytes=850, table_bytes=0, cpu_us=28),
    "utilization/efficiency": QUERY._replace(table_bytes=250, cpu_us=1.3),
    "utilization/jobs_to_look_at": QUERY._replace(table_bytes=250, cpu_us=1.4),
}
"""Queries that need much more, or less, than others."""
_SAMPLE = Cost(0, 8, 0.1)
"""A sample, joined with attempts and placements. Under a limit DuckDB fills all of it."""
_SAMPLES = frozenset({"gpu_utilization", "node_utilization"})
_INFLATION = 10
"""What a byte of a compressed log becomes, about; text logs come to 5 to 12."""
_COMPRESSED = frozenset({".gz", ".bz2", ".xz", ".zst", ".zip", ".tgz"})
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")
"""Where a container of Linux says how much memory it may use: bytes, or 'max'."""


@dataclass(frozen=True)
class Machine:
    """The machine that a command runs on; None where it does not say."""

    memory: int | None
    """Bytes of memory, those of the container where it is limited."""
    free_disk: int | None
    """Free bytes in `spill`."""
    spill: Path
    """The folder for temporary files."""


def this_machine() -> Machine:
    """Return what this machine has."""
    spill = Path(tempfile.gettempdir())
    try:
        free: int | None = shutil.disk_usage(spill).free
    except OSError:
        free = None
    return Machine(_memory(), free, spill)


def _memory() -> int | None:
    try:
        installed: int | None = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        installed = None
    try:
        allowed = int(_CGROUP_LIMIT.read_text(encoding="ascii"))
    except (OSError, ValueError):
        return installed
    return allowed if installed is None else min(allowed, installed)


def bytes_of(text: str) -> int | None:
    """Return a size as DuckDB reads it, such as 2GB (2 * 10^9) or 2GiB (2 * 2^30) [bytes]; None where it is none.

    Examples
    --------
    >>> bytes_of("2GB"), bytes_of("1.5 GiB"), bytes_of("200 mb"), bytes_of("much")
    (2000000000, 1610612736, 200000000, None)
    """
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?(?:ytes?)?\s*", text.lower())
    if found is None:
        return None
    number, unit, binary = found.groups()
    return round(float(number) * float((1024 if binary else 1000) ** _POWERS[unit]))


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


def need_of(
    manifest: Manifest,
    work: str,
    tables: Iterable[str] = (),
    *,
    limit: int | None = None,
    runs: int = 1,
    workers: int = 1,
) -> Need:
    """Return what work on a Trace needs.

    Parameters
    ----------
    manifest : Manifest
    work : str
        A name of COSTS, such as 'replay'; or the name of a query, if it has one.
    tables : iterable of str
        Tables that are read, those of the work by default; those that the Trace lacks count nothing.
    limit : int, optional
        Most jobs that are taken.
    runs, workers : int
        How often it is done, and in how many processes at a time.
    """
    cost = COSTS.get(work) or QUERY_COSTS.get(work, QUERY)
    names = set(tables or cost.tables or manifest.tables)
    samples = set() if work == "validate" else names & _SAMPLES
    rows, read = _rows(manifest, names - samples)
    one = _need(cost, rows if limit is None else min(rows, limit), read)
    joined = _need(_SAMPLE, *_rows(manifest, samples))
    return Need(
        rows + joined.rows,
        read + joined.read,
        max(one.arrays, joined.arrays) * workers,
        (one.tables + joined.tables) * workers,
        (one.cpu_s + joined.cpu_s) * runs,
        sliced=cost.sliced,
        engine=work not in COSTS,
    )


def need_of_queries(manifest: Manifest) -> Need:
    """Return what all queries of a Trace need, one after the other: the memory of the largest, the time of all."""
    plain = need_of(manifest, "")
    each = [need_of(manifest, name) for name in QUERY_COSTS]
    return replace(
        plain,
        arrays=max(one.arrays for one in each),
        tables=max(one.tables for one in each),
        cpu_s=QUERIES * plain.cpu_s + sum(one.cpu_s for one in each),
    )


def _need(cost: Cost, rows: int, read: int) -> Need:
    arrays = HIGH * (cost.start_mib * MIB + min(cost.array_bytes * rows, cost.most_mib * MIB))
    return Need(rows, read, round(arrays), round(HIGH * cost.table_bytes * rows), cost.cpu_us * rows / 1e6)


def _rows(manifest: Manifest, tables: Iterable[str]) -> tuple[int, int]:
    found = [manifest.tables[name] for name in tables if name in manifest.tables]
    return sum(table.rows for table in found), sum(table.bytes for table in found)


def need_of_files(source: str | Path) -> Need | None:
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
    return replace(_need(COSTS["ingest"], found, found), rows=0, sliced=False, default_limit=10**9)


def sentences(need: Need, machine: Machine, memory_limit: str | None = None) -> list[str]:
    """Return what to say before the work: nothing where it is short, and warnings where it does not fit."""
    limit = need.limit_of(memory_limit)
    memory, disk = need.memory(limit), need.disk(limit)
    rows, long = _counted(need.rows), need.cpu_s >= LONG_S
    fewer = "take fewer days with --from and --to" if need.sliced else ""
    found = []
    if long:
        what = f"{rows} ({size(need.read)})" if need.rows else size(need.read)
        text = f"reads {what}; needs about {size(memory)} of memory"
        if disk:
            room = "" if machine.free_disk is None else f" ({machine.spill} has {size(machine.free_disk)})"
            text += f" and up to {size(disk)} of disk for what does not fit{room}"
        found.append(text)
    if long and memory_limit is not None and limit is not None and need.arrays > limit:
        found.append(
            f"--memory-limit {memory_limit} bounds joins and sums alone: about {size(need.arrays)} beside them are the "
            f"program and its arrays{'; ' if fewer else ''}{fewer}"
        )
    if machine.memory is not None and memory > machine.memory:
        spilled = "give --memory-limit, so that joins go to disk" if need.tables > need.arrays else ""
        do = ", or ".join(filter(None, (spilled, fewer))) or "use a machine with more, or take fewer jobs"
        found.append(f"about {size(memory)} of memory are more than the {size(machine.memory)} here: {do}")
    if machine.free_disk is not None and disk > machine.free_disk:
        do = ", or ".join(filter(None, ("give a larger --memory-limit", fewer)))
        found.append(
            f"{machine.spill} has {size(machine.free_disk)} free, and up to {size(disk)} may be needed: set TMPDIR to "
            f"a folder on a larger disk, or {do}"
        )
    if need.engine and need.rows >= ENGINE_ROWS:
        found.append(
            f"{rows} are more than one machine answers soon: --engine spark asks several, and docs/scale.md says from "
            "when on that pays"
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
