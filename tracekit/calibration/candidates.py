"""What a calibration tries, stage by stage: the candidates that differ from the best so far in one respect."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from tracekit.calibration.limits import most_held_while_waiting
from tracekit.calibration.rules import Estimates, HoldingLimits, Order, Queues, Quotas, Rules, Scan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tracekit.calibration.workbench import Settings, Workbench
    from tracekit.replay.jobs import Jobs

__all__ = ["STAGES"]

_SCANS: tuple[Scan, ...] = ("stop", "skip")
_QUOTAS: tuple[Quotas, ...] = ("limits", "idle", "reclaim")
_ORACLE: tuple[Estimates, ...] = ("oracle",)
_HALF_LIVES_S = (0.0, 86_400.0, 604_800.0)
_PLACEMENTS = ("worst-fit", "first-fit")
_RELAX_S = (60.0, 600.0, 3600.0)
"""The values of settings that candidates have, beside the defaults."""


def _orders(bench: Workbench, best: Settings) -> Iterator[Settings]:
    jobs, rules = bench.jobs, replace(best.rules, backfill="none", limits=HoldingLimits())
    if not rules.partitioned:
        rules = replace(rules, quotas="none")
    for queues in _queues(jobs):
        plain = replace(rules, order="arrival", scan="stop", estimates="oracle", half_life_s=0.0, relax_s=0.0)
        yield best._replace(rules=replace(plain, queues=queues))
    rules = replace(rules, queues="one")
    for order in _known_orders(bench):
        for scan in _SCANS:
            for estimates in _estimates(jobs) if order in {"shortest", "smallest"} else _ORACLE:
                halves = _HALF_LIVES_S if order.startswith("fair-share") else (0.0,)
                for half in halves:
                    yield best._replace(
                        rules=_clean(replace(rules, order=order, scan=scan, estimates=estimates, half_life_s=half))
                    )


def _known_orders(bench: Workbench) -> list[Order]:
    """Return the orders that the log has what it takes for."""
    jobs = bench.jobs
    orders: list[Order] = ["arrival"]
    if len(np.unique(jobs.priority)) > 1:
        orders.append("priority")
    if len(jobs.tenants) > 1:
        orders.append("fair-share-vc")
    if len(jobs.users) > 1:
        orders.append("fair-share-user")
    orders += ["shortest", "smallest"]
    if bench.preempts:
        orders += ["attained", "shortest-left"]
    return orders


def _queues(jobs: Jobs) -> Iterator[Queues]:
    if len(jobs.tenants) > 1:
        yield "vc"
    if len(jobs.partitions) > 1:
        yield "partition"


def _clean(rules: Rules) -> Rules:
    """Return rules without settings that their order does not go with."""
    return replace(rules, relax_s=0.0) if rules.fault() else rules


def _estimates(jobs: Jobs) -> tuple[Estimates, ...]:
    return ("limit", "oracle") if (jobs.limit_ms >= 0).any() else ("oracle",)


def _backfilling(bench: Workbench, best: Settings) -> Iterator[Settings]:
    rules = best.rules
    if rules.limits or rules.quotas not in {"none", "partitions"}:
        return
    plain = replace(rules, order="arrival", scan="stop", half_life_s=0.0, queues="one")
    bases = [plain, replace(plain, order="priority")] if len(np.unique(bench.jobs.priority)) > 1 else [plain]
    for base in bases:
        for kind in ("easy", "conservative"):
            for estimates in _estimates(bench.jobs):
                yield best._replace(rules=replace(base, backfill=kind, estimates=estimates))


def _limits(bench: Workbench, best: Settings) -> Iterator[Settings]:
    jobs, rules = bench.jobs, best.rules
    unlimited = replace(rules, quotas="none", limits=HoldingLimits())
    if rules != unlimited:
        yield best._replace(rules=unlimited)
    if len(jobs.tenants) > 1:
        for scan in _SCANS:
            yield best._replace(rules=replace(unlimited, quotas="partitions", scan=scan, backfill="none"))
        yield best._replace(rules=replace(unlimited, quotas="partitions"))
    plain = replace(
        unlimited,
        order="arrival",
        backfill="none",
        estimates="oracle",
        half_life_s=0.0,
        relax_s=0.0,
        scan="skip",
        queues="one",
    )
    for scan in _SCANS:
        base = replace(plain, scan=scan)
        if len(jobs.tenants) > 1:
            for quotas in _QUOTAS:
                yield best._replace(rules=replace(base, quotas=quotas))
            most = most_held_while_waiting(jobs, jobs.tenant, bench.among)
            if most:
                yield best._replace(rules=replace(base, limits=HoldingLimits(vc_gpus=most)))
        if len(jobs.users) > 1:
            most = most_held_while_waiting(jobs, jobs.user, bench.among)
            if most:
                yield best._replace(rules=replace(base, limits=HoldingLimits(user_gpus=most)))


def _placements(_: Workbench, best: Settings) -> Iterator[Settings]:
    rules = best.rules
    for fit in ("place", "count"):
        yield best._replace(rules=replace(rules, fit=fit, placement="consolidate", relax_s=0.0))
    for name in _PLACEMENTS:
        yield best._replace(rules=replace(rules, placement=name, fit="place", relax_s=0.0))
    for relax in _RELAX_S:
        changed = replace(rules, relax_s=relax, fit="place")
        if changed.fault() is None:
            yield best._replace(rules=changed)


def _capacities(bench: Workbench, best: Settings) -> Iterator[Settings]:
    for name in bench.clusters:
        yield best._replace(capacity=name)
    if "events" in bench.clusters:
        # Waits for nodes that were away look like those of another rule: neither is judged by the rules of the other.
        other = "stated" if best.capacity == "events" else "events"
        yield from _orders(bench, best._replace(capacity=other, rules=Rules()))


def _delays(bench: Workbench, best: Settings) -> Iterator[Settings]:
    if bench.startup:
        yield best._replace(delays=not best.delays)


STAGES: dict[str, Callable[[Workbench, Settings], Iterator[Settings]]] = {
    "order": _orders,
    "backfilling": _backfilling,
    "quotas and limits": _limits,
    "placement": _placements,
    "capacity": _capacities,
    "start-up delay": _delays,
}
"""The stages in their order."""
