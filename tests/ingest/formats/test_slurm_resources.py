"""GPUs, memory and nodes of a job of `sacct`, and its measured use."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.ingest.formats.sacct_rows import JOB_ROW, numbered, sacct, the_job
from tracekit.ingest.formats import _slurm_cells as text_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.trace import Trace

    Ingest = Callable[..., Trace]
    Rows = Callable[[Trace, str], list[dict[str, Any]]]
    FoundChecks = Callable[[Trace], dict[str, tuple[int, int | None]]]


@pytest.mark.parametrize(
    ("text", "gpus", "model"),
    [
        ("cpu=4,gres/gpu:a100=4", 4.0, "a100"),
        ("cpu=4,gres/gpu=4", 4.0, None),
        ("cpu=4,gres/gpu:a100=2,gres/gpu:h100=2,gres/gpu=4", 4.0, "a100|h100"),
        ("cpu=4,gres/gpu:a100_1g.5gb=2", 2 / 7, "a100_1g.5gb"),
        ("gres/gpu=1.5K", 1536.0, None),
        ("cpu=4,mem=1G", 0.0, None),
    ],
)
def test_gpus_of_a_list_are_counted_once(text: str, gpus: float, model: str | None) -> None:
    found = text_of.tres(text)
    assert (found.gpus, found.model) == (gpus, model)


@pytest.mark.parametrize(
    "cases",
    [
        [({}, 8.0, "a100"), ({"AllocTRES": "", "ReqTRES": "cpu=4,gres/gpu:h100=2"}, 2.0, "h100")],
        [
            ({"AllocGRES": "gpu:a100:6"}, 6.0, "a100"),
            ({"AllocGRES": "gpu:6", "ReqGRES": "gpu:3"}, 6.0, None),
            ({"AllocGRES": "gpu:3", "ReqGRES": "gpu:3"}, 6.0, None),
            ({"ReqGRES": "PER_NODE:gpu:2(S:0-1),mps:50"}, 4.0, None),
            ({"ReqGRES": "gpu:0"}, 0.0, None),
            ({}, None, None),
        ],
    ],
    ids=["TRES", "GRES"],
)
def test_gpus_are_those_held_else_those_requested(
    ingest: Ingest, rows: Rows, cases: list[tuple[dict[str, str], float | None, str | None]]
) -> None:
    without = {"AllocTRES": "", "ReqTRES": ""} if any("ReqGRES" in changes for changes, *_ in cases) else {}
    found = rows(ingest(numbered({**without, **changes} for changes, *_ in cases)), "jobs")
    assert [(row.get("gpu_count"), row.get("gpu_model")) for row in found] == [tuple(rest) for _, *rest in cases]


def test_a_blank_gres_column_of_an_older_version_means_no_gpus(ingest: Ingest, rows: Rows) -> None:
    columns = ["JobID", "Submit", "Start", "End", "State", "NodeList", "ReqGRES"]
    assert the_job(ingest(sacct({}, columns=columns)), rows)["gpu_count"] == 0.0


def test_typed_entries_that_do_not_add_up_are_counted(ingest: Ingest, rows: Rows, found_checks: FoundChecks) -> None:
    trace = ingest(sacct({"AllocTRES": "gres/gpu:a100=2,gres/gpu=4"}))
    assert the_job(trace, rows)["gpu_count"] == 4.0
    assert found_checks(trace) == {"typed_gpus_disagree": (1, 1)}


def test_shards_are_fractions_only_when_their_size_is_known(
    ingest: Ingest, rows: Rows, found_checks: FoundChecks
) -> None:
    source = sacct({"AllocTRES": "cpu=4,gres/shard=2", "NNodes": "1", "NodeList": "gpu01"})
    unknown = ingest(source)
    assert "gpu_count" not in the_job(unknown, rows)
    assert found_checks(unknown) == {"shared_gpus_unknown": (1, 1)}
    known = ingest(source, options={"shards_per_gpu": "8"})
    assert the_job(known, rows)["gpu_count"] == 0.25
    assert [row["gpu_count"] for row in rows(known, "placements")] == [0.25]
    assert found_checks(known) == {}


@pytest.mark.parametrize(("amount", "gib"), [("1.5T", 1536.0), ("512M", 0.5), ("1048576K", 1.0)])
def test_memory_held(amount: str, gib: float) -> None:
    assert text_of.tres(f"cpu=4,mem={amount}").memory_gib == gib


def test_memory_requested_is_per_cpu_per_node_or_in_all(ingest: Ingest, rows: Rows) -> None:
    cases = {"4096Mc": 16.0, "4Gn": 8.0, "256G": 256.0, "2048": 2.0, "0n": None}
    found = rows(ingest(numbered({"AllocTRES": "cpu=4", "ReqMem": text} for text in cases)), "jobs")
    assert [row.get("memory_gib") for row in found] == list(cases.values())


def test_an_uneven_gang_has_no_gpus_per_node(ingest: Ingest, rows: Rows, found_checks: FoundChecks) -> None:
    trace = ingest(sacct({"AllocTRES": "gres/gpu=7"}))
    assert [row.get("gpu_count") for row in rows(trace, "placements")] == [None, None]
    assert [row.get("gpu_count") for row in rows(trace, "nodes")] == [None, None]
    assert found_checks(trace) == {"gpus_not_divisible": (1, 1)}


def test_a_node_has_the_most_gpus_held_there_at_once(ingest: Ingest, rows: Rows) -> None:
    one = {"AllocTRES": "gres/gpu=2", "NNodes": "1", "NodeList": "gpu01"}
    hours = ((8, 10), (9, 11), (10, 12), (11, 12))
    jobs = [
        {
            **one,
            "JobID": f"{n}",
            "JobIDRaw": f"{n}",
            "Start": f"2024-03-04T{a:02}:00:00",
            "End": f"2024-03-04T{b}:00:00",
        }
        for n, (a, b) in enumerate(hours)
    ]
    assert rows(ingest(sacct(*jobs)), "nodes") == [{"node_id": "gpu01", "cluster": "slurm", "gpu_count": 4}]


def test_nnodes_that_contradict_the_list_are_counted(ingest: Ingest, rows: Rows, found_checks: FoundChecks) -> None:
    trace = ingest(sacct({"NNodes": "3"}))
    assert the_job(trace, rows)["node_count"] == 3
    assert found_checks(trace) == {"node_count_disagrees": (1, 1)}


def test_steps_give_measured_use_and_no_jobs(ingest: Ingest, rows: Rows, found_checks: FoundChecks) -> None:
    steps = (
        {"JobID": "7.batch", "JobIDRaw": "7.batch", "MaxRSS": "1048576K"},
        {
            "JobID": "7.0",
            "JobIDRaw": "7.0",
            "TRESUsageInAve": "cpu=00:00:01,gres/gpumem=2048M,gres/gpuutil=90,mem=3G",
            "NTasks": "2",
        },
        {"JobID": "7.extern", "JobIDRaw": "7.extern", "State": "FAILED"},
        {"JobID": "9.0", "JobIDRaw": "9.0", "MaxRSS": "5"},
    )
    trace = ingest(sacct({}, *steps))
    assert rows(trace, "jobs") == [JOB_ROW]
    assert rows(trace, "job_usage") == [
        {"job_id": "slurm/7", "instance": "batch", "memory_gib": 1.0},
        {"job_id": "slurm/7", "instance": "0", "gpu_util_pct": 180.0, "gpu_memory_gib": 4.0, "memory_gib": 3.0},
    ]
    (account,) = trace.manifest.files
    assert (account.records, account.kept, account.rejected) == (5, 5, 0)
    assert found_checks(trace) == {"steps_without_job": (1, 4)}
