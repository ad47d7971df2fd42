"""The number of GPUs that each part of a report uses, since the sources of a trace differ."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.characterize.quotas import ALLOWED, OWNED
from tracekit.report.answers import metrics

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracekit.answer import Answer
    from tracekit.report.structure import CapacityInfo, GpuTotal, ReplayInfo

__all__ = ["gpu_totals"]


def gpu_totals(answers: Mapping[str, Answer], capacity: CapacityInfo, replay: ReplayInfo | None) -> list[GpuTotal]:
    """Return the totals that the report uses, those of whole clusters first."""
    found: list[GpuTotal] = []
    load = answers.get("queuing/gpu_time_held")
    owned = metrics(answers, "queuing/gpu_time_held").get("owned_gpus")
    if load and owned is not None:
        source = capacity["note"] if load.params.get("gpus") else _note(load, OWNED)
        source += ", on average over time" if round(owned) != capacity["gpus"] else ""
        found.append(
            {"gpus": owned, "source": source, "used_for": "shares of the whole cluster, through time and by hour"}
        )
    use = answers.get("utilization/vc")
    quotas = [r["capacity_gpus"] for r in use.rows() if r["capacity_gpus"] is not None] if use else []
    source = _note(use, ALLOWED) if use else ""
    # Quotas that add up to more GPUs than there are overlap: their sum is no number of GPUs.
    more = capacity["gpus"] is not None and sum(quotas) > capacity["gpus"]
    if quotas and source and not more:
        used_for = "what each VC may use, and waits for its quota"
        source = f"the sum over its VCs, on average over time, {source}"
        found.append({"gpus": sum(quotas), "source": source, "used_for": used_for})
    nodes = metrics(answers).get("gpus_observed")
    if nodes is not None and "locality/fragmentation" in answers:
        source = "node by node, the most that any source shows"
        found.append({"gpus": nodes, "source": source, "used_for": "free GPUs, idle nodes and their power"})
    if replay and replay["cluster"]:
        found.append(
            {"gpus": float(replay["cluster"]["gpus"]), "source": "the cluster of the replays", "used_for": "replays"}
        )
    return found


def _note(answer: Answer, start: str) -> str:
    """Return the rest of the note that begins so; '' without one."""
    return next((n.removeprefix(start) for n in answer.notes if n.startswith(start)), "")
