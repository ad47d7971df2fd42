"""What telemetry watches: how many machines, and how many attempts of which size."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracekit.trace import Trace

__all__ = ["NOTHING", "Watched", "watched"]


@dataclass(frozen=True)
class Watched:
    """What telemetry watches."""

    nodes: int | None = None
    """Machines in the node list; None without one."""
    gpu_nodes: int | None = None
    """Machines with samples of GPUs; None without such telemetry."""
    host_nodes: int | None = None
    """Machines with samples of CPU or memory."""
    attempts: Mapping[tuple[float, int], int] = field(default_factory=dict)
    """Attempts that ran while a machine of theirs was watched, by their GPUs and their number of machines."""

    def of_size(self, gpus: float) -> int:
        """Return the attempts of a size, whatever their number of machines."""
        return sum(n for (size, _), n in self.attempts.items() if size == gpus)


NOTHING = Watched()

_NODES = "SELECT count(DISTINCT node_id) FROM {table}"
_ATTEMPTS = """
WITH seen AS (
    SELECT node_id, min(time) AS first_time, max(time) AS last_time
    FROM gpu_utilization
    GROUP BY node_id
),

each AS (
    SELECT
        a.gpu_count,
        count(DISTINCT p.node_id) AS nodes,
        bool_or(a.start_time <= s.last_time AND coalesce(a.end_time > s.first_time, TRUE)) AS watched
    FROM placements AS p
    INNER JOIN attempts AS a ON p.job_id = a.job_id AND p.attempt = a.attempt
    LEFT JOIN seen AS s ON p.node_id = s.node_id
    WHERE a.gpu_count IS NOT NULL
    GROUP BY p.job_id, p.attempt, a.gpu_count
)

SELECT gpu_count, nodes, count(*) AS attempts FROM each WHERE watched GROUP BY gpu_count, nodes
"""


def watched(trace: Trace) -> Watched:
    """Return what the telemetry of a Trace watches.

    A machine is watched from its first to its last sample. Attempts of unknown size or start are not counted.
    """
    tables = {"nodes": "nodes", "gpu_nodes": "gpu_utilization", "host_nodes": "host_utilization"}
    found = {key: table for key, table in tables.items() if trace.has(table)}
    if not {"gpu_nodes", "host_nodes"} & {*found}:
        return Watched()
    with trace.connect() as con:
        numbers = {key: con.execute(_NODES.format(table=table)).fetchall()[0][0] for key, table in found.items()}
        placed = "gpu_nodes" in found and trace.has("placements") and trace.has("attempts")
        rows = con.execute(_ATTEMPTS).fetchall() if placed else []
    return Watched(**numbers, attempts={(float(gpus), nodes): number for gpus, nodes, number in rows})
