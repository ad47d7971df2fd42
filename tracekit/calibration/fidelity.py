"""Check how far a replay can be trusted: compare the log with the twin, or with a policy in place of its rules."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import orjson
import polars as pl

from tracekit.calibration.api import calibrate, recall
from tracekit.calibration.score import queued_gpus, score
from tracekit.calibration.twin import read_twin, twin_text
from tracekit.damage import explain_damage
from tracekit.outputs import StagedFolder, output_errors
from tracekit.replay.jobs import GPU_CLASSES, gpu_class, gpus_of
from tracekit.replay.registry import named_policy
from tracekit.replay.run_policies import folder_names
from tracekit.trace import Trace

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable, Sequence

    from numpy.typing import NDArray

    from tracekit.calibration.api import Calibration, ClusterCalibration
    from tracekit.calibration.reasons import Reason
    from tracekit.calibration.score import Score
    from tracekit.progress import Progress

FIDELITY_NAME = "fidelity.json"
QUANTILES = (0.01, 0.05, *(round(0.1 * i, 1) for i in range(1, 10)), 0.95, 0.99, 1.0)
_MOMENTS = 500
"""Maximum number of instants at which the queue is shown."""


@dataclass(frozen=True)
class Fidelity:
    """A replay of one cluster compared with its log, over the jobs held out from the calibration."""

    cluster: str
    policy: str
    """The replayed policy, in the form that `tracekit replay -p` accepts."""
    rules: str
    """A description of the replayed policy for display."""
    score: Score
    quantiles: pl.DataFrame
    """scope ('all' or 'gpu_class'), name, quantile [0..1], recorded_s, replayed_s: waits, linearly interpolated."""
    queue: pl.DataFrame
    """time, recorded_gpus, replayed_gpus: the GPUs that waiting jobs request, at evenly spaced instants."""
    candidates: pl.DataFrame
    """The candidates that the calibration tried (see `ClusterCalibration.candidates`). Empty if a twin was given."""
    why_no_effect: str | None
    """Why no effects can be estimated with this replay, as a sentence without a full stop, or None if they can."""
    since: dt.datetime | None
    """Time from which jobs are used (see `ClusterCalibration.since`)."""
    rules_before: str | None
    """Description of the rules before that time."""
    reasons: tuple[Reason, ...]
    """The reasons that the log gives for waits (see `ClusterCalibration.reasons`)."""
    missing_reasons: tuple[Reason, ...]
    """Those of `reasons` whose rules the twin does not include."""
    sentences: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Return this cluster's part of fidelity.json."""
        return {
            "cluster": self.cluster,
            "policy": self.policy,
            "rules": self.rules,
            "since": self.since,
            "rules_before": self.rules_before,
            "grade": self.score.grade,
            "carries_effects": self.why_no_effect is None,
            "why_no_effect": self.why_no_effect,
            "queue_correlation": self.score.queue_correlation,
            "queue_correlation_interval": self.score.queue_interval,
            "groups": self.score.table.to_dicts(),
            "reasons": [one._asdict() | {"in_twin": one not in self.missing_reasons} for one in self.reasons],
            "candidates": self.candidates.to_dicts(),
            "sentences": list(self.sentences),
        }


@dataclass(frozen=True)
class FidelityStudy:
    """Replays of the clusters of a Trace, compared with its log."""

    calibration: Calibration
    clusters: tuple[Fidelity, ...]

    @property
    def sentences(self) -> tuple[str, ...]:
        """The results for all clusters as sentences."""
        left_out = (f"{name}: no twin: {why}" for name, why in self.calibration.left_out.items())
        return (*(sentence for one in self.clusters for sentence in one.sentences), *left_out)


@explain_damage()
def fidelity(
    trace: Trace | str | Path,
    twin: str | Path | None = None,
    policy: str | None = None,
    *,
    clusters: Sequence[str] | None = None,
    limit: int | None = 100_000,
    seed: int = 0,
    progress: Progress | None = None,
) -> FidelityStudy:
    """Compare a replay with the log of a Trace.

    Parameters
    ----------
    trace : Trace or path
        The Trace to replay.
    twin : path, optional
        A twin.toml. By default, the twins are calibrated now (see `tracekit.calibrate`).
    policy : str, optional
        A policy that replaces the twins' rules, in the form that `tracekit replay -p` accepts. Capacity, placement and
        delays stay the same.
    clusters : sequence of str, optional
        Clusters to replay, by default all of them.
    limit : int, optional
        If no twin is given, use only this many of the first jobs of each cluster, or all jobs if None.
    seed : int
        Random seed for the start-up delays.
    progress : Progress, optional
        Reports every candidate.

    Raises
    ------
    TracekitError
        The Trace or the twin cannot be used, the policy does not exist, or nothing can be compared.
    """
    if policy is not None:
        named_policy(policy)  # fails before the search
    opened = Trace.of(trace).ingested.divided
    if twin is None:
        found = calibrate(opened, clusters=clusters, limit=limit, seed=seed, progress=progress)
    else:
        found = recall(opened, read_twin(Path(twin), opened), clusters=clusters, seed=seed)
    return FidelityStudy(found, tuple(fidelity_of(one, policy) for one in found.clusters))


def fidelity_of(found: ClusterCalibration, policy: str | None = None) -> Fidelity:
    """Compare the log with the twin of a cluster, or with a policy that replaces the twin's rules.

    Raises
    ------
    UsageError
        The policy cannot run in this twin.
    """
    bench, rules = found.bench, found.settings.rules
    if policy is None:
        replayed, unseen, graded = found.twin_s, found.unseen, found.score
        sentences = tuple(found.sentences)
    else:
        replayed = bench.times(found.settings, policy).queue_s
        unseen = found.unseen & ~np.isnan(replayed)
        graded = score(bench.jobs, found.recorded_s, replayed, unseen)
        whole = graded.whole
        sentences = (
            (
                f"mean wait: {whole['twin_mean_s']:,.0f} s with {policy}, {whole['recorded_mean_s']:,.0f} s in the log "
                f"and {found.score.whole['twin_mean_s']:,.0f} s in the twin"
            ),
        )
    return Fidelity(
        found.name,
        policy or rules.policy,
        rules.words() if policy is None else policy,
        graded,
        _quantiles(found, replayed, unseen),
        queue_of(found, replayed, unseen),
        found.candidates(),
        replace(found, score=graded).why_no_effect,
        found.since,
        None if found.rules_before is None else found.rules_before.words(),
        tuple(found.reasons),
        tuple(found.missing_reasons),
        sentences,
    )


def _quantiles(found: ClusterCalibration, replayed: NDArray[np.float64], among: NDArray[np.bool_]) -> pl.DataFrame:
    classes = gpu_class(gpus_of(found.bench.jobs))
    groups = [("all", "all", among)]
    groups += [("gpu_class", name, among & (classes == code)) for code, name in enumerate(GPU_CLASSES)]
    rows = []
    for scope, name, which in groups:
        if not which.any():
            continue
        log, replay = (np.quantile(waits[which], QUANTILES) for waits in (found.recorded_s, replayed))
        rows += [(scope, name, *row) for row in zip(QUANTILES, log.tolist(), replay.tolist(), strict=True)]
    return pl.DataFrame(rows, schema=["scope", "name", "quantile", "recorded_s", "replayed_s"], orient="row")


def queue_of(
    found: ClusterCalibration, replayed: NDArray[np.float64], among: NDArray[np.bool_], moments: int = _MOMENTS
) -> pl.DataFrame:
    """Return the GPUs that the given jobs wait for, in the log and in a replay (see `Fidelity.queue`)."""
    jobs = found.bench.jobs
    at = np.linspace(int(jobs.submit_ms[among].min()), int(jobs.submit_ms[among].max()), moments).astype(np.int64)
    return pl.DataFrame(
        {
            "time": pl.Series([jobs.origin.replace(tzinfo=None)] * len(at)) + pl.Series(at).cast(pl.Duration("ms")),
            "recorded_gpus": queued_gpus(jobs, found.recorded_s, among, at),
            "replayed_gpus": queued_gpus(jobs, replayed, among, at),
        }
    )


def write_fidelity(
    study: FidelityStudy,
    out: Path,
    *,
    force: bool = False,
    draw: Callable[[Fidelity], dict[str, str]] | None = None,
) -> None:
    """Write OUT completely or not at all.

    OUT contains fidelity.json and the twin as twin.toml. It also contains fidelity.parquet (scores), quantiles.parquet
    and queue.parquet, each with a `cluster` column. The plots that `draw` makes are in one folder per cluster, by name.

    Raises
    ------
    OutputError
        OUT exists or cannot be written.
    """
    found, calibration = study.clusters, study.calibration
    staged = StagedFolder(out, force=force, marker=FIDELITY_NAME, kind="a fidelity study")
    try:
        with output_errors(out):
            for name, tables in (
                ("fidelity", [one.score.table for one in found]),
                ("quantiles", [one.quantiles for one in found]),
                ("queue", [one.queue for one in found]),
            ):
                named = [
                    table.select(pl.lit(one.cluster).alias("cluster"), pl.all())
                    for one, table in zip(found, tables, strict=True)
                ]
                pl.concat(named).write_parquet(staged.path / f"{name}.parquet")
            (staged.path / "twin.toml").write_text(twin_text(calibration.twin), encoding="utf-8")
            folders = folder_names([one.cluster for one in found])
            if draw is not None:
                for one, folder in zip(found, folders, strict=True):
                    (staged.path / folder).mkdir()
                    for name, picture in draw(one).items():
                        (staged.path / folder / name).write_text(picture, encoding="utf-8")
            document = {"clusters": [one.to_dict() for one in found], "left_out": calibration.left_out}
            text = orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
            (staged.path / FIDELITY_NAME).write_bytes(text)
        staged.commit()
    finally:
        staged.discard()
