"""The number of GPUs of a report, and the parts that have to use another, each with its source."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.characterize.quotas import OWNED
from tracekit.report.answers import metrics, rows_of
from tracekit.text import cut

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracekit.answer import Answer
    from tracekit.report.structure import CapacityInfo, GpuTotal, ReplayInfo

__all__ = ["REPLAYS", "capacity_label", "gpu_totals"]

REPLAYS = "replays"
"""What the GPUs of the replays are used for."""

_LARGEST = "largest "
"""Start of the word of a capacity that changes through time."""


def capacity_label(capacity: CapacityInfo) -> str:
    """Return what the number of GPUs is, as a chart calls it: 'owned', 'quotas' or 'observed at most'."""
    word = capacity["word"]
    return "observed at most" if word == "observed" else "quotas" if "quotas" in word else "owned"


def gpu_totals(answers: Mapping[str, Answer], capacity: CapacityInfo, replay: ReplayInfo | None) -> list[GpuTotal]:
    """Return the number of GPUs that the report uses, and then the others that parts of it had to use instead."""
    found: list[GpuTotal] = []
    gpus = capacity["gpus"]
    owned = metrics(answers, "queuing/gpu_time_held").get("owned_gpus")
    changing = capacity["word"].startswith(_LARGEST)
    if gpus is not None:
        moment = "; a share counts what there is at each moment" if changing else ""
        same = owned is not None and (changing or round(owned) == gpus)
        used_for = "shares of the whole cluster, through time and by hour" if same else "the cluster as a whole"
        found.append({"gpus": gpus, "source": capacity["note"] + moment, "used_for": used_for})
    if owned is not None and (gpus is None or not (changing or round(owned) == gpus)):
        source = f"{_note(answers['queuing/gpu_time_held'])}, on average over time"
        used_for = "shares of the whole cluster, through time and by hour"
        found.append({"gpus": owned, "source": source, "used_for": used_for})
    if replay and replay["cluster"] and replay["cluster"]["gpus"] != gpus:
        found.append({"gpus": float(replay["cluster"]["gpus"]), "source": _replayed(answers), "used_for": REPLAYS})
    return found


def _replayed(answers: Mapping[str, Answer]) -> str:
    """Return where the cluster of the replays comes from."""
    rows = rows_of(answers, "replay/assumptions")
    origin = next((r["value"] for r in rows if r["id"] == "cluster"), None)
    return "the cluster of the replays" + (f": {cut(origin)}" if origin else "")


def _note(answer: Answer) -> str:
    """Return the source of what clusters have, by the answer's note; '' without one."""
    return next((n.removeprefix(OWNED) for n in answer.notes if n.startswith(OWNED)), "")
