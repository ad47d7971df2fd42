"""The auditor sees what is broken: sound logs give nothing, each law broken on purpose is named."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import strategies as st

from tests.effort import tried
from tests.replay.auditor import audit, quotas_of
from tests.replay.builders import make_cluster, make_jobs
from tests.replay.oracle import OracleOutcome, Row, Rule, oracle
from tests.replay.strategies import clusters, job_lists
from tracekit.replay.outcome import LOG_KINDS, Timeline

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs

SUBMIT, START, TAKE, STOP, FINISH, RATE, UP, DOWN, REJECT, FAIL = (LOG_KINDS[name] for name in LOG_KINDS)


@dataclass
class Sound:
    """A replay that breaks no law, and how to audit it."""

    jobs: Jobs
    cluster: Cluster
    outcome: OracleOutcome
    options: dict[str, Any]

    def audit(self, log: list[Row], **options: Any) -> list[str]:
        """Audit another log of the same inputs."""
        return audit(self.jobs, self.cluster, log, **(self.options | options))


def preempting() -> Sound:
    """Shortest remaining time on two nodes: 2 evicts 1 at 2 s, 3 evicts 0 at 3 s, 4 is too large for the cluster."""
    jobs = make_jobs([(0, 4, 10), (0, 2, 20), (2, 4, 3), (3, 1, 4), (4, 9, 1)], vc=["a", "a", "b", "b", "b"])
    cluster = make_cluster((4, 4), quota={"a": 8, "b": 8})
    cost = (7_000, 30_000, 60_000)
    outcome = oracle(jobs, cluster, Rule("srtf", "preemptive", "skip", overhead_ms=cost))
    options: dict[str, Any] = {"overhead_ms": cost, "placement": "consolidate", "scan": "skip", "conserve": True}
    return Sound(jobs, cluster, outcome, options)


def draining() -> Sound:
    """First come, first served; node 1 leaves at 5 s and comes back at 20 s; two models."""
    jobs = make_jobs([(0, 4, 10), (1, 2, 10), (6, 2, 10), (7, 2, 5)], model=["A100", "V100", "V100", None])
    cluster = make_cluster((4, 4), model=["A100", "V100"], changes=[(5, 1, False), (20, 1, True)])
    outcome = oracle(jobs, cluster, Rule(scan="skip"))
    return Sound(
        jobs, cluster, outcome, {"placement": "consolidate", "scan": "skip", "conserve": True, "preemptive": False}
    )


def at(log: list[Row], kind: int, job: int, nth: int = 0) -> int:
    """Return the index of the n-th row of a kind and job (or node, for changes)."""
    column = 3 if kind in {UP, DOWN} else 2
    return [i for i, row in enumerate(log) if row[1] == kind and row[column] == job][nth]


def put(log: list[Row], index: int, **values: int) -> list[Row]:
    """Return a log with fields of one row changed."""
    names = ("time", "kind", "job", "node", "gpu", "value")
    row = tuple(values.get(name, old) for name, old in zip(names, log[index], strict=True))
    return [*log[:index], (row[0], row[1], row[2], row[3], row[4], row[5]), *log[index + 1 :]]


def without(log: list[Row], *indices: int) -> list[Row]:
    """Return a log without some rows."""
    return [row for i, row in enumerate(log) if i not in indices]


def swapped(log: list[Row], one: int, other: int) -> list[Row]:
    """Return a log with two rows exchanged."""
    log = list(log)
    log[one], log[other] = log[other], log[one]
    return log


def inserted(log: list[Row], index: int, *rows: Row) -> list[Row]:
    """Return a log with rows put before an index."""
    return [*log[:index], *rows, *log[index:]]


def later(log: list[Row], index: int, ms: int) -> list[Row]:
    """Return a log with one row moved in time and the rows sorted again."""
    return sorted(put(log, index, time=log[index][0] + ms), key=lambda row: row[0])


PREEMPTING: dict[str, tuple[Callable[[list[Row]], list[Row]], str]] = {
    "a job starts before its submission": (
        lambda log: inserted(log, 0, (-1, START, 3, -1, -1, 1_000_000), (-1, TAKE, 3, 0, -1, 1000)),
        "starts although it is not submitted",
    ),
    "a job is submitted late": (lambda log: later(log, at(log, SUBMIT, 3), 100), "its time is 3000 ms"),
    "a submission is lost": (lambda log: without(log, at(log, SUBMIT, 3)), "job 3 is never submitted"),
    "a submission comes twice": (
        lambda log: inserted(log, at(log, SUBMIT, 3), log[at(log, SUBMIT, 3)]),
        "job 3 is submitted again",
    ),
    "a node holds more than it has": (
        lambda log: put(log, at(log, TAKE, 1), node=log[at(log, TAKE, 0)][3]),
        "holds 6000 milli-GPUs of 4 GPUs",
    ),
    "a gang starts with too few GPUs": (
        lambda log: put(log, at(log, TAKE, 2), value=3000),
        "starts with 3000 milli-GPUs of the 4000",
    ),
    "a gang starts with none": (lambda log: without(log, at(log, TAKE, 2)), "starts with 0 milli-GPUs"),
    "a gang takes more than it asks for": (
        lambda log: put(log, at(log, TAKE, 1), value=3000),
        "starts with 3000 milli-GPUs of the 2000",
    ),
    "GPUs are taken without a start": (
        lambda log: inserted(log, at(log, FINISH, 2), (4_500, TAKE, 0, 1, -1, 1000)),
        "without a start row",
    ),
    "a node does not exist": (lambda log: put(log, at(log, TAKE, 2), node=7), "node 7, which does not exist"),
    "a job ends a millisecond early": (lambda log: later(log, at(log, FINISH, 2), -1), "its work is done at 5000 ms"),
    "a job ends a millisecond late": (lambda log: later(log, at(log, FINISH, 2), 1), "its work is done at 5000 ms"),
    "a job ends without running": (
        lambda log: inserted(log, at(log, START, 2), (2_000, FINISH, 2, -1, -1, 0)),
        "job 2 ends although it does not run",
    ),
    "a job never ends": (lambda log: without(log, at(log, FINISH, 1)), "still runs when the log ends"),
    "a job runs twice at once": (
        lambda log: inserted(
            log, at(log, FINISH, 2), (4_000, START, 2, -1, -1, 1_000_000), (4_000, TAKE, 2, 1, -1, 4000)
        ),
        "job 2 starts although it runs",
    ),
    "a job runs again after its end": (
        lambda log: [*log, (99_999, START, 0, -1, -1, 1_000_000), (99_999, TAKE, 0, 0, -1, 4000)],
        "job 0 starts although it has ended",
    ),
    "a rejected job runs": (
        lambda log: [*log, (99_999, START, 4, -1, -1, 1_000_000), (99_999, TAKE, 4, 0, -1, 4000)],
        "job 4 starts although it was rejected",
    ),
    "a rejection is unfounded": (
        lambda log: [row for row in put(log, at(log, SUBMIT, 3), kind=REJECT) if row[2] != 3 or row[1] == REJECT],
        "job 3 is rejected although the empty cluster could hold it",
    ),
    "a job that cannot run is queued": (
        lambda log: without(log, at(log, REJECT, 4)),
        "job 4 waits for ever although the empty cluster cannot hold it",
    ),
    "an eviction costs nothing": (lambda log: put(log, at(log, STOP, 1), value=0), "charged 0 ms where 30000 are due"),
    "an overhead is not sat out": (
        lambda log: later(log, at(log, FINISH, 1), -1_000),
        "job 1 ends, but its work is done at",
    ),
    "a stopped job did not run": (
        lambda log: inserted(log, at(log, STOP, 1), (2_000, STOP, 3, -1, -1, 0)),
        "job 3 is stopped although it does not run",
    ),
    "a rate changes unseen": (
        lambda log: put(log, at(log, START, 0), value=500_000),
        "job 0 ends, but its work is done at 43500 ms",
    ),
    "a rate is nothing": (lambda log: put(log, at(log, START, 0), value=0), "starts with the rate 0 ppm"),
    "time runs back": (lambda log: swapped(log, at(log, SUBMIT, 2), at(log, SUBMIT, 3)), "time runs back"),
    "submissions of one time are out of order": (
        lambda log: swapped(log, at(log, SUBMIT, 0), at(log, SUBMIT, 1)),
        "submit of job 0 comes after that of job 1",
    ),
    "a start precedes its instant's events": (
        lambda log: inserted(without(log, at(log, SUBMIT, 1)), at(log, TAKE, 0), log[at(log, SUBMIT, 1)]),
        "comes after rows that follow it inside an instant",
    ),
    "a kind is unknown": (lambda log: put(log, 0, kind=42), "unknown kind 42"),
    "a job does not exist": (lambda log: put(log, 0, job=42), "job 42, which does not exist"),
}

DRAINING: dict[str, tuple[Callable[[list[Row]], list[Row]], str]] = {
    "a job starts on a drained node": (
        lambda log: [
            (6_000, *row[1:]) if row[2] == 2 and row[1] in {START, TAKE} else row
            for row in sorted(log, key=lambda r: r[0] if r[2] != 2 or r[1] not in {START, TAKE} else 6_000)
        ],
        "starts on node 1, which is away",
    ),
    "a departure is missing": (
        lambda log: without(log, at(log, DOWN, 1)),
        "the change of node 1 at 5000 ms is missing",
    ),
    "a departure is invented": (
        lambda log: inserted(log, at(log, DOWN, 1), (5_000, DOWN, 0, 0, -1, 0)),
        "node 0 goes down, which the cluster does not say",
    ),
    "a job runs on another model": (
        lambda log: put(log, at(log, TAKE, 1), node=0),
        "which has another GPU model than it asks for",
    ),
    "a policy preempts that must not": (
        lambda log: inserted(log, at(log, SUBMIT, 2), (5_500, STOP, 0, -1, -1, 0)),
        "does not preempt",
    ),
}


@pytest.mark.parametrize("sound", [preempting, draining])
def test_a_sound_replay_gives_nothing(sound: Callable[[], Sound]) -> None:
    case = sound()
    assert case.audit(case.outcome.log) == []
    assert audit(case.jobs, case.cluster, case.outcome.log, case.outcome, **case.options) == []


def test_a_log_may_be_a_structured_array() -> None:
    case = preempting()
    fields = ("time_ms", "kind", "job", "node", "gpu", "value")
    log = np.array(case.outcome.log, dtype=[(name, np.int64) for name in fields])
    assert audit(case.jobs, case.cluster, log, case.outcome, **case.options) == []


@pytest.mark.parametrize("name", PREEMPTING)
def test_each_broken_law_is_named(name: str) -> None:
    case = preempting()
    mutate, sentence = PREEMPTING[name]
    found = case.audit(mutate(case.outcome.log))
    assert [line for line in found if sentence in line], found


@pytest.mark.parametrize("name", DRAINING)
def test_each_broken_law_of_nodes_is_named(name: str) -> None:
    case = draining()
    mutate, sentence = DRAINING[name]
    found = case.audit(mutate(case.outcome.log))
    assert [line for line in found if sentence in line], found


def test_a_waiting_job_beside_free_gpus_is_named() -> None:
    jobs, cluster = make_jobs([(0, 4, 10), (1, 3, 10), (2, 1, 1)]), make_cluster((4,))
    stopped = oracle(jobs, cluster, Rule(scan="stop"))
    assert audit(jobs, cluster, stopped.log, stopped, conserve=True) == []
    jobs = make_jobs([(0, 2, 10), (1, 3, 10), (2, 1, 1)])
    stopped = oracle(jobs, cluster, Rule(scan="stop"))
    assert audit(jobs, cluster, stopped.log, stopped) == []
    assert audit(jobs, cluster, stopped.log, stopped, conserve=True) == [
        "at 2000 ms: job 2 waits although it could be placed"
    ]


def test_a_quota_that_is_exceeded_is_named() -> None:
    jobs = make_jobs([(0, 2, 10), (1, 2, 10)], vc="a")
    cluster = make_cluster((4,), quota={"a": [(0, 4), (1, 3)]})
    free = oracle(jobs, cluster, Rule())
    assert audit(jobs, cluster, free.log, free, quotas=quotas_of(cluster)) == [
        "at 1000 ms: job 1 starts and its tenant holds more than its quota"
    ]
    bound = oracle(jobs, cluster, Rule(hard_quota=True))
    assert audit(jobs, cluster, bound.log, bound, quotas=quotas_of(cluster)) == []
    assert bound.first_start_ms == [0, 10_000]


def shared_log(gpus: tuple[int, int]) -> list[Row]:
    """Two jobs of one GPU each on node 0, at half speed: both end at 2 s."""
    log: list[Row] = [(0, SUBMIT, 0, -1, -1, 0), (0, SUBMIT, 1, -1, -1, 0)]
    for job, gpu in enumerate(gpus):
        log += [(0, START, job, -1, -1, 500_000), (0, TAKE, job, 0, gpu, 1000)]
    return [*log, (2_000, FINISH, 0, -1, -1, 0), (2_000, FINISH, 1, -1, -1, 0)]


def test_residents_and_memory_of_a_shared_gpu_are_counted() -> None:
    jobs, cluster = make_jobs([(0, 1, 1), (0, 1, 1)]), make_cluster((2,))
    assert audit(jobs, cluster, shared_log((0, 1))) == []
    assert audit(jobs, cluster, shared_log((0, 0)), residents=2, memory=[500, 500]) == []
    assert audit(jobs, cluster, shared_log((0, 0))) == ["at 0 ms: GPU 0 of node 0 has 2 residents: [0, 1]"]
    assert audit(jobs, cluster, shared_log((0, 0)), residents=2, memory=[500, 501]) == [
        "at 0 ms: GPU 0 of node 0 holds more memory than it has"
    ]
    assert audit(jobs, cluster, shared_log((0, 2))) == [
        "at 0 ms: job 1 takes GPU 2 of node 0, which has 2",
        "at 0 ms: job 1 starts with 0 milli-GPUs of the 1000 that it asks for",
    ]


def test_fractions_of_a_gpu_sum_to_at_most_one() -> None:
    cluster = make_cluster((1,))
    log = [row if row[1] != TAKE else (*row[:5], 600) for row in shared_log((0, 0))]
    assert audit(make_jobs([(0, 1, 1), (0, 1, 1)], milli=600), cluster, log) != []
    log = [row if row[1] != TAKE else (*row[:5], 500) for row in log]
    assert audit(make_jobs([(0, 1, 1), (0, 1, 1)], milli=500), cluster, log) == []


def test_rates_that_differ_from_the_model_are_named() -> None:
    jobs, cluster = make_jobs([(0, 1, 1), (0, 1, 1)]), make_cluster((2,))
    found = audit(jobs, cluster, shared_log((0, 1)), speed=lambda job, places: 500_000 + job)
    assert found == ["at 0 ms: job 1 runs at 500000 ppm where 500001 are due"]


def test_an_eviction_that_is_undone_counts_nothing_and_a_move_counts_once() -> None:
    jobs, cluster = make_jobs([(0, 1, 4)]), make_cluster((2, 2))
    begin: list[Row] = [(0, SUBMIT, 0, -1, -1, 0), (0, START, 0, -1, -1, 1_000_000), (0, TAKE, 0, 0, -1, 1000)]
    again: list[Row] = [(1_000, STOP, 0, -1, -1, 0), (1_000, START, 0, -1, -1, 1_000_000)]
    end: Row = (4_000, FINISH, 0, -1, -1, 0)
    for node, moved in ((0, 0), (1, 1)):
        told = SimpleNamespace(preemptions=[0], migrations=[moved], end_ms=[4_000], run_ms=[4_000])
        log: list[Row] = [*begin, *again, (1_000, TAKE, 0, node, -1, 1000), end]
        assert audit(jobs, cluster, log, told) == []
        assert audit(jobs, cluster, log, SimpleNamespace(migrations=[1 - moved])) != []
    charged = [
        *begin,
        (1_000, STOP, 0, -1, -1, 5),
        again[1],
        (1_000, TAKE, 0, 0, -1, 1000),
        (4_005, FINISH, 0, -1, -1, 0),
    ]
    assert audit(jobs, cluster, charged) == [
        "at 1000 ms: job 0 returns to its GPUs in the same instant and is charged 5 ms"
    ]


@pytest.mark.parametrize(
    "field",
    [
        "first_start_ms",
        "end_ms",
        "run_ms",
        "overhead_ms",
        "preemptions",
        "migrations",
        "nodes_spanned",
        "held_milli_ms",
    ],
)
def test_a_wrong_figure_of_the_outcome_is_named(field: str) -> None:
    case = preempting()
    values = list(getattr(case.outcome, field))
    values[1] += 1
    wrong = SimpleNamespace(**{**vars(case.outcome), field: values})
    found = audit(case.jobs, case.cluster, case.outcome.log, wrong)
    assert any(line.startswith(f"outcome.{field}[1] is {values[1]}") for line in found)


def test_integrals_and_timeline_are_recomputed() -> None:
    # 3 GPUs of one node for 2 s; the other node of 2 leaves at 1 s; the second job waits 2 s and runs 1 s
    jobs = make_jobs([(0, 3, 2), (0, 4, 1)])
    cluster = make_cluster((4, 2), changes=[(1, 1, False)])
    log = oracle(jobs, cluster, Rule()).log
    figures = {
        "makespan_ms": 3_000,
        "busy_milli_ms": 10_000_000,
        "free_milli_ms": 4_000_000,
        "fragmented_milli_ms": 2_000_000,
    }
    steps = {"running": [1, 1, 1, 0], "pending": [1, 1, 0, 0], "busy_milli": [3000, 3000, 4000, 0]}
    rest = {"free_milli": [3000, 1000, 0, 4000], "fragmented_milli": [1000, 1000, 0, 0]}
    columns = {name: np.array(values, dtype=np.int64) for name, values in {**steps, **rest}.items()}
    timeline = Timeline(time_ms=np.array([0, 1_000, 2_000, 3_000], dtype=np.int64), **columns)
    assert audit(jobs, cluster, log, SimpleNamespace(**figures, timeline=timeline)) == []
    for name, value in figures.items():
        wrong = figures | {name: value - 1}
        assert audit(jobs, cluster, log, SimpleNamespace(**wrong)) == [
            f"outcome.{name} is {value - 1}, the log says {value}"
        ]
    for name, column in columns.items():
        shifted = replace(timeline, **{name: column + np.array([0, 0, 1, 0])})
        found = audit(jobs, cluster, log, SimpleNamespace(timeline=shifted))
        assert [line.split(" is ")[0] for line in found] == [f"timeline.{name} at 2000 ms"]


@tried(35, 100, job_lists(), clusters(), st.data())
def test_a_row_that_is_lost_is_noticed(jobs: Jobs, cluster: Cluster, data: st.DataObject) -> None:
    rule = Rule("srtf", "preemptive", "skip", overhead_ms=(1_000, 1_000, 1_000))
    log = oracle(jobs, cluster, rule).log
    options: dict[str, Any] = {"overhead_ms": rule.overhead_ms, "placement": "consolidate", "scan": "skip"}
    assert audit(jobs, cluster, log, **options) == []
    # a change after the last job is nobody's, and a rejected job needs no submit row of its own
    rejected = {row[2] for row in log if row[1] == REJECT}
    rows = [i for i, row in enumerate(log) if row[1] not in {UP, DOWN} and (row[1] != SUBMIT or row[2] not in rejected)]
    lost = data.draw(st.sampled_from(rows))
    assert audit(jobs, cluster, without(log, lost), **options) != []
