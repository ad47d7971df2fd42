"""Compute growth exponents from the figures of scale.py, and estimate the time for larger data on more machines.

    python benchmarks/scale_model.py [--price 1.0] [--cores 16] [--network-mb 1000] [--disk-mb 1000] [--docs]

An exponent b is defined by seconds ~ size^b and fitted by least squares in logarithms, after subtracting the startup,
which is the time of the same work at the smallest size. Values for sizes that were not measured are extrapolations and
marked as such. In the model, a machine runs as many tasks at a time as it has cores, each as fast as on the measured
machine, and tasks share only the machine's network and disk. --docs writes the tables into docs/scale.md.
"""

from __future__ import annotations

import argparse
import heapq
import json
import math
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

ROOT = Path(__file__).parent.parent
FIGURES = Path(__file__).with_name("scale.json")
PAGE = ROOT / "docs" / "scale.md"
END = "<!-- end -->"

_LEAST_S = 0.05
"""Shortest time beyond the startup that can be distinguished from noise [s]."""
MACHINES = (1, 10, 30, 100)
JOBS, SAMPLES = 10**8, 10**10
_MIB, _GB = 2**20, 1e9


@dataclass(frozen=True)
class Prices:
    """Assumptions about the machines."""

    hour: float = 1.0
    """Price per machine and hour, in any currency."""
    cores: int = 16
    network: float = 1e9
    """Rate at which a machine reads from the store or from other machines [B/s]."""
    disk: float = 1e9
    """Rate at which a machine writes [B/s]."""


class Growth(NamedTuple):
    """How the time of some work grows with its size."""

    sizes: tuple[int, ...]
    seconds: tuple[float, ...]
    """Time beyond the startup, by size [s]."""
    peak_mib: tuple[float, ...]
    start_s: float
    start_mib: float
    exponent: float | None
    """The growth exponent, or None if two or more of the times are too short to use."""

    def seconds_at(self, size: float) -> float:
        """Return the time at a size, extrapolated from the largest size with the exponent (1 if unknown) [s]."""
        return self.seconds[-1] * math.pow(size / self.sizes[-1], 1.0 if self.exponent is None else self.exponent)

    @property
    def bytes_a_row(self) -> float:
        """Memory beyond the startup, divided by the largest size [bytes]."""
        return max(self.peak_mib[-1] - self.start_mib, 0) * _MIB / self.sizes[-1]


def exponent(sizes: Sequence[float], seconds: Sequence[float]) -> float | None:
    """Return the least-squares slope of log(seconds) over log(size), or None with fewer than two usable times.

    Examples
    --------
    >>> round(exponent([1e5, 1e6, 1e7], [1, 10, 100]), 6), round(exponent([1, 10, 100], [3, 3, 3]), 6)
    (1.0, 0.0)
    """
    pairs = [(math.log(n), math.log(s)) for n, s in zip(sizes, seconds, strict=True) if s >= _LEAST_S]
    if len(pairs) < 2:
        return None
    x, y = (sum(values) / len(pairs) for values in zip(*pairs, strict=True))
    return float(sum((a - x) * (b - y) for a, b in pairs) / sum((a - x) * (a - x) for a, _ in pairs))


def growth_of(rows: Iterable[dict[str, Any]], case: str, what: str) -> Growth:
    """Return the growth of a measured item, whose smallest size gives the startup."""
    found = sorted((r for r in rows if r["case"] == case and r["what"] == what), key=lambda r: int(r["size"]))
    start, larger = found[0], found[1:]
    sizes = tuple(int(r["size"]) for r in larger)
    seconds = tuple(round(max(r["cpu_s"] - start["cpu_s"], 0.0), 3) for r in larger)
    peaks = tuple(float(r["peak_mib"]) for r in larger)
    return Growth(sizes, seconds, peaks, start["cpu_s"], start["peak_mib"], exponent(sizes, seconds))


def makespan(tasks: Iterable[float], slots: int) -> float:
    """Return when the last task ends if each task in turn is assigned to the first free slot [s].

    Examples
    --------
    >>> makespan([3, 3, 2, 2, 2], 2), makespan([5], 10), makespan([], 3)
    (7, 5, 0)
    """
    free: list[float] = [0] * slots
    last: float = 0
    for task in tasks:
        ends = heapq.heappop(free) + task
        heapq.heappush(free, ends)
        last = max(last, ends)
    return last


def bound(tasks: Sequence[float], slots: int) -> float:
    """Return an upper bound for any order of these tasks: sum / slots + longest (Graham 1969) [s]."""
    return sum(tasks) / slots + max(tasks, default=0)


class Work(NamedTuple):
    """Work to do on many machines."""

    name: str
    tasks: list[float]
    """Processor seconds of each part on one core, including the startup."""
    read: float
    """Total bytes read from the store."""
    written: float
    """Total bytes written to the store."""
    shuffled: float
    """Bytes sent between machines."""


def hours_of(work: Work, machines: int, prices: Prices) -> tuple[float, float, str]:
    """Return the hours that work takes on a number of machines, the bound for its tasks, and its bottleneck.

    Reading, writing and transfers overlap with the tasks, so the slowest of these determines the time.
    """
    computing = makespan(work.tasks, machines * prices.cores)
    moved = (work.read + (work.shuffled if machines > 1 else 0)) / (machines * prices.network)
    stored = (work.written + (work.shuffled if machines > 1 else 0)) / (machines * prices.disk)
    longest = max((computing, "processor"), (moved, "network"), (stored, "disk"))
    return longest[0] / 3600, max(bound(work.tasks, machines * prices.cores), moved, stored) / 3600, longest[1]


def per_size(rows: list[dict[str, Any]]) -> dict[str, float]:
    """Return the bytes per job and per sample in raw files, in the Trace, and in memory during ingest or replay."""
    found: dict[str, float] = {}
    for case, name in (("jobs", "job"), ("telemetry", "sample")):
        largest = max((r for r in rows if r["case"] == case and r["what"] == "ingest"), key=lambda r: int(r["size"]))
        found[f"{name}_raw"] = largest["raw_bytes"] / largest["size"]
        found[f"{name}_trace"] = largest["trace_bytes"] / largest["size"]
        if case == "telemetry":
            samples, stored = largest["tables"]["gpu_utilization"]
            found["sample_trace"] = stored / samples
    return found


def works(figures: dict[str, Any]) -> list[Work]:
    """Return the work that the page shows for 10^8 jobs and 10^10 samples, estimated from the measurements."""
    rows = figures["rows"]
    each = per_size(rows)
    # Each daily file has the largest size measured, so only the number of files is extrapolated.
    ingest = growth_of(rows, "telemetry", "ingest")
    days = SAMPLES // ingest.sizes[-1]
    joined = [r["what"] for r in rows if r["case"] == "telemetry" and r["size"] == ingest.sizes[-1]]
    joined = [name for name in joined if name.startswith("query ") and "," not in name]
    merged = 64 * 100_000 * days
    found = [
        Work(
            f"ingest of 10^10 samples, {days} files of 10^8",
            [ingest.start_s + ingest.seconds[-1]] * days,
            SAMPLES * each["sample_raw"],
            SAMPLES * each["sample_trace"],
            0,
        )
    ]
    growths = [growth_of(rows, "telemetry", name) for name in joined]
    slowest = max(growths, key=lambda g: g.seconds[-1])
    found.append(
        Work(
            "a query that joins 10^10 samples, by day",
            [slowest.start_s + slowest.seconds[-1]] * days,
            SAMPLES * each["sample_trace"],
            0,
            merged,
        )
    )
    queries = job_queries(rows)
    largest = queries[next(iter(queries))].sizes[-1]
    parts = -(-JOBS // largest)
    found.append(
        Work(
            f"all queries of 10^8 jobs, {parts} parts by cluster and time",
            [g.start_s + g.seconds[-1] for g in queries.values() for _ in range(parts)],
            JOBS * each["job_trace"] * len(queries),
            0,
            JOBS * 16 * len(queries),
        )
    )
    fifo, srtf, easy = (growth_of(rows, "policies", name) for name in ("fifo", "srtf", "easy"))
    mixed = [g.start_s + g.seconds[0] for g in (fifo, srtf, easy)]
    found.append(
        Work(
            "a sweep of 10^5 replays of 10^5 jobs, the engine alone: fifo, srtf, easy",
            mixed * 33_334,
            10**5 * each["job_trace"] * 10,
            10**5 * 20_000,
            0,
        )
    )
    for name, growth in (("fifo", fifo), ("srtf", srtf), ("easy", easy)):
        found.append(
            Work(
                f"one replay of 10^8 jobs of one cluster, {name}",
                [growth.seconds_at(JOBS)],
                JOBS * each["job_trace"],
                0,
                0,
            )
        )
    return found


def job_queries(rows: list[dict[str, Any]]) -> dict[str, Growth]:
    """Return the growth of each job log query that was measured at all sizes."""
    names = dict.fromkeys(r["what"] for r in rows if r["case"] == "jobs" and r["what"].startswith("query "))
    found = {name: growth_of(rows, "jobs", name) for name in names if "," not in name}
    most = max(len(g.sizes) for g in found.values())
    return {name: g for name, g in found.items() if len(g.sizes) == most}


def _power(number: int) -> str:
    """Return a size in readable form, such as 10^5 or 3 * 10^6."""
    digits = int(math.log10(number))
    head = number // 10**digits
    return (f"{head} * " if head > 1 else "") + f"10^{digits}"


def _seconds(value: float) -> str:
    return f"{value:.2f}" if value < 10 else f"{value:,.0f}"


def _exponent(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def growth_table(names: Sequence[tuple[str, Growth]]) -> list[str]:
    """Return a table of times by size, with exponents and memory."""
    sizes = names[0][1].sizes
    heads = [*(f"s at {_power(n)}" for n in sizes), "exponent", *(f"MiB at {_power(n)}" for n in sizes), "start"]
    lines = ["| | " + " | ".join(heads) + " |", "|---|" + "---|" * len(heads)]
    for name, g in names:
        cells = [_seconds(s) for s in g.seconds] + [_exponent(g.exponent)] + [f"{m:,.0f}" for m in g.peak_mib]
        cells.append(f"{_seconds(g.start_s)} s, {g.start_mib:,.0f} MiB")
        lines.append(f"| {name} | " + " | ".join(cells) + " |")
    return lines


def tables(figures: dict[str, Any], prices: Prices) -> dict[str, list[str]]:
    """Return each table's lines on the page, by table name."""
    rows = figures["rows"]
    by_case: dict[str, list[str]] = {}
    for row in rows:
        by_case.setdefault(row["case"], [])
        if row["what"] not in by_case[row["case"]]:
            by_case[row["case"]].append(row["what"])
    found = {"machine": [f"Measured on {figures['machine']}."]}
    telemetry = [(name, growth_of(rows, "telemetry", name)) for name in by_case["telemetry"]]
    found["telemetry"] = growth_table(telemetry)
    commands = [name for name in by_case["jobs"] if not name.startswith("query ")]
    found["commands"] = growth_table([(name, growth_of(rows, "jobs", name)) for name in commands])
    found["queries"] = growth_table([(n.removeprefix("query "), g) for n, g in job_queries(rows).items()])
    several = [(name, growth_of(rows, "policies", name)) for name in by_case["policies"]]
    largest = max(g.sizes[-1] for _, g in several)
    found["policies"] = growth_table([(n, g) for n, g in several if g.sizes[-1] == largest])
    found["planners"] = growth_table([(n, g) for n, g in several if g.sizes[-1] < largest])
    if "heavy" in by_case:
        found["heavy"] = growth_table([(name, growth_of(rows, "heavy", name)) for name in by_case["heavy"]])
    found["bytes"] = bytes_table(figures)
    found["machines"] = machines_table(works(figures), prices)
    found["windows"] = windows_table(figures["windows"])
    return found


def bytes_table(figures: dict[str, Any]) -> list[str]:
    """Return the table of bytes per job and sample."""
    rows = figures["rows"]
    each = per_size(rows)
    replay = growth_of(rows, "policies", "fifo").bytes_a_row
    whole = growth_of(rows, "jobs", "replay fifo").bytes_a_row
    ingests = [growth_of(rows, case, "ingest").peak_mib[-1] for case in ("jobs", "telemetry")]
    limited = [r for r in rows if r["case"] == "telemetry" and r["what"].endswith(", 1GB")]
    peak = max(r["peak_mib"] for r in limited)
    return [
        "| bytes | a job | a sample | all 10^8 jobs | all 10^10 samples |",
        "|---|---|---|---|---|",
        _bytes_row("raw log", each["job_raw"], each["sample_raw"]),
        _bytes_row("Trace (Parquet)", each["job_trace"], each["sample_trace"]),
        f"| memory of `ingest` | flat: {ingests[0]:,.0f} MiB | flat: {ingests[1]:,.0f} MiB | | |",
        _bytes_row("memory of the engine, its jobs included", replay, None),
        _bytes_row("memory of `replay`, of all jobs of the Trace, half of which are in its cluster", whole, None),
        f"| memory of a query of samples under 1 GB | | flat: {peak:,.0f} MiB at most | | |",
    ]


def _bytes_row(name: str, job: float, sample: float | None) -> str:
    cells = [f"{job:,.0f}", "" if sample is None else f"{sample:.1f}", f"{job * JOBS / _GB:,.0f} GB"]
    cells.append("" if sample is None else f"{sample * SAMPLES / _GB:,.0f} GB")
    return f"| {name} | " + " | ".join(cells) + " |"


def machines_table(listed: Sequence[Work], prices: Prices) -> list[str]:
    """Return the table of hours, price and bottleneck by number of machines."""
    lines = [
        "| | " + " | ".join(f"{m} machine{'s' * (m > 1)}" for m in MACHINES) + " | read | between machines |",
        "|---|" + "---|" * (len(MACHINES) + 2),
    ]
    for work in listed:
        cells = []
        for machines in MACHINES:
            hours, most, cause = hours_of(work, machines, prices)
            cells.append(
                f"{_hours(hours)} (bound {_hours(most)}), {hours * machines * prices.hour:,.2f}, {cause}"
                if len(work.tasks) > 1 or machines == 1
                else "the same"
            )
        moved = f"{work.shuffled / _GB:,.0f} GB" if work.shuffled else "nothing"
        lines.append(f"| {work.name} | " + " | ".join(cells) + f" | {work.read / _GB:,.0f} GB | {moved} |")
    return lines


def _hours(hours: float) -> str:
    for unit, name in ((1.0, "h"), (1 / 60, "min")):
        if hours >= unit:
            return f"{hours / unit:.1f} {name}"
    return f"{hours * 3600:.0f} s"


def windows_table(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return the table of the errors of replays in windows."""
    lines = [
        "| policy | cut into | mean wait, whole | error of mean | error of p90 | jobs at another time | work |",
        "|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        way = {
            "carried": "{windows} windows, state carried",
            "warmed": "{windows} windows, {early_days} days more on each side",
            "resumed": "{windows} pieces, all arrays saved ({bytes_a_job} bytes a job)",
        }[row["way"]].format_map(row)
        errors = [f"{100 * row[name]:+.1f} %" if row[name] else "none" for name in ("mean", "p90")]
        share = f"{100 * row['differing']:.1f} %" if row["differing"] else "none"
        wait = f"{row['mean_wait_h']:.3g} h"
        lines.append(f"| {row['policy']} | {way} | {wait} | {errors[0]} | {errors[1]} | {share} | {row['work']:.2f} |")
    return lines


def begin(name: str) -> str:
    """Return the line that precedes a table on the page."""
    return f"<!-- {name}, from benchmarks/scale.json; write again with: python benchmarks/scale_model.py --docs -->"


def with_tables(text: str, found: dict[str, list[str]]) -> str:
    """Return the page with its tables rewritten.

    Raises
    ------
    ValueError
        The page has no place for one of the tables.
    """
    for name, lines in found.items():
        pattern = re.escape(begin(name)) + r"\n.*?" + re.escape(END)
        if not re.search(pattern, text, flags=re.DOTALL):
            raise ValueError(f"the page has no table '{name}'")
        written = "\n".join([begin(name), "", *lines, "", END])
        text = re.sub(pattern, lambda _, written=written: written, text, flags=re.DOTALL)  # type: ignore[misc]  # a lambda's default has no type
    return text


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--price", type=float, default=Prices.hour, help="price of a machine per hour")
    parser.add_argument("--cores", type=int, default=Prices.cores)
    parser.add_argument("--network-mb", type=float, default=Prices.network / 1e6, help="megabytes a second")
    parser.add_argument("--disk-mb", type=float, default=Prices.disk / 1e6, help="megabytes a second")
    parser.add_argument("--docs", action="store_true", help="rewrite the tables in docs/scale.md")
    given = parser.parse_args()
    prices = Prices(given.price, given.cores, given.network_mb * 1e6, given.disk_mb * 1e6)
    found = tables(json.loads(FIGURES.read_text(encoding="utf-8")), prices)
    if given.docs:
        PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8"), found), encoding="utf-8")
        return
    for name, lines in found.items():
        print(f"\n{name}\n", *lines, sep="\n")


if __name__ == "__main__":
    main()
