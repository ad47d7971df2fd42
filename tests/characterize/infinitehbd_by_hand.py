"""Read the failures in the InfiniteHBD release from its JSON without tracekit."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING

import orjson

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["outages_by_hand"]


def outages_by_hand(folder: Path) -> tuple[dict[str, list[tuple[float, float]]], float, float]:
    """Return when faults took each server out of service [d], merging overlaps, and the release's begin and end."""
    records = orjson.loads((folder / "fault_trace.json").read_bytes())
    open_of: dict[tuple[str, str], list[float]] = defaultdict(list)
    spans: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for r in sorted(records, key=lambda r: (r["event_time"], r["event_type"] == "fault_end")):
        kind = r["fault_type"]
        if kind["Class"] in ("Change", "Test"):  # planned
            continue
        if r["event_type"] == "fault_start":
            open_of[r["node_id"], str(kind)].append(r["event_time"])
        else:
            spans[r["node_id"]].append((open_of[r["node_id"], str(kind)].pop(0), r["event_time"]))
    assert not any(open_of.values())
    merged = {}
    for node, own in spans.items():
        whole: list[tuple[float, float]] = []
        for since, until in sorted(own):
            if whole and since <= whole[-1][1]:
                whole[-1] = (whole[-1][0], max(until, whole[-1][1]))
            else:
                whole.append((since, until))
        merged[node] = whole
    times = [r["event_time"] for r in records]
    return merged, min(times), max(times)
