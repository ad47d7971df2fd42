"""How many GPUs a cluster has, by source."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tracekit.characterize import answer_query, capacity, run_query
from tracekit.characterize.session import FROM_JOBS
from tracekit.errors import UsageError
from tracekit.ingest.detect import all_formats
from tracekit.manifest import Addition

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.reviewed import Golden
    from tracekit.trace import Trace

    MakeTrace = Callable[..., Trace]

NODES: list[dict[str, Any]] = [{"node_id": n, "gpu_count": g} for n, g in (("a", 2), ("b", 8), ("c", None), ("d", 0))]
PLACEMENTS: list[dict[str, Any]] = [
    {"node_id": "a", "gpu_index": [0, 6], "gpu_count": 2},  # shows GPUs 0..6 of a: 7
    {"node_id": "b", "gpu_index": [3], "gpu_count": 1},  # the list says more
    {"node_id": "c", "gpu_count": 2.5},  # no indices: 2.5 GPUs need 3
    {"node_id": "e", "gpu_index": [], "gpu_count": None},  # shows nothing
]
SAMPLES = [
    {"time": "2017-10-03", "node_id": "a", "gpu_index": 5},
    {"time": "2017-10-03", "node_id": "f", "gpu_index": 3, "utilization_pct": 1},  # only telemetry knows f: 4
]


@pytest.fixture
def trace(make_trace: MakeTrace) -> Trace:
    placements = [{"job_id": "j", "attempt": 0, **p} for p in PLACEMENTS]
    return make_trace(jobs=[{"job_id": "j"}], nodes=NODES, placements=placements, gpu_utilization=SAMPLES)


def test_listed_is_the_node_list(trace: Trace, golden: Golden) -> None:
    found = capacity(trace)
    assert (found.source, found.gpus, found.alternatives) == ("listed", 10, {"observed": 22})
    assert found.by_node.rows() == [("a", 2), ("b", 8), ("d", 0)]
    golden(found.note)


def test_observed_is_the_largest_that_any_source_shows(trace: Trace, golden: Golden) -> None:
    found = capacity(trace, "observed")
    # a 7 by index, b 8 by the list, c 3 by a placement, d 0 by the list, f 4 by telemetry; e shows nothing.
    assert found.by_node.rows() == [("a", 7), ("b", 8), ("c", 3), ("d", 0), ("f", 4)]
    assert (found.gpus, found.alternatives) == (22, {"listed": 10})
    golden(found.note)


def test_machines_known_from_jobs_alone_are_observed_and_not_listed(
    sample_trace: Callable[[str], Trace], golden: Golden
) -> None:
    trace = sample_trace("slurm")
    found = capacity(trace, "observed")
    assert (found.gpus, found.word, found.alternatives) == (64, "observed", {})
    golden(found.note)
    with pytest.raises(UsageError, match="the trace has no listed capacity; use 'observed'"):
        capacity(trace, "listed")
    assert {form.name for form in all_formats().values() if form.nodes_from_jobs} == FROM_JOBS


def test_each_source_has_its_word(trace: Trace, make_trace: MakeTrace) -> None:
    assert [capacity(trace, source).word for source in ("listed", "observed")] == ["listed", "observed"]
    stated = make_trace(jobs=[{"job_id": "j"}], capacity=[{"time": "2020-01-01", "gpu_count": 8}])
    assert (capacity(stated).gpus, capacity(stated).word) == (8, "stated")
    quotas = make_trace(jobs=[{"job_id": "j"}], capacity=[{"time": "2020-01-01", "vc": "v", "gpu_count": 8}])
    assert (capacity(quotas).gpus, capacity(quotas).word) == (8, "quotas")


def _held(number: int, since: int, until: int | None, gpus: float, cluster: str = "c") -> dict[str, Any]:
    """Return a job that held GPUs from one hour of a day to another, or still does."""
    times = {
        f"{name}_time": None if at is None else f"2020-01-01 {at:02}:00"
        for name, at in (("submit", since), ("start", since), ("end", until))
    }
    status = "running" if until is None else "completed"
    return {"job_id": f"j{number}", "cluster": cluster, "vc": "v", "gpu_count": gpus, "status": status, **times}


def _log(make_trace: MakeTrace, jobs: list[dict[str, Any]], **tables: Any) -> Trace:
    attempts = [{k: j[k] for k in ("job_id", "start_time", "end_time", "gpu_count", "status")} for j in jobs]
    return make_trace(jobs=jobs, attempts=[{"attempt": 0, **a} for a in attempts], **tables)


def test_without_machines_the_most_gpus_in_use_at_once_are_observed(make_trace: MakeTrace, golden: Golden) -> None:
    # c: 4 + 2.5 from 2 to 3, when the first ends as the third begins; j3 still runs at hour 9. d: 3.
    jobs = [_held(0, 0, 3, 4), _held(1, 2, 5, 2.5), _held(2, 3, 4, 4), _held(3, 8, None, 6), _held(4, 1, 9, 3, "d")]
    found = capacity(_log(make_trace, jobs), "observed")
    assert (found.gpus, found.word, found.kind, found.alternatives) == (10, "observed", "observed", {})
    golden(found.note)


def test_a_sum_of_quotas_is_named_so_and_compared_with_use(make_trace: MakeTrace, golden: Golden) -> None:
    def quotas(*gpus: float) -> list[dict[str, Any]]:
        return [{"time": "2020-01-01", "cluster": "c", "vc": f"v{i}", "gpu_count": n} for i, n in enumerate(gpus)]

    jobs = [_held(0, 0, 3, 6), _held(1, 2, 5, 6)]  # 12 from 2 to 3
    below = capacity(_log(make_trace, jobs, capacity=quotas(8, 3)))
    assert (below.gpus, below.source, below.kind, below.alternatives) == (11, "listed", "quotas", {"observed": 12})
    assert "(" not in capacity(_log(make_trace, jobs, capacity=quotas(8, 4))).note
    assert "(" not in capacity(_log(make_trace, jobs, capacity=quotas(20, 4))).note
    golden([below.note, capacity(_log(make_trace, jobs, capacity=quotas(20, 5))).note])


def test_quotas_are_no_capacity_where_machines_are_known(make_trace: MakeTrace) -> None:
    quotas = [{"time": "2020-01-01", "cluster": "c", "vc": v, "gpu_count": 99} for v in "vw"]
    nodes = [{"node_id": "a", "cluster": "c", "gpu_count": 8}]
    jobs = [_held(0, 0, 3, 6)]
    assert capacity(_log(make_trace, jobs, capacity=quotas, nodes=nodes)).gpus == 8
    placed = [{"job_id": "j0", "attempt": 0, "node_id": "a", "gpu_index": list(range(6)), "gpu_count": 6}]
    seen = _log(make_trace, jobs, capacity=quotas, placements=placed)
    with pytest.raises(UsageError, match="the trace has no listed capacity; use 'observed'"):
        capacity(seen)
    assert (capacity(seen, "observed").gpus, capacity(seen, "observed").alternatives) == (6, {})
    total = [*quotas, {"time": "2020-01-01", "cluster": "c", "gpu_count": 16}]
    assert (capacity(_log(make_trace, jobs, capacity=total)).gpus, capacity(seen, "observed").word) == (16, "observed")


def test_a_total_that_changes_says_when_it_was_the_largest(make_trace: MakeTrace, golden: Golden) -> None:
    def totals(month: str) -> list[dict[str, Any]]:
        changes = ((1, 64), (2, 72), (4, 72), (5, 8))
        return [{"time": f"{month}-0{day}", "cluster": "c", "gpu_count": gpus} for day, gpus in changes]

    found = capacity(make_trace(jobs=[{"job_id": "j"}], capacity=totals("2020-04")))
    assert (found.word, found.kind) == ("largest stated total", "stated")
    golden(found.note)
    days = {"time_base": "relative"}
    relative = make_trace(jobs=[{"job_id": "j"}], capacity=totals("1970-01"), manifest_overrides=days)
    assert capacity(relative).note.endswith("c 72 from day 1")


def test_a_node_list_that_grew_says_until_when(make_trace: MakeTrace, golden: Golden) -> None:
    when = [Addition(f"2020-0{month}-01T00:00:00Z", "0.1.0", [], 1, 0, 0) for month in (2, 3)]
    found = capacity(make_trace(jobs=[{"job_id": "j"}], nodes=NODES, manifest_overrides={"additions": when}))
    golden(found.note)


def test_machines_known_from_jobs_alone_are_listed_nowhere(
    sample_trace: Callable[[str], Trace], golden: Golden
) -> None:
    known = dict(run_query(sample_trace("slurm"), "overview/summary").select("metric", "value").rows())
    assert (known["gpus_listed"], known["gpus_observed"]) == (None, 64)
    golden(answer_query(sample_trace("slurm"), "queuing/gpu_time_held").notes)


def test_a_file_is_a_source(trace: Trace, tmp_path: Path) -> None:
    path = tmp_path / "gpus.csv"
    path.write_text("rack,gpu_count,node_id\nr,4,b\nr, 8 ,a\n", encoding="utf-8-sig")
    found = capacity(trace, str(path))
    assert (found.source, found.gpus, found.by_node.rows()) == (str(path), 12, [("a", 8), ("b", 4)])
    assert found.alternatives == {"listed": 10, "observed": 22}
    assert found.note == "the file gpus.csv, 2 nodes"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("node,gpus\na,1\n", "line 1: the columns node_id,gpu_count are missing"),
        ("node_id,gpu_count\n", "names no node"),
        ("", "line 1: the columns node_id,gpu_count are missing"),
        ("node_id,gpu_count\na,1\n\na,2\n", "line 4, column node_id: the node 'a' occurs twice"),
        ("node_id,gpu_count\n,1\n", "line 2, column node_id: the node has no name"),
        ("node_id,gpu_count\na,-1\n", "line 2, column gpu_count: '-1' is not a number of GPUs; write a whole number"),
        ("node_id,gpu_count\na\n", "line 2, column gpu_count: '' is not a number of GPUs"),
        ("node_id,gpu_count\na,2.5\n", "'2.5' is not a number of GPUs"),
        ("node_id,gpu_count\na,\x00\xff\n", "is not a CSV file"),
    ],
)
def test_a_wrong_file_is_named_by_line(trace: Trace, tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "gpus.csv"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(UsageError, match=message):
        capacity(trace, path)


def test_a_source_that_is_not_a_file_gets_the_choices(trace: Trace) -> None:
    with pytest.raises(UsageError, match="the capacity file does not exist; choose 'listed', 'observed' or a CSV file"):
        capacity(trace, "guessed")
    with pytest.raises(UsageError, match="cannot read the capacity: Is a directory"):
        capacity(trace, trace.path)


def test_a_source_that_the_trace_lacks_is_an_error(make_trace: MakeTrace) -> None:
    jobs = [{"job_id": "j"}]
    with pytest.raises(UsageError, match="the trace has no listed capacity; give a CSV file"):
        capacity(make_trace(jobs=jobs))
    only_capacity = make_trace(jobs=jobs, capacity=[{"time": "2020-04-01", "gpu_count": 8}])
    with pytest.raises(UsageError, match="the trace has no observed capacity; use 'listed'"):
        capacity(only_capacity, "observed")
    nodes_of_unknown_size = make_trace(jobs=jobs, nodes=[{"node_id": "a"}])
    with pytest.raises(UsageError, match="the trace has no listed capacity"):
        capacity(nodes_of_unknown_size, "listed")


def test_without_nodes_the_largest_total_of_each_cluster_counts(make_trace: MakeTrace, golden: Golden) -> None:
    def row(day: int, cluster: str, vc: str | None, gpus: float) -> dict[str, Any]:
        return {"time": f"2020-04-0{day}", "cluster": cluster, "vc": vc, "gpu_count": gpus}

    # Earth states totals 64, 72, 40. Venus has none: v 8, then v 16 and w 8 together, then v 16 and w 0.
    rows = [row(1, "Earth", None, 64), row(2, "Earth", None, 72), row(3, "Earth", None, 40), row(1, "Earth", "v", 99)]
    rows += [row(1, "Venus", "v", 8), row(2, "Venus", "v", 16), row(2, "Venus", "w", 8), row(3, "Venus", "w", 0)]
    found = capacity(make_trace(jobs=[{"job_id": "j"}], capacity=rows))
    assert (found.gpus, found.alternatives, found.by_node.height) == (96, {}, 0)
    assert found.by_node.columns == ["node_id", "gpu_count"]
    golden(found.note)
