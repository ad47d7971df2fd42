"""The expected effect of a change on the cost of outages: the saving that the twins of the log predict."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tracekit.calibration.losses import ASSUMED, RecordedLosses, loss_effect
from tracekit.calibration.workbench import UNNAMED
from tracekit.text import percent

if TYPE_CHECKING:
    from tracekit.calibration.losses import LossEffect
    from tracekit.calibration.twins import Twins
    from tracekit.guidelines.evidence import Evidence
    from tracekit.guidelines.interface import Finding, LossTrial


_RECORDED = """
SELECT
    i.job_id,
    count(*) FILTER (WHERE i.node_cause IS NOT NULL AND i.interrupted) AS stopped,
    sum(i.gpu_s) * $saving
    + coalesce(
        sum((i.run_s % $period_s + $restart_s) * (1 - $saving) * i.gpu_count)
            FILTER (WHERE i.node_cause IS NOT NULL AND i.interrupted),
        0
    ) AS gpu_s,
    CASE WHEN bool_and(coalesce(i.wait_s >= 0, FALSE)) THEN sum(i.wait_s * i.gpu_count) END AS waited_gpu_s
FROM attempt_interruptions AS i
WHERE i.run_s IS NOT NULL AND i.gpu_count > 0
GROUP BY i.job_id
"""
"""The rule of the twin's replay: a share of the allocated time goes into saving. An attempt stopped by an outage loses
its work since the last checkpoint and a restart; that share is already counted in it."""


@dataclass(frozen=True)
class Losses:
    """The expected effect of a guideline on the cost of outages."""

    effects: tuple[LossEffect, ...]
    """The effect of each change in each cluster that supports it; the change that saves most first."""
    untold: tuple[str, ...] = ()
    """Why other effects are unknown, one sentence each."""

    @property
    def words(self) -> str:
        """The best change in one line."""
        best = self.effects[0]
        ettr = ""
        if best.ettr is not None and best.changed_ettr is not None:
            before, after = percent(best.ettr), percent(best.changed_ettr)
            ettr = f"; in the simulation the effective training time ratio goes from {before} to {after}"
        return f"{best.change}: {best.words}{ettr}"


def recorded_losses(evidence: Evidence) -> RecordedLosses:
    """Return the log's losses to outages, by job, if its jobs save their work as in `ASSUMED`.

    Raises
    ------
    LackingError
        The Trace lacks attempts.
    """
    interval, cost = float(ASSUMED.interval_s), ASSUMED.cost_s
    params = {
        "period_s": interval + cost,
        "saving": cost / (interval + cost),
        "restart_s": ASSUMED.restart_s,
    }
    frame = evidence.sql(_RECORDED, params, also=("placements", "node_events"))
    names = frame["job_id"].to_list()
    return RecordedLosses(
        dict(zip(names, frame["stopped"].to_list(), strict=True)),
        dict(zip(names, frame["gpu_s"].cast(float).to_list(), strict=True)),
        dict(zip(names, frame["waited_gpu_s"].cast(float).to_list(), strict=True)),
    )


def losses_of(trial: LossTrial, finding: Finding, evidence: Evidence, twins: Twins) -> Losses | str:
    """Return the effect of a trial, or a sentence that explains why it is missing.

    Raises
    ------
    TracekitError
        The twin that the user gave cannot be used.
    """
    if twins.reason is not None:
        return f"Cannot tell: {twins.reason}."
    recorded = recorded_losses(evidence)
    effects: list[LossEffect] = []
    untold: dict[str, None] = {}
    for change in trial.changes(finding):
        for one in twins.clusters:
            found = loss_effect(one, evidence.trace.ingested, recorded, change)
            if isinstance(found, str):
                where = "the cluster" if one.found.name == UNNAMED else f"cluster {one.found.name}"
                why = found.removesuffix("; the effect cannot be told")
                untold[f"Cannot tell the gain in {where}, {change.name}: {why}."] = None
            else:
                effects.append(found)
    if not effects:
        return " ".join(untold) or "There is nothing to try."
    effects.sort(key=lambda effect: -effect.saved_gpu_h)
    return Losses(tuple(effects), tuple(untold))


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
