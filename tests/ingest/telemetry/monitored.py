"""A Slurm cluster and its GPU monitor, small enough to check by hand."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from tracekit.ingest import ingest_logs

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from tracekit.trace import Trace

__all__ = ["DAY", "Cluster", "at", "series"]

DAY = "2026-03-02"

Row = tuple[str, str, str, int, str]
"""Job number, start, end, GPUs and nodes, with times as hours and minutes of DAY."""


def at(clock: str) -> float:
    """Return a time on DAY as seconds since 1970."""
    return datetime.fromisoformat(f"{DAY}T{clock}").replace(tzinfo=UTC).timestamp()


def series(metric: str, values: Mapping[str, Any], **labels: str) -> dict[str, Any]:
    """Return a series in Prometheus's form from values by time on DAY."""
    return {
        "metric": {"__name__": metric, **labels},
        "values": [[at(clock), str(value)] for clock, value in values.items()],
    }


@dataclass
class Cluster:
    """A cluster's files in a folder."""

    folder: Path
    zone: str = "UTC"
    nodes: dict[str, int] = field(default_factory=dict)

    def jobs(self, *rows: Row) -> None:
        """Write the accounting of jobs, none of which waits."""
        lines = ["JobID|Submit|Start|End|State|Elapsed|AllocTRES|NNodes|NodeList"]
        for number, start, end, gpus, nodes in rows:
            count = len(nodes.split(","))
            lines.append(
                f"{number}|{DAY}T{start}:00|{DAY}T{start}:00|{DAY}T{end}:00|COMPLETED||cpu=1,gres/gpu={gpus},node={count}"
                f"|{count}|{nodes}"
            )
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / "sacct.txt").write_text("\n".join(lines) + "\n")

    def answer(self, name: str, result: Sequence[Mapping[str, Any]]) -> Path:
        """Write a response from Prometheus."""
        path = self.folder / name
        path.write_text(json.dumps({"status": "success", "data": {"resultType": "matrix", "result": list(result)}}))
        return path

    def trace(self, **changes: Any) -> Trace:
        """Return the Trace of the folder."""
        return ingest_logs(self.folder, self.folder.parent / "trace", options={"timezone": self.zone}, **changes)
