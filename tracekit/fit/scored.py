"""Fit a workload model to a Trace and score the workloads generated from it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from threadpoolctl import threadpool_limits

from tracekit.damage import explain_damage
from tracekit.errors import UsageError
from tracekit.fit.api import fit_model
from tracekit.fit.choice import Effort
from tracekit.fit.model import WorkloadModel, rounded
from tracekit.fit.scores.table import score
from tracekit.progress import Progress
from tracekit.trace import Trace

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.runs.ledger import Ledger


SCORED_SEEDS = 5
"""Default number of workloads per generator that are judged."""


@explain_damage()
def fit(
    trace: Trace | str | Path,
    *,
    seed: int = 0,
    replicates: int = 99,
    scores: int = SCORED_SEEDS,
    shared: Ledger | None = None,
    memory_limit: str | None = None,
    progress: Progress | None = None,
) -> WorkloadModel:
    """Fit a workload model to a Trace and score the generators on its last part.

    Parameters
    ----------
    trace : Trace, str or Path
        The Trace or its folder.
    seed : int
        Seed for goodness of fit and bootstrap; the parameters do not depend on it.
    replicates : int
        Number of samples that each bootstrap draws; 0 skips the p-values.
    scores : int
        Number of workloads per generator that are drawn and judged (see `tracekit.fit.scores.table`); 0 skips the
        scores.
    shared : Ledger, optional
        The folder in which shards draw and judge workloads together, or from which they are gathered (see
        docs/howto/shards.md).
    memory_limit : str, optional
        Maximum memory, such as '2GB', that DuckDB may use for usage measurements before it spills to disk.
    progress : Progress, optional
        Receives progress updates.

    Returns
    -------
    WorkloadModel
        The same Trace and seed give the same model, byte for byte.

    Raises
    ------
    TraceError
        The Trace does not exist or has no jobs table.
    UsageError
        The Trace has no jobs, or an option is invalid.
    UnfinishedError
        `shared` only gathers results, but workloads are missing.

    Examples
    --------
    >>> import tracekit
    >>> model = tracekit.fit("my-trace")  # doctest: +SKIP
    >>> model.run_time(gpu_class="1")["chosen"]  # doctest: +SKIP
    'lognorm_mix_3'
    >>> model.document["scores"]["best"]  # doctest: +SKIP
    'resample'
    """
    if scores < 0:
        raise UsageError(f"must be at least 0, not {scores}", where="--scores")
    if seed < 0:
        raise UsageError(f"must be at least 0, not {seed}", where="--seed")
    if replicates < 0:
        raise UsageError(f"must be at least 0, not {replicates}", where="--bootstrap")
    opened, progress = Trace.of(trace).ingested, progress or Progress()
    effort = Effort(replicates=replicates)
    model = fit_model(opened, seed=seed, effort=effort, memory_limit=memory_limit, progress=progress)
    found = _scores(opened, scores, shared, progress)
    return WorkloadModel(rounded({**model.document, "scores": found}))


@explain_damage()
def make_scores(
    trace: Trace | str | Path, shared: Ledger, *, scores: int = SCORED_SEEDS, progress: Progress | None = None
) -> str | None:
    """Draw and judge one shard's workloads; if there are none, return the reason as a sentence without a full stop.

    Parameters
    ----------
    trace : Trace, str or Path
        The Trace or its folder.
    shared : Ledger
        The folder that the shards share.
    scores : int
        Number of workloads per generator, over all shards.
    progress : Progress, optional
        Receives progress updates.

    Raises
    ------
    TracekitError
        The Trace, the folder or `scores` cannot be used.
    """
    if scores < 1:
        raise UsageError("leaves no work for a shard", where="--scores", hint="give 1 or more")
    reason = _scores(Trace.of(trace).ingested, scores, shared, progress or Progress())["reason"]
    return None if reason is None else str(reason)


def _scores(trace: Trace, scores: int, shared: Ledger | None, progress: Progress) -> dict[str, Any]:
    with threadpool_limits(limits=1, user_api="blas"):
        return score(trace, scores, progress, shared=shared)
