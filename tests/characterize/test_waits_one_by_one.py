"""Causes and order of single waits, by hand, on the day of test_queuing_by_hand and with changes to it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.characterize.test_queuing_by_hand import hour, tables
from tracekit.characterize import answer_query

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.reviewed import Golden
    from tracekit.answer import Answer
    from tracekit.trace import Trace

    MakeTrace = Callable[..., Trace]
    Ask = Callable[[dict[str, list[dict[str, Any]]], str], Answer]

HOUR = 3_600_000_000
CAUSES = "SELECT job_id, wait_us, fair_share_us, fragmentation_us, other_us, cause FROM wait_causes ORDER BY job_id"
ORDER = "SELECT job_id, started, out_of_order, overtaken, harmless FROM queue_order ORDER BY job_id"
WAITS = "SELECT * FROM waits ORDER BY job_id, attempt"


@pytest.fixture
def ask(make_trace: MakeTrace, tmp_path: Path) -> Ask:
    """Return a function that asks a trace of these tables a question."""

    def run(plan: dict[str, list[dict[str, Any]]], sql: str) -> Answer:
        own = tmp_path / "own.sql"
        own.write_text(sql)
        return answer_query(make_trace(**plan), own)

    return run


def test_each_wait_has_its_causes(ask: Ask) -> None:
    # As in test_queuing_by_hand; who does not wait has no cause.
    answer = ask(tables(), CAUSES)
    assert answer.frame.rows() == [
        ("a", 0, 0, 0, 0, "none"),
        ("b", 4 * HOUR, 4 * HOUR, 0, 0, "fair_share"),
        ("c", 0, 0, 0, 0, "none"),
        ("d", 3 * HOUR, 0, 1.25 * HOUR, 1.75 * HOUR, "other"),
        ("e", 0, 0, 0, 0, "none"),
        ("f", 0, 0, 0, 0, "none"),
    ]
    assert not [note for note in answer.notes if "below zero" in note]


def test_waits_below_zero_are_left_out_and_counted(ask: Ask, golden: Golden) -> None:
    plan = tables()
    plan["attempts"][2]["wait_s"] = -0.000001
    plan["attempts"][3]["wait_s"] = None
    answer = ask(plan, CAUSES)
    assert answer.frame["job_id"].to_list() == ["a", "b", "e", "f"]
    golden(answer.notes)


def test_of_equal_causes_the_quota_is_named_first_then_scattered_gpus(ask: Ask) -> None:
    plan = tables()
    plan["attempts"][3]["wait_s"] = 4.5 * 3600
    # From 0.5 h to 5 h: nodes have 0 and 4 free until 1, then 0 and 2 until 3: 2 h, and 0.25 h after 3.5.
    assert ask(plan, CAUSES).frame.row(3) == ("d", 4.5 * HOUR, 0, 2.25 * HOUR, 2.25 * HOUR, "fragmentation")
    # b may use 8 from hour 2 on: half of its wait is due to the quota.
    plan = tables()
    plan["capacity"].append({"time": hour(2), "cluster": "x", "vc": "v", "gpu_count": 8})
    # Until 3 no node has 4 free, and from 3.5 to 3.75; 2 to 3 and that quarter are 1.25 h.
    assert ask(plan, CAUSES).frame.row(1) == ("b", 4 * HOUR, 2 * HOUR, 1.25 * HOUR, 0.75 * HOUR, "fair_share")


def test_a_quota_that_is_just_enough_is_not_a_cause(ask: Ask) -> None:
    plan = tables(nodes=False)
    for quota, cause in ((8, "other"), (7, "fair_share")):
        plan["capacity"][0]["gpu_count"] = quota
        assert ask(plan, CAUSES).frame.row(1)[-1] == cause


def test_jobs_without_gpus_wait_for_neither(ask: Ask) -> None:
    for gpus in (0, None):
        plan = tables()
        plan["capacity"][0]["gpu_count"] = 3  # less than a holds already
        plan["jobs"][1]["gpu_count"] = plan["attempts"][1]["gpu_count"] = gpus
        assert ask(plan, CAUSES).frame.row(1) == ("b", 4 * HOUR, 0, 0, 4 * HOUR, "other")


@pytest.mark.parametrize("gpus", [0.5, 1.0])
def test_the_smallest_jobs_wait_for_their_quota_too(ask: Ask, gpus: float) -> None:
    plan = tables()
    plan["capacity"][0]["gpu_count"] = 4  # a holds as many until 4
    plan["jobs"][1]["gpu_count"] = plan["attempts"][1]["gpu_count"] = gpus
    assert ask(plan, CAUSES).frame.row(1) == ("b", 4 * HOUR, 4 * HOUR, 0, 0, "fair_share")


def test_tenants_and_sizes_are_distinguished(ask: Ask) -> None:
    plan = tables(nodes=False)
    for name in ("jobs", "attempts"):
        plan[name] = [row for row in plan[name] if row["job_id"] in "abd"]
    # b and d wait for 4 GPUs each: v holds 4 of 6, w nothing of 8.
    assert ask(plan, CAUSES).frame["cause"].to_list() == ["none", "fair_share", "other"]
    plan = tables(nodes=False)
    plan["capacity"][1]["gpu_count"] = 4
    for job, gpus in ((2, 3), (3, 2), (4, 1)):
        plan["jobs"][job]["gpu_count"] = plan["attempts"][job]["gpu_count"] = gpus
    for job in (3, 4):
        plan["attempts"][job]["wait_s"] = 3600
    # c holds 3 of w's 4 GPUs until 3, and e waits for 1 from 1.5 h on, which is there; d waits for 2 from 4 h on, when
    # all are, or from 1 h on, when they are not.
    assert ask(plan, CAUSES).frame["cause"].to_list()[3:5] == ["other", "other"]
    plan["attempts"][3]["wait_s"] = 4 * 3600
    assert ask(plan, CAUSES).frame["cause"].to_list()[3:5] == ["fair_share", "other"]


def test_order_of_starts(ask: Ask) -> None:
    # e and f of w start while d, which was submitted before, waits until 5: e when no node had 4 free, f at 3.5 when
    # node n had. b starts after a, c when nobody of w waits.
    assert ask(tables(), ORDER).frame.rows() == [
        ("a", True, False, False, None),
        ("b", True, False, False, None),
        ("c", True, False, False, None),
        ("d", True, False, True, None),
        ("e", True, True, False, True),
        ("f", True, True, False, False),
    ]


def moved(**changes: tuple[float, float]) -> dict[str, list[dict[str, Any]]]:
    """Return the day with other submissions and starts of some jobs [hours]; they run as long as before."""
    plan = tables()
    for job, attempt in zip(plan["jobs"], plan["attempts"], strict=True):
        if job["job_id"] in changes:
            submit, start = changes[job["job_id"]]
            for row in (job, attempt):
                row |= {"start_time": hour(start), "end_time": hour(start + row["run_s"] / 3600)}
            job["submit_time"] = hour(submit)
            attempt["wait_s"] = (start - submit) * 3600
    return plan


def flags(answer: Answer, job: str) -> tuple[bool, bool]:
    """Return whether a job started out of order, and whether it was overtaken."""
    return next((early, overtaken) for name, _, early, overtaken, _ in answer.frame.iter_rows() if name == job)


@pytest.mark.parametrize(
    ("d", "e", "early"),
    [
        ((2, 5), (2.5, 4), True),
        ((2, 5), (2, 4), False),  # queued at the same moment
        ((2, 4), (2.5, 4), False),  # started at the same moment
        ((2, 4), (2.5, 4.5), False),
        ((2.5, 5), (2, 4), False),
    ],
)
def test_a_start_is_out_of_order_when_an_earlier_job_waits_on(
    ask: Ask, d: tuple[float, float], e: tuple[float, float], early: bool
) -> None:
    answer = ask(moved(d=d, e=e, f=(10, 10), c=(0, 0)), ORDER)
    assert flags(answer, "e") == (early, False)
    assert flags(answer, "d") == (False, early)


def test_of_two_first_in_the_queue_none_is_overtaken(ask: Ask) -> None:
    answer = ask(moved(d=(2, 5), e=(2, 4), f=(10, 10), c=(20, 20)), ORDER)
    assert (flags(answer, "d"), flags(answer, "e")) == ((False, False), (False, False))


# Without nodes the quota of w decides whether d, of 4 GPUs, had a place: at 2.5 h c holds 2, at 3.5 h nobody any.
@pytest.mark.parametrize(
    ("quota", "at_e", "at_f"), [(8, False, False), (6, False, False), (5, True, False), (3, True, True)]
)
def test_the_room_in_the_quota_is_that_of_the_moment(ask: Ask, quota: int, at_e: bool, at_f: bool) -> None:
    plan = tables(nodes=False)
    plan["capacity"][1]["gpu_count"] = quota
    assert ask(plan, ORDER).frame["harmless"].to_list()[4:] == [at_e, at_f]


def test_who_starts_at_the_same_moment_is_not_overtaken(ask: Ask) -> None:
    # At 3.5 e starts, and so does c, of 2 GPUs. What e overtakes is d alone, for whose 4 GPUs the quota has no room.
    plan = moved(c=(2.25, 3.5), d=(2, 5), e=(2.5, 3.5), f=(10, 10))
    plan["capacity"][1]["gpu_count"] = 3
    assert ask(plan, ORDER).frame.row(4) == ("e", True, True, False, True)


def test_jobs_of_other_tenants_are_not_overtaken(ask: Ask) -> None:
    plan = moved(d=(2, 5), e=(2.5, 4), f=(10, 10), c=(0, 0))
    plan["jobs"][4]["vc"] = "v"
    answer = ask(plan, ORDER)
    assert (flags(answer, "d"), flags(answer, "e")) == ((False, False), (False, False))


def test_a_tenant_of_cpu_jobs_changes_nothing_for_the_next(ask: Ask) -> None:
    plan = tables()
    for name in ("jobs", "attempts"):
        plan[name].append(plan[name][0] | {"job_id": "z", "gpu_count": 0})
    plan["jobs"][-1]["vc"] = "cpu"  # stands before v and w
    assert ask(plan, ORDER).frame.rows() == ask(tables(), ORDER).frame.rows()


def test_a_job_that_left_the_queue_was_overtaken_but_overtook_nobody(ask: Ask) -> None:
    plan = tables()
    left = {"job_id": "g", "cluster": "x", "vc": "w", "gpu_count": 8, "status": "cancelled", "attempt_count": 0}
    plan["jobs"].append(left | {"submit_time": hour(2.25), "end_time": hour(2.75)})
    rows = {row[0]: row[1:] for row in ask(plan, ORDER).frame.iter_rows()}
    # e started at 2.5, while g waited; the smallest that e overtook is still d, and it had no place.
    assert rows["g"] == (False, False, True, None)
    assert rows["e"] == (True, True, False, True)


def test_the_smallest_of_those_overtaken_decides_what_harms(ask: Ask) -> None:
    # At 2.5 node n has 2 free beside c, of which e takes 1: after it ends what ends and before it starts what starts at
    # the moment, a job of 1 or 2 GPUs had a place, one of 3 had none.
    for gpus, harmless in ((1, False), (2, False), (3, True)):
        plan = tables()
        waiting = {"job_id": "g", "cluster": "x", "vc": "w", "gpu_count": gpus, "status": "pending"}
        plan["jobs"].append(waiting | {"submit_time": hour(2.25)})
        rows = {row[0]: row[1:] for row in ask(plan, ORDER).frame.iter_rows()}
        assert rows["e"] == (True, True, False, harmless), gpus
        assert rows["g"] == (False, False, True, None)


def test_a_row_of_waits_is_an_attempt_with_its_job(ask: Ask) -> None:
    plan = tables()
    plan["jobs"] = [plan["jobs"][1] | {"node_count": 3, "gpu_count": 8, "attempt_count": 4}]
    first = plan["attempts"][1]
    again = {"attempt": 1, "wait_s": None, "gpu_count": 4}
    plan["attempts"] = [
        first,
        first | again,
        first | {"attempt": 2, "wait_s": -2.0},
        first | {"attempt": 3, "wait_s": 0.0},
    ]
    plan["attempts"].append(first | {"job_id": "nobody"})
    # The GPUs and nodes are the job's, not the attempt's; unknown, negative and no waits stay; no job, no wait.
    assert ask(plan, WAITS).frame.drop("notebook_wait_s").rows() == [
        ("b", 0, "x", "v", 8.0, "5-8", 4, 3, 14_400.0),
        ("b", 1, "x", "v", 8.0, "5-8", 4, 3, None),
        ("b", 2, "x", "v", 8.0, "5-8", 4, 3, -2.0),
        ("b", 3, "x", "v", 8.0, "5-8", 4, 3, 0.0),
    ]


@pytest.mark.parametrize(
    ("gpus", "size", "order"),
    [
        (0, "0", 0),
        (0.5, "<1", 1),
        (1, "1", 2),
        (1.5, "2-4", 3),
        (4, "2-4", 3),
        (4.5, "5-8", 4),
        (8, "5-8", 4),
        (9, ">8", 5),
        (None, None, None),
    ],
)
def test_classes_are_closed_above(ask: Ask, gpus: float | None, size: str | None, order: int | None) -> None:
    plan = tables()
    plan["jobs"] = [plan["jobs"][0] | {"gpu_count": gpus}]
    plan["attempts"] = plan["attempts"][:1]
    assert ask(plan, "SELECT gpu_class, class_order FROM waits").frame.rows() == [(size, order)]


def test_the_order_is_that_of_jobs_with_gpus(ask: Ask) -> None:
    plan = tables()
    plan["jobs"][4]["gpu_count"] = plan["attempts"][4]["gpu_count"] = 0
    idle = {"cluster": "x", "vc": "w", "gpu_count": 0, "status": "pending", "submit_time": hour(0)}
    plan["jobs"].append({"job_id": "g"} | idle)
    assert ask(plan, ORDER).frame["job_id"].to_list() == ["a", "b", "c", "d", "f"]


def test_a_job_of_no_tenant_has_a_queue_of_its_own(ask: Ask) -> None:
    plan = tables()
    waiting = {"cluster": "x", "vc": None, "gpu_count": 1, "status": "pending"}
    plan["jobs"] += [{"job_id": name, "submit_time": hour(at)} | waiting for name, at in (("g", 0), ("h", 1))]
    assert ask(plan, ORDER).frame.rows()[6:] == [("g", False, False, False, None), ("h", False, False, False, None)]


def test_a_job_that_left_the_queue_at_once_was_in_it(ask: Ask) -> None:
    plan = tables()
    left = {"job_id": "g", "cluster": "x", "vc": "w", "gpu_count": 1, "status": "cancelled", "attempt_count": 0}
    plan["jobs"].append(left | {"submit_time": hour(2.75), "end_time": hour(2.75)})
    assert ask(plan, ORDER).frame.rows()[6] == ("g", False, False, False, None)


def test_a_job_queued_at_the_same_moment_is_not_overtaken(ask: Ask) -> None:
    # e overtakes d, of 4 GPUs, for which w's quota of 3 never has room; c, of 2, is queued when e is and starts later.
    plan = moved(c=(2.5, 5))
    del plan["placements"], plan["nodes"]
    plan["capacity"][1]["gpu_count"] = 3
    rows = {row[0]: row[1:] for row in ask(plan, ORDER).frame.iter_rows()}
    assert rows["e"] == (True, True, False, True)
    assert rows["c"] == (True, False, True, None)  # by f
