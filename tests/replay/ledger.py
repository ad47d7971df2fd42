"""The auditor's books, which track what each row of an event log changes and which laws it breaks."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tests.replay.places import NodeMap, Want, wants
from tracekit.replay.outcome import LOG_KINDS

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs
    from tracekit.replay.outages.asked import Checkpoints

__all__ = ["Ledger", "Moment"]

_NAMES = {number: name for name, number in LOG_KINDS.items()}
_PHASES = (("finish",), ("up", "down", "fail"), ("submit", "reject"), ("stop", "start", "take", "rate"))
_PHASE = {name: number for number, names in enumerate(_PHASES) for name in names}
_INFINITE = 1 << 62


@dataclass(frozen=True)
class Moment:
    """The state after all rows with the same time."""

    time: int
    running: int
    pending: int
    busy_milli: int
    free_milli: int
    fragmented_milli: int


@dataclass
class _Account:
    """The state of one job according to the log."""

    work: int
    """Work left [ms * ppm]."""
    overhead: int = 0
    """Remaining overhead [ms]."""
    rate: int = 0
    since: int = 0
    takes: list[tuple[int, int, int]] = field(default_factory=list)
    """The current or last (node, gpu, milli) of the job."""
    last_start: int = -1
    unsaved: list[tuple[int, int]] = field(default_factory=list)
    """Work since the job's last checkpoint, as (time [ms], rate)."""
    sums: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    """Figures under the names of Outcome's fields."""


class Ledger:
    """Follows a log row by row. `broken` collects a sentence for every broken law."""

    def __init__(
        self,
        jobs: Jobs,
        cluster: Cluster,
        *,
        residents: int,
        memory: Sequence[int] | None,
        gang: str,
        quotas: Mapping[str, Sequence[tuple[int, int]]] | None,
    ) -> None:
        self.jobs, self.cluster = jobs, cluster
        self.residents, self.memory, self.gang, self.quotas = residents, memory, gang, quotas
        self.overhead_ms: tuple[int, int, int] | None = None
        self.speed: Callable[[int, Mapping[int, list[tuple[int, int, int]]]], int] | None = None
        self.preemptive = True
        self.checkpoints: Checkpoints | None = None
        self.failing = -1
        """The node that fails in the current rows."""
        self.at_end_of_instant: Callable[[], None] | None = None
        self.broken: list[str] = []
        self.want: list[Want] = wants(jobs, cluster)
        self.accounts = [_Account(int(work) * 1_000_000) for work in jobs.work_ms]
        self.submitted: set[int] = set()
        self.waiting: set[int] = set()
        self.running: set[int] = set()
        self.ended: set[int] = set()
        self.rejected: set[int] = set()
        self.gpus = [int(count) for count in cluster.gpus]
        self.up = [not absent for absent in cluster.absent]
        self.holders: list[dict[int, list[tuple[int, int]]]] = [defaultdict(list) for _ in self.gpus]
        self.counted = [0] * len(cluster.domains)
        self.changes_seen = 0
        self.now = -_INFINITE
        self.phase = 0
        self.instant_at_same_time = 0
        self.last_of_phase = -1
        self.last_domain = -1
        self.starting = -1
        """The job of the current take rows."""
        self.left: dict[int, tuple[list[tuple[int, int, int]], int]] = {}
        """Jobs stopped in this instant, as (takes, overhead charged)."""
        self.by_count = False
        self.moments: list[Moment] = []
        self.first_moment = self._moment()

    # ---- reading ----

    def fail(self, sentence: str) -> None:
        """Record a broken law at the current time."""
        self.broken.append(f"at {self.now} ms: {sentence}")

    def read(self, time: int, kind: int, job: int, node: int, gpu: int, value: int) -> None:
        """Process one row."""
        name = _NAMES.get(kind)
        if name is None:
            self.fail(f"a row has the unknown kind {kind}")
            return
        if name not in {"up", "down"} and not 0 <= job < len(self.accounts):
            self.fail(f"a {name} row names job {job}, which does not exist")
            return
        if name != "take":
            self._end_of_takes()
        if name != "fail":
            self._end_of_fails()
        self._follow_time(time, name, job)
        if name == "take":
            self._take(job, node, gpu, value)
        elif name in {"up", "down"}:
            self._change(node, up=name == "up")
        elif name == "fail":
            self._fail_under(job, node, value)
        elif name in {"start", "rate", "stop"}:
            {"start": self._start, "rate": self._rate, "stop": self._stop}[name](job, value)
        else:
            {"submit": self._submit, "finish": self._finish, "reject": self._reject}[name](job)

    def _follow_time(self, time: int, name: str, job: int) -> None:
        if time < self.now:
            self.fail(f"time runs back to {time} ms")
            return
        phase = _PHASE[name]
        if time > self.now:
            self._end_of_instant()
            if self.now > -_INFINITE:
                self.moments.append(self._moment())
            self.now, self.instant_at_same_time = time, 0
            self._begin_instant(phase)
        elif phase == 0 and self.phase == 3:
            self._end_of_instant()
            self.instant_at_same_time += 1
            self._begin_instant(phase)
        elif phase < self.phase:
            self.fail(f"a {name} row comes after rows that follow it inside an instant")
        elif phase > self.phase:
            self.phase, self.last_of_phase = phase, -1
        self._check_order(name, job)

    def _check_order(self, name: str, job: int) -> None:
        """Check that ends and submissions are ordered by job, and scheduling by domain."""
        if name in {"finish", "submit"}:
            if job <= self.last_of_phase:
                self.fail(f"{name} of job {job} comes after that of job {self.last_of_phase}")
            self.last_of_phase = job
        if name in {"start", "stop"}:
            if self.want[job].domain < self.last_domain:
                self.fail(f"{name} of job {job} comes after rows of a later domain")
            self.last_domain = max(self.last_domain, self.want[job].domain)

    def _begin_instant(self, phase: int) -> None:
        self.phase, self.last_of_phase, self.last_domain = phase, -1, -1

    def _end_of_instant(self) -> None:
        """Check evictions, rates and the queue after reading all rows of an instant."""
        for job, (_, charged) in self.left.items():
            self.accounts[job].sums["preemptions"] += 1
            self.accounts[job].unsaved = []
            self._check_charge(job, charged, "preempted")
        self.left = {}
        if self.speed is not None:
            places = {
                job: [(node, gpu, milli // 1000) for node, gpu, milli in self.accounts[job].takes]
                for job in self.running
            }
            for job in sorted(self.running):
                wanted = self.speed(job, places)
                if wanted != self.accounts[job].rate:
                    self.fail(f"job {job} runs at {self.accounts[job].rate} ppm where {wanted} are due")
        if self.at_end_of_instant is not None and self.now > -_INFINITE:
            self.at_end_of_instant()

    def close(self) -> None:
        """Check the jobs that are left when the log ends."""
        self._end_of_takes()
        self._end_of_fails()
        self._end_of_instant()
        self.moments.append(self._moment())
        for job in sorted(self.running):
            self.fail(f"job {job} still runs when the log ends")
        for job in range(len(self.accounts)):
            if job not in self.submitted and job not in self.rejected:
                self.fail(f"job {job} is never submitted")
        self._missed_changes(self.now)

    # ---- rows ----

    def _submit(self, job: int) -> None:
        if self.now != int(self.jobs.submit_ms[job]):
            self.fail(f"job {job} is submitted, but its time is {int(self.jobs.submit_ms[job])} ms")
        if job in self.submitted:
            self.fail(f"job {job} is submitted again")
        self.submitted.add(job)
        self.waiting.add(job)

    def _reject(self, job: int) -> None:
        if self.now != int(self.jobs.submit_ms[job]):
            self.fail(f"job {job} is rejected, but it is submitted at {int(self.jobs.submit_ms[job])} ms")
        if job in self.running or job in self.ended or job in self.rejected:
            self.fail(f"job {job} is rejected after it ran, ended or was rejected")
        self.rejected.add(job)
        self.waiting.discard(job)

    def _start(self, job: int, rate: int) -> None:
        account = self.accounts[job]
        if job not in self.waiting:
            state = "runs" if job in self.running else "has ended" if job in self.ended else "is not submitted"
            self.fail(f"job {job} starts although it {'was rejected' if job in self.rejected else state}")
        if rate <= 0:
            self.fail(f"job {job} starts with the rate {rate} ppm")
        self._release(job)
        self.waiting.discard(job)
        self.running.add(job)
        account.rate, account.since, account.last_start, account.takes = max(1, rate), self.now, self.now, []
        account.sums.setdefault("first_start_ms", self.now)
        self.starting = job

    def _take(self, job: int, node: int, gpu: int, milli: int) -> None:
        if job != self.starting:
            self.fail(f"job {job} takes GPUs without a start row just before")
            return
        account = self.accounts[job]
        if milli <= 0:
            self.fail(f"job {job} takes {milli} milli-GPUs")
        if node == -1:
            self.by_count = True
            self.counted[self.want[job].domain] += milli
        elif not 0 <= node < len(self.gpus):
            self.fail(f"job {job} takes GPUs of node {node}, which does not exist")
            return
        else:
            if gpu >= self.gpus[node] or gpu < -1:
                self.fail(f"job {job} takes GPU {gpu} of node {node}, which has {self.gpus[node]}")
                return
            if any((n, g) == (node, gpu) for n, g, _ in account.takes):
                self.fail(f"job {job} takes GPU {gpu} of node {node} twice")
            self.holders[node][gpu].append((job, milli))
        account.takes.append((node, gpu, milli))

    def _end_of_takes(self) -> None:
        """Check a start after reading its take rows."""
        job = self.starting
        if job < 0:
            return
        self.starting = -1
        account = self.accounts[job]
        total = sum(milli for _, _, milli in account.takes)
        asked = int(self.jobs.devices[job]) * int(self.jobs.milli[job])
        if (self.gang == "exact" and total != asked) or (self.gang == "rounded" and total < asked) or total == 0:
            self.fail(f"job {job} starts with {total} milli-GPUs of the {asked} that it asks for")
        back = False
        if job in self.left:
            old, charged = self.left.pop(job)
            back = sorted(old) == sorted(account.takes)
            if back and charged:
                self.fail(f"job {job} returns to its GPUs in the same instant and is charged {charged} ms")
            if not back:
                account.sums["migrations"] += 1
                account.unsaved = []
                self._check_charge(job, charged, "migrated")
        for node in sorted({node for node, _, _ in account.takes}):
            self._check_node(job, node, back=back)
        if self.quota_left(job) < 0:
            self.fail(f"job {job} starts and its tenant holds more than its quota")

    def _check_node(self, job: int, node: int, *, back: bool) -> None:
        want = self.want[job]
        if node == -1:
            there = sum(
                g for g, up, d in zip(self.gpus, self.up, self.cluster.domain, strict=True) if up and d == want.domain
            )
            if self.counted[want.domain] > there * 1000:
                self.fail(f"domain {want.domain} holds {self.counted[want.domain]} milli-GPUs of {there} GPUs")
            return
        if not self.up[node] and not back:
            self.fail(f"job {job} starts on node {node}, which is away")
        if int(self.cluster.domain[node]) != want.domain:
            self.fail(f"job {job} starts on node {node} of another domain")
        if want.model is not None and self.cluster.models[self.cluster.model[node]] != want.model:
            self.fail(f"job {job} starts on node {node}, which has another GPU model than it asks for")
        if self.node_busy(node) > self.gpus[node] * 1000:
            self.fail(f"node {node} holds {self.node_busy(node)} milli-GPUs of {self.gpus[node]} GPUs")
        for gpu, holders in self.holders[node].items():
            if gpu >= 0 and any(other == job for other, _ in holders):
                self._check_gpu(node, gpu, holders)

    def _check_gpu(self, node: int, gpu: int, holders: list[tuple[int, int]]) -> None:
        if len(holders) > self.residents and not (
            self.residents == 1 and all(m < 1000 for _, m in holders) and sum(m for _, m in holders) <= 1000
        ):
            self.fail(f"GPU {gpu} of node {node} has {len(holders)} residents: {sorted(j for j, _ in holders)}")
        if self.memory is not None and sum(self.memory[job] for job, _ in holders) > 1000:
            self.fail(f"GPU {gpu} of node {node} holds more memory than it has")
        if all(m < 1000 for _, m in holders) and sum(m for _, m in holders) > 1000:
            self.fail(f"GPU {gpu} of node {node} is divided into more than one GPU")

    def _stop(self, job: int, charged: int) -> None:
        if not self.preemptive:
            self.fail(f"job {job} is stopped by a policy that does not preempt")
        if job not in self.running:
            self.fail(f"job {job} is stopped although it does not run")
            return
        account = self.accounts[job]
        self._settle(job)
        if self._due(job) <= self.now and account.last_start < self.now:
            self.fail(f"job {job} is stopped although its work is done")
        if charged < 0:
            self.fail(f"job {job} is charged {charged} ms")
        self._release(job)
        self.running.discard(job)
        self.waiting.add(job)
        account.overhead += max(0, charged)
        if job in self.left:
            self.fail(f"job {job} is stopped twice in one instant")
        self.left[job] = (list(account.takes), charged)

    def _rate(self, job: int, rate: int) -> None:
        if job not in self.running:
            self.fail(f"job {job} changes its rate although it does not run")
            return
        if rate <= 0:
            self.fail(f"job {job} runs at {rate} ppm")
        self._settle(job)
        self.accounts[job].rate = max(1, rate)

    def _finish(self, job: int) -> None:
        if job not in self.running:
            self.fail(f"job {job} ends although it does not run")
            return
        account = self.accounts[job]
        due = self._due(job)
        if due != self.now:
            self.fail(f"job {job} ends, but its work is done at {due} ms")
        if self.instant_at_same_time and account.last_start != self.now:
            self.fail(f"job {job} ends in a further instant although it ran before")
        self._settle(job)
        self._release(job)
        self.running.discard(job)
        self.ended.add(job)
        account.sums["end_ms"] = self.now

    def _change(self, node: int, *, up: bool) -> None:
        self._missed_changes(self.now - 1)
        at = self.changes_seen
        known = at < len(self.cluster.change_ms) and (
            int(self.cluster.change_ms[at]),
            int(self.cluster.change_node[at]),
            bool(self.cluster.change_up[at]),
        )
        if known != (self.now, node, up):
            self.fail(f"node {node} goes {'up' if up else 'down'}, which the cluster does not say")
            return
        self.changes_seen += 1
        self.up[node] = up
        if self.cluster.change_kills is not None and self.cluster.change_kills[at]:
            self.failing = node

    def _fail_under(self, job: int, node: int, charged: int) -> None:
        """Handle a node failure under a job, which must repeat its work since the last checkpoint."""
        if self.checkpoints is None or node != self.failing:
            self.fail(f"job {job} is stopped by node {node}, which does not fail")
            return
        if job not in self.running or node not in {n for n, _, _ in self.accounts[job].takes}:
            self.fail(f"job {job} is stopped by node {node}, on which it does not run")
            return
        account = self.accounts[job]
        self._settle(job)
        due = max(account.overhead, self.checkpoints.restart_ms)
        if charged != due:
            self.fail(f"job {job} is charged {charged} ms for a restart where {due} are due")
        account.overhead = due
        account.sums["lost_milli_ms"] += sum(t for t, _ in account.unsaved) * sum(m for _, _, m in account.takes)
        account.sums["restarts"] += 1
        account.work += sum(time * rate for time, rate in account.unsaved)
        account.unsaved = []
        self._release(job)
        self.running.discard(job)
        self.waiting.add(job)

    def _end_of_fails(self) -> None:
        """Check that nothing runs on a node that has just failed."""
        left = sorted({job for held in self.holders[self.failing].values() for job, _ in held})
        if self.failing >= 0 and left:
            self.fail(f"node {self.failing} fails, and job {left[0]} runs on it still")
        self.failing = -1

    def _missed_changes(self, until: int) -> None:
        while self.changes_seen < len(self.cluster.change_ms) and self.cluster.change_ms[self.changes_seen] <= until:
            node = int(self.cluster.change_node[self.changes_seen])
            self.fail(f"the change of node {node} at {int(self.cluster.change_ms[self.changes_seen])} ms is missing")
            self.changes_seen += 1

    # ---- figures ----

    def _settle(self, job: int) -> None:
        account = self.accounts[job]
        passed = self.now - account.since
        waited = min(passed, account.overhead)
        account.overhead -= waited
        account.work = max(0, account.work - (passed - waited) * account.rate)
        if self.checkpoints is not None:
            self._checkpoint(account, passed - waited, int(self.checkpoints.period_ms[job]))
        account.since = self.now
        account.sums["overhead_ms"] += waited
        account.sums["run_ms"] += passed
        account.sums["held_milli_ms"] += passed * sum(milli for _, _, milli in account.takes)

    @staticmethod
    def _checkpoint(account: _Account, worked: int, period: int) -> None:
        """Remove whole periods from the unsaved work, beginning with the first."""
        account.unsaved.append((worked, account.rate))
        whole = sum(time for time, _ in account.unsaved) // period * period
        while whole > 0:
            time, rate = account.unsaved.pop(0)
            if time > whole:
                account.unsaved.insert(0, (time - whole, rate))
            whole -= min(time, whole)

    def _due(self, job: int) -> int:
        account = self.accounts[job]
        return account.since + account.overhead + -(-account.work // account.rate)

    def _release(self, job: int) -> None:
        if job not in self.running:
            return
        for node, gpu, milli in self.accounts[job].takes:
            if node == -1:
                self.counted[self.want[job].domain] -= milli
            else:
                self.holders[node][gpu].remove((job, milli))

    def _check_charge(self, job: int, charged: int, what: str) -> None:
        if self.overhead_ms is None:
            return
        gpus = int(self.jobs.devices[job])
        cost = self.overhead_ms[0 if gpus == 1 else 1 if gpus <= 8 else 2]
        if charged != cost:
            self.fail(f"job {job} is {what} and charged {charged} ms where {cost} are due")

    def node_busy(self, node: int) -> int:
        """Return how much of a node is allocated [milli-GPU]. A shared GPU counts once."""
        return sum(
            sum(m for _, m in holders) if gpu < 0 else min(1000, sum(m for _, m in holders))
            for gpu, holders in self.holders[node].items()
        )

    def quota_left(self, job: int) -> int:
        """Return how many GPUs the job's tenant is below its quota now, negative if above."""
        tenant = int(self.jobs.tenant[job])
        name = self.jobs.tenants[tenant] if tenant >= 0 else ""
        if self.quotas is None or name not in self.quotas:
            return _INFINITE
        steps = self.quotas[name]
        quota = [gpus for at, gpus in steps if at <= self.now] or [steps[0][1]]
        held = sum(
            milli for j in self.running if int(self.jobs.tenant[j]) == tenant for _, _, milli in self.accounts[j].takes
        )
        return quota[-1] - -(-held // 1000)

    def most_quota(self, job: int) -> int:
        """Return the largest quota that the job's tenant has at any time [GPUs]."""
        tenant = int(self.jobs.tenant[job])
        name = self.jobs.tenants[tenant] if tenant >= 0 else ""
        if self.quotas is None or name not in self.quotas:
            return _INFINITE
        return max(gpus for _, gpus in self.quotas[name])

    def node_map(self) -> NodeMap:
        """Return the current nodes for the placement rules."""
        nodes = NodeMap(self.cluster)
        nodes.up = list(self.up)
        nodes.counted = [milli // 1000 for milli in self.counted]
        for node, held in enumerate(self.holders):
            nodes.used[node] = self.node_busy(node) // 1000
            for gpu, holders in held.items():
                if gpu >= 0 and holders:
                    nodes.cells[node][gpu] = True
        return nodes

    def _moment(self) -> Moment:
        busy = [self.node_busy(node) for node in range(len(self.gpus))]
        free = [1000 * g - b if up else 0 for g, b, up in zip(self.gpus, busy, self.up, strict=True)]
        return Moment(
            time=self.now,
            running=len(self.running),
            pending=len(self.waiting),
            busy_milli=sum(busy) + sum(self.counted),
            free_milli=sum(free) - sum(self.counted),
            fragmented_milli=sum(f for f, b in zip(free, busy, strict=True) if b),
        )

    def unknown(self) -> set[str]:
        """Return the figures that a log by count does not determine."""
        if not self.by_count:
            return set()
        return {"fragmented_milli"} | ({"free_milli"} if len(self.cluster.change_ms) else set())

    def integrals(self, until: int) -> dict[str, int]:
        """Return the integrals over [0, until] of busy, free and fragmented GPUs [milli-GPU * ms]."""
        names = ["busy_milli", "free_milli", "fragmented_milli"]
        sums = dict.fromkeys((name for name in names if name not in self.unknown()), 0)
        before = [self.first_moment, *self.moments]
        for moment, following in zip(before, [*before[1:], None], strict=True):
            begin = max(0, moment.time)
            end = until if following is None else min(until, following.time)
            for name in sums:
                sums[name] += max(0, end - begin) * getattr(moment, name)
        return {f"{name}_ms": total for name, total in sums.items()}

    def per_job(self, name: str) -> list[int]:
        """Return a field of Outcome according to the log."""
        if name == "unschedulable":
            return [int("end_ms" not in account.sums) for account in self.accounts]
        if name == "nodes_spanned":
            return [len({node for node, _, _ in account.takes if node >= 0}) for account in self.accounts]
        default = -1 if name in {"first_start_ms", "end_ms"} else 0
        return [account.sums.get(name, default) for account in self.accounts]
