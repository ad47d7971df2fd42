"""Flux: eventlogs with R and jobspec, small ones worked by hand."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    from tracekit.trace import Trace

    Ingest = Callable[..., Trace]
    Rows = Callable[[Trace, str], list[dict[str, Any]]]
    FoundChecks = Callable[[Trace], dict[str, tuple[int, int | None]]]

AT = 1_700_000_000.0


def eventlog(*events: tuple[float, str, dict[str, Any]]) -> str:
    """Return a log of events, each given by its seconds after AT, as `flux job info ID eventlog` prints it."""
    return "".join(
        json.dumps({"timestamp": AT + at, "name": name} | ({"context": context} if context else {})) + "\n"
        for at, name, context in events
    )


SUBMIT = (0.0, "submit", {"userid": 5588, "urgency": 16, "flags": 0, "version": 1})
RAN: tuple[tuple[float, str, dict[str, Any]], ...] = (
    SUBMIT, (0.1, "validate", {}), (5.0, "depend", {}), (5.0, "priority", {"priority": 16}), (60.0, "alloc", {}),
    (61.0, "start", {}), (3660.0, "finish", {"status": 0}), (3661.0, "release", {"ranks": "all", "final": True}),
    (3661.0, "free", {}), (3661.1, "clean", {}),
)  # fmt: skip
R = {
    "version": 1,
    "execution": {
        "R_lite": [
            {"rank": "3-4", "children": {"core": "0-7", "gpu": "0-3"}},
            {"rank": "5", "children": {"core": "0-3", "gpu": "0"}},
        ],
        "starttime": AT + 60,
        "expiration": AT + 7260,
        "nodelist": ["gpu[3-4]", "big1"],
    },
}
SPEC = {
    "version": 1,
    "resources": [
        {"type": "node", "count": 2, "with": [{"type": "slot", "count": 2, "label": "task", "with": [
            {"type": "core", "count": 4}, {"type": "gpu", "count": 1}]}]}
    ],
    "tasks": [{"command": ["train"], "slot": "task", "count": {"per_slot": 1}}],
    "attributes": {"system": {"duration": 7200.0, "queue": "batch", "bank": "ml", "job": {"name": "bert"}}},
}  # fmt: skip
JOB = {"id": 1_234_567, "eventlog": eventlog(*RAN), "R": R, "jobspec": SPEC}


def lines(*jobs: dict[str, Any]) -> dict[str, str]:
    """Return a file with an object a line."""
    return {"flux.jsonl": "".join(json.dumps(job) + "\n" for job in jobs)}


def test_a_job_holds_what_r_lists_from_alloc_to_finish(ingest: Ingest, rows: Rows, found_checks: FoundChecks) -> None:
    trace = ingest(lines(JOB))
    assert trace.manifest.format == "flux"
    assert rows(trace, "jobs") == [
        {
            "job_id": "1234567",
            "cluster": "flux",
            "vc": "ml",
            "account": "ml",
            "partition": "batch",
            "user": "5588",
            "name": "bert",
            "status": "completed",
            "source_status": "finish status=0",
            "submit_time": "2023-11-14 22:13:20",
            "eligible_time": "2023-11-14 22:13:25",
            "start_time": "2023-11-14 22:14:20",
            "end_time": "2023-11-14 23:14:20",
            "queue_s": 60.0,
            "run_s": 3600.0,
            "gpu_count": 9.0,
            "cpu_count": 20.0,
            "node_count": 3,
            "time_limit_s": 7200.0,
            "attempt_count": 1,
        }
    ]
    assert [(r["node_id"], r["gpu_count"], r["gpu_index"]) for r in rows(trace, "placements")] == [
        ("big1", 1.0, [0]), ("gpu3", 4.0, [0, 1, 2, 3]), ("gpu4", 4.0, [0, 1, 2, 3]),
    ]  # fmt: skip
    assert [(r["node_id"], r["gpu_count"]) for r in rows(trace, "nodes")] == [("big1", 1), ("gpu3", 4), ("gpu4", 4)]
    assert found_checks(trace) == {}


def test_every_form_of_a_file_gives_the_same(ingest: Ingest, rows: Rows) -> None:
    # The job archive has text in each column, and prints an array.
    text = {"id": 1, "eventlog": JOB["eventlog"], "R": json.dumps(R), "jobspec": json.dumps(SPEC)}
    events = [json.loads(line) for line in str(JOB["eventlog"]).splitlines()]
    files = {
        "text.json": json.dumps(text),
        "array.json": json.dumps([text | {"id": 2}]),
        "list.json": json.dumps(JOB | {"id": 3, "eventlog": events}),
        "indented.json": json.dumps({"jobs": [JOB | {"id": 4}]}, indent=1),
    }
    trace = ingest(files)
    assert trace.manifest.format == "flux"
    found = [(job["job_id"], job["gpu_count"], job["status"], job["run_s"]) for job in rows(trace, "jobs")]
    assert dict(zip(files, found, strict=True)) == {
        file: (str(number), 9.0, "completed", 3600.0) for number, file in enumerate(files, 1)
    }


def test_an_id_is_decimal(ingest: Ingest, rows: Rows) -> None:
    number = {"f2": "1", "\u019221": "58", "fZZ": str(32 * 58 + 32), "12": "12"}
    trace = ingest(lines(*(JOB | {"id": text, "jobspec": SPEC | {"attributes": {"system": {"job": {"name": text}}}}}
                           for text in number)))  # fmt: skip
    assert {job["name"]: job["job_id"] for job in rows(trace, "jobs")} == number


CANCEL = {"type": "cancel", "severity": 0, "note": ""}
ENDS: dict[str, tuple[tuple[Any, ...], tuple[str, str, float | None]]] = {
    "runs": (RAN[:6], ("running", "start", None)),
    "waits": (RAN[:4], ("pending", "priority", None)),
    "fails": ((*RAN[:6], (100.0, "finish", {"status": 256})), ("failed", "finish status=256", 40.0)),
    "is cancelled": (
        (*RAN[:6], (90.0, "exception", CANCEL), (100.0, "finish", {"status": 15})),
        ("cancelled", "exception cancel", 40.0),
    ),
    "meets its limit": (
        (*RAN[:6], (90.0, "exception", CANCEL | {"type": "timeout"}), (100.0, "finish", {"status": 36608})),
        ("timeout", "exception timeout", 40.0),
    ),
    "goes on: a node of many was lost, or the time limit is near": (
        (*RAN[:6], (90.0, "exception", CANCEL | {"severity": 2}), *RAN[6:]),
        ("completed", "finish status=0", 3600.0),
    ),
    "cannot be started": (
        (*RAN[:5], (90.0, "exception", CANCEL | {"type": "exec"}), (100.0, "free", {})),
        ("failed", "exception exec", 40.0),
    ),
    "is cancelled while it waits": (
        (*RAN[:4], (50.0, "exception", CANCEL), (50.0, "clean", {})), ("cancelled", "exception cancel", None),
    ),
    "ends, and nothing says how": ((*RAN[:5], (100.0, "clean", {})), ("unknown", "clean", 40.0)),
}  # fmt: skip


def test_how_a_job_ended(ingest: Ingest, rows: Rows) -> None:
    logs = (eventlog(*events) for events, _ in ENDS.values())
    jobs = rows(ingest(lines(*(JOB | {"id": n, "eventlog": log} for n, log in enumerate(logs, 1)))), "jobs")
    found = [(job["status"], job["source_status"], job.get("run_s")) for job in jobs]
    assert dict(zip(ENDS, found, strict=True)) == {how: end for how, (_, end) in ENDS.items()}


def test_a_waiting_job_has_what_it_asked_for(ingest: Ingest, rows: Rows) -> None:
    node = {"type": "node", "count": 2}
    gpu = {"type": "gpu", "count": 2}
    core = {"type": "core", "count": 1}
    slot = {"type": "slot", "count": 3, "label": "task"}
    gpus_and_nodes: list[tuple[Any, tuple[float | None, int | None]]] = [
        (SPEC["resources"], (4.0, 2)),
        ([slot | {"with": [core, gpu]}], (6.0, None)),
        ([slot | {"with": [core]}], (0.0, None)),
        # A node as a whole has GPUs that nothing here tells, and a range has no number yet.
        ([slot | {"with": [node | {"exclusive": True, "with": [core]}]}], (None, 6)),
        ([slot | {"count": {"min": 1, "max": 4}, "with": [gpu]}], (None, None)),
        ([slot | {"with": [{"type": "dcu", "count": 1}]}], (None, None)),
    ]
    waiting = JOB | {"eventlog": eventlog(*RAN[:4]), "R": None}
    specs = (SPEC | {"resources": asked} for asked, _ in gpus_and_nodes)
    jobs = rows(ingest(lines(*(waiting | {"id": n, "jobspec": spec} for n, spec in enumerate(specs, 1)))), "jobs")
    found = [(job.get("gpu_count"), job.get("node_count")) for job in jobs]
    assert found == [expected for _, expected in gpus_and_nodes]


def test_a_job_that_ran_without_r_has_unknown_gpus(ingest: Ingest, rows: Rows) -> None:
    (job,) = rows(ingest(lines({key: JOB[key] for key in ("id", "eventlog", "jobspec")})), "jobs")
    assert ("gpu_count" in job, job["vc"]) == (False, "ml")


def test_devices_that_nobody_knows(ingest: Ingest, rows: Rows, found_checks: FoundChecks) -> None:
    lite = [{"rank": "0", "children": {"core": "0-7", "gpu": "0-1", "dcu": "0-3", "ssd": "0"}}]
    held = {"version": 1, "execution": {"R_lite": lite, "nodelist": ["n0"]}}
    files = lines(JOB | {"R": held})
    trace = ingest(files)
    assert "gpu_count" not in rows(trace, "jobs")[0]
    assert [("gpu_count" in r, r["node_id"]) for r in rows(trace, "placements")] == [(False, "n0")]
    assert found_checks(trace)["unknown_devices_of_jobs"] == (1, 1)
    assert any("dcu (1)" in note and "ssd" not in note for note in trace.manifest.notes)
    for option, gpus in (("dcu=0.5", 4.0), ("dcu=0", 2.0)):
        (job,) = rows(ingest(files, options={"gpu_resource": option}), "jobs")
        assert job["gpu_count"] == gpus


def test_ranks_in_another_order_than_hosts(ingest: Ingest, rows: Rows) -> None:
    def held(first: str) -> dict[str, Any]:
        lite = [
            {"rank": "0,2", "children": {"core": "0", "gpu": first}},
            {"rank": "1", "children": {"core": "0", "gpu": "0"}},
        ]
        return {"execution": {"R_lite": lite, "nodelist": ["n[0-2]"]}}

    trace = ingest(lines(JOB | {"id": 1, "R": held("0-1")}, JOB | {"id": 2, "R": held("0")}))
    assert [(r["job_id"], r["node_id"], r.get("gpu_count")) for r in rows(trace, "placements")] == [
        ("1", "n0", None), ("1", "n1", None), ("1", "n2", None), ("2", "n0", 1.0), ("2", "n1", 1.0), ("2", "n2", 1.0),
    ]  # fmt: skip


def test_a_later_duration_counts_and_0_is_not_a_limit(ingest: Ingest, rows: Rows) -> None:
    updates = ((6.0, "jobspec-update", {"attributes.system.duration": to}) for to in (60.0, 0, 0.0))
    logs = (eventlog(*RAN[:4], update, *RAN[4:]) for update in updates)
    trace = ingest(lines(*(JOB | {"id": n, "eventlog": log} for n, log in enumerate(logs, 1))))
    assert [job.get("time_limit_s") for job in rows(trace, "jobs")] == [60.0, None, None]


def test_a_record_without_id_or_events_is_rejected(ingest: Ingest, rows: Rows) -> None:
    changes: list[tuple[str, Any]] = [
        ("id", None), ("id", 1.5), ("id", "a b"), ("eventlog", "?"), ("eventlog", ""),
        ("eventlog", eventlog(*RAN[4:])), ("eventlog", '{"timestamp": 1e999, "name": "submit"}'),
        ("eventlog", '{"timestamp": "now", "name": "submit"}'), ("eventlog", [1]),
    ]  # fmt: skip
    bad = (JOB | {"id": 3, column: value} for column, value in changes)
    trace = ingest(lines(JOB, JOB | {"id": 2}, *bad), max_reject_share=0.9)
    assert [(r["line"], r["column"]) for r in rows(trace, "rejects")] == [
        (number, column) for number, (column, _) in enumerate(changes, 3)
    ]


OF_R = {"gpu_count", "cpu_count", "node_count"}
OF_SPEC = {"vc", "account", "partition", "name", "time_limit_s"}
UNREADABLE: list[tuple[dict[str, Any], set[str]]] = [
    ({"R": "?"}, OF_R),
    ({"R": {"execution": {"R_lite": [{"rank": "0-99999999", "children": {}}]}}}, OF_R),
    # R is JSON of any depth, which mypy takes for objects.
    ({"R": R | {"execution": R["execution"] | {"nodelist": ["gpu3"]}}}, OF_R),  # type: ignore[operator]  # a mixed object
    ({"jobspec": "[]?"}, OF_SPEC),
    ({"jobspec": SPEC | {"attributes": {"system": {"duration": "long", "bank": 7, "queue": ["x"]}}}}, OF_SPEC),
]


def test_an_unreadable_cell_costs_itself(ingest: Ingest, rows: Rows, found_checks: FoundChecks) -> None:
    damaged = (JOB | {"id": number} | change for number, (change, _) in enumerate(UNREADABLE, 1))
    trace = ingest(lines(JOB | {"id": 0}, *damaged))
    whole, *others = rows(trace, "jobs")
    for (change, lost), job in zip(UNREADABLE, others, strict=True):
        kept = {"job_id": job["job_id"]} | {k: v for k, v in whole.items() if k not in {"job_id", *lost}}
        assert {k: v for k, v in job.items() if k not in lost} == kept, change
    counts = {check: count for check, (count, _) in found_checks(trace).items() if check.startswith("unreadable_")}
    assert counts == {"unreadable_r": 3, "unreadable_jobspec": 1, "unreadable_duration": 1}


def test_a_later_export_continues_a_job(ingest: Ingest, rows: Rows) -> None:
    ingest(lines(JOB | {"eventlog": eventlog(*RAN[:6])}))
    trace = ingest(lines(JOB), append=True)
    assert [(j["status"], j["run_s"], j["gpu_count"]) for j in rows(trace, "jobs")] == [("completed", 3600.0, 9.0)]
