"""Estimate the memory, disk space and CPU time for work on some rows, and announce them before it begins.

An estimate is a line through measured peaks, times `HIGH`. It should be one to four times the actual use. All costs
come from benchmarks/scale.py, which measures peak memory and CPU seconds of whole processes at three sizes. A cost is
the slope, rounded up. tests/test_estimate.py checks the estimates against these figures and against some real
processes.
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
"""Factor by which a memory estimate exceeds the plane through the measurements. It allows for differences between logs
and between releases of DuckDB and Polars."""
SPILL = 1.5
"""Maximum bytes of disk space per byte that DuckDB spills."""
START_MIB = 270.0
"""Memory of a process before the first row, for Python, NumPy, Polars, DuckDB and a query's fixed part [MiB]."""
LONG_S = 10.0
"""Work with at least this CPU time is announced [s]. Users wait this long without wondering."""
ENGINE_ROWS = 2_000_000_000
"""With more rows than this, several machines answer a query faster than one (see docs/scale.md)."""
QUERIES = 20
"""Approximate number of queries that a Trace has the tables for."""


class Cost(NamedTuple):
    """The cost of a row, or of a byte of a raw log."""

    array_bytes: float
    """Memory that is not subject to a limit [bytes]."""
    table_bytes: float
    """Memory of DuckDB, subject to its limit [bytes]."""
    cpu_us: float
    """CPU time [us]."""
    most_mib: float = float("inf")
    """Size at which the arrays stop growing [MiB]."""
    start_mib: float = START_MIB
    """Memory before the first row [MiB]."""
    tables: tuple[str, ...] = ("jobs",)
    """Tables whose rows count, or empty for all tables."""
    sliced: bool = False
    """Whether --from and --to reduce the cost."""


COSTS = {
    # All tables' keys are checked together.
    "validate": Cost(0, 100, 0.5, tables=()),
    "wait": Cost(0, 130, 0.5, tables=("jobs", "attempts"), sliced=True),
    # For GPU use: efficiency, digest.
    "use": Cost(0, 250, 1.3, tables=("jobs", "attempts", "placements", "gpu_utilization", "job_usage"), sliced=True),
    "replay": Cost(430, 0, 4, sliced=True),
    "calibrate": Cost(450, 0, 60),
    "fit": Cost(800, 0, 200),
    "generate": Cost(750, 0, 3),
    # Blocks of jobs wait to be written if the CPU is busy elsewhere.
    "export": Cost(0, 700, 5, start_mib=START_MIB + 60),
    "analyze": Cost(1200, 0, 150, start_mib=555),
    # Cost of a byte of a raw log. A few blocks at a time are read, parsed and written, whatever the file size.
    "ingest": Cost(4, 2, 0.03, 400),
}
"""Costs of the commands."""
QUERY = Cost(0, 130, 0.5, tables=(), sliced=True)
"""Cost of a row of jobs, attempts or placements."""
QUERY_COSTS = {
    "failures/by_user": QUERY._replace(table_bytes=20, cpu_us=0.2),
    "queuing/delay_causes": QUERY._replace(cpu_us=2),
    "queuing/expected_wait_backtest": QUERY._replace(array_bytes=850, table_bytes=0, cpu_us=44),
    "utilization/efficiency": QUERY._replace(table_bytes=250, cpu_us=1.3),
    "utilization/jobs_to_look_at": QUERY._replace(table_bytes=250, cpu_us=1.4),
}
"""Costs of queries that need much more or much less than others."""
_SAMPLE = Cost(0, 8, 0.1)
"""Cost of a sample joined with attempts and placements, for which DuckDB uses its whole limit."""
_SAMPLES = frozenset({"gpu_utilization", "node_utilization"})
_INFLATION = 10
"""Approximate factor by which a compressed log grows when decompressed; 5 to 12 for text logs."""
_COMPRESSED = frozenset({".gz", ".bz2", ".xz", ".zst", ".zip", ".tgz"})
_POWERS = {"": 0, "k": 1, "m": 2, "g": 3, "t": 4}
_CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")
"""Files in which Linux records a container's memory limit as a number of bytes or 'max'."""


@dataclass(frozen=True)
class Machine:
    """The machine that a command runs on, with None for unknown values."""

    memory: int | None
    """Memory of the machine, or of the container if it is limited [bytes]."""
    free_disk: int | None
    """Free space in `spill` [bytes]."""
    spill: Path
    """Folder for temporary files."""


def this_machine() -> Machine:
    """Return the memory and disk of this machine."""
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
    """Return a size in DuckDB's notation, such as 2GB (2 * 10^9) or 2GiB (2 * 2^30) [bytes], or None if invalid.

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
    """The resources that some work will need."""

    rows: int
    """Rows in the tables that are read, or 0 if only bytes are known."""
    read: int
    """Size of these tables or files [bytes]."""
    arrays: int
    """Memory that --memory-limit does not limit, for process startup and job arrays [bytes]."""
    tables: int
    """Memory that DuckDB would use [bytes]. The part above its limit spills to disk."""
    cpu_s: float
    """CPU time [s]."""
    sliced: bool = True
    """Whether --from and --to would reduce the work."""
    engine: bool = False
    """Whether --engine spark can do the work."""
    default_limit: int | None = None
    """DuckDB's memory limit if the user gives none, or None for DuckDB's own default (most of the machine's memory)."""

    def limit_of(self, memory_limit: str | None) -> int | None:
        """Return DuckDB's memory limit [bytes], or None if only the machine limits it."""
        return self.default_limit if memory_limit is None else bytes_of(memory_limit)

    def memory(self, limit: int | None) -> int:
        """Return the maximum memory used under a DuckDB limit [bytes]."""
        return self.arrays + (self.tables if limit is None else min(self.tables, limit))

    def disk(self, limit: int | None) -> int:
        """Return the maximum disk space for data that does not fit in memory [bytes]."""
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
    """Return the resources that work on a Trace needs.

    Parameters
    ----------
    manifest : Manifest
    work : str
        A name in COSTS, such as 'replay', or the name of a query with its own cost.
    tables : iterable of str
        Tables that are read, by default those that `work` reads. Tables missing from the Trace do not count.
    limit : int, optional
        Maximum number of jobs used.
    runs, workers : int
        Numbers of runs and of simultaneous processes.
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
    """Return the resources for running all queries one after the other: the largest memory and the total time."""
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
    """Return the resources for reading raw logs, from the size of the files, or None if the files do not exist.

    The size of compressed files counts ten times, because we do not know their content before reading it.
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
    """Return the sentences to show before the work: none for short work, warnings for work that does not fit."""
    limit = need.limit_of(memory_limit)
    memory, disk = need.memory(limit), need.disk(limit)
    rows, long = _counted(need.rows), need.cpu_s >= LONG_S
    fewer = "select fewer days with --from and --to" if need.sliced else ""
    found = []
    if long:
        what = f"{rows} ({size(need.read)})" if need.rows else size(need.read)
        text = f"reads {what}; needs about {size(memory)} of memory"
        if disk:
            room = "" if machine.free_disk is None else f" ({machine.spill} has {size(machine.free_disk)})"
            text += f" and up to {size(disk)} of disk space for data that does not fit{room}"
        found.append(text)
    if long and memory_limit is not None and limit is not None and need.arrays > limit:
        found.append(
            f"--memory-limit {memory_limit} limits DuckDB only; tracekit itself needs about {size(need.arrays)} "
            f"more{'; ' if fewer else ''}{fewer}"
        )
    if machine.memory is not None and memory > machine.memory:
        spilled = "give --memory-limit, so joins spill to disk" if need.tables > need.arrays else ""
        do = ", or ".join(filter(None, (spilled, fewer))) or "use a machine with more memory, or select fewer jobs"
        found.append(f"the work needs about {size(memory)} of memory, more than the {size(machine.memory)} here: {do}")
    if machine.free_disk is not None and disk > machine.free_disk:
        do = ", or ".join(filter(None, ("give a larger --memory-limit", fewer)))
        found.append(
            f"{machine.spill} has {size(machine.free_disk)} free, and up to {size(disk)} may be needed: set TMPDIR to "
            f"a folder on a larger disk, or {do}"
        )
    if need.engine and need.rows >= ENGINE_ROWS:
        found.append(
            f"{rows} will take one machine long; consider --engine spark on several machines (see docs/scale.md "
            "on when that pays off)"
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
