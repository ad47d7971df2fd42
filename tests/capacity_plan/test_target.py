"""Targets and groups of jobs, as a command line names them."""

from __future__ import annotations

import pytest

from tests.replay.builders import make_jobs
from tracekit.capacity_plan.question import (
    EVERYONE,
    HourlyCosts,
    JobGroup,
    PlanQuestion,
    WaitTarget,
    job_group,
    wait_target,
)
from tracekit.errors import UsageError


@pytest.mark.parametrize(
    ("text", "metric", "seconds", "words"),
    [
        ("p90<=1h", "p90", 3600, "the 90th percentile of the wait at or below 1 h"),
        (" mean <= 2.5 min ", "mean", 150, "the mean wait at or below 2.5 min"),
        ("p50<=0s", "p50", 0, "the median wait at or below 0 s"),
        ("p99<=365d", "p99", 31_536_000, "the 99th percentile of the wait at or below 365 d"),
    ],
)
def test_a_target_is_read(text: str, metric: str, seconds: float, words: str) -> None:
    found = wait_target(text)
    assert (found.metric, found.limit_s, found.words) == (metric, seconds, words)
    assert wait_target(found.text) == found


def test_a_target_is_written_with_the_largest_unit_that_it_fills_whole() -> None:
    texts = [WaitTarget("p90", s).text for s in (7200, 90, 172_800, 1.5, 60)]
    assert texts == ["p90<=2h", "p90<=90s", "p90<=2d", "p90<=1.5s", "p90<=1min"]


@pytest.mark.parametrize("text", ["", "p90", "p90<1h", "p95<=1h", "p90<=1", "p90<=-1h", "p90<=1w", "p90<=nans", "1h"])
def test_what_is_not_a_target_says_how_to_write_one(text: str) -> None:
    with pytest.raises(UsageError, match="is not a target; write it like 'p90<=1h'"):
        wait_target(text)


def test_a_target_of_more_than_a_year_is_refused() -> None:
    with pytest.raises(UsageError, match="longer than a year"):
        wait_target("p90<=366d")


def test_groups_by_hand() -> None:
    jobs = make_jobs([(0, 1, 9), (1, 8, 9), (2, 6, 9), (3, 16, 9)], vc=["a", "b", "b", None])

    def among(*texts: str) -> list[bool]:
        return [bool(one) for one in job_group(texts).among(jobs)]

    assert among() == [True, True, True, True]
    assert among("size=8") == [False, True, False, False]
    assert among("size=5-8") == [False, True, True, False]
    assert among("size=>8") == [False, False, False, True]
    assert among("vc=b", "size=6") == [False, False, True, False]
    assert among("cluster=X") == [True, True, True, True]
    assert job_group(["size=8", "vc=b"]).words == "8-GPU jobs of VC b"
    assert job_group([]) == EVERYONE == JobGroup()


@pytest.mark.parametrize(
    ("texts", "says"),
    [
        (["size"], "does not select jobs"),
        (["gpus=8"], "does not select jobs"),
        (["vc="], "does not select jobs"),
        (["vc=a", "vc=b"], "'vc' is given twice"),
        (["size=0"], "is not a job size"),
        (["size=1.5"], "is not a job size"),
    ],
)
def test_what_is_not_a_group_says_how_to_write_one(texts: list[str], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        job_group(texts)


def test_an_unknown_vc_and_a_size_that_nobody_asks_for_are_named() -> None:
    jobs = make_jobs([(0, 1, 9)], vc="venus")
    with pytest.raises(UsageError, match="no VC 'venu'; did you mean 'venus'"):
        job_group(["vc=venu"]).among(jobs)
    with pytest.raises(UsageError, match="--for: the twin starts none of these jobs: 8-GPU jobs; choose other jobs"):
        job_group(["size=8"]).among(jobs)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"numbers": (0,)}, "a number of nodes must be from 1"),
        ({"numbers": ()}, "the list of node counts is empty"),
        ({"growths": (0.0,)}, "above 0"),
        ({"growths": (float("nan"),)}, "above 0"),
        ({"growths": (101.0,)}, "at most 100"),
        ({"growths": ()}, "the list of growth factors is empty"),
        ({"resamples": 4}, "from 5 to 1,000"),
        ({"policies": ("fifoo",)}, "did you mean 'fifo'"),
    ],
)
def test_a_question_out_of_range_is_refused(given: dict[str, object], says: str) -> None:
    with pytest.raises(UsageError, match=says):
        PlanQuestion(**given)  # type: ignore[arg-type]  # on purpose


@pytest.mark.parametrize("cost", [-1.0, float("inf"), float("nan")])
def test_a_cost_is_a_number_from_0_on(cost: float) -> None:
    with pytest.raises(UsageError, match="a cost must be at least 0"):
        HourlyCosts(cost)
    with pytest.raises(UsageError, match="a cost must be at least 0"):
        HourlyCosts(wait=cost)
