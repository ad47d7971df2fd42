"""How far to trust a replay: the policy that the cluster really ran, replayed, beside what the log says.

Queueing is first start minus submission, in the log and in the replay; the jobs compared have both.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
import polars as pl

from tracekit.damage import explain_damage
from tracekit.errors import UsageError
from tracekit.outputs import StagedFolder, output_errors
from tracekit.progress import Progress
from tracekit.replay.api import scenario_of
from tracekit.replay.registry import named_policy, policies
from tracekit.replay.results.sizes import GPU_CLASSES, gpu_class, gpus_of
from tracekit.replay.results.tables import write_files
from tracekit.replay.run_policies import folder_names
from tracekit.text import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from numpy.typing import NDArray

    from tracekit.replay.results.comparison import ReplayResult
    from tracekit.replay.scenario import Scenario
    from tracekit.trace import Trace

__all__ = ["Fidelity", "fidelity", "measure_fidelity", "nearest_policy", "write_fidelity"]

FIDELITY_NAME = "fidelity.json"

_QUANTILES = (0.01, 0.05, *(round(0.1 * i, 1) for i in range(1, 10)), 0.95, 0.99, 1.0)

_NEAREST = {
    "philly": (("philly",), "Philly ran its own scheduler; nearest here is first in, first out that passes over"),
    "helios": (
        ("fifo,scan=stop",),
        "Helios ran first in, first out in each VC, stopping at the first job that cannot start",
    ),
}
_OTHERS = "what this cluster ran is not known; nearest is first in, first out that passes over jobs that cannot start"
_FALLBACK = "fifo,scan=skip"

_METRICS: dict[str, type[pl.DataType]] = {
    "scope": pl.String,
    "name": pl.String,
    "jobs": pl.Int64,
    "recorded_mean_s": pl.Float64,
    "predicted_mean_s": pl.Float64,
    "recorded_median_s": pl.Float64,
    "predicted_median_s": pl.Float64,
    "mean_error_s": pl.Float64,
    "mean_abs_error_s": pl.Float64,
    "median_abs_error_s": pl.Float64,
    "rank_correlation": pl.Float64,
    "ks_distance": pl.Float64,
}


@dataclass(frozen=True)
class Fidelity:
    """Predicted against recorded queueing."""

    policy: str
    """The policy that was replayed."""
    why: str
    """Why it was chosen."""
    groups: pl.DataFrame
    """One row for all jobs (scope 'all'), each size class ('gpu_class') and each VC ('vc', name NULL without one):
    scope, name, jobs; recorded_mean_s, predicted_mean_s, recorded_median_s, predicted_median_s (queueing);
    mean_error_s (predicted minus recorded), mean_abs_error_s, median_abs_error_s (job by job); rank_correlation
    (Spearman's, NULL where either is constant); ks_distance (largest distance of the two distributions [0..1])."""
    quantiles: pl.DataFrame
    """scope, name, quantile [0..1], recorded_s, predicted_s: linearly interpolated."""
    verdict: str
    """'close', 'rough' or 'poor'."""
    sentences: tuple[str, ...]
    """How far to trust the replay."""
    result: ReplayResult
    """The replay."""

    def to_dict(self) -> dict[str, Any]:
        """Return what fidelity.json holds."""
        return {
            "policy": self.policy,
            "why": self.why,
            "verdict": self.verdict,
            "trust": list(self.sentences),
            "groups": self.groups.to_dicts(),
            "quantiles": self.quantiles.to_dicts(),
            "assumptions": dict(self.result.summary["assumptions"]),
        }


def nearest_policy(source: str) -> tuple[str, str]:
    """Return the policy nearest to what the clusters of a source format ran, and why."""
    texts, why = _NEAREST.get(source, ((), _OTHERS))
    known = policies()
    for text in texts:
        if text.partition(",")[0] in known:
            return text, why if text != "philly" else "Philly ran its own scheduler, whose rules this policy has"
    return _FALLBACK, why


@explain_damage()
def fidelity(trace: Trace | str | Path, policy: str | None = None, **options: Any) -> Fidelity:
    """Replay the policy that a cluster really ran, and compare its queueing with the recorded one.

    Parameters
    ----------
    trace : Trace or path
        The recorded jobs.
    policy : str, optional
        What to replay; by default what is nearest to the source of the Trace.
    **options
        Settings by name, see `tracekit.settings.ReplaySettings`.

    Raises
    ------
    TracekitError
        See `tracekit.replay.api.replay`; or no job has both a recorded and a predicted start.
    """
    scenario = scenario_of(trace, **options)
    return measure_fidelity(scenario, policy)


def measure_fidelity(scenario: Scenario, policy: str | None = None, *, progress: Progress | None = None) -> Fidelity:
    """Return how close the policy's queueing is to the recorded one; see `fidelity`.

    Raises
    ------
    UsageError
        No job has both a recorded and a predicted start, or the policy cannot run here.
    """
    source = "" if scenario.trace is None else scenario.trace.manifest.format
    text, why = (policy, "asked for") if policy is not None else nearest_policy(source)
    chosen = named_policy(text)
    jobs = scenario.jobs
    recorded = jobs.recorded_start_ms
    if not (recorded >= jobs.submit_ms).any():
        raise UsageError("no job has a recorded start to compare with", hint="a changed load makes them meaningless")
    progress = progress or Progress()
    progress.stage(f"replaying {chosen.label}")
    result = scenario.run(chosen)
    known = (recorded >= jobs.submit_ms) & (result.outcome.first_start_ms >= 0)
    if scenario.measured is not None:
        known &= scenario.measured
    if not known.any():
        raise UsageError(f"no job has both a recorded start and one under {chosen.label}")
    logged = (recorded - jobs.submit_ms) / 1000
    predicted = (result.outcome.first_start_ms - jobs.submit_ms) / 1000
    rows, quantiles = [], []
    for scope, name, which in _groups(scenario, known):
        rows.append({"scope": scope, "name": name, **_metrics(logged[which], predicted[which])})
        ends = (np.quantile(values[which], _QUANTILES).tolist() for values in (logged, predicted))
        quantiles += [
            {"scope": scope, "name": name, "quantile": q, "recorded_s": r, "predicted_s": p}
            for q, r, p in zip(_QUANTILES, *ends, strict=True)
        ]
    verdict, sentences = _trust(rows[0], chosen.label, len(jobs) - int(known.sum()))
    return Fidelity(
        chosen.label,
        why,
        pl.DataFrame(rows, schema=_METRICS, orient="row"),
        pl.DataFrame(quantiles, schema_overrides={"name": pl.String}),
        verdict,
        sentences,
        result,
    )


def _groups(scenario: Scenario, known: NDArray[np.bool_]) -> Iterator[tuple[str, str | None, NDArray[np.bool_]]]:
    jobs = scenario.jobs
    yield "all", "all", known
    classes = gpu_class(gpus_of(jobs))
    for code, name in enumerate(GPU_CLASSES):
        which = known & (classes == code)
        if which.any():
            yield "gpu_class", name, which
    for code in (*range(len(jobs.tenants)), -1):
        which = known & (jobs.tenant == code)
        if which.any():
            yield "vc", jobs.tenants[code] if code >= 0 else None, which


def _metrics(recorded: NDArray[np.float64], predicted: NDArray[np.float64]) -> dict[str, Any]:
    error = predicted - recorded
    return {
        "jobs": len(recorded),
        "recorded_mean_s": float(recorded.mean()),
        "predicted_mean_s": float(predicted.mean()),
        "recorded_median_s": float(np.median(recorded)),
        "predicted_median_s": float(np.median(predicted)),
        "mean_error_s": float(error.mean()),
        "mean_abs_error_s": float(np.abs(error).mean()),
        "median_abs_error_s": float(np.median(np.abs(error))),
        "rank_correlation": _rank_correlation(recorded, predicted),
        "ks_distance": _ks_distance(recorded, predicted),
    }


def _rank_correlation(a: NDArray[np.float64], b: NDArray[np.float64]) -> float | None:
    """Return Spearman's rank correlation, ties by their mean rank; None where either is constant."""
    first, second = (pl.Series(values).rank("average").to_numpy() for values in (a, b))
    first, second = first - first.mean(), second - second.mean()
    scale = float(np.sqrt((first**2).sum() * (second**2).sum()))
    return float((first * second).sum()) / scale if scale > 0 else None


def _ks_distance(a: NDArray[np.float64], b: NDArray[np.float64]) -> float:
    """Return the largest distance between the two empirical distributions."""
    first, second = np.sort(a), np.sort(b)
    points = np.concatenate([first, second])
    below = np.searchsorted(first, points, side="right") / len(a) - np.searchsorted(second, points, side="right") / len(
        b
    )
    return float(np.abs(below).max())


_MEANING = {
    "close": (
        "Close: mean within 20 % and distributions within 10 points. Differences between policies that are well above "
        "this error can be trusted."
    ),
    "rough": (
        "Rough: mean within 50 % and distributions within 25 points. Trust the order of policies that differ much, not "
        "the size of the difference."
    ),
    "poor": (
        "Poor: the log waits for reasons that the replay does not know (quotas, limits, failures, idle reservations) "
        "or the cluster differs. Take a replay as a comparison of policies on this workload, not as a forecast for "
        "this cluster."
    ),
}


def _trust(overall: dict[str, Any], policy: str, missing: int) -> tuple[str, tuple[str, ...]]:
    """Return the verdict over all jobs and what it means. The limits are our own choice."""
    recorded, predicted, ks = overall["recorded_mean_s"], overall["predicted_mean_s"], overall["ks_distance"]
    off = abs(predicted - recorded) / recorded if recorded else (0.0 if predicted == recorded else float("inf"))
    verdict = "close" if off <= 0.2 and ks <= 0.1 else "rough" if off <= 0.5 and ks <= 0.25 else "poor"
    rank = overall["rank_correlation"]
    change = f"{predicted / recorded - 1:+.0%}" if recorded else "the log has none"
    job_by_job = (
        f"job by job the prediction is off by {overall['median_abs_error_s']:,.0f} s in the median and "
        f"{overall['mean_abs_error_s']:,.0f} s in the mean"
    )
    if rank is not None:
        job_by_job += f"; the ranks of the waits correlate by {rank:.2f}"
    sentences = [
        (
            f"{policy} predicts a mean queueing of {predicted:,.0f} s, the log has {recorded:,.0f} s ({change}); the "
            f"two distributions are at most {100 * ks:.0f} points apart"
        ),
        job_by_job,
        _MEANING[verdict],
    ]
    if missing:
        sentences.append(f"not compared: {counted(missing, 'jobs')} without a recorded or a predicted start")
    return verdict, tuple(sentences)


def write_fidelity(
    found: Fidelity, out: Path, *, force: bool = False, draw: Callable[[pl.DataFrame, str], str] | None = None
) -> None:
    """Write fidelity.json, fidelity.parquet, quantiles.parquet, quantiles.svg and the replay, whole or not at all.

    Raises
    ------
    OutputError
        OUT exists or cannot be written.
    """
    staged = StagedFolder(out, force=force, marker=FIDELITY_NAME, kind="a fidelity study")
    try:
        write_files(
            staged.path / folder_names([found.policy])[0],
            found.result.jobs,
            found.result.outcome,
            found.result.summary,
        )
        with output_errors(out):
            found.groups.write_parquet(staged.path / "fidelity.parquet")
            found.quantiles.write_parquet(staged.path / "quantiles.parquet")
            if draw is not None:
                (staged.path / "quantiles.svg").write_text(draw(found.quantiles, found.policy), encoding="utf-8")
            text = orjson.dumps(found.to_dict(), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
            (staged.path / FIDELITY_NAME).write_bytes(text)
        staged.commit()
    finally:
        staged.discard()
