"""Every shipped query, asked of both engines: the same rows in the same order, numbers to 1e-9."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.spark.alike import difference
from tests.spark.conftest import LONG
from tests.spark.planted import plant, plant_nothing
from tracekit.characterize import answer_query, find_query, lacks, list_queries
from tracekit.characterize.session import Session

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.answer import Value
    from tracekit.characterize.engines import Engine
    from tracekit.trace import Trace

pytestmark = pytest.mark.spark

SAMPLES = (
    "slurm-outages", "alibaba-pai", "philly", "slurm", "helios", "acme", "kubernetes", "lsf", "pbs", "alibaba-dlrm",
    "alibaba-openb", "alibaba-spot", "swf",
)  # fmt: skip
NAMES = [query.name for query in list_queries()]

OTHER_CHOICES: dict[str, dict[str, Value]] = {
    "failures/ettr": {"rule": "retried", "since": "start", "interruptions": "node", "start_up_min": 3, "min_run_h": 0},
    "failures/reasons": {},  # samples keep no logs of failures
    "failures/goodput": {"checkpoint_h": 0.3, "start_up_min": 2, "rule": "retried"},
    "locality/utilization_by_colocation": {"rule": "same_node"},
    "queuing/queue_delay": {"rule": "notebook"},
    "utilization/cluster_by_hour": {"rule": "clipped", "until": "last_submission"},
    "utilization/dedicated": {},
    "queuing/started_by": {},
    "utilization/jobs_to_look_at": {"min_gpu_h": 0, "idle_pct": 60, "times": 2},
    "users/concentration": {"x": "notebook", "cpu_time": "all_jobs", "gpu_time": "with_gaps"},
    "workload/gpu_request": {"rule": "instance", "gpu_time": "with_gaps"},
}
"""Parameters by which the planted Trace is asked a second time."""

Both = tuple[Session, Session]


@pytest.fixture(scope="session")
def sessions(spark: Engine) -> Callable[[str, Trace], Both]:
    known: dict[str, Both] = {}

    def both(name: str, trace: Trace) -> Both:
        if name not in known:
            known[name] = Session(trace), Session(trace, engine=spark)
        return known[name]

    return both


@pytest.fixture(scope="session")
def planted(make_trace: Callable[..., Trace]) -> Trace:
    return plant(make_trace)


@pytest.mark.parametrize("name", NAMES)
def test_samples_have_one_answer(
    name: str,
    sample_trace: Callable[[str], Trace],
    sessions: Callable[[str, Trace], Both],
    asked: Callable[[str, str], None],
) -> None:
    query, some = find_query(name), False
    for sample in SAMPLES:
        trace = sample_trace(sample)
        if lacks(query, trace):
            continue
        mine, theirs = sessions(sample, trace)
        expected = answer_query(trace, query, session=mine)
        # The gate asks the first trace that has rows to tell; nightly all are asked.
        if not LONG and not expected.frame.height:
            continue
        found = answer_query(trace, query, session=theirs)
        assert difference(expected.frame, found.frame) is None, sample
        assert found.notes == expected.notes
        asked(name, sample)
        some = some or expected.frame.height > 0
        if not LONG:
            break
    assert some or name in {"failures/reasons", "queuing/started_by"}, "no sample has rows for it"


# The gate leaves out two that take longest, and that are asked of a sample above.
@pytest.mark.parametrize(
    "name", NAMES if LONG else sorted(OTHER_CHOICES.keys() - {"failures/ettr", "failures/goodput"})
)
def test_what_engines_read_differently_has_one_answer(
    name: str, planted: Trace, sessions: Callable[[str, Trace], Both], asked: Callable[[str, str], None]
) -> None:
    mine, theirs = sessions("planted", planted)
    for params in ({}, OTHER_CHOICES.get(name, {}))[0 if LONG or name not in OTHER_CHOICES else 1 :]:
        expected = answer_query(planted, name, params, session=mine).frame
        assert difference(expected, answer_query(planted, name, params, session=theirs).frame) is None
    assert expected.height > 0
    asked(name, "planted")


@pytest.mark.parametrize(
    "name",
    NAMES if LONG else ["overview/summary", "queuing/expected_wait_backtest", "overview/arrivals_by_hour"],
)
def test_a_trace_with_next_to_nothing_has_one_answer(
    name: str, make_trace: Callable[..., Trace], sessions: Callable[[str, Trace], Both]
) -> None:
    trace = _NOTHING.setdefault("trace", plant_nothing(make_trace))
    if lacks(find_query(name), trace):
        pytest.skip("it needs a table that an empty Trace cannot have")
    mine, theirs = sessions("nothing", trace)
    expected = answer_query(trace, name, session=mine).frame
    assert difference(expected, answer_query(trace, name, session=theirs).frame) is None


_NOTHING: dict[str, Trace] = {}
