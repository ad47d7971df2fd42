"""Guidelines about GPUs that are held and hardly used: the planted size is recovered, and none without the problem."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pytest

from tests.guidelines.planted import DAY, Log
from tests.guidelines.test_output import assert_valid
from tracekit.characterize import run_query
from tracekit.guidelines.run import guidelines

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.reviewed import Golden
    from tracekit.guidelines.document import Judgement
    from tracekit.trace import Trace

    MakeTrace = Callable[..., Trace]


def judged(make_trace: MakeTrace, log: Log, name: str, **manifest: object) -> Judgement:
    (found,) = guidelines(make_trace(**log.tables, **manifest), only=[name]).judged
    return found


def used_jobs(kinds: list[tuple[float, float, float]], days: int = 10) -> Log:
    """Return ten days with a job of each kind (GPUs, hours, mean utilization) four times a day."""
    log = Log()
    for day in range(days):
        for k in range(4):
            for gpus, hours, pct in kinds:
                job = log.job(day * DAY + k * 7200, hours * 3600, gpus=gpus)
                log.used(job, gpus, pct)
    return log


def test_idle_jobs_are_found_with_what_they_waste(make_trace: MakeTrace) -> None:
    # Of 4 + 12 GPU-hours a round, 4 * (1 - 0.05) are wasted: 3.8 / 16.
    found = judged(make_trace, used_jobs([(2, 2, 5), (4, 3, 80)]), "reclaim-idle")
    assert found.verdict == "holds"
    assert found.finding is not None
    share = found.finding.numbers["idle_share"]
    assert share.value == pytest.approx(3.8 / 16)
    assert share.low == pytest.approx(3.8 / 16)
    assert share.n == 80
    assert found.finding.numbers["wasted_gpu_hours"].value == pytest.approx(40 * 3.8)
    assert found.finding.numbers["idle_jobs"].value == 40


def test_busy_jobs_and_short_idle_ones_are_left_in_peace(make_trace: MakeTrace) -> None:
    found = judged(make_trace, used_jobs([(2, 0.5, 0), (4, 3, 80)]), "reclaim-idle")
    assert found.verdict == "does not hold"


def test_idle_jobs_are_not_ruled_out_by_a_look_at_a_part(make_trace: MakeTrace, golden: Golden) -> None:
    log = used_jobs([(4, 3, 80)])
    log.job(0, 130 * 3600, gpus=4)
    # 40 jobs of 12 GPU-hours are measured, of 480 + 520.
    found = judged(make_trace, log, "reclaim-idle")
    assert found.verdict == "cannot tell"
    assert found.finding is not None
    assert found.finding.covers == pytest.approx(0.48)
    log.job(0, 500 * 3600, gpus=1)
    undecided = judged(make_trace, log, "right-size-gangs")
    golden([found.why[0], undecided.why[0]])
    assert undecided.finding is not None
    assert undecided.finding.covers == pytest.approx(0.48)


def test_low_jobs_of_one_gpu_are_found(make_trace: MakeTrace) -> None:
    found = judged(make_trace, used_jobs([(1, 2, 40), (1, 6, 90)]), "share-gpus")
    assert found.verdict == "holds"
    assert found.finding is not None
    assert found.finding.numbers["low_share"].value == pytest.approx(0.25)
    assert found.finding.numbers["freed_gpu_hours"].value == pytest.approx(40)


def test_idle_busy_and_large_jobs_do_not_speak_for_sharing(make_trace: MakeTrace) -> None:
    assert judged(make_trace, used_jobs([(1, 2, 5), (1, 2, 90), (4, 2, 40)]), "share-gpus").verdict == "does not hold"


def test_half_idle_gangs_are_found_by_user(make_trace: MakeTrace) -> None:
    found = judged(make_trace, used_jobs([(4, 2, 30), (8, 1, 95), (1, 9, 30)]), "right-size-gangs")
    assert found.verdict == "holds"
    assert found.finding is not None
    assert found.finding.numbers["low_share"].value == pytest.approx(0.5)
    assert found.finding.numbers["spare_gpu_hours"].value == pytest.approx(160)
    assert found.finding.rows == ({"user": "u", "jobs": 40, "gpu_hours": pytest.approx(320)},)


def test_busy_gangs_keep_their_size(make_trace: MakeTrace) -> None:
    assert judged(make_trace, used_jobs([(4, 2, 80), (1, 2, 30)]), "right-size-gangs").verdict == "does not hold"


def test_without_utilization_nothing_can_be_reported(make_trace: MakeTrace, golden: Golden) -> None:
    log = used_jobs([(1, 2, 40)])
    del log.tables["job_usage"]
    found = judged(make_trace, log, "share-gpus")
    assert found.verdict == "cannot tell"
    golden(found.why)


def beside(pct: float, days: int = 16) -> Log:
    """Return days on which a job runs alone at 80 %, and then two jobs of its size beside each other at `pct`."""
    log = Log()
    for day in range(days):
        begin = day * DAY
        log.job(begin, 600, gpus=2, node="n")
        log.busy("n", [0, 1], begin, 600, 80)
        for k in range(2):
            job = log.job(begin + 3600, 600, gpus=2)
            log.hold(job, "n", [2 * k, 2 * k + 1])
            log.busy("n", [2 * k, 2 * k + 1], begin + 3600, 600, pct)
    return log


def test_interference_is_the_loss_beside_others(make_trace: MakeTrace) -> None:
    found = judged(make_trace, beside(62), "limit-interference")
    assert found.verdict == "holds"
    assert found.finding is not None
    drop = found.finding.numbers["drop_pct"]
    assert drop.value == pytest.approx(18)
    assert drop.low == pytest.approx(18)
    assert drop.n == 32
    assert found.finding.numbers["shared_share"].value == pytest.approx(2 / 3)


def test_interference_is_what_the_query_of_colocation_says(make_trace: MakeTrace) -> None:
    trace = make_trace(**beside(62).tables)
    frame = run_query(trace, "locality/utilization_by_colocation", rule="same_node")
    rows = [(row["gpu_count"], row["colocated"], row["samples"], row["mean_pct"]) for row in frame.to_dicts()]
    (found,) = guidelines(trace, only=["limit-interference"]).judged
    assert found.finding is not None
    assert [tuple(row.values()) for row in found.finding.rows] == [pytest.approx(row) for row in rows]


def test_jobs_that_do_not_disturb_each_other_need_no_nodes_of_their_own(make_trace: MakeTrace) -> None:
    assert judged(make_trace, beside(79), "limit-interference").verdict == "does not hold"


def gangs(pct: float, strict_wait_s: float, days: int = 16) -> Log:
    """Return days with a gang of 8 on one node at 80 %, and two on two nodes at `pct` that did not wait."""
    log = Log()
    for day in range(days):
        begin = day * DAY
        log.job(begin, 1200, gpus=8, node="a", queue_s=strict_wait_s)
        log.busy("a", list(range(8)), begin + strict_wait_s, 1200, 80)
        for k in (1, 2):
            job = log.job(begin + k * 7200, 1200, gpus=8, node_count=2)
            for node in "ab":
                log.hold(job, node, [0, 1, 2, 3])
                log.busy(node, [0, 1, 2, 3], begin + k * 7200, 1200, pct)
    return log


def held_up(later_s: float, packed_wait_s: float = 0, pct: float = 65) -> Log:
    """Return the log of `gangs`, where others hold the rest of both nodes until so long after each spread start."""
    log = gangs(pct, packed_wait_s)
    for day in range(16):
        for k in (1, 2):
            for node in "ab":
                log.hold(log.job(day * DAY + k * 7200 - 3600, 3600 + later_s, gpus=4), node, [4, 5, 6, 7])
    return log


@pytest.mark.parametrize("later_s", [90, 120])
def test_spread_gangs_lose_what_was_planted(make_trace: MakeTrace, later_s: float) -> None:
    found = judged(make_trace, held_up(later_s), "wait-for-locality")
    assert found.verdict == "holds"
    assert found.finding is not None
    numbers = found.finding.numbers
    assert numbers["drop_pct"].value == pytest.approx(15)
    assert numbers["drop_pct"].n == 32
    # So long after each spread start both nodes would have had room, of 20 minutes that the gang ran. The limit is a
    # tenth of them.
    assert numbers["extra_wait_s"].value == pytest.approx(later_s)
    assert numbers["extra_wait_share"].value == pytest.approx(later_s / 1200)
    # In the first two samples of twenty the others were still there.
    assert found.finding.covers == pytest.approx(0.9)


def test_no_waiting_where_spreading_costs_nothing_or_the_wait_is_long(make_trace: MakeTrace) -> None:
    assert judged(make_trace, held_up(60, pct=79.0), "wait-for-locality").verdict == "does not hold"
    assert judged(make_trace, held_up(500), "wait-for-locality").verdict == "does not hold"


@pytest.mark.parametrize(("later_s", "packed_wait_s", "verdict"), [(0, 3000, "holds"), (500, 0, "does not hold")])
def test_the_wait_is_that_of_the_spread_ones_and_not_of_those_that_were_placed_well(
    make_trace: MakeTrace, later_s: float, packed_wait_s: float, verdict: str
) -> None:
    """Packed gangs waited long, for whatever reason, and spread ones need not have; and the other way round."""
    found = judged(make_trace, held_up(later_s, packed_wait_s), "wait-for-locality")
    assert found.verdict == verdict
    assert found.finding is not None
    assert found.finding.numbers["extra_wait_s"].value == pytest.approx(later_s)


def test_spread_gangs_that_always_have_other_neighbours_tell_nothing(make_trace: MakeTrace, golden: Golden) -> None:
    # Others are on the rest of both nodes all the time, and of the node of a packed gang never.
    found = judged(make_trace, held_up(5000), "wait-for-locality")
    assert found.verdict == "cannot tell"
    golden(found.why)


def neighbours(spreading: float, beside: float, days: int = 16) -> Log:
    """Return days of gangs of 4 on nodes of 8, which lose so many points when spread, and by a neighbour.

    Each day two are on one node, of which one has a neighbour, and four on two nodes, of which three have one on the
    first; a gang keeps step, so that its GPUs on the second node lose as much.
    """
    log = Log()
    log.nodes("ab", 8)
    for day in range(days):
        for k, (spread, disturbed) in enumerate([(0, 0), (0, 1), (1, 0), (1, 1), (1, 1), (1, 1)]):
            begin = day * DAY + k * 7200
            job = log.job(begin, 1200, gpus=4, node_count=1 + spread)
            pct = 80 - spreading * spread - beside * disturbed
            for node, gpus in (("a", [0, 1]), ("b", [0, 1])) if spread else (("a", [0, 1, 2, 3]),):
                log.hold(job, node, gpus)
                log.busy(node, gpus, begin, 1200, pct)
            if disturbed:
                log.hold(log.job(begin - 60, 2000, gpus=2), "a", [6, 7])
    return log


def test_interference_does_not_pass_as_a_loss_by_spreading(make_trace: MakeTrace) -> None:
    log = neighbours(spreading=0, beside=24)
    found = judged(make_trace, log, "wait-for-locality")
    assert found.verdict == "does not hold"
    assert found.finding is not None
    assert found.finding.numbers["drop_pct"].value == pytest.approx(0)
    # Without regard to neighbours, spread gangs are 6 points less busy: 3/4 of them have one, and 1/2 of the others.
    frame = run_query(make_trace(**log.tables), "locality/utilization_by_spread")
    means = dict(frame.filter(pl.col("gpu_count") == 4).select("node_count", "mean_pct").iter_rows())
    assert means[1] - means[2] == pytest.approx(6)
    assert judged(make_trace, log, "limit-interference").verdict == "holds"


@pytest.mark.parametrize("beside", [0, 24])
def test_a_loss_by_spreading_is_found_beside_interference_with_its_size(make_trace: MakeTrace, beside: float) -> None:
    found = judged(make_trace, neighbours(spreading=9, beside=beside), "wait-for-locality")
    assert found.verdict == "holds"
    assert found.finding is not None
    number = found.finding.numbers["drop_pct"]
    assert (number.value, number.low, number.high) == pytest.approx((9, 9, 9))
    assert (number.n, found.finding.covers) == (64, 1)
    # There is room on the node at once.
    assert found.finding.numbers["extra_wait_s"].value == 0


def test_few_spread_gangs_are_too_few(make_trace: MakeTrace, golden: Golden) -> None:
    found = judged(make_trace, gangs(65, 60, days=10), "wait-for-locality")
    assert found.verdict == "cannot tell"
    golden(found.why)


def test_the_times_to_wait_are_tried_by_size_and_under_the_bracket(make_trace: MakeTrace, golden: Golden) -> None:
    log = gangs(65, 60, days=50)
    log.nodes("ab", 8)
    advice = guidelines(make_trace(**log.tables), only=["wait-for-locality"], try_jobs=1000)
    effect = advice.judged[0].effect
    assert effect is not None
    tried = {(change.change, change.assumption) for change in effect.changes}
    assert len(tried) == 4 * 3 - 3  # the twin waits as long as it takes already
    # Nobody waits for a place in this log, so nothing changes, and the twin is as good as any.
    assert [(best.gpu_class, best.policy, best.diff_s) for best in effect.best_by_class] == [("5-8", "twin", 0)]
    assert effect.verdict == "no change"
    assert_valid(advice.document())
    told = advice.document()["guidelines"][0]["effect"]["text"]
    golden(told)
    for text in (advice.html(), advice.markdown()):
        assert "shows no gain." in text
        assert "Best by job size" not in text
