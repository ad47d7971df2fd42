"""The twin that a plan is made on: calibrated now, or that of a file, replayed and graded again."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.calibration.api import calibrate, clusters_by_waiting, recall
from tracekit.calibration.twin import read_twin
from tracekit.errors import UsageError, nearest

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.calibration.api import ClusterCalibration
    from tracekit.progress import Progress
    from tracekit.trace import Trace

__all__ = ["twin_of_cluster"]


def twin_of_cluster(
    trace: Trace,
    file: Path | None,
    cluster: str | None,
    *,
    limit: int | None,
    seed: int,
    progress: Progress,
) -> tuple[ClusterCalibration, list[str]]:
    """Return the twin of a cluster, and the other clusters of the Trace.

    Parameters
    ----------
    trace : Trace
    file : Path, optional
        A twin.toml; what is in it holds, whatever a calibration would find. Its grade is computed again.
    cluster : str, optional
        By default the one in which most of all hours are waited, of those of the file where there is one.
    limit : int, optional
        Without a file: look at the first so many jobs only.
    seed : int
        Of the start-up delays drawn.
    progress : Progress
        Told of every candidate of a calibration.

    Raises
    ------
    UsageError
        The file cannot be used, there is no such cluster, or it cannot be calibrated.
    """
    shares = clusters_by_waiting(trace)
    twin = None if file is None else read_twin(file, trace)
    known = [name for name in shares if twin is None or name in twin.cluster]
    if not known:
        raise UsageError("is of no cluster of the Trace", where=file, hint=f"its clusters are: {', '.join(shares)}")
    name = known[0] if cluster is None else cluster
    if name not in known:
        where = trace.path if file is None else file
        raise UsageError(f"no cluster '{name[:60]}'", where=where, hint=nearest(name[:60], known))
    others = [other for other in shares if other != name]
    if twin is None:
        found = calibrate(trace, clusters=[name], limit=limit, seed=seed, progress=progress)
        return found.clusters[0], others
    return recall(trace, twin, clusters=[name], seed=seed).clusters[0], others
