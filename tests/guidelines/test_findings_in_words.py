"""The sentence of a finding says what was found, and that nothing was; none tells of 0 nodes or 0 jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.guidelines.planted import DAY, Log, when
from tracekit.guidelines.run import guidelines

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.reviewed import Golden
    from tracekit.trace import Trace

    MakeTrace = Callable[..., Trace]


def told(make_trace: MakeTrace, log: Log, name: str) -> str:
    (entry,) = guidelines(make_trace(**log.tables), only=[name]).document()["guidelines"]
    text: str = entry["finding"]["text"]
    return text


def nodes(names: str, held: str, hours: float) -> Log:
    """Return nodes of 8 GPUs, some held for so many of 47 hours; the log looks on at every hour from 0 to 47."""
    log = Log()
    log.nodes(names, 8)
    for node in held:
        log.job(0, hours * 3600, gpus=8, node=node)
    log.job(47 * 3600, 60, gpus=0)
    return log


def test_idle_nodes_are_reported_with_those_that_ran_no_job(make_trace: MakeTrace, golden: Golden) -> None:
    def of(names: str, held: str, hours: float) -> str:
        return told(make_trace, nodes(names, held, hours), "power-down")

    other = nodes("ab", "", 0)
    other.job(0, 60, gpus=0, node="of CPUs")
    golden(
        f"{what}: {text}"
        for what, text in {
            "c and d are idle always, a and b in 24 of 48 hours": of("abcd", "ab", 24),
            "all are used": of("ab", "ab", 24),
            "one is held to the end": of("a", "a", 100),
            "only jobs of another log use them": told(make_trace, other, "power-down"),
        }.items()
    )


def used(pct: float) -> Log:
    log = Log()
    for gpus in (1, 2):
        log.used(log.job(0, 7200, gpus=gpus), gpus, pct)
    return log


def run(run_s: float, status: str, gpus: int = 2) -> Log:
    log = Log()
    for k in range(2):
        log.job(k * DAY, run_s, gpus=gpus, status=status if k else "completed")
    return log


def retried(times: int) -> Log:
    log = Log()
    job = log.job(0, 3600, status="failed", attempts=("failed",) * times)
    for attempt in range(times):
        log.add("failures", job_id=job, attempt=attempt, time=when(0), reason="syntax_error", category="user")
    return log


def on_nodes(failed: str, *users: str) -> Log:
    """Return four nodes with 100 jobs of ten users each; on some fail 30 of ten users, or nine of one user."""
    log = Log()
    for node in "abcd":
        for k in range(100):
            user = "abcdefghij"[k // 3 % 10]
            bad = node in failed and user in users and k < 90 and (k % 3 == 0 or len(users) == 1)
            log.job(k * 9000, 600, status="failed" if bad else "completed", node=node, user=user)
    return log


WORLDS: dict[str, tuple[Log, tuple[str, ...]]] = {
    "attempts of a day that fail": (run(DAY, "failed"), ("checkpoint-long",)),
    "attempts of a day that complete": (run(DAY, "completed"), ("checkpoint-long",)),
    "a node on which jobs of all fail": (on_nodes("a", *"abcdefghij"), ("drain-nodes",)),
    "nodes on which nobody fails": (on_nodes(""), ("drain-nodes",)),
    "a node on which one user fails": (on_nodes("a", "a"), ("drain-nodes",)),
    "a job tried three times": (retried(3), ("stop-retries",)),
    "a job tried once": (retried(1), ("stop-retries",)),
    "GPUs 5 % busy": (used(5), ("reclaim-idle", "right-size-gangs", "share-gpus")),
    "GPUs 30 % busy": (used(30), ("reclaim-idle", "right-size-gangs", "share-gpus")),
    "gangs of 16 that fail at ten minutes": (run(600, "failed", gpus=16), ("pre-run-pool",)),
    "gangs that fail after ten minutes": (run(601, "failed"), ("pre-run-pool",)),
    "gangs that fail at ten minutes": (run(600, "failed"), ("pre-run-pool",)),
}


@pytest.mark.parametrize("world", WORLDS)
def test_some_and_none(make_trace: MakeTrace, world: str, golden: Golden) -> None:
    log, names = WORLDS[world]
    entries = guidelines(make_trace(**log.tables), only=names).document()["guidelines"]
    assert sorted(entry["id"] for entry in entries) == sorted(names)
    golden(f"{entry['id']}: {entry['finding']['text']}" for entry in entries)
