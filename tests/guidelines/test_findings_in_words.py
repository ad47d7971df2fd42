"""The sentence of a finding says what was found, and that nothing was; none tells of 0 nodes or 0 jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.guidelines.planted import DAY, Log, when
from tracekit.guidelines.run import guidelines

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.golden import Golden
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


def test_idle_nodes_are_told_with_those_that_ran_no_job(make_trace: MakeTrace, golden: Golden) -> None:
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


@pytest.mark.parametrize(
    ("name", "log"),
    [
        pytest.param("checkpoint-long", run(DAY, "failed"), id="checkpoint-long some"),
        pytest.param("checkpoint-long", run(DAY, "completed"), id="checkpoint-long none"),
        pytest.param("drain-nodes", on_nodes("a", *"abcdefghij"), id="drain-nodes some"),
        pytest.param("drain-nodes", on_nodes(""), id="drain-nodes none"),
        pytest.param("drain-nodes", on_nodes("a", "a"), id="drain-nodes none but of a user"),
        pytest.param("stop-retries", retried(3), id="stop-retries some"),
        pytest.param("stop-retries", retried(1), id="stop-retries none"),
        pytest.param("reclaim-idle", used(5), id="reclaim-idle some"),
        pytest.param("reclaim-idle", used(30), id="reclaim-idle none"),
        pytest.param("right-size-gangs", used(30), id="right-size-gangs some"),
        pytest.param("right-size-gangs", used(5), id="right-size-gangs none"),
        pytest.param("share-gpus", used(30), id="share-gpus some"),
        pytest.param("share-gpus", used(5), id="share-gpus none"),
        pytest.param("pre-run-pool", run(600, "failed", gpus=16), id="pre-run-pool some"),
        pytest.param("pre-run-pool", run(601, "failed"), id="pre-run-pool none"),
        pytest.param("pre-run-pool", run(600, "failed"), id="pre-run-pool some that save nothing"),
    ],
)
def test_some_and_none(make_trace: MakeTrace, name: str, log: Log, golden: Golden) -> None:
    golden(told(make_trace, log, name))
