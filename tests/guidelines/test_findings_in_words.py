"""The sentence of a finding says what was found, and that nothing was; none tells of 0 nodes or 0 jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.guidelines.planted import DAY, Log, when
from tracekit.guidelines.run import guidelines

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.trace import Trace

    MakeTrace = Callable[..., Trace]

MORE = "(is the log whole?)"


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


def test_unused_nodes_are_told_beside_the_others(make_trace: MakeTrace) -> None:
    # c and d are idle always, a and b in 24 of 48 hours.
    text = told(make_trace, nodes("abcd", "ab", 24), "power-down")
    assert text.startswith(
        f"Nodes are wholly idle in 75.0 % of their hours. Of 4 nodes, 2 nodes ran no job of this log {MORE}, and the "
        "others are wholly idle in 50.0 % of their hours. At 75 W an idle GPU, theirs take 43.2 kWh a day, "
    )
    assert text.endswith(" 14.4 kWh a day of it on nodes that ran a job.")


def test_no_nodes_are_told_where_all_are_used(make_trace: MakeTrace) -> None:
    text = told(make_trace, nodes("ab", "ab", 24), "power-down")
    start = "Nodes are wholly idle in 50.0 % of their hours. At 75 W an idle"
    assert text.startswith(start)
    assert text.endswith(" GPU, theirs take 14.4 kWh a day.")


def test_no_node_is_told_where_all_are_held_to_the_end(make_trace: MakeTrace) -> None:
    assert told(make_trace, nodes("a", "a", 100), "power-down") == "No node is ever wholly idle."


def test_nodes_that_only_jobs_of_another_log_use_are_told_as_a_whole(make_trace: MakeTrace) -> None:
    log = nodes("ab", "", 0)
    log.job(0, 60, gpus=0, node="of CPUs")
    text = told(make_trace, log, "power-down")
    start = "Nodes are wholly idle in 100 % of their hours, and no node ran a job of this log "
    assert text.startswith(f"{start}{MORE}. At 75 W an idle GPU")


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
    ("name", "log", "text"),
    [
        (
            "checkpoint-long",
            run(DAY, "failed"),
            (
                "1 attempt cut short after a day or more took 48 GPU-hours, 50.0 % of all held; if nothing was saved, a"
                " checkpoint an hour would have kept 48 GPU-hours."
            ),
        ),
        (
            "checkpoint-long",
            run(DAY, "completed"),
            "No attempt was cut short after a day or more; attempts of that length took 100 % of the GPU-hours.",
        ),
        (
            "drain-nodes",
            on_nodes("a", *"abcdefghij"),
            (
                "There are more failures than chance explains on 1 node: 30.0 % of the attempts there failed, 30 "
                "attempts more than expected."
            ),
        ),
        ("drain-nodes", on_nodes(""), "No node fails more often than chance explains."),
        (
            "drain-nodes",
            on_nodes("a", "a"),
            "No node fails more often than chance explains, once the failures of its most frequent user are left out.",
        ),
        (
            "stop-retries",
            retried(3),
            (
                "A job that fails for a reason that will not go away is tried 3 times; 2 trials after the first took 2 "
                "GPU-hours, 66.7 % of all failed trials."
            ),
        ),
        (
            "stop-retries",
            retried(1),
            "No job was tried again after it failed for a reason that will not go away.",
        ),
        (
            "reclaim-idle",
            used(5),
            (
                "2 jobs held GPUs for an hour or more at 10 % utilization or less; they wasted 5.7 GPU-hours, 95.0 % "
                "of what was measured."
            ),
        ),
        ("reclaim-idle", used(30), "No measured job held GPUs for an hour or more at 10 % utilization or less."),
        (
            "right-size-gangs",
            used(30),
            (
                "1 gang had GPUs that were busy 10 to 50 % of the time, with 100 % of the GPU-hours of gangs; half the "
                "GPUs would spare up to 2 GPU-hours."
            ),
        ),
        ("right-size-gangs", used(5), "No measured gang had GPUs that were busy 10 to 50 % of the time."),
        (
            "share-gpus",
            used(30),
            (
                "1 job of at most one GPU kept it busy 10 to 50 % of the time, with 33.3 % of the measured GPU-hours; "
                "in pairs such jobs would free up to 1 GPU-hour."
            ),
        ),
        ("share-gpus", used(5), "No measured job of at most one GPU kept it busy 10 to 50 % of the time."),
        (
            "pre-run-pool",
            run(600, "failed", gpus=16),
            (
                "50.0 % of gangs fail within ten minutes of their first start; 10 min on one GPU first, for gangs of 2 "
                "GPUs or more, would save 2.33 GPU-hours net (43.8 %)."
            ),
        ),
        ("pre-run-pool", run(601, "failed"), "No gang fails within ten minutes of its first start."),
        (
            "pre-run-pool",
            run(600, "failed"),
            (
                "50.0 % of gangs fail within ten minutes of their first start; some minutes on one GPU first would "
                "take as much as they save."
            ),
        ),
    ],
)
def test_some_and_none(make_trace: MakeTrace, name: str, log: Log, text: str) -> None:
    assert told(make_trace, log, name) == text
