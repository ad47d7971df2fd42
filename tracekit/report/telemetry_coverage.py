"""Telemetry coverage: the number of machines with samples, and of attempts with samples by size."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tracekit.characterize.session import Session

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracekit.trace import Trace

__all__ = ["NO_TELEMETRY", "TelemetryCoverage", "telemetry_coverage"]


@dataclass(frozen=True)
class TelemetryCoverage:
    """The machines and attempts that have samples."""

    nodes: int | None = None
    """Machines in the node list; None without one."""
    gpu_nodes: int | None = None
    """Machines with samples of GPUs; None without such telemetry."""
    host_nodes: int | None = None
    """Machines with samples of CPU or memory."""
    attempts: Mapping[tuple[float, int], int] = field(default_factory=dict)
    """Attempts that have samples, by their GPUs and their number of machines."""

    def of_size(self, gpus: float) -> int:
        """Return the attempts of a size, whatever their number of machines."""
        return sum(n for (size, _), n in self.attempts.items() if size == gpus)


NO_TELEMETRY = TelemetryCoverage()

_NODES = "SELECT count(DISTINCT node_id) FROM {table}"
_ATTEMPTS = """
WITH sampled AS (SELECT DISTINCT job_id, attempt FROM attempt_samples),

each AS (
    SELECT a.gpu_count, count(DISTINCT p.node_id) AS nodes
    FROM sampled AS s
    INNER JOIN attempts AS a ON s.job_id = a.job_id AND s.attempt = a.attempt
    INNER JOIN placements AS p ON s.job_id = p.job_id AND s.attempt = p.attempt
    WHERE a.gpu_count IS NOT NULL
    GROUP BY p.job_id, p.attempt, a.gpu_count
)

SELECT gpu_count, nodes, count(*) AS attempts FROM each GROUP BY gpu_count, nodes
"""


def telemetry_coverage(trace: Trace, session: Session | None = None) -> TelemetryCoverage:
    """Return the machines and attempts of a Trace that have samples, as in the view attempt_samples.

    Attempts of unknown size are not counted.
    """
    tables = {"nodes": "nodes", "gpu_nodes": "gpu_utilization", "host_nodes": "host_utilization"}
    found = {key: table for key, table in tables.items() if trace.has(table)}
    if not {"gpu_nodes", "host_nodes"} & {*found}:
        return TelemetryCoverage()
    session = session or Session(trace)
    with session.connect() as con:
        numbers = {key: con.execute(_NODES.format(table=table)).fetchall()[0][0] for key, table in found.items()}
        placed = "gpu_nodes" in found and trace.has("placements") and trace.has("attempts")
        rows = con.execute(_ATTEMPTS).fetchall() if placed else []
    return TelemetryCoverage(**numbers, attempts={(float(gpus), nodes): number for gpus, nodes, number in rows})
