"""Timelines of one cluster after the other, against those of the whole trace; Spark's tasks do the same."""

from __future__ import annotations

import datetime as dt
import functools
from typing import TYPE_CHECKING, Any

import polars as pl
import pyarrow as pa
import pytest

from tracekit.characterize.engines.spark import by_cluster
from tracekit.characterize.engines.spark.by_cluster import rows_of_cluster, run_by_cluster
from tracekit.characterize.engines.spark.by_day import stream_of
from tracekit.characterize.notes import SENTENCES, SOURCES, Note, add_notes
from tracekit.characterize.session import Session, connect_with_views
from tracekit.characterize.timeline import all_timelines
from tracekit.tenant import Tenant

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tracekit.answer import Value
    from tracekit.trace import Trace

BY_CLUSTER = [name for name, timeline in all_timelines().items() if timeline.by_cluster]
_BEGIN = dt.datetime(2020, 1, 1)


class _Context:
    """As much of a Spark context as a timeline needs, in this process."""

    def __init__(self) -> None:
        self.tasks: list[Any] = []

    @property
    def sparkContext(self) -> _Context:  # noqa: N802 -- Spark's name
        return self

    def broadcast(self, value: Any) -> Any:
        return type("Sent", (), {"value": value})

    def parallelize(self, rows: list[Any], parts: int) -> _Context:
        self.tasks = rows
        return self

    def map(self, work: Callable[[Any], Any]) -> _Context:
        self.tasks = [work(row) for row in self.tasks]
        return self

    def collect(self) -> list[Any]:
        return self.tasks


def _trace(make_trace: Callable[..., Trace], *, shared_node: bool = False, quotas: bool = False) -> Trace:
    """Return a Trace of three clusters, whose first ends long before the others, with a job pending at the end."""
    jobs, attempts, placements = [], [], []
    for k in range(60):
        cluster = ("early", "late", "long")[k % 3]
        # The clusters begin and end at different times: each has a window of its own.
        submit = _BEGIN + dt.timedelta(minutes=10 * k + (600 if cluster == "late" else 0))
        wait, run = 60.0 * (k % 7), 3600.0 * (1 + k % 4)
        pending, running = k in {30, 59}, k in {33, 58}
        start = None if pending else submit + dt.timedelta(seconds=wait)
        end = None if running or start is None else start + dt.timedelta(seconds=run)
        gpus = (1, 2, 4, 8)[k % 4]
        jobs.append(
            {
                "job_id": f"j{k}",
                "cluster": cluster,
                "vc": f"v{k % 2}",
                "gpu_count": gpus,
                "submit_time": submit,
                "start_time": start,
                "end_time": end,
                "queue_s": None if pending else wait,
                "run_s": run if end else None,
                "status": "pending" if pending else "running" if running else "completed",
                "attempt_count": 0 if pending else 1,
                "node_count": 1,
            }
        )
        if start is None:
            continue
        attempts.append(
            {
                "job_id": f"j{k}",
                "attempt": 0,
                "start_time": start,
                "end_time": end,
                "run_s": run if end else None,
                "wait_s": wait,
                "gpu_count": gpus,
                "node_count": 1,
                "status": "running" if running else "completed",
            }
        )
        home = "early" if shared_node and k == 1 else cluster
        placements.append(
            {
                "job_id": f"j{k}",
                "attempt": 0,
                "node_id": f"{home}{k % 2}",
                "gpu_count": gpus,
                "gpu_index": list(range(gpus)),
            }
        )
    # An end that nobody knows: each cluster leaves one out.
    for row in attempts[5:8]:
        row["end_time"] = None
    return make_trace(
        jobs=jobs,
        attempts=attempts,
        placements=placements,
        nodes=[
            {"node_id": f"{c}{k}", "cluster": c, "gpu_count": 8} for c in ("early", "late", "long") for k in range(2)
        ],
        node_events=[
            {"node_id": "late1", "start_time": _BEGIN, "end_time": _BEGIN + dt.timedelta(hours=3), "state": "down"}
        ],
        gpu_utilization=[{"time": _BEGIN, "node_id": "late0", "gpu_index": 9, "utilization_pct": 3}],
        capacity=[
            {"time": _BEGIN, "cluster": c, "vc": "v0", "gpu_count": 4} for c in ("early", "late", "long")
        ] if quotas else [],
    )  # fmt: skip


def _both(shared: Session, trace: Trace, name: str, params: dict[str, Value]) -> tuple[Any, Any]:
    timeline = all_timelines()[name]
    values = {param.name: param.default for param in timeline.params} | params
    empty = frozenset({*timeline.also}.difference(trace.tables))
    with shared.connect(empty) as con:
        parts = run_by_cluster(_Context(), con, trace, empty, timeline, values)
    with shared.connect(empty) as con:
        return timeline.compute(con, values), parts


@pytest.fixture(scope="module")
def three(make_trace: Callable[..., Trace]) -> Callable[[bool], tuple[Session, Trace]]:
    """Return a function that gives the Trace of three clusters, with or without quotas, and what its queries share."""

    @functools.cache
    def made(quotas: bool) -> tuple[Session, Trace]:
        trace = _trace(make_trace, quotas=quotas)
        return Session(trace), trace

    return made


def _worlds() -> Iterator[Any]:
    for name in BY_CLUSTER:
        for quotas in (True, False):
            first = (name, quotas) == ("wait_causes", False)
            yield pytest.param(name, quotas, marks=() if first else pytest.mark.thorough)


def _sorted(frame: pl.DataFrame) -> list[tuple[Any, ...]]:
    return sorted(frame.rows(), key=repr)


@pytest.mark.parametrize(("name", "quotas"), list(_worlds()))
def test_clusters_one_by_one_are_the_whole(
    name: str, quotas: bool, three: Callable[[bool], tuple[Session, Trace]]
) -> None:
    shared, trace = three(quotas)
    steps: list[dict[str, Value]] = [{}]
    if "step_s" in {param.name for param in all_timelines()[name].params}:
        steps.append({"step_s": 0})
    for params in steps:
        whole, parts = _both(shared, trace, name, params)
        assert parts is not None
        assert whole.frame.height > 20
        assert parts.frame.schema == whole.frame.schema
        assert _sorted(parts.frame) == _sorted(whole.frame)
        assert parts.notes == whole.notes


@pytest.mark.thorough
def test_without_the_whole_window_a_cluster_ends_too_early(
    make_trace: Callable[..., Trace], monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = _trace(make_trace)
    monkeypatch.setattr(by_cluster, "_HANDED", ("node_gpus",))
    whole, parts = _both(Session(trace), trace, "gpu_timeline", {})
    assert parts.frame.height < whole.frame.height


def test_clusters_that_share_a_node_stay_together(make_trace: Callable[..., Trace]) -> None:
    trace = _trace(make_trace, shared_node=True)
    assert _both(Session(trace), trace, "wait_causes", {})[1] is None


def test_one_cluster_is_one_sequence(make_trace: Callable[..., Trace]) -> None:
    trace = make_trace(jobs=[{"job_id": "a", "cluster": "c"}], attempts=[{"job_id": "a", "attempt": 0}])
    assert _both(Session(trace), trace, "gpu_timeline", {})[1] is None


def test_a_task_sees_its_cluster_alone(make_trace: Callable[..., Trace]) -> None:
    trace = _trace(make_trace)
    timeline = all_timelines()["queue_order"]
    params = {param.name: param.default for param in timeline.params}
    with connect_with_views(trace, also=["capacity"]) as con:
        handed = {name: stream_of(con.sql(f"FROM {name}").to_arrow_table()) for name in by_cluster._HANDED}
    part = by_cluster.ClusterPart(trace, ("capacity",), "queue_order", params, handed)
    rows, _ = rows_of_cluster(part, "late")
    frame = pl.DataFrame(pl.from_arrow(pa.ipc.open_stream(rows).read_all()))
    assert set(frame["cluster"]) == {"late"}


_SAID = Note("quotas")


def _lost(number: int) -> Note:
    return Note("wait unknown", (number,))


def _away(hours: float, nodes: int) -> Note:
    return Note("out of service", (hours, nodes))


def _owned(*sources: str) -> Note:
    return Note("cluster", sources=tuple((source, "") for source in sources))


@pytest.mark.parametrize(
    ("parts", "whole"),
    [
        ([[_lost(1200), _SAID], [_SAID]], (_lost(1200), _SAID)),
        ([[Note("past limit", (3,)), _SAID], [_lost(2), _SAID]], (Note("past limit", (3,)), _lost(2), _SAID)),
        ([[_SAID], [_SAID]], (_SAID,)),
        ([[_lost(1200), _SAID], [_lost(3), _SAID]], (_lost(1203), _SAID)),
        ([[_owned("listed")], [_owned("total", "seen")], [_owned("listed")]], (_owned("listed", "total", "seen"),)),
        ([[Note("quotas of some", (1, 3))], [Note("quotas of some", (2, 2))]], (Note("quotas of some", (3, 5)),)),
        ([[_SAID], [Note("quotas of some", (2, 2))]], None),
        ([[Note("nodes", facts=("listed",))], [Note("nodes", facts=("observed",))]], None),
        ([[_SAID], []], None),
        ([[_away(1.25, 2)], [_away(2.5, 1)]], (_away(3.75, 3),)),
    ],
)  # fmt: skip
def test_notes_add_up_or_the_whole_is_asked(parts: list[list[Note]], whole: tuple[Note, ...] | None) -> None:
    assert add_notes(parts) == whole


def test_a_note_is_worded_with_its_numbers_and_the_sites_word() -> None:
    accounts = Tenant("account", "account", "accounts")
    assert _lost(1203).sentence().startswith("1,203 waits ")
    assert Note("quotas of some", (3, 5)).sentence(accounts).endswith("; 3 of 5 accounts have none")
    assert Note("quotas of some", (3, 5)).sentence().endswith("; 3 of 5 VCs have none")
    assert (
        Note("cluster", sources=(("total", ""), ("seen", ", by x")))
        .sentence()
        .endswith(" or ".join(("a recorded total", SOURCES["seen"].format(", by x"))))
    )
    assert _owned().sentence().endswith("unknown")


@pytest.mark.parametrize("name", BY_CLUSTER)
def test_notes_come_in_the_order_of_the_sentences(name: str, three: Callable[[bool], tuple[Session, Trace]]) -> None:
    whole, _ = _both(*three(False), name, {})
    kinds = [note.kind for note in whole.notes]
    assert kinds == sorted(kinds, key=list(SENTENCES).index)
