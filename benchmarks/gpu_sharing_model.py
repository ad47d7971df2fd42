"""Evaluate the runs of gpu_sharing.py for how jobs share a GPU, and fit M1 and M3 for --models.

Speeds are relative to the same job alone. The median of equal runs is one observation, and every ordered pair of jobs
counts once. M3 uses the median over jobs because a few CPU-bound jobs would dominate a mean.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from itertools import pairwise, product
from math import log2, nan, sqrt
from statistics import mean, median
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

_OF_JOB = ("", "_batch", "_parts", "_iters_per_s", "_gib")
COLUMNS = ("kind", *(f"{side}{column}" for side in "ab" for column in _OF_JOB), "begin_utc", "end_utc")
"""Columns of a runs table, with both jobs, their steps per second and peak memory [GiB], and the window."""
OPTIONAL = ("utilization_pct", "gpu")
C_IN_USE, C_MOST = 0.5, 0.99
"""Default strength c of M1, and the largest value that --models accepts."""
BINS = (0.2, 0.4, 0.6, 0.8)
FEWEST = 4
"""Minimum number of pairs for a fit of M1."""
FULL = 0.8
"""Minimum utilization of a batch that counts as filling the GPU [0..1]."""


class MeasurementError(Exception):
    """A failed measurement or evaluation. The message is one line."""


class Job(NamedTuple):
    """A training job, given by its model, batch size and number of sub-batches."""

    model: str
    batch: int
    parts: int = 1

    def __str__(self) -> str:
        return f"{self.model}:{self.batch}" + (f" in {self.parts}" if self.parts > 1 else "")


class Run(NamedTuple):
    """One job in one run, alone or with a partner."""

    job: Job
    partner: Job | None
    rate: float
    """Steps per second."""
    gib: float | None
    """Peak memory of the job's tensors [GiB]."""
    utilization: float | None
    """GPU utilization during the window, of both jobs together [0..1]."""
    gpu: str


def read_runs(path: Path) -> list[Run]:
    """Read the runs in a file, with a separate run for each job of a pair.

    Raises
    ------
    MeasurementError
        The file cannot be read, a column is missing, or a cell is not a number.
    """
    try:
        with path.open(newline="", encoding="utf-8") as file:
            rows = csv.DictReader(file)
            missing = [column for column in COLUMNS if column not in (rows.fieldnames or ())]
            if missing:
                raise MeasurementError(f"{path}: no column {missing[0]}; the columns are {', '.join(COLUMNS)}")
            found: list[Run] = []
            for row in rows:
                try:
                    found += [_run(row, *sides) for sides in (("ab", "ba") if row["kind"] == "pair" else ("ab",))]
                except ValueError as error:
                    raise MeasurementError(f"{path}, line {rows.line_num}: {error}") from None
    except (OSError, UnicodeDecodeError) as error:
        raise MeasurementError(f"{path} cannot be read: {error}") from None
    if not found:
        raise MeasurementError(f"{path} contains no runs")
    return found


def _run(row: dict[str, str], side: str, other: str) -> Run:
    job, partner = (
        Job(row[s], int(_number(row, f"{s}_batch", 1)), int(_number(row, f"{s}_parts", 1))) if row[s] else None
        for s in (side, other)
    )
    if job is None:
        raise ValueError(f"{side} names no model")
    gib = _number(row, f"{side}_gib") if row[f"{side}_gib"] else None
    used = _number(row, "utilization_pct", 0, 100) / 100 if row.get("utilization_pct") else None
    return Run(job, partner, _number(row, f"{side}_iters_per_s", 1e-6), gib, used, row.get("gpu") or "")


def _number(row: dict[str, str], column: str, least: float = 0, most: float = 1e9) -> float:
    text = row[column] or ""
    try:
        value = float(text)
    except ValueError:
        value = nan
    if not least <= value <= most:
        raise ValueError(f"{column} is '{text[:80]}', not a number from {least:g} to {most:g}")
    return value


class Measured(NamedTuple):
    """Medians over a job's runs, either alone or with one partner."""

    rate: float
    gib: float | None
    utilization: float | None
    spread: float
    """Difference between the highest and lowest steps per second, divided by the median."""
    runs: int


def medians(runs: Iterable[Run]) -> dict[tuple[Job, Job | None], Measured]:
    """Return the medians for each job alone (job, None) and for each job with a partner (job, partner)."""
    groups: dict[tuple[Job, Job | None], list[Run]] = defaultdict(list)
    for run in runs:
        groups[run.job, run.partner].append(run)
    found = {}
    for key, group in groups.items():
        rates = [run.rate for run in group]
        gib = [run.gib for run in group if run.gib is not None]
        used = [run.utilization for run in group if run.utilization is not None]
        spread = (max(rates) - min(rates)) / median(rates)
        found[key] = Measured(
            median(rates), median(gib) if gib else None, median(used) if used else None, spread, len(group)
        )
    return found


class Point(NamedTuple):
    """A job's speed with a partner relative to running alone, and the utilization of each of them alone [0..1]."""

    victim: float
    partner: float
    speed: float


def points(measured: dict[tuple[Job, Job | None], Measured]) -> list[Point]:
    """Return the pairs whose jobs also ran alone and have known utilization."""
    found = []
    for (job, partner), together in measured.items():
        a, b = measured.get((job, None)), measured.get((partner, None)) if partner else None
        if a and b and a.utilization is not None and b.utilization is not None:
            found.append(Point(a.utilization, b.utilization, together.rate / a.rate))
    return found


def strength(seen: Iterable[Point], a: float = 1, b: float = 1) -> float:
    """Fit c in speed = 1 - c * u_victim^a * u_partner^b by least squares. Return 0 if no pair used the GPU."""
    terms = [(p.victim**a * p.partner**b, 1 - p.speed) for p in seen]
    square = sum(x * x for x, _ in terms)
    return sum(x * y for x, y in terms) / square if square else 0.0


def rms(seen: Sequence[Point], c: float, a: float = 1, b: float = 1) -> float:
    """Return the root mean square error of the formula fitted by `strength`."""
    return sqrt(mean((1 - c * p.victim**a * p.partner**b - p.speed) ** 2 for p in seen))


def asymmetric(seen: Sequence[Point]) -> tuple[float, float, float]:
    """Return (c, a, b) with the smallest error, for exponents from 0 to 4 in steps of 0.1."""
    steps = [step / 10 for step in range(41)]
    return min(((strength(seen, a, b), a, b) for a, b in product(steps, steps)), key=lambda fitted: rms(seen, *fitted))


class Split(NamedTuple):
    """A batch computed in sub-batches."""

    job: Job
    utilization: float | None
    """Utilization of the whole batch [0..1]."""
    time: dict[int, float]
    """Step time by number of sub-batches, relative to the whole batch."""
    kept: dict[int, float]
    """Peak memory by number of sub-batches, relative to the whole batch."""

    @property
    def slowdown(self) -> float:
        """Slowdown s in time = 1 + s * log2(parts), by least squares."""
        return sum((t - 1) * log2(n) for n, t in self.time.items()) / sum(log2(n) ** 2 for n in self.time)

    @property
    def fixed(self) -> float | None:
        """Fixed share f in memory = f + (1 - f) / parts, by least squares [0..1], or None if memory is unknown."""
        if not self.kept:
            return None
        return sum((k - 1 / n) * (1 - 1 / n) for n, k in self.kept.items()) / sum((1 - 1 / n) ** 2 for n in self.kept)


def slow(parts: Iterable[Split]) -> list[float]:
    """Return the slowdown of each split batch."""
    return [split.slowdown for split in parts]


def splits(measured: dict[tuple[Job, Job | None], Measured]) -> list[Split]:
    """Return all batches that ran whole and in sub-batches, highest utilization first."""
    found: dict[Job, Split] = {}
    for (job, partner), part in measured.items():
        base = job._replace(parts=1)
        whole = measured.get((base, None))
        if partner or job.parts == 1 or whole is None:
            continue
        split = found.setdefault(base, Split(base, whole.utilization, {}, {}))
        split.time[job.parts] = whole.rate / part.rate
        if part.gib is not None and whole.gib:
            split.kept[job.parts] = part.gib / whole.gib
    return sorted(found.values(), key=lambda split: -(split.utilization or 0))


def models_toml(runs: Sequence[Run]) -> str:
    """Return a file for --models with M1's c, and M3's slowdown and fixed share. Omitted values become comments."""
    measured = medians(runs)
    seen, parts = points(measured), splits(measured)
    fixed = [split.fixed for split in parts if split.fixed is not None]
    strengths = [strength(seen)] if len(seen) >= FEWEST else []
    c, slowdown, share = (round(median(values), 3) if values else None for values in (strengths, slow(parts), fixed))
    levels = f'rule = "product"\nlevel = "measured"\nlevels = {{ measured = {c} }}'
    return "\n".join(
        [
            f"# Measured by benchmarks/gpu_sharing.py on {runs[0].gpu or 'an unknown GPU'}.",
            "",
            "[interference]",
            _taken("c of M1", c, C_MOST) or levels,
            "",
            "[accumulation]",
            *_range("the slowdown", slow(parts)),
            _taken("slowdown_per_doubling", slowdown, 100) or f"slowdown_per_doubling = {slowdown}",
            *_range("the fixed share", fixed),
            _taken("fixed_share", share, 1) or f"fixed_share = {share}",
            "",
        ]
    )


def _range(what: str, values: Sequence[float]) -> list[str]:
    return [f"# {what} of {len(values)} jobs is {min(values):.3f} to {max(values):.3f}"] if values else []


def _taken(what: str, value: float | None, most: float) -> str:
    """Return a comment on why --models does not accept a value, or '' if it does."""
    if value is None:
        return f"# {what}: not measured"
    return "" if 0 <= value <= most else f"# {what}: measured {value}, but --models takes 0 to {most}"


def summary(runs: Sequence[Run]) -> str:
    """Return a readable summary of the measurements."""
    measured = medians(runs)
    lines = [
        f"GPU: {runs[0].gpu or 'unknown'}",
        "",
        "job alone                     steps/s  spread  utilization  peak GiB",
    ]
    for (job, partner), found in measured.items():
        if partner is None:
            memory = "-" if found.gib is None else f"{found.gib:.2f}"
            lines.append(
                f"{job!s:<27} {found.rate:>9.2f}  {found.spread:>6.1%}  {_percent(found.utilization):>11}  {memory:>8}"
            )
    spreads = sorted(((found.spread, key) for key, found in measured.items() if found.runs > 1), key=lambda s: s[0])
    if spreads:
        worst, (job, partner) = spreads[-1]
        lines.append(
            f"spread of equal runs, largest less least over median: {median(s for s, _ in spreads):.1%} by median, at "
            f"most {worst:.1%} ({job}{f' with {partner}' if partner else ''})"
        )
    return "\n".join([*lines, "", *_sharing(points(measured)), "", *_sub_batches(splits(measured))])


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"


def _sharing(seen: Sequence[Point]) -> list[str]:
    if len(seen) < FEWEST:
        return [f"M1: {len(seen)} pairs with known utilization; a fit needs {FEWEST}"]
    edges = (0, *BINS, 1)
    names = [f"{low:.0%}-{high:.0%}" for low, high in pairwise(edges)]
    cells: dict[tuple[int, int], list[float]] = defaultdict(list)
    for p in seen:
        cells[sum(p.victim >= edge for edge in BINS), sum(p.partner >= edge for edge in BINS)].append(p.speed)
    lines = ["speed of a job (row: its utilization alone) with a partner (column), mean (pairs)"]
    lines.append(" " * 9 + "".join(f"{name:>12}" for name in names))
    for row, name in enumerate(names):
        found = [cells.get((row, column)) for column in range(len(names))]
        lines.append(f"{name:>9}" + "".join(f"{f'{mean(f):.2f} ({len(f)})' if f else '-':>12}" for f in found))
    c, (d, a, b) = strength(seen), asymmetric(seen)
    together = [(min(1, 1 / max(p.victim + p.partner, 1)) - p.speed) ** 2 for p in seen]
    return [
        *lines,
        f"M1, error (root mean square) over {len(seen)} pairs:",
        f"  1 - {C_IN_USE} * u_victim * u_partner (in use): {rms(seen, C_IN_USE):.3f}",
        f"  1 - {c:.3f} * u_victim * u_partner (fitted): {rms(seen, c):.3f}",
        f"  1 / (u_victim + u_partner), at most 1 (rule 'sum'): {sqrt(mean(together)):.3f}",
        f"  1 - {d:.3f} * u_victim^{a} * u_partner^{b} (fitted): {rms(seen, d, a, b):.3f}",
        "  --models has no keys for the exponents: models.toml has the c of the product.",
    ]


def _sub_batches(parts: Sequence[Split]) -> list[str]:
    if not parts:
        return ["M3: no batch ran whole and in sub-batches"]
    lines = ["sub-batches                utilization  time in 2, 4    a doubling  memory in 2, 4   fixed share"]
    for split in parts:
        times = ", ".join(f"{split.time[n]:.2f}" for n in sorted(split.time))
        kept = ", ".join(f"{split.kept[n]:.2f}" for n in sorted(split.kept)) or "-"
        fixed = "-" if split.fixed is None else f"{split.fixed:.2f}"
        row = f"{split.job!s:<26} {_percent(split.utilization):>11}  {times:<14}  {split.slowdown:>10.1%}"
        lines.append(f"{row}  {kept:<15}  {fixed:>11}")
    known = [split for split in parts if split.utilization is not None]
    full = slow(split for split in known if (split.utilization or 0) >= FULL)
    rest = slow(split for split in known if (split.utilization or 0) < FULL)
    for what, values in ((f"from {FULL:.0%} on", full), (f"below {FULL:.0%}", rest)):
        if values:
            text = f"median {median(values):.1%} a doubling ({min(values):.1%} to {max(values):.1%})"
            lines.append(f"slowdown, whole batch's utilization {what}: {text}")
    share = [split.fixed for split in parts if split.fixed is not None]
    if share:
        lines.append(f"fixed share of memory: median {median(share):.2f} ({min(share):.2f} to {max(share):.2f})")
    return lines
