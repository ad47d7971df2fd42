"""Guidelines about waiting and idle nodes: the planted size is recovered, and there is none without the problem."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.guidelines.planted import DAY, Log, when
from tracekit.calibration.rules import Rules
from tracekit.characterize import run_query
from tracekit.guidelines.interface import GUIDELINES, LackingError, NodeChange, Number, RuleChange, Trial
from tracekit.guidelines.run import guidelines

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.reviewed import Golden
    from tracekit.guidelines.document import Judgement
    from tracekit.trace import Trace

    MakeTrace = Callable[..., Trace]


def judged(make_trace: MakeTrace, log: Log, name: str) -> Judgement:
    (found,) = guidelines(make_trace(**log.tables), only=[name]).judged
    return found


def short_behind_long(wait_s: float, long_s: float = 36_000) -> Log:
    """Return ten days with seven jobs of a minute that wait so long, and three long ones that do not wait."""
    log = Log()
    for day in range(10):
        for k in range(7):
            log.job(day * DAY + k * 600, 60, queue_s=wait_s, name="short")
        for k in range(3):
            log.job(day * DAY + k * 600, long_s, name=f"once {day} {k}")
    return log


def test_short_jobs_behind_long_ones_are_counted(make_trace: MakeTrace, golden: Golden) -> None:
    found = judged(make_trace, short_behind_long(3600), "order-by-service")
    assert found.verdict == "holds"
    assert found.finding is not None
    numbers = found.finding.numbers
    assert numbers["waited_longer_share"].value == pytest.approx(0.7)
    assert numbers["spread"].value == pytest.approx(600)
    assert numbers["again_share"].value == pytest.approx(0.69)
    golden(found.no_effect)


@pytest.mark.parametrize(("wait_s", "long_s"), [(30.0, 36_000.0), (3600.0, 60.0)])
def test_order_matters_little_without_waits_or_without_long_jobs(
    make_trace: MakeTrace, wait_s: float, long_s: float
) -> None:
    assert judged(make_trace, short_behind_long(wait_s, long_s), "order-by-service").verdict == "does not hold"


def waiting(free_s: float, full_s: float) -> Log:
    """Return forty half days with one wait while the node of 8 GPUs is free, and one while it is full."""
    log = Log()
    for k in range(40):
        begin = k * DAY / 2
        log.job(begin, 600, node="n", queue_s=free_s)
        log.job(begin + 10_000, full_s, gpus=8, node="n")
        log.job(begin + 10_000, 600, node="n", queue_s=full_s)
    return log


def test_waits_in_spite_of_free_gpus_speak_for_backfilling(make_trace: MakeTrace) -> None:
    found = judged(make_trace, waiting(900, 300), "backfill")
    assert found.verdict == "holds"
    assert found.finding is not None
    assert found.finding.numbers["placeable_share"].value == pytest.approx(0.75)
    assert found.finding.numbers["placeable_wait_s"].value == pytest.approx(450)
    assert found.finding.numbers["placeable_share"].n == 80


def test_waits_on_a_full_cluster_do_not(make_trace: MakeTrace) -> None:
    assert judged(make_trace, waiting(60, 3000), "backfill").verdict == "does not hold"


def tenants(full_vc: str) -> Log:
    """Return forty half days: a job waits an hour while 4 GPUs are held in a VC, another 20 minutes for nothing."""
    log = Log()
    for vc in "ab":
        log.add("capacity", time=when(0), vc=vc, gpu_count=4)
    for k in range(40):
        begin = k * DAY / 2
        log.job(begin, 3600, gpus=4, vc=full_vc)
        log.job(begin, 600, vc="a", queue_s=3600)
        log.job(begin + 20_000, 600, vc="b", queue_s=1200)
    return log


def test_waits_at_a_quota_beside_an_idle_one_speak_for_lending(make_trace: MakeTrace) -> None:
    log = tenants("a")
    found = judged(make_trace, log, "lend-quota")
    assert found.verdict == "holds"
    assert found.finding is not None
    assert found.finding.numbers["quota_wait_share"].value == pytest.approx(0.75)
    frame = run_query(make_trace(**log.tables), "utilization/vc", quota="capacity", until="last_submission")
    used = frame["allocated_share_mean"].to_list()
    assert found.finding.numbers["unused_share"].value == pytest.approx(1 - sum(used) / 2)
    assert [row["vc"] for row in found.finding.rows] == ["a", "b"]


def test_waits_within_the_quota_do_not(make_trace: MakeTrace) -> None:
    assert judged(make_trace, tenants("b"), "lend-quota").verdict == "does not hold"


def test_quotas_that_are_guessed_do_not_speak_for_lending(make_trace: MakeTrace) -> None:
    log = tenants("a")
    del log.tables["capacity"]
    assert judged(make_trace, log, "lend-quota").verdict == "cannot tell"


def on_nodes(half_day: str, all_day: str) -> Log:
    """Return ten days on four nodes of 8 GPUs, some busy all the time, some half of each day."""
    log = Log()
    log.nodes("abcd", 8)
    for node in all_day:
        log.job(0, 10 * DAY, gpus=8, node=node)
    for node in half_day:
        for day in range(10):
            log.job(day * DAY, DAY / 2, gpus=8, node=node)
    # The log goes on to the end of the ten days.
    log.job(10 * DAY, 60, gpus=0)
    return log


def test_idle_node_hours_are_counted_with_their_energy(make_trace: MakeTrace) -> None:
    found = judged(make_trace, on_nodes("c", "ab"), "power-down")
    assert found.verdict == "holds"
    assert found.finding is not None
    numbers = found.finding.numbers
    # d always, c half of the time; the last moment, at which all are free, is one of 241.
    assert numbers["idle_share"].value == pytest.approx((240 + 120 + 4) / (4 * 241), abs=0.01)
    assert numbers["always_idle_nodes"].value == 1
    # No job ran on d, which is idle always; c had some.
    assert numbers["unused_nodes"].value == 1
    assert numbers["nodes"].value == 4
    assert numbers["used_idle_share"].value == pytest.approx((120 + 3) / (3 * 241), abs=0.01)
    share = numbers["idle_share"].value or 0
    assert numbers["idle_kwh_per_day"].value == pytest.approx(32 * share * 24 * 75 / 1000)
    assert numbers["least_kwh_per_day"].value == pytest.approx(32 * share * 24 * 30 / 1000)


def test_idle_power_is_that_of_the_gpus_of_the_nodes_that_are_idle(make_trace: MakeTrace) -> None:
    log = on_nodes("", "ab")
    for node in log.tables["nodes"]:
        node["gpu_count"] = 2 if node["node_id"] in "cd" else 8
    found = judged(make_trace, log, "power-down")
    assert found.finding is not None
    # c and d, with 2 GPUs each, are idle always; a and b in the last of 241 moments only.
    numbers = found.finding.numbers
    assert numbers["idle_kwh_per_day"].value == pytest.approx((4 + 16 / 241) * 24 * 75 / 1000)
    assert numbers["used_kwh_per_day"].value == pytest.approx(16 / 241 * 24 * 75 / 1000)


def test_nodes_that_run_empty_after_the_last_submission_are_not_idle(make_trace: MakeTrace) -> None:
    """Four nodes full for five days of submissions; the log then tells the ends of its jobs for fifteen days more."""
    log = Log()
    log.nodes("abcd", 8)
    for node in "abcd":
        for day in range(6):
            log.job(day * DAY, DAY, gpus=8, node=node)
    log.job(5 * DAY, 20 * DAY, gpus=0)
    found = judged(make_trace, log, "power-down")
    assert found.verdict == "does not hold"
    assert found.finding is not None
    assert found.finding.numbers["idle_share"].value == 0
    assert found.finding.numbers["idle_share"].n == 5 * 24 + 1


@pytest.mark.parametrize("still_runs", [False, True])
def test_a_week_of_load_before_a_long_tail_is_as_idle_as_the_week(make_trace: MakeTrace, *, still_runs: bool) -> None:
    """Seven days in which each of eight nodes is full for five hours of six; then one job goes on for twenty days.

    Three of the nodes run one job through the whole week, which ends with it or still runs when the log ends.
    """
    log = Log()
    log.nodes("abcdefgh", 8)
    for node in "abcde":
        for turn in range(28):
            log.job(turn * DAY / 4, 5 * DAY / 24, gpus=8, node=node)
    for node in "fgh":
        log.job(0, 27 * DAY, gpus=8, node=node)
    log.job(7 * DAY, 20 * DAY, gpus=0)
    if still_runs:
        for table in ("jobs", "attempts"):
            for row in log.tables[table][-4:-1]:
                row |= {"end_time": None, "run_s": None, "status": "running"}
    found = judged(make_trace, log, "power-down")
    assert found.finding is not None
    # One hour of six of five nodes of eight, and the last of 169 moments, at which f, g and h alone are held.
    share = found.finding.numbers["idle_share"]
    assert share.value == pytest.approx(5 * (28 + 1) / (8 * 169))
    assert share.n == 169


def test_busy_nodes_stay_on(make_trace: MakeTrace) -> None:
    assert judged(make_trace, on_nodes("", "abcd"), "power-down").verdict == "does not hold"


def day_of_arrivals(busy_jobs: int, busy_wait_s: float) -> Log:
    """Return ten days with so many jobs in each of eight hours, and one every other hour of the sixteen others."""
    log = Log()
    for day in range(10):
        for hour in range(24):
            jobs, wait_s = (busy_jobs, busy_wait_s) if 8 <= hour < 16 else (1 - hour % 2, 300.0)
            for k in range(jobs):
                log.job(day * DAY + hour * 3600 + k, 60, queue_s=wait_s)
    return log


def test_busy_hours_are_found_with_their_waits(make_trace: MakeTrace) -> None:
    found = judged(make_trace, day_of_arrivals(2, 1800), "spread-submissions")
    assert found.verdict == "holds"
    assert found.finding is not None
    numbers = found.finding.numbers
    assert numbers["busy_share"].value == pytest.approx(16 / 24)
    assert numbers["calm_ratio"].value == pytest.approx(1 / 6)
    assert numbers["busy_wait_s"].value == pytest.approx(1800)


def test_hours_are_those_of_the_trace_s_zone(make_trace: MakeTrace, golden: Golden) -> None:
    zone = {"timezone": "Asia/Tokyo"}
    trace = make_trace(**day_of_arrivals(2, 1800).tables, manifest_overrides=zone)
    (found,) = guidelines(trace, only=["spread-submissions"]).judged
    assert found.finding is not None
    golden(found.finding.notes[0])


@pytest.mark.parametrize(("jobs", "wait_s"), [(1, 300.0), (2, 300.0)])
def test_even_hours_or_even_waits_need_no_spreading(make_trace: MakeTrace, jobs: int, wait_s: float) -> None:
    assert judged(make_trace, day_of_arrivals(jobs, wait_s), "spread-submissions").verdict == "does not hold"


def test_quotas_that_hold_jobs_back_can_be_lent_and_no_others() -> None:
    trial = GUIDELINES.find("lend-quota").trial
    assert isinstance(trial, Trial)
    changes = [change for change in trial.changed if isinstance(change, RuleChange)]
    for rules in (Rules(quotas="partitions"), Rules(quotas="limits")):
        assert [change.change(rules).quotas for change in changes] == ["idle", "reclaim"]
    refused = {
        Rules(quotas="none"): "enforces no quotas",
        Rules(quotas="idle"): "already lends quotas",
        Rules(quotas="reclaim"): "already lends quotas",
    }
    for rules, why in refused.items():
        for change in changes:
            with pytest.raises(LackingError, match=why):
                change.change(rules)


def test_gangs_wait_for_their_place_for_minutes_or_as_long_as_it_takes() -> None:
    trial = GUIDELINES.find("wait-for-locality").trial
    assert isinstance(trial, Trial)
    changed = {
        change.name.removeprefix("jobs wait for the fewest nodes "): change.change(Rules(fit="count", relax_s=7.0))
        for change in trial.changed
        if isinstance(change, RuleChange)
    }
    assert {name: (rules.fit, rules.relax_s) for name, rules in changed.items()} == {
        "at most 10 min": ("place", 600),
        "at most 1 min": ("place", 60),
        "at most 60 min": ("place", 3600),
        "as long as it takes": ("place", 0),
    }


def two_partitions(queue_s: float, busy_s: float) -> Log:
    """Return ten days of an hourly 8-GPU job in h, which waits, and of one in a, which does not.

    Both have one node of 8 GPUs, and jobs run for `busy_s` and for half of an hour.
    """
    log = Log()
    for hour in range(240):
        log.job(hour * 3600 - queue_s, busy_s, gpus=8, node="h1", queue_s=queue_s, partition="h")
        log.job(hour * 3600, 1800, gpus=8, node="a1", partition="a")
    for name in "ha":
        log.add("nodes", node_id=f"{name}1", gpu_count=8, partitions=[name])
    return log


def test_a_full_partition_next_to_an_idle_one_is_overloaded(make_trace: MakeTrace) -> None:
    found = judged(make_trace, two_partitions(7200, 3600), "overloaded-partition")
    assert found.verdict == "holds"
    assert found.finding is not None
    numbers = {key: number.value for key, number in found.finding.numbers.items()}
    assert numbers == pytest.approx(
        {"wait_share": 1.0, "wait_s": 7200.0, "allocated_share": 1.0, "others_share": 0.5}, rel=0.02
    )
    assert [(row["partition"], row["jobs"], row["gpus"]) for row in found.finding.rows] == [
        ("h", 240, 8),
        ("a", 240, 8),
    ]
    assert found.finding.text.startswith("Partition h has {wait_share} of all waiting hours")


@pytest.mark.parametrize(
    ("hours", "order", "text"),
    [(1, ["h", None, "a"], "Partition h has"), (100, [None, "h", "a"], "The jobs in no known partition have")],
)
def test_jobs_in_no_partition_have_a_row_of_their_own(
    make_trace: MakeTrace, hours: int, order: list[str | None], text: str
) -> None:
    log = two_partitions(7200, 3600)
    for day in range(10):
        log.job(day * DAY - hours * 3600, DAY / 2, gpus=2, node="x", queue_s=hours * 3600)
    log.nodes("x", 8)
    found = judged(make_trace, log, "overloaded-partition").finding
    assert found is not None
    # Submissions begin with the longest wait before the first start, and end 239 hours after that start.
    span = max(hours, 2) + 239
    jobs = {"h": 240, "a": 240, None: 10}
    waited = {"h": 480, "a": 0, None: 10 * hours}
    used = {"h": 239 / span, "a": 239 / 2 / span, None: 10 * 12 * 2 / 8 / span}
    assert list(found.rows) == [
        {
            "partition": name,
            "jobs": jobs[name],
            "mean_wait_s": waited[name] * 3600 / jobs[name],
            "waiting_hours": waited[name],
            "gpus": 8,
            "allocated_share": pytest.approx(used[name]),
        }
        for name in order
    ]
    worst = order[0]
    numbers = {key: (number.value, number.n) for key, number in found.numbers.items()}
    assert numbers == {
        "wait_share": (pytest.approx(waited[worst] / sum(waited.values())), 490),
        "wait_s": (waited[worst] * 3600 / jobs[worst], jobs[worst]),
        "allocated_share": (pytest.approx(used[worst]), span),
        "others_share": (pytest.approx((sum(used.values()) - used[worst]) / 2), 2 * span),
    }
    assert found.text.startswith(text)


def test_a_quarter_half_and_tenth_more_nodes_are_tried_where_half_of_the_waiting_is() -> None:
    trial = GUIDELINES.find("overloaded-partition").trial
    assert isinstance(trial, Trial)
    assert trial.changed == (NodeChange(0.25, 0.5), NodeChange(0.5, 0.5), NodeChange(0.1, 0.5))


@pytest.mark.parametrize(("queue_s", "busy_s"), [(60, 3600), (7200, 600)])
def test_short_waits_and_free_gpus_are_no_overload(make_trace: MakeTrace, queue_s: float, busy_s: float) -> None:
    assert judged(make_trace, two_partitions(queue_s, busy_s), "overloaded-partition").verdict == "does not hold"


def test_a_cluster_of_one_pool_has_no_overloaded_partition(make_trace: MakeTrace) -> None:
    log = two_partitions(7200, 3600)
    for node in log.tables["nodes"]:
        node["partitions"] = ["a", "h"]
    found = judged(make_trace, log, "overloaded-partition")
    assert found.verdict == "does not hold"
    assert found.finding is not None
    unknown = dict.fromkeys(("wait_s", "allocated_share", "others_share"), Number(None, 0))
    assert found.finding.numbers == {"wait_share": Number(0.0, 480), **unknown}
    for job in log.tables["jobs"]:
        job["partition"] = None
    assert judged(make_trace, log, "overloaded-partition").verdict == "cannot tell"
