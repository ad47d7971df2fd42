"""Counters that a GPU does not have are unknown, not 0."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tracekit.characterize import answer_query
from tracekit.ingest.checks import LEAST_JOBS

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from tracekit.trace import Trace

    Ingest = Callable[..., Trace]
    FoundChecks = Callable[[Trace], dict[str, tuple[int, int | None]]]

HEADER = "JobID|Partition|Submit|Start|End|State|AllocTRES|NNodes|NodeList|TRESUsageInTot"
UNTYPED, ZEROS, WORK = "", "gres/gpumem=0,gres/gpuutil=0", "gres/gpumem=30G,gres/gpuutil=100"

Row = tuple[str, str, str, str]
"""Partition, node, GPU model, and use of a job that holds two GPUs for an hour."""


def sacct(jobs: Iterable[Row]) -> dict[str, str]:
    """Return a dump with a job and its only step for each row."""
    lines = [HEADER]
    span = "2026-03-02T08:00:00|2026-03-02T08:00:00|2026-03-02T09:00:00|COMPLETED"
    for number, (partition, node, model, use) in enumerate(jobs, start=1):
        gpus = f"gres/gpu:{model}=2,gres/gpu=2" if model else "gres/gpu=2"
        lines.append(f"{number}|{partition}|{span}|{gpus},node=1|1|{node}|")
        lines.append(f"{number}.0||{span}|{gpus},node=1|1|{node}|{use}")
    return {"sacct.txt": "\n".join(lines) + "\n"}


def use_of(trace: Trace) -> dict[str, float | None]:
    """Return the stated use by job number."""
    rows = trace.scan("job_usage").select("job_id", "gpu_util_pct").collect().rows()
    return {job.removeprefix("slurm/"): use for job, use in rows}


def test_zeros_of_every_job_of_a_model_are_unknown_and_those_of_one_job_are_idle(
    ingest: Ingest, found_checks: FoundChecks
) -> None:
    rows = [
        ("p", "a1", "mi250", ZEROS),
        ("p", "a2", "mi250", ZEROS),
        ("p", "n1", "a100", WORK),
        ("p", "n2", "a100", ZEROS),
    ]
    trace = ingest(sacct(rows))
    assert use_of(trace) == {"1": None, "2": None, "3": 100.0, "4": 0.0}
    assert trace.scan("job_usage").collect()["gpu_memory_gib"].to_list() == [None, None, 30.0, 0.0]
    assert found_checks(trace) == {"unmeasured_gpu_use": (2, 4)}
    assert trace.manifest.checks["unmeasured_gpu_use"].examples == ["model mi250"]
    columns = ("key", "held_gpu_h", "used_gpu_h", "idle_gpu_h", "coverage_share")
    found = answer_query(trace, "utilization/efficiency", {"by": "gpu_model"}).frame.select(columns).rows()
    # Of the a100 one job uses both GPUs half (100 of 200 %), and the other none.
    assert found == [("a100", 4.0, 1.0, 3.0, 1.0), ("mi250", 4.0, None, None, 0.0)]


def test_a_partition_or_a_node_needs_more_jobs_where_the_model_has_counters(ingest: Ingest) -> None:
    """Each case has partitions, nodes and models of its own, and a job that shows use."""
    cases: dict[str, tuple[list[Row], float | None]] = {
        "no model is known, and the partition shows nothing": ([("amd", "a1", UNTYPED, ZEROS)], None),
        "other jobs of the partition show use": ([("p", "a1", UNTYPED, ZEROS)], 0.0),
        "the model has counters elsewhere": ([("amd", "n9", "a100", ZEROS)] * (LEAST_JOBS - 1), 0.0),
        "the partition has enough jobs": ([("amd", "n9", "a100", ZEROS)] * LEAST_JOBS, None),
        "the node has enough jobs": ([("p", "n9", "a100", ZEROS)] * LEAST_JOBS, None),
        "memory is not stated": ([("p", "n9", "a100", "gres/gpuutil=0")] * LEAST_JOBS, 0.0),
    }
    rows: list[Row] = []
    expected: dict[str, tuple[str, float | None]] = {}
    for place, (case, (silent, use)) in enumerate(cases.items()):
        for job in (("p", "n1", "a100", WORK), *silent):
            partition, node, model, said = job
            rows.append((f"{partition}{place}", f"{node}x{place}", model and f"{model}x{place}", said))
            expected[str(len(rows))] = (case, 100.0 if said == WORK else use)
    found = use_of(ingest(sacct(rows)))
    assert {job: (case, found[job]) for job, (case, _) in expected.items()} == expected


def test_zeros_of_jobs_without_gpus_say_nothing(ingest: Ingest) -> None:
    source = {"sacct.txt": sacct([("p", "n1", UNTYPED, ZEROS)])["sacct.txt"].replace("gres/gpu=2,", "cpu=1,")}
    assert use_of(ingest(source)) == {"1": 0.0}


def test_a_number_that_is_not_a_measure_costs_its_cell(ingest: Ingest, found_checks: FoundChecks) -> None:
    numbers = ["18446744073709551615", "16E", "17179869184G", "4294967294", "-1", "n/a"]
    trace = ingest(sacct([("p", "n1", "a100", f"gres/gpumem=30G,gres/gpuutil={number}") for number in numbers]))
    found = trace.scan("job_usage").select("gpu_util_pct", "gpu_memory_gib").collect().rows()
    assert dict(zip(numbers, found, strict=True)) == dict.fromkeys(numbers, (None, 30.0))
    assert found_checks(trace) == {"unreadable_use": (6, 6)}
    assert all(text.startswith("TRESUsageInTot=") for text in trace.manifest.checks["unreadable_use"].examples)


def test_memory_that_is_not_a_measure_costs_its_cell(ingest: Ingest, found_checks: FoundChecks) -> None:
    numbers = ["18446744073709551615", "16E", "17179869184G", "18446744073709551615K"]
    uses = [f"gres/gpumem={number},gres/gpuutil=90,mem={number}" for number in numbers]
    header, *lines = sacct([("p", "n1", "a100", use) for use in uses])["sacct.txt"].splitlines()
    steps = [f"{line}|{numbers[place // 2] if place % 2 else ''}" for place, line in enumerate(lines)]
    trace = ingest({"sacct.txt": "\n".join([f"{header}|MaxRSS", *steps, ""])})
    found = trace.scan("job_usage").select("gpu_util_pct", "gpu_memory_gib", "memory_gib").collect().rows()
    assert dict(zip(numbers, found, strict=True)) == dict.fromkeys(numbers, (90.0, None, None))
    assert found_checks(trace) == {"unreadable_use": (8, 8)}


def monitored(
    ingest: Ingest, jobs: Iterable[tuple[str, str]], samples: Mapping[str, tuple[float, float] | None]
) -> Trace:
    """Return a Trace of jobs (node, model) of an hour, with two samples of each node at the same values."""
    files = sacct(("p", node, model, "") for node, model in jobs)
    head = "timestamp, index, utilization.gpu [%], memory.used [MiB]\n"
    for node, shown in samples.items():
        if shown is not None:
            lines = [f"2026/03/02 08:{minute}:00.000, 0, {shown[0]} %, {shown[1]} MiB\n" for minute in (20, 40)]
            files[f"{node}.csv"] = "".join([head, *lines])
    return ingest(files)


def sampled(trace: Trace) -> dict[str, tuple[float | None, float | None]]:
    rows = trace.scan("gpu_utilization").select("node_id", "utilization_pct", "memory_used_gib").collect().rows()
    return {node: (use, memory) for node, use, memory in rows}


IDLE, BUSY = (0.0, 0.0), (80.0, 1024.0)


def test_samples_of_a_model_that_shows_nothing_for_any_job_are_unknown(
    ingest: Ingest, found_checks: FoundChecks
) -> None:
    jobs = [("a1", "mi250"), ("a2", "mi250"), ("n1", "a100"), ("n2", "a100")]
    trace = monitored(ingest, jobs, {"a1": IDLE, "a2": IDLE, "n1": BUSY, "n2": IDLE})
    assert sampled(trace) == {"a1": (None, None), "a2": (None, None), "n1": (80.0, 1.0), "n2": (0.0, 0.0)}
    assert found_checks(trace)["unmeasured_gpu_samples"] == (2, 4)
    assert trace.manifest.checks["unmeasured_gpu_samples"].examples == ["a1", "a2"]


@pytest.mark.parametrize(
    ("jobs", "samples", "node", "use"),
    [
        # The model's other machine shows use, and one idle job says nothing ...
        ([("n1", "a100"), ("n2", "a100")], {"n1": BUSY, "n2": IDLE}, "n2", 0.0),
        # ... but ten do.
        ([("n1", "a100")] + [("n2", "a100")] * LEAST_JOBS, {"n1": BUSY, "n2": IDLE}, "n2", None),
        # Memory in use shows that there are counters.
        ([("n1", "a100")], {"n1": (0.0, 4.0)}, "n1", 0.0),
        # Without a model all machines without one stand together.
        ([("n1", UNTYPED), ("n2", UNTYPED)], {"n1": BUSY, "n2": IDLE}, "n2", 0.0),
        ([("n1", UNTYPED)], {"n1": IDLE}, "n1", None),
    ],
)
def test_samples_that_are_zero_are_idle_where_others_show_use(
    ingest: Ingest, jobs: list[tuple[str, str]], samples: dict[str, tuple[float, float]], node: str, use: float | None
) -> None:
    assert sampled(monitored(ingest, jobs, samples))[node][0] == use


def test_a_machine_that_had_no_job_while_it_was_sampled_is_idle(ingest: Ingest) -> None:
    files = sacct([("p", "n1", "a100", "")])
    head = "timestamp, index, utilization.gpu [%], memory.used [MiB]\n"
    later = f"{head}2026/03/02 12:30:00.000, 0, 0 %, 0 MiB\n2026/03/02 12:40:00.000, 0, 0 %, 0 MiB\n"
    assert sampled(ingest({**files, "n1.csv": later})) == {"n1": (0.0, 0.0)}
    assert sampled(ingest({**files, "n1.csv": later.replace(" 12:", " 08:")})) == {"n1": (None, None)}


def test_one_sample_of_a_gpu_may_be_of_an_idle_one(ingest: Ingest) -> None:
    glance = "timestamp, index, utilization.gpu [%], memory.used [MiB]\n2026/03/02 08:30:00.000, 0, 0 %, 0 MiB\n"
    assert sampled(ingest({**sacct([("p", "n1", "a100", "")]), "n1.csv": glance})) == {"n1": (0.0, 0.0)}
