"""Values of mapped logs: units, expressions, words, and lists of nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from tests.ingest.formats.mapped_logs import simple
from tracekit.ingest.mapping.values import FACTORS, clock_seconds, quantity

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.trace import Trace

    Rows = Callable[[Trace, str], list[dict[str, Any]]]
    Mapped = Callable[[str, dict[str, str | bytes]], Trace]


def test_every_unit_becomes_that_of_the_trace(mapped: Mapped, rows: Rows) -> None:
    units = [
        ("run_s", "clock", "1-02:03:04", 93784.0),
        ("time_limit_s", "h", "2", 7200.0),
        ("memory_gib", "MiB", "512", 0.5),
        ("cpu_count", "milli", "2000", 2.0),
        ("gpu_count", "percent", "25", 0.25),
    ]
    columns = "\n".join(f'{name} = {{ column = "{name}", unit = "{unit}" }}' for name, unit, *_ in units)
    text = "id,{}\n1,{}\n".format(*(",".join(words) for words in zip(*((n, c) for n, _, c, _ in units), strict=True)))
    (job,) = rows(mapped(simple(f'job_id = "id"\n{columns}'), {"a.csv": text}), "jobs")
    assert {name: job[name] for name, *_ in units} == {name: value for name, *_, value in units}


@pytest.mark.parametrize(
    ("text", "unit", "value"),
    [("16Gi", "GiB", 16.0), ("1.5 GiB", "GiB", 1.5), ("1048576Ki", "GiB", 1.0), ("500m", "cores", 0.5)],
)
def test_quantities_carry_their_unit(text: str, unit: str, value: float) -> None:
    assert quantity(pl.Series([text]), unit).to_list() == [value]


@pytest.mark.parametrize(
    ("unit", "given", "number", "value"), [("GiB", "B", 1_073_741_824, 1.0), ("s", "min", 1.5, 90.0)]
)
def test_units_have_their_factor(unit: str, given: str, number: float, value: float) -> None:
    assert number * FACTORS[unit][given] == value


@pytest.mark.parametrize(("text", "seconds"), [("1-02:03:04", 93784.0), ("02:30", 150.0)])
def test_clocks_are_seconds(text: str, seconds: float) -> None:
    assert clock_seconds(pl.Series([text])).to_list() == [seconds]


def test_regex_default_expression_constant_and_words(mapped: Mapped, rows: Rows) -> None:
    columns = r"""
    job_id = "id"
    gpu_count = { column = "tres", regex = 'gpu=(\d+)', default = 0 }
    cpu_count = { expression = "nodes * (`cores per node` + 1) / 2" }
    gpu_model = { value = "A100" }
    workload = { column = "kind", words = { training = ["train"], other = ["x"] } }
    preemptible = "spot"
    priority = "prio"
    """
    text = (
        "id,tres,nodes,cores per node,kind,spot,prio\n"
        "1,cpu=4;gpu=8,2,3,train,yes,5\n2,cpu=4,,3,,FALSE,\n3,,x,3,x,,\n4,,1,1,what,,\n5,,1,1,x,maybe,1.5\n6,,1,1,x,,1.5\n"
    )
    trace = mapped(simple(columns, 'cluster = "c"'), {"a.csv": text})
    common = {"cluster": "c", "attempt_count": 0, "gpu_model": "A100"}
    assert rows(trace, "jobs") == [
        {
            "job_id": "1",
            "gpu_count": 8.0,
            "cpu_count": 4.0,
            "workload": "training",
            "preemptible": True,
            "priority": 5,
            **common,
        },
        {"job_id": "2", "gpu_count": 0.0, "preemptible": False, **common},
        {"job_id": "3", "gpu_count": 0.0, "workload": "other", **common},
        {"job_id": "4", "gpu_count": 0.0, "cpu_count": 1.0, **common},
        {"job_id": "5", "gpu_count": 0.0, "cpu_count": 1.0, "workload": "other", **common},
        {"job_id": "6", "gpu_count": 0.0, "cpu_count": 1.0, "workload": "other", **common},
    ]
    found = {name: (check.count, check.examples[0]) for name, check in trace.manifest.checks.items() if check.count}
    assert found == {
        "unreadable_nodes_cores_per_node": (1, "x: 'nodes' is not a number"),
        "unreadable_kind": (1, "what: is not a listed word for workload"),
        "unreadable_prio": (2, "1.5: is not a whole number"),
        "unreadable_spot": (1, "maybe: is not one of true, yes, 1, false, no, 0"),
    }


def test_nodes_with_indices_become_placements(mapped: Mapped, rows: Rows) -> None:
    mapping = (
        simple('job_id = "id"\nstart_time = "s"\ngpu_count = "g"')
        + r"""
    [jobs.nodes]
    column = "hosts"
    separator = ";"
    pattern = '(?<node>[^:]+)(?::(?<gpu_index>[\d,-]+))?'
    """
    )
    text = 'id,s,g,hosts\n1,0,5,"n1:0-2,5;n2:7"\n2,0,2,n3\n3,,1,n1:0\n4,0,4,n1;n2\n5,0,1,n1:x\n6,0,1,\n'
    trace = mapped(mapping, {"a.csv": text})
    start = {"attempt": 0, "start_time": "1970-01-01 00:00:00"}
    assert rows(trace, "placements") == [
        {"job_id": "1", "node_id": "n1", "gpu_index": [0, 1, 2, 5], "gpu_count": 4.0, **start},
        {"job_id": "1", "node_id": "n2", "gpu_index": [7], "gpu_count": 1.0, **start},
        {"job_id": "2", "node_id": "n3", "gpu_count": 2.0, **start},
        {"job_id": "4", "node_id": "n1", **start},
        {"job_id": "4", "node_id": "n2", **start},
    ]
    assert [r.get("node_count") for r in rows(trace, "jobs")] == [2, 1, 1, 2, None, None]
    assert trace.manifest.checks["unreadable_hosts"].count == 1


def test_a_node_that_is_listed_once_for_each_slot_is_one(mapped: Mapped, rows: Rows) -> None:
    mapping = (
        simple('job_id = "id"\nstart_time = "s"')
        + r"""
    [jobs.nodes]
    column = "hosts"
    separator = " "
    pattern = '(?:(?<gpu_count>\d+)\*)?(?<node>.+)'
    """
    )
    trace = mapped(mapping, {"a.csv": "id,s,hosts\n1,0,2*a b 1*a\n"})
    assert [(r["node_id"], r.get("gpu_count")) for r in rows(trace, "placements")] == [("a", 3.0), ("b", None)]
