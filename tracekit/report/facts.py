"""Facts about a trace that sentences and charts need in addition to the rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tracekit.tenant import VC, Tenant

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracekit.answer import Kind


@dataclass(frozen=True)
class TelemetryCoverage:
    """The machines and attempts that have telemetry samples."""

    nodes: int | None = None
    """Number of machines in the node list, or None if there is no list."""
    gpu_nodes: int | None = None
    """Number of machines with GPU samples, or None if there is no GPU telemetry."""
    host_nodes: int | None = None
    """Number of machines with CPU or memory samples."""
    attempts: Mapping[tuple[float, int], int] = field(default_factory=dict)
    """Number of attempts with samples, by numbers of GPUs and machines."""

    def of_size(self, gpus: float) -> int:
        """Count the attempts with this number of GPUs, on any number of machines."""
        return sum(n for (size, _), n in self.attempts.items() if size == gpus)


NO_TELEMETRY = TelemetryCoverage()


@dataclass(frozen=True)
class TraceFacts:
    """Facts about a trace that sentences and charts need in addition to the rows."""

    vcs: bool = True
    """Whether jobs belong to tenants, such as virtual clusters."""
    tenant: Tenant = VC
    """The tenant in the site's words."""
    ingested: Tenant = VC
    """The tenant of replays and fits, as set at ingest."""
    quotas: bool = True
    """Whether the trace records quotas. If not, each tenant's peak usage replaces them."""
    retried: bool = False
    """Whether retried attempts count as failed, because the source does not record how they ended."""
    jobs: bool = True
    """Whether the trace has jobs. If not, it only describes machines."""
    no_gpu_jobs: str = ""
    """Sentence shown instead of waits if no job is known to have GPUs, otherwise empty."""
    outages: bool = False
    """Whether the trace records when nodes were out of service."""
    load: bool = True
    """Whether the report shows the load of the whole cluster over time."""
    telemetry: TelemetryCoverage = NO_TELEMETRY
    """The machines and attempts that have samples."""
    dated: bool = True
    """Whether times are dates. If not, they are days counted from 1970-01-01 or from `day_zero`."""
    day_zero: str | None = None
    """Midnight before the start of a trace with shifted dates but real hours (ISO, UTC)."""
    timezone: str = "UTC"
    """Time zone for dates and hours."""
    capacity: str = "owned"
    """Kind of the cluster's GPU count: owned GPUs, quotas, or the observed maximum in use."""
    efficiency_by: str = "user"
    """Columns that distinguish the rows of utilization/efficiency."""
    last_submission: str | None = None
    """Time of the last submission (ISO). Later rows show the logged jobs draining, not how full the cluster was."""

    def tenant_of(self, kind: Kind) -> Tenant:
        """Return the tenant for a kind of answer. Replays and fits keep the tenant set at ingest."""
        return self.ingested if kind in {"replay", "fit"} else self.tenant

    @property
    def clocked(self) -> bool:
        """Whether hours of the day are known."""
        return self.dated or self.day_zero is not None


DEFAULT_FACTS = TraceFacts()
"""Facts about a trace with dates, tenants and quotas."""
