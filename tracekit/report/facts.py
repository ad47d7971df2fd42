"""The facts about a trace that sentences and charts need besides the rows."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tracekit.tenant import VC, Tenant

if TYPE_CHECKING:
    from collections.abc import Mapping


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


@dataclass(frozen=True)
class TraceFacts:
    """Facts about the trace that sentences and charts need besides the rows."""

    vcs: bool = True
    """Whether jobs belong to tenants, such as virtual clusters."""
    tenant: Tenant = VC
    """The tenant, in the site's words."""
    ingested: Tenant = VC
    """The tenant of replays and fits, which is that of the ingest."""
    quotas: bool = True
    """Whether the trace states what tenants may use; the most that each held stands for it otherwise."""
    retried: bool = False
    """Whether attempts that were tried again count as failed, since the source does not say how they ended."""
    jobs: bool = True
    """Whether there are jobs; the trace tells of machines alone otherwise."""
    no_gpu_jobs: str = ""
    """What is said in place of waits where no job is known to have GPUs; empty where one has."""
    outages: bool = False
    """Whether the trace tells when nodes were out of service."""
    load: bool = True
    """Whether the load of the whole cluster through time is answered."""
    telemetry: TelemetryCoverage = NO_TELEMETRY
    """The machines and attempts that have samples."""
    dated: bool = True
    """Whether times are dates; they are days otherwise, which count from 1970-01-01 or from `day_zero`."""
    day_zero: str | None = None
    """The midnight before a trace begins whose dates are shifted (ISO, UTC): its hours hold, its dates do not."""
    timezone: str = "UTC"
    """Time zone of dates and hours."""
    capacity: str = "owned"
    """What the number of GPUs of a cluster is: those that are owned, quotas, or the most in use that was observed."""
    efficiency_by: str = "user"
    """What tells the rows of utilization/efficiency apart."""
    last_submission: str | None = None
    """Time of the last submission (ISO); later rows show how the jobs of the log run out, not how full it is."""

    @property
    def clocked(self) -> bool:
        """Whether hours of the day are known."""
        return self.dated or self.day_zero is not None


DEFAULT_FACTS = TraceFacts()
"""Those of a trace with dates, tenants and quotas."""
