"""The twin of one cluster, which is calibrated now or stated by a file, and what policies can be tried on in it."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from tracekit.calibration.api import calibrate, clusters_by_waiting, recall, scenario_of_twin, twin_of_log
from tracekit.calibration.twin import read_twin
from tracekit.damage import explain_damage
from tracekit.errors import UsageError, nearest
from tracekit.replay.failing import failing
from tracekit.settings import ReplaySettings, flags_of
from tracekit.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tracekit.calibration.api import Calibration
    from tracekit.calibration.twin import Twin
    from tracekit.progress import Progress
    from tracekit.replay.results.effects import TwinOfLog
    from tracekit.replay.scenario import Scenario
    from tracekit.shards.work import SharedWork

__all__ = ["chosen_cluster", "clusters_of_twin", "scenario_in_twin", "twin_of_cluster"]


def clusters_of_twin(trace: Trace, twin: Twin, file: Path) -> list[str]:
    """Return the clusters that a twin states, those with most of the hours waited first.

    Raises
    ------
    UsageError
        No job of them has GPUs; `file` is where the twin stands.
    """
    shares = clusters_by_waiting(trace)
    found = [name for name in shares if name in twin.cluster]
    if not found:
        raise UsageError(
            "has no cluster with GPU jobs", where=file, hint=f"clusters of the log with GPU jobs: {', '.join(shares)}"
        )
    return found


def chosen_cluster(names: Sequence[str], asked: str | None, where: Path) -> str:
    """Return the cluster that is asked for, or the first.

    Raises
    ------
    UsageError
        There is no such cluster; `where` is the file or Trace that states the others.
    """
    if asked is None:
        return names[0]
    if asked not in names:
        raise UsageError(f"has no cluster '{asked[:60]}'", where=where, hint=nearest(asked[:60], names))
    return asked


def twin_of_cluster(
    trace: Trace,
    file: Path | None,
    cluster: str | None,
    *,
    limit: int | None = None,
    seed: int = 0,
    shared: SharedWork | None = None,
    progress: Progress | None = None,
) -> tuple[Calibration, list[str]]:
    """Return the calibration of one cluster, and the other clusters of the Trace.

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
    shared : SharedWork, optional
        Without a file: where shards calibrate together.
    progress : Progress, optional
        Told of every candidate of a calibration.

    Raises
    ------
    UsageError
        The file cannot be used, there is no such cluster, or it cannot be calibrated.
    """
    shares = clusters_by_waiting(trace)
    if file is None:
        name = chosen_cluster(list(shares), cluster, trace.path)
        found = calibrate(trace, clusters=[name], limit=limit, seed=seed, shared=shared, progress=progress)
    else:
        twin = read_twin(file, trace)
        name = chosen_cluster(clusters_of_twin(trace, twin, file), cluster, file)
        found = recall(trace, twin, clusters=[name], seed=seed)
    return found, [other for other in shares if other != name]


@explain_damage()
def scenario_in_twin(trace: Trace | str | Path, file: Path, settings: ReplaySettings) -> tuple[Scenario, TwinOfLog]:
    """Return what policies can be tried on in a twin that a file states, and that twin, its grade worked out again.

    Parameters
    ----------
    trace : Trace or path
    file : Path
        Its twin.toml.
    settings : ReplaySettings
        The cluster's name, the seed, and outages with their checkpoints and spares; everything else is the twin's, and
        may not be given.

    Raises
    ------
    UsageError
        A setting is given that the twin states, the file cannot be used, or it has no such cluster.
    """
    given = ReplaySettings(
        cluster_name=settings.cluster_name,
        seed=settings.seed,
        force=settings.force,
        outages=settings.outages,
        checkpoint=settings.checkpoint,
        spares=settings.spares,
        lend_spares=settings.lend_spares,
    )
    if settings != given:
        other = next(f.name for f in fields(ReplaySettings) if getattr(settings, f.name) != getattr(given, f.name))
        flag = flags_of(ReplaySettings)[other][1].name
        raise UsageError("cannot be combined with a twin, which sets it", where=flag, hint=f"edit '{file}' instead")
    opened = Trace.of(trace).ingested
    made, _ = twin_of_cluster(opened, file, settings.cluster_name, seed=settings.seed)
    (found,) = made.clusters
    scenario = failing(scenario_of_twin(found, opened), opened, settings)
    return scenario, twin_of_log(found, made.twin)
