"""Read reference numbers and assign them to the queries that measure them."""

from __future__ import annotations

import csv
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tools.publishing.rules import GPU_JOBS, UNSUCCESSFUL
from tracekit.characterize.published import PublishedValue

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from tools.publishing.rules import Rule
    from tracekit.characterize import Query

__all__ = ["SUMMARY_UNITS", "Reference", "converted", "parse_value", "placed", "pooled", "read_references"]


@dataclass(frozen=True)
class Reference:
    """One line of a reference file."""

    trace: str
    artefact: str
    metric: str
    group: str
    value: str
    unit: str
    source: str
    note: str
    study: str = ""
    """The file that contains the line."""

    @property
    def confidence(self) -> str:
        """The confidence letter given in the note, or else implied by the source."""
        stated = re.search(r"conf=([A-E])", self.note)
        if stated:
            return stated[1]
        text = self.source.lower()
        if "digitised" in text:
            return "D"
        if "derived" in text or "arithmetic" in text:
            return "E"
        return "C" if "secondary notes" in text else "A"

    @property
    def accuracy(self) -> str:
        """The accuracy with which the number could be read from a figure."""
        found = re.search(
            r"(?:about )?\+-\s?([\d.]+)\s?(percentage points?|percent|pp|utilization points|jobs)?", self.note
        )
        if found is None:
            return ""
        unit = {"percent": "%", "pp": "points", "percentage point": "points"}.get(found[2] or "", found[2] or "")
        return f"about \N{PLUS-MINUS SIGN}{found[1]} {unit}".strip()


def read_references(folder: Path) -> list[Reference]:
    """Return the numbers from all files in a folder, in the order of files and lines."""
    found = []
    for path in sorted(folder.glob("*_published.csv"), key=lambda p: (p.name != "philly_published.csv", p.name)):
        with path.open(encoding="utf-8", newline="") as file:
            study = path.name.partition("_")[0]
            found += [
                Reference(**{**line, "trace": line["trace"].lower(), "study": study}) for line in csv.DictReader(file)
            ]
    fgd = folder / "openb_fgd.csv"
    if fgd.is_file():
        with fgd.open(encoding="utf-8", newline="") as file:
            found += [
                Reference("alibaba-openb", "fgd_results", r["metric"], "", r["mean"], r["unit"], r["source"], "")
                for r in csv.DictReader(file)
            ]
    return found


_MEANS = re.compile(r"(complete|cancel|fail)_rate_(gpu|cpu)|avg_(run|que)_time_(gpu|cpu)|avg_gpu_num")
_SUMS = re.compile(r"(job_num|(cpu|gpu)_job_num|(complete|cancel|fail)_gpu_time)")


def pooled(references: Iterable[Reference]) -> list[Reference]:
    """Combine a study's numbers for each cluster into sums and job-weighted means over all clusters.

    This works only for numbers from the summary file, which also contains counts.
    """
    by_metric: dict[str, dict[str, Reference]] = {}
    for r in references:
        cluster = re.fullmatch(r"cluster=(\w+)", r.group)
        if r.artefact == "summary_csv" and cluster:
            by_metric.setdefault(r.metric, {})[cluster[1]] = r
    found = []
    for metric, parts in by_metric.items():
        values = {cluster: float(r.value) for cluster, r in parts.items()}
        if _SUMS.fullmatch(metric):
            total = sum(values.values())
        elif _MEANS.fullmatch(metric):
            kind = "cpu" if metric.endswith("_cpu") else "gpu"
            jobs = {cluster: float(by_metric[f"{kind}_job_num"][cluster].value) for cluster in values}
            total = sum(values[c] * jobs[c] for c in values) / sum(jobs.values())
        elif metric.startswith("max_"):
            total = max(values.values())
        else:
            continue
        one = next(iter(parts.values()))
        found.append(
            Reference(
                one.trace,
                one.artefact,
                metric,
                "",
                f"{total:.6g}" if total < 1e6 else f"{total:.0f}",
                one.unit,
                f"{one.source} (arithmetic over {' and '.join(parts)})",
                "",
                one.study,
            )
        )
    return found


SUMMARY_UNITS = {
    "jobs": "jobs",
    "gpu_jobs": "jobs",
    "cpu_jobs": "jobs",
    "users": "users",
    "vcs": "VCs",
    "clusters": "clusters",
    "nodes": "nodes",
    "gpus_listed": "GPUs",
    "gpus_observed": "GPUs",
    "gpu_hours": "GPU-hours",
    "mean_run_s": "s",
    "median_run_s": "s",
    "mean_queue_s": "s",
    "median_queue_s": "s",
}
"""Units of the metrics of overview/summary."""

_STATUS = {
    "Pass": "completed",
    "Killed": "cancelled",
    "Unsuccessful": "failed",
    "Failed": "failed",
    "Terminated": "completed",
    "Running": "running",
    "Waiting": "pending",
    "completed": "completed",
    "canceled": "cancelled",
    "failed": UNSUCCESSFUL,
}
_PHASES = {"Running": "unknown|running", "Failed": "failed", "Pending": "pending", "Succeeded": "completed"}
_REASONS = {"CUDA ver. mismatch": "cuda_version_mismatch"}
"""The log classifier's names for failure reasons that the paper calls differently."""
_CLASSES = {"0": "0", "(0,1)": "<1", "1": "1"}
_WHOLE = {"all", "Philly", "Helios", "PAI"}


def _words(reference: Reference) -> dict[str, str]:
    """Return the values in a group by the names that rules use for them."""
    found: dict[str, str] = {}
    for part in filter(None, reference.group.split(";")):
        match = re.fullmatch(r"([\w ]*?)(<=|>=|=)([^=]*)", part)
        if match is not None:
            name, op, value = match.groups()
            found[{"<=": f"{name}_upto", ">=": f"{name}_from"}.get(op, name)] = value
    status = _STATUS.get(found.pop("status", "")) or _PHASES.get(found.get("pod_phase", ""))
    kind = found.get("jobs") or reference.group.removesuffix(" tasks")
    servers = re.search(r"over (\d+) servers", reference.group)
    percentile = re.search(r"percentile (\d+)", reference.metric)
    said = {
        "status": status,
        "jobs": "gpu_class=0" if kind.startswith("cpu") else GPU_JOBS if _of_gpu_jobs(reference, kind) else None,
        "servers": servers and servers[1],
        "percentile": percentile and percentile[1],
        "user_share": f"{float(found['top_users_pct']) / 100:g}" if "top_users_pct" in found else None,
        **_sizes(found),
    }
    return {name: value for name, value in found.items() if name not in said} | {
        name: value for name, value in said.items() if value
    }


def _of_gpu_jobs(reference: Reference, kind: str) -> bool:
    return kind == "gpu" or reference.artefact in {"fig17a", "fig17b"}


def _sizes(found: Mapping[str, str]) -> dict[str, str | None]:
    """Return a group's sizes and reasons in the words of our results."""
    size, request, reason = found.get("size", "").removesuffix(" GPU"), found.get("gpu_request"), found.get("reason")
    part = "gpu_count>0;gpu_count<1" if request == "(0,1)" else f"gpu_count={request}"
    return {
        "class": size,
        "count": size if size.isdigit() else None,
        "gpu_class": _CLASSES.get(request or ""),
        "gpu_counts": part if request else None,
        "reason": _REASONS.get(reason, re.sub(r"\W+", "_", reason).lower()) if reason else None,
    }


def placed(
    reference: Reference, rule: Rule, queries: Mapping[str, Query], notes: Mapping[str, str]
) -> PublishedValue | None:
    """Place a reference number by a rule. Return None if the rule's query or one of its words is missing."""
    words = _words(reference)
    query = queries.get(rule.query)
    try:
        row, of = rule.row.format(**words), rule.of.format(**words)
        column, params = rule.column.format(**words), rule.params.format(**words)
    except KeyError:
        return None
    unit = _unit(query, column, row, rule) if query else None
    if unit is None:
        return None
    sign = {"lower bound": ">", "upper bound": "<", "approximate": "~"}.get(reference.group, "")
    kind, numbers = parse_value(sign + reference.value)
    value, low, high = (None if n is None else converted(n, reference.unit, unit) for n in numbers)
    aggregate = rule.aggregate or ("sum" if "|" in row else "")
    artefact_note = next((n for a, n in notes.items() if re.fullmatch(a, reference.artefact)), "")
    cluster = words.get("cluster", "")
    return PublishedValue(
        query=rule.query,
        params=params,
        options=rule.options,
        cluster=rule.cluster if rule.cluster is not None else "" if cluster in _WHOLE else cluster,
        row=row,
        of=of,
        column=column,
        aggregate=aggregate,
        weight=rule.weight,
        kind=kind,
        value=value,
        low=low,
        high=high,
        unit=unit,
        as_printed=f"{sign}{reference.value} {reference.unit}",
        artefact=_artefact(reference),
        source=reference.source.replace("secondary: ", "third party: "),
        confidence=reference.confidence,
        accuracy=reference.accuracy,
        population_note=" ".join(filter(None, [artefact_note, rule.note])),
    )


def _unit(query: Query, column: str, row: str, rule: Rule) -> str | None:
    if rule.aggregate == "share":
        return "share"
    if query.name == "overview/summary":
        return SUMMARY_UNITS[row.removeprefix("metric=")]
    return next((c.unit for c in query.columns if c.name == column), None)


_NAMES = {
    "readme": "README",
    "summary_csv": "summary file",
    "text": "text of the paper",
    "tables": "row counts",
    "status": "status audit",
    "machine_spec": "machine list",
    "nodes": "node list",
    "pods": "pod list",
    "times": "pod list",
    "scale": "README and slides",
    "paper": "text of the paper",
    "released trace": "files of the release",
    "Weng2022 NSDI comparison": "comparison in the PAI study",
    "later comparison": "a later comparison",
}


_STUDIES = {"helios": "Helios", "acme": "Acme", "alibaba": "PAI"}


def _artefact(reference: Reference) -> str:
    """Return the name of a reference's artefact for readers, with the study if it is not the trace's own."""
    name = _NAMES.get(reference.artefact, reference.artefact)
    name = re.sub(r"^released-trace notebook \((.*)\)$", r"notebook of the release, \1", name)
    name = re.sub(r"^fig(\d+)", r"Fig \1", re.sub(r"^table(\d+)$", r"Table \1", name))
    own = reference.trace.startswith(reference.study)
    return name if own else f"{_STUDIES[reference.study]} {name}"


_UNITS = {"": 1.0, "K": 1e3, "M": 1e6}


def parse_value(text: str) -> tuple[str, tuple[float | None, float | None, float | None]]:
    """Return the kind of a number and (value, low, high).

    Raises
    ------
    ValueError
        The string is not a number, a range, a bound or an approximation.

    Examples
    --------
    >>> parse_value("1.2M"), parse_value("65-90")
    (('number', (1200000.0, None, None)), ('range', (None, 65.0, 90.0)))
    >>> parse_value(">50"), parse_value("~40")
    (('above', (None, 50.0, None)), ('about', (40.0, None, None)))
    """
    match = re.fullmatch(r"([~<>]?)([\d.]+)([KM]?)(?:-([\d.]+))?", text)
    if match is None:
        raise ValueError(f"not a number: {text!r}")
    sign, first, suffix, last = match.groups()
    number = float(first) * _UNITS[suffix]
    if last is not None:
        return "range", (None, number, float(last))
    if sign == ">":
        return "above", (None, number, None)
    if sign == "<":
        return "below", (None, None, number)
    return ("about" if sign else "number"), (number, None, None)


_SECONDS = {"min": 60, "minutes": 60, "hours": 3600, "days": 86400, "seconds": 1, "s": 1}


def converted(number: float, unit: str, wanted: str) -> float:
    """Convert a number to the unit of the query's column.

    Raises
    ------
    ValueError
        The units are incompatible.

    Examples
    --------
    >>> converted(17.5, "percent", "share"), converted(2, "minutes", "s"), converted(7200, "GPU*s", "GPU-hours")
    (0.175, 120.0, 2.0)
    """
    if unit == "percent":
        if wanted not in {"share", "percent"}:
            raise ValueError(f"{unit} is not {wanted}")
        return float(f"{number / 100:.12g}") if wanted == "share" else number
    if wanted == "s":
        return float(number * _SECONDS[unit])
    if wanted == "GPU-hours":
        return number / {"GPU*s": 3600, "GPU*h": 1}[unit]
    same = {
        "jobs": {"jobs", "rows", "tasks", "pods"},
        "nodes": {"nodes", "servers", "rows"},
        "attempts": {"trials"},
    }
    if unit not in same.get(wanted, {wanted}):
        raise ValueError(f"{unit} is not {wanted}")
    return number
