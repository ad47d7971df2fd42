"""Run a policy by its name, either on the oracle or on the real engine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.replay.oracle import OracleOutcome, Rule, oracle
from tracekit.replay.scenario import Scenario

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tests.replay.oracle import Mode
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs
    from tracekit.replay.outcome import Outcome

__all__ = ["canonical", "rule_of", "run_engine", "run_oracle"]

_MODES: dict[str, tuple[str, Mode]] = {
    "fifo": ("fifo", "list"),
    "sjf": ("sjf", "list"),
    "ssf": ("ssf", "list"),
    "easy": ("fifo", "easy"),
    "conservative": ("fifo", "conservative"),
    "srtf": ("srtf", "preemptive"),
    "srsf": ("srsf", "preemptive"),
    "las": ("las", "preemptive"),
    "fair": ("fifo", "fair"),
}
_OVERHEADS = {"none": (0, 0, 0), "helios": (7_000, 30_000, 60_000), "lucid": (40_000, 40_000, 60_000)}


def run_engine(jobs: Jobs, cluster: Cluster, policy: str, placement: str = "consolidate") -> Outcome:
    """Run a policy such as 'fifo,scan=skip' on the compiled engine, and return its Outcome with the log."""
    return Scenario.make(jobs, cluster, placement=placement).run(policy, log=True).outcome


def run_oracle(jobs: Jobs, cluster: Cluster, policy: str, placement: str = "consolidate") -> OracleOutcome:
    """Run the same policy on the oracle."""
    return oracle(jobs, cluster, rule_of(policy, placement))


def rule_of(policy: str, placement: str = "consolidate") -> Rule:
    """Parse name[,scan=..][,fit=..][,overhead=..][,queues=a/b [GPU*s] or none] into the oracle's rule."""
    name, *rest = policy.split(",")
    given: dict[str, Any] = dict(item.split("=") for item in rest)
    order, mode = _MODES[name]
    queues = given.get("queues", "none" if order != "las" else "3250/7200")
    return Rule(
        order=order,
        mode=mode,
        scan=given.get("scan", "skip" if mode == "preemptive" else "stop"),
        placement=placement,
        fit=given.get("fit", "place"),
        overhead_ms=_OVERHEADS[given.get("overhead", "none")],
        thresholds=() if queues == "none" else tuple(round(float(text) * 1000) for text in queues.split("/")),
    )


def canonical(log: Iterable[Any]) -> list[tuple[int, ...]]:
    """Return a log with each start's take rows sorted by node and GPU, for comparing two engines."""
    rows: list[tuple[int, ...]] = []
    takes: list[tuple[int, ...]] = []
    for row in log:
        values = tuple(int(value) for value in row)
        if values[1] == 3:
            takes.append(values)
        else:
            rows += [*sorted(takes), values]
            takes = []
    return rows + sorted(takes)
