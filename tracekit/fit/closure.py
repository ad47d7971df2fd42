"""Compare the model of a synthetic Trace with the model it was drawn from.

Each tolerance has two parts: one for the model's simplifications, and one for sampling noise at this number of jobs.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from tracekit.fit.families import FAMILIES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tracekit.array_types import Floats
    from tracekit.fit.model import WorkloadModel


TOLERANCES = {
    "jobs_per_day": (0.05, 3.0),
    "rate_profile": (0.10, 2.0),
    "gap_variation": (0.45, 3.0),
    "batch_mean": (0.05, 3.0),
    "size_class_share": (0.01, 2.0),
    "status_share": (0.01, 2.0),
    "run_time": (0.03, 2.0),
    "run_time_of_vc": (0.20, 2.0),
    "correlation": (0.05, 3.0),
    "top_5_pct_share": (0.05, 3.0),
}
"""Tolerance of each quantity: a constant for the model's simplifications, and a factor on 1 / sqrt(n) for noise.

If the process is sessions, n is divided by the mean number of jobs in a job's session.

jobs_per_day, batch_mean: relative difference; n is the number of batches divided by the dispersion of hourly counts.
rate_profile: mean absolute difference of the hour-of-week factors; n is the number of batches per factor, divided as
above. gap_variation: difference in the logarithm of the gaps' squared variation; n is the number of gaps, of state
changes of a modulated process, or of sessions. size_class_share, status_share, top_5_pct_share: difference of shares; n
is the number of jobs. run_time: largest difference between a group's two fitted distribution functions; n is the
group's number of jobs. The groups are all jobs, each size class, each status, and each size class by status.
run_time_of_vc: the same for a VC; the model has only the ranks of the VC's jobs among jobs of the same class and
status. correlation: difference of the correlations; n is the number of pairs.
"""


class ModelDifference(NamedTuple):
    """One quantity in both models."""

    quantity: str
    name: str
    first: float
    second: float
    difference: float
    tolerance: float

    @property
    def within(self) -> bool:
        """Whether the models agree."""
        return self.difference <= self.tolerance


def closure(model: WorkloadModel, again: WorkloadModel) -> list[ModelDifference]:
    """Compare a model with the refit of a Trace drawn from it, giving each quantity's difference and tolerance."""
    return [*_arrivals(model, again), *_shares(model, again), *_run_times(model, again)]


def _tolerance(quantity: str, number: float) -> float:
    simplified, chance = TOLERANCES[quantity]
    return simplified + chance / float(np.sqrt(max(number, 1.0)))


def _compared(quantity: str, name: str, both: Sequence[float], difference: float, number: float) -> ModelDifference:
    return ModelDifference(quantity, name, both[0], both[1], abs(difference), _tolerance(quantity, number))


def _arrivals(model: WorkloadModel, again: WorkloadModel) -> Iterator[ModelDifference]:
    a, b = model.document["arrivals"], again.document["arrivals"]
    if a["process"] is None or b["process"] is None:
        return
    dispersion = max(1.0, *((x["tests"] or {}).get("dispersion_of_hourly_counts", 1.0) for x in (a, b)))
    dispersion = max(dispersion, _alike(model), _alike(again))
    batches = min(a["batches"], b["batches"]) / dispersion
    per_day = [x["jobs"] / x["days"] for x in (a, b)]
    yield _compared("jobs_per_day", "all jobs", per_day, per_day[1] / per_day[0] - 1, batches)
    mean = [x["batch"]["mean"] for x in (a, b)]
    yield _compared("batch_mean", "all jobs", mean, mean[1] / mean[0] - 1, batches)
    profile = [np.resize(np.asarray(x["rate"]["profile"], float), 168) for x in (a, b)]
    cells = max(len(x["rate"]["profile"]) for x in (a, b))
    away = float(np.abs(profile[0] - profile[1]).mean())
    yield _compared("rate_profile", "mean difference", (0.0, away), away, batches / cells)
    if a["tests"] and b["tests"]:
        spread = [x["tests"]["squared_variation_of_gaps"] for x in (a, b)]
        gaps = min(_independent_gaps(x) for x in (a, b))
        yield _compared("gap_variation", "all jobs", spread, float(np.log(spread[1] / spread[0])), gaps)


def _alike(model: WorkloadModel) -> float:
    """Return the mean session size over jobs (jobs of a session are dependent), or 1 if there are no sessions."""
    arrivals = model.document["arrivals"]
    return float(arrivals["sessions"]["size"]["mean_of_a_job"]) if arrivals["process"] == "sessions" else 1.0


def _independent_gaps(arrivals: dict[str, Any]) -> float:
    """Return the number of gaps, or of state changes if the process has states and there are fewer changes."""
    gaps = float(arrivals["tests"]["gaps"])
    if arrivals["process"] == "sessions":
        return min(gaps, float(arrivals["sessions"]["sessions"]))
    if arrivals["process"] != "mmpp":
        return gaps
    p = next(c["parameters"] for c in arrivals["candidates"] if c["process"] == "mmpp")
    return min(gaps, gaps / float(1 / p["to_busy"] + 1 / p["to_quiet"]))


def _shares(model: WorkloadModel, again: WorkloadModel) -> Iterator[ModelDifference]:
    one, two = model.document, again.document
    alike = max(_alike(model), _alike(again))
    jobs = min(one["sizes"]["jobs"], two["sizes"]["jobs"]) / alike
    for name, share in one["sizes"]["by_gpu_class"].items():
        other = two["sizes"]["by_gpu_class"][name]
        yield _compared("size_class_share", name, (share, other), other - share, jobs)
    statuses = [_by_status(d) for d in (one, two)]
    for status in sorted({*statuses[0], *statuses[1]}, key=str):
        first, second = (s.get(status, 0.0) for s in statuses)
        yield _compared("status_share", str(status), (first, second), second - first, jobs)
    tops = [d["users"]["user_concentration"] for d in (one, two)]
    if all(tops):
        first, second = (t["top_5_pct_share"] for t in tops)
        yield _compared("top_5_pct_share", "users", (first, second), second - first, jobs)
    pairs = [d["correlation"] for d in (one, two)]
    if all(p["correlation"] is not None for p in pairs):
        first, second = (p["correlation"] for p in pairs)
        yield _compared("correlation", "users", (first, second), second - first, min(p["pairs"] for p in pairs) / alike)


def _by_status(document: dict[str, Any]) -> dict[str | None, float]:
    found: dict[str | None, float] = {}
    for group in document["statuses"]["groups"]:
        found[group["status"]] = found.get(group["status"], 0.0) + group["jobs"] / document["statuses"]["ended"]
    return found


def _run_times(model: WorkloadModel, again: WorkloadModel) -> Iterator[ModelDifference]:
    alike = max(_alike(model), _alike(again))
    for entry in model.run_times:
        key = {k: entry[k] for k in ("gpu_class", "status", "cluster", "vc")}
        other = again.run_time(entry["measure"], **key)
        if other is None or any(e["pooled_to"] is not None or e["chosen"] is None for e in (entry, other)):
            continue
        grid = np.geomspace(0.1, 1e8, 600)
        away = float(np.abs(_cdf(entry, grid) - _cdf(other, grid)).max())
        words = [entry["measure"], *(str(v) for v in key.values() if v is not None)]
        quantity = "run_time" if entry["vc"] is None else "run_time_of_vc"
        yield _compared(quantity, ", ".join(words), (0.0, away), away, min(entry["n"], other["n"]) / alike)


def _cdf(entry: dict[str, Any], grid: Floats) -> Floats:
    family = FAMILIES[entry["chosen"]]
    fit = next(f for f in entry["families"] if f["family"] == family.name)
    return family.cdf(grid, family.vector(fit["parameters"]))
