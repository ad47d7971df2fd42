"""Which number of GPUs each part of a report stands on, since the sources of a trace differ."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.characterize.quotas import OWNED
from tracekit.report.words import owned_gpus

if TYPE_CHECKING:
    from tracekit.report.sections import Facts
    from tracekit.report.structure import Answer, CapacityInfo, GpuTotal, ReplayInfo, Row

__all__ = ["gpu_totals"]

_QUOTA = "quota: "


def gpu_totals(
    answers: list[Answer], capacity: CapacityInfo, replay: ReplayInfo | None, facts: Facts
) -> list[GpuTotal]:
    """Return the totals that the report uses, those of whole clusters first.

    Parameters
    ----------
    answers : list of Answer
        Of all queries.
    capacity : CapacityInfo
        The number of GPUs used and its alternatives.
    replay : ReplayInfo, optional
        What the replays were made of.
    facts : Facts
        What is known of the trace.
    """
    by = {a["name"]: a for a in answers}
    found: list[GpuTotal] = []
    load = by.get("queuing/cluster_timeline")
    owned = owned_gpus(load["rows"]) if load else None
    if load and owned is not None:
        source = _note(load, OWNED) or _source(capacity, owned) or "what the trace states of its VCs or clusters"
        found.append(
            {"gpus": owned, "source": source, "used_for": "shares of the whole cluster, through time and by hour"}
        )
    use = by.get("utilization/vc")
    quotas = [r["capacity_gpus"] for r in use["rows"] if r["capacity_gpus"] is not None] if use else []
    if use and quotas and facts.vcs:
        source = f"the sum over its VCs, {_note(use, _QUOTA)}"
        found.append(
            {"gpus": sum(quotas), "source": source, "used_for": "what each VC may use, and waits for its quota"}
        )
    nodes = next((r["value"] for r in _rows(by, "overview/summary") if r["metric"] == "gpus_observed"), None)
    if nodes is not None and "locality/fragmentation" in by:
        source = "node by node, the most that the list, jobs or telemetry show"
        found.append({"gpus": nodes, "source": source, "used_for": "free GPUs, idle nodes and their power"})
    if replay and replay["cluster"]:
        found.append(
            {"gpus": float(replay["cluster"]["gpus"]), "source": "the cluster of the replays", "used_for": "replays"}
        )
    return found


def _rows(by: dict[str, Answer], name: str) -> list[Row]:
    return by[name]["rows"] if name in by else []


def _note(answer: Answer, start: str) -> str:
    """Return the rest of the note that begins so; '' without one."""
    return next((n.removeprefix(start) for n in answer["notes"] if n.startswith(start)), "")


def _source(capacity: CapacityInfo, gpus: float) -> str:
    """Return the source of the capacity, where it is this number."""
    return capacity["note"] if capacity["gpus"] == gpus else ""
