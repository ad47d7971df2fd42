"""PBS accounting files: records of a few lines, and the rows that they must give."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tracekit.ingest import ingest_logs
from tracekit.ingest.formats import pbs

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tracekit.trace import Trace

    Ingest = Callable[..., Trace]
    Rows = Callable[[Trace, str], list[dict[str, Any]]]
    FoundChecks = Callable[[Trace], dict[str, tuple[int, int | None]]]

T = 1709546400
"""2024-03-04 10:00:00 UTC [s]."""
ASKED = "ctime=1709546400 qtime=1709546400 etime=1709546410 Resource_List.ncpus=16 Resource_List.ngpus=3"
GIVEN = "exec_host=n1/0*8+n2/0*8 exec_vnode=(n1:ncpus=8:ngpus=2)+(n2:ncpus=8:ngpus=1)"
QUEUED = "03/04/2024 10:00:00;Q;1.srv;queue=gpu\n"
STARTED = f'03/04/2024 10:01:00;S;1.srv;user=ann group=lab account="my lab" queue=gpu {ASKED} start={T + 60} {GIVEN}\n'
ONE = "exec_host=n1/0*8 exec_vnode=(n1:ncpus=8:ngpus=2)"
AGAIN = f"03/04/2024 10:06:00;S;1.srv;user=ann queue=gpu ctime={T} start={T + 360} {ONE}\n"
ENDED = (
    f"03/04/2024 11:01:00;E;1.srv;user=ann queue=gpu ctime={T} start={T + 360} exec_host=n1/0*8 "
    f"exec_vnode=(n1:ncpus=8:ngpus=2) end={T + 3660} Exit_status=-29 resources_used.cput=00:10:00\n"
)


def test_a_job_that_ran_again_is_put_together_from_its_records(
    ingest: Ingest, rows: Rows, found_checks: FoundChecks
) -> None:
    trace = ingest({"20240304": QUEUED + STARTED + "03/04/2024 10:05:00;R;1.srv;\n" + AGAIN + ENDED})
    assert rows(trace, "jobs") == [
        {
            "job_id": "1.srv",
            "cluster": "srv",
            "vc": "gpu",
            "user": "ann",
            "group": "lab",
            "status": "timeout",
            "source_status": "Exit_status=-29",
            "submit_time": "2024-03-04 10:00:00",
            "eligible_time": "2024-03-04 10:00:10",
            "start_time": "2024-03-04 10:01:00",
            "end_time": "2024-03-04 11:01:00",
            "queue_s": 60.0,
            "run_s": 3600.0,
            "gpu_count": 3.0,
            "cpu_count": 8.0,
            "node_count": 2,
            "attempt_count": 2,
            "account": "my lab",
            "partition": "gpu",
        }
    ]
    assert [(r["attempt"], r["run_s"], r["wait_s"], r["gpu_count"], r["status"]) for r in rows(trace, "attempts")] == [
        (0, 240.0, 60.0, 3.0, "unknown"),
        (1, 3300.0, 60.0, 2.0, "timeout"),
    ]
    assert [(r["attempt"], r["node_id"], r["gpu_count"]) for r in rows(trace, "placements")] == [
        (0, "n1", 2.0),
        (0, "n2", 1.0),
        (1, "n1", 2.0),
    ]
    assert rows(trace, "job_usage") == [{"job_id": "1.srv", "cpu_s": 600.0}]
    assert found_checks(trace) == {}
    assert trace.manifest.format == "pbs"


def test_the_files_of_each_day_appended_are_the_files_at_once(tmp_path: Path, ingest: Ingest, rows: Rows) -> None:
    days = {
        "20240303": QUEUED + "03/04/2024 09:00:00;Q;2.srv;queue=gpu\n",
        "20240304": STARTED + "03/04/2024 10:05:00;R;1.srv;\n" + AGAIN,
        "20240305": ENDED + "03/04/2024 10:30:00;D;2.srv;requestor=ann@login\n",
    }
    for name, text in days.items():
        (tmp_path / name).write_text(text)
        ingest_logs(tmp_path / name, tmp_path / "history", append=True)
    from tracekit.trace import Trace

    history, whole = Trace.open(tmp_path / "history"), ingest(days)
    assert history.validate() == []
    for table in ("jobs", "attempts", "placements"):
        assert sorted(rows(history, table), key=str) == sorted(rows(whole, table), key=str)
    assert [r["status"] for r in rows(history, "jobs")] == ["cancelled", "timeout"]


def test_the_clock_of_a_record_is_read_by_the_times_inside_the_records_around_it(ingest: Ingest, rows: Rows) -> None:
    # The clock is at UTC-5: the deletion at 05:30 is at 10:30 UTC, whatever the option says.
    text = f"03/04/2024 05:01:00;S;1.srv;ctime={T} start={T + 60} exec_host=n1/0\n03/04/2024 05:00:00;Q;2.srv;queue=q\n"
    trace = ingest({"log": text + "03/04/2024 05:30:00;D;2.srv;requestor=ann\n"})
    deleted = next(r for r in rows(trace, "jobs") if r["job_id"] == "2.srv")
    assert (deleted["submit_time"], deleted["end_time"]) == ("2024-03-04 10:00:00", "2024-03-04 10:30:00")


def test_without_any_such_record_the_zone_decides(ingest: Ingest, rows: Rows) -> None:
    trace = ingest({"log": "03/04/2024 05:00:00;Q;2.srv;queue=q\n"}, options={"timezone": "America/New_York"})
    assert [r["submit_time"] for r in rows(trace, "jobs")] == ["2024-03-04 10:00:00"]


def test_a_run_that_was_deleted_is_cancelled_and_one_that_ended_well_is_not(ingest: Ingest, rows: Rows) -> None:
    line = "03/04/2024 10:00:{at};E;{job}.srv;ctime={t} start={t} exec_host=n1/0 end={end} Exit_status={code}\n"
    text = "".join(
        line.format(at=50, job=job, t=T, end=T + 50, code=code)
        + (f"03/04/2024 10:00:49;D;{job}.srv;requestor=ann\n" if asked else "")
        for job, code, asked in ((1, 271, True), (2, 271, False), (3, 0, True))
    )
    trace = ingest({"log": text})
    assert [r["status"] for r in rows(trace, "jobs")] == ["cancelled", "failed", "completed"]
    assert [r["status"] for r in rows(trace, "attempts")] == ["cancelled", "failed", "completed"]


def test_a_start_that_another_start_follows_has_no_end_and_no_nodes(
    ingest: Ingest, rows: Rows, found_checks: FoundChecks
) -> None:
    start = "03/04/2024 10:0{m}:00;S;1.srv;ctime={t} start={at} exec_host=n{m}/0\n"
    trace = ingest({"log": start.format(m=1, t=T, at=T + 60) + start.format(m=2, t=T, at=T + 120)})
    assert [("end_time" in r, r["attempt"]) for r in rows(trace, "attempts")] == [(False, 0), (False, 1)]
    assert [r["node_id"] for r in rows(trace, "placements")] == ["n2"]
    assert found_checks(trace)["runs_without_end"] == (1, 2)


@pytest.mark.parametrize(
    ("code", "status"),
    [(0, "completed"), (1, "failed"), (-29, "timeout"), (-27, "out_of_memory"), (-3, "failed"), (271, "failed")],
)
def test_an_exit_status_means_what_the_manual_says(code: int, status: str) -> None:
    assert pbs.exit_status(code) == status


@pytest.mark.parametrize(
    ("hosts", "vnodes", "devices", "expected"),
    [
        ("n1/0*8+n2/0*8", "(n1:ncpus=8:ngpus=2)+(n2:ncpus=8)", None, {"n1": (2.0, None), "n2": (0.0, None)}),
        ("h1/0", "(h1[0]:ngpus=1+h1[1]:ngpus=3)", None, {"h1": (4.0, None)}),
        (None, "(a[0]:ngpus=1)+(b:ngpus=1)", None, {"a": (1.0, None), "b": (1.0, None)}),
        ("n1/0+n1/1+n2/3-7", None, None, {"n1": (None, None), "n2": (None, None)}),
        ("n1/0+n2/0", None, "n1-gpu/1+n1-gpu/0", {"n1": (2.0, [0, 1]), "n2": (0.0, None)}),
    ],
)
def test_places_of_a_run(hosts: str | None, vnodes: str | None, devices: str | None, expected: dict[str, Any]) -> None:
    found, _ = pbs.run_nodes(hosts, vnodes, devices, {})
    assert {p["node"]: (p["gpu_count"], p["gpu_index"]) for p in found} == expected


def test_requests_of_both_dialects_count_their_gpus() -> None:
    select = pbs.requested("2:ncpus=8:ngpus=2:gpu_type=a100+1:ncpus=4", {}, "gpu_type")
    assert (select.nodes, select.cpus, select.gpus, select.model, select.chunk_gpus) == (3, 20, 4, "a100", (2, 2, 0))
    nodes = pbs.requested("2:ppn=8:gpus=2+node7:ppn=4", {}, None)
    assert (nodes.nodes, nodes.cpus, nodes.gpus, nodes.chunk_gpus) == (3, 20, 4, (2, 2, 0))


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("01:30", 90), ("02:03:04", 7384), ("1:02:03:04", 93784), ("-5", None), ("x", None)],
)
def test_durations(text: str, seconds: float | None) -> None:
    if seconds is None:
        with pytest.raises(ValueError, match="is not a duration"):
            pbs.duration_s(text)
    else:
        assert pbs.duration_s(text) == seconds


def test_values_end_at_the_next_name_and_quotes_hold_anything() -> None:
    text = 'user=ann account="a b=c" jobname=x y start=1 exec_vnode=(n1:ncpus=1)'
    assert pbs.attributes(text) == {
        "user": "ann", "account": "a b=c", "jobname": "x y", "start": "1", "exec_vnode": "(n1:ncpus=1)",
    }  # fmt: skip
    assert len(pbs.attributes("a" * 100 + " " * 200_000 + "b=1")) == 1


def test_members_of_an_array_are_jobs_and_the_array_is_counted(
    ingest: Ingest, rows: Rows, found_checks: FoundChecks
) -> None:
    text = f"03/04/2024 10:00:00;Q;7[].srv;ctime={T}\n03/04/2024 10:00:00;Q;7[2].srv;ctime={T}\n"
    trace = ingest({"log": text + "03/04/2024 10:00:00;L;license;x\n"})
    assert [(r["job_id"], r["group"]) for r in rows(trace, "jobs")] == [("7[2].srv", "7[].srv")]
    assert found_checks(trace) == {"array_records": (1, 3), "other_records": (1, 3)}


WHOLE = {
    "etime": str(T + 5),
    "exec_host": "n1/0*8",
    "exec_vnode": "(n1:ncpus=8:ngpus=2)",
    "Resource_List.select": "1:ncpus=8:ngpus=2",
    "Resource_List.walltime": "02:00:00",
    "Resource_List.mem": "16gb",
    "resources_used.cput": "00:10:00",
    "resources_used.mem": "8gb",
    "Exit_status": "0",
}


UNREADABLE: list[tuple[str, str, set[str], str]] = [
    ("etime", "jobs", {"eligible_time"}, "is not a time in seconds since 1970"),
    ("exec_vnode", "placements", {"node_id"}, "is not a number"),
    ("Resource_List.select", "", set(), "is not a number"),
    ("Resource_List.walltime", "jobs", {"time_limit_s"}, "is not a duration like 02:03:04"),
    ("Resource_List.mem", "jobs", {"memory_gib"}, "is not an amount of memory"),
    ("resources_used.cput", "job_usage", {"cpu_s"}, "is not a duration like 02:03:04"),
    ("resources_used.mem", "job_usage", {"memory_gib"}, "is not an amount of memory"),
    ("Exit_status", "jobs", {"status"}, "is not a whole number"),
]


def test_an_optional_value_that_cannot_be_read_costs_itself(ingest: Ingest, rows: Rows) -> None:
    def record(number: int, **changes: str) -> str:
        values = " ".join(f"{k}={v}" for k, v in (WHOLE | changes).items())
        times = f"ctime={T} start={T + 60} end={T + 3600}"
        return f"03/04/2024 11:00:00;E;{number}.a;queue=q {times} {values}\n"

    damaged = (record(number, **{name: "x:ngpus=?"}) for number, (name, *_) in enumerate(UNREADABLE, 1))
    trace = ingest({"log": record(0) + "".join(damaged)})
    assert rows(trace, "rejects") == []

    def of_job(number: int, table: str) -> list[dict[str, Any]]:
        return [
            {k: v for k, v in row.items() if k != "job_id"} for row in found[table] if row["job_id"] == f"{number}.a"
        ]

    found = {table: rows(trace, table) for table in ("jobs", "job_usage", "placements")}
    for number, (name, damaged_table, lost, reason) in enumerate(UNREADABLE, 1):
        check = trace.manifest.checks[f"unreadable_{name.lower().replace('.', '_')}"]
        assert (check.count, check.examples) == (1, [f"x:ngpus=?: {reason}"]), name
        for table in ("jobs", "job_usage"):
            gone = (lost if table == damaged_table else set()) | {"source_status"}
            before, after = ([{k: v for k, v in row.items() if k not in gone} for row in of_job(n, table)]
                             for n in (0, number))  # fmt: skip
            assert after == before, (name, table)
            assert before, table
        if damaged_table == "placements":
            assert of_job(number, "placements") == [], name
        elif damaged_table:
            (row,) = of_job(number, damaged_table)
            assert {row.get(column) for column in lost} <= {None, "unknown"}, name


def test_gpus_are_unknown_where_their_request_cannot_be_read(ingest: Ingest, rows: Rows) -> None:
    asked = ["Resource_List.select=2:ngpus=?", "Resource_List.select=99999999:ngpus=1", "Resource_List.ngpus=?"]
    trace = ingest({"log": "".join(ended(f"{n}.a", "n1", f"Resource_List.ncpus=8 {x}") for n, x in enumerate(asked))})
    found = [row.get("gpu_count") for row in rows(trace, "jobs")]
    assert dict(zip(asked, found, strict=True)) == dict.fromkeys(asked)


def test_no_limit_is_unknown(ingest: Ingest, rows: Rows, found_checks: FoundChecks) -> None:
    limits = ["UNLIMITED", "4294967295", "inf"]
    trace = ingest({"log": "".join(ended(f"{n}.a", "n1", f"Resource_List.walltime={x}") for n, x in enumerate(limits))})
    found = [row.get("time_limit_s") for row in rows(trace, "jobs")]
    assert dict(zip(limits, found, strict=True)) == dict.fromkeys(limits)
    assert found_checks(trace) == {}


def ended(job: str, node: str, asked: str, *, prefix: str = "") -> str:
    """Return the E record of a job that ran for an hour on 8 processors."""
    times = f"ctime={T} etime={T} start={T} end={T + 3600}"
    return f"{prefix}03/04/2024 11:00:00;E;{job};{times} exec_host={node}/0-7 {asked} Exit_status=0\n"


def test_ids_with_and_without_a_server_name_machines_apart(ingest: Ingest, rows: Rows) -> None:
    asked = "Resource_List.nodes=1:ppn=8:gpus=4"
    one_server = ended("1", "n1", asked) + ended("2.a", "n1", asked)
    assert [r["node_id"] for r in rows(ingest({"log": one_server}), "placements")] == ["n1", "n1"]
    trace = ingest({"log": one_server + ended("3.b", "n1", asked)})
    assert [(r["job_id"], r["node_id"]) for r in rows(trace, "placements")] == [
        ("1", "n1"),
        ("2.a", "a/n1"),
        ("3.b", "b/n1"),
    ]
    assert [(r["node_id"], r.get("cluster")) for r in rows(trace, "nodes")] == [
        ("a/n1", "a"),
        ("b/n1", "b"),
        ("n1", None),
    ]


def test_torque_counts_gpus_under_either_word(ingest: Ingest, rows: Rows) -> None:
    gpus = {
        "Resource_List.nodes=1:ppn=8:gpu=2": 2.0,
        "Resource_List.nodes=1:ppn=8:default Resource_List.gpu=2": 2.0,
        "Resource_List.nodes=1:ppn=8 Resource_List.gpus=1": 1.0,
        "Resource_List.nodes=1:ppn=8": 0.0,
    }
    trace = ingest({"log": "".join(ended(f"{n}.a", f"n{n}", asked) for n, asked in enumerate(gpus))})
    for table in ("jobs", "placements"):
        found = [r["gpu_count"] for r in rows(trace, table)]
        assert dict(zip(gpus, found, strict=True)) == gpus, table


def test_lines_that_grep_found_carry_the_name_of_their_file(ingest: Ingest, rows: Rows) -> None:
    lines = ended("1.a", "n1", "", prefix="accounting/20240304:") + ended("2.a", "n1", "", prefix="20240304:")
    trace = ingest({"found.txt": lines})
    assert [(r["job_id"], r["end_time"]) for r in rows(trace, "jobs")] == [
        ("1.a", "2024-03-04 11:00:00"),
        ("2.a", "2024-03-04 11:00:00"),
    ]


@pytest.mark.parametrize(
    ("text", "gib"), [("16gb", 16.0), ("12.5M", 12.5 / 1024), ("1024kb", 1 / 1024), ("1gw", 8.0), ("1073741824", 1.0)]
)
def test_amounts_of_memory(text: str, gib: float) -> None:
    assert pbs.amount_gib(text) == pytest.approx(gib)


def test_a_bad_record_is_rejected_with_its_reason(ingest: Ingest, rows: Rows) -> None:
    bad = [
        ("03/04/2024 10:00:00;E;1.s;ctime=1709546400 start=1709546400 end=soon", "end", "is not a time in seconds since 1970"),  # noqa: E501 -- a record
        ("03/04/2024 10:00:00;E;1.s;ctime=1709546400 start=1709546400", "end", "is missing"),
        ("03/04/2024 10:00:00;S;1.s;ctime=1709546400", "start", "is missing"),
        ("03/04/2024 10:00:00;Q;x;ctime=1709546400", "job", "is not a job id like 123.server"),
        ("13/04/2024 10:00:00;Q;1.s;ctime=1709546400", "date", "is not a date like 03/04/2024 10:11:12"),
    ]  # fmt: skip
    good = f"03/04/2024 10:00:00;Q;8.srv;ctime={T}\n"
    trace = ingest({"log": good + "".join(f"{line}\n" for line, *_ in bad) + good}, max_reject_share=0.9)
    assert [(r["line"], r["column"], r["reason"]) for r in rows(trace, "rejects")] == [
        (number, column, reason) for number, (_, column, reason) in enumerate(bad, 2)
    ]
    assert [r["job_id"] for r in rows(trace, "jobs")] == ["8.srv"]


def started(*jobs: str) -> dict[str, str]:
    """Return an accounting file with the start of each job, which has these attributes."""
    times = f"ctime={T} start={T + 60}"
    return {
        "20240304": "".join(
            f"03/04/2024 10:01:00;S;{number}.srv;user=ann queue=q {times} {attributes}\n"
            for number, attributes in enumerate(jobs, 1)
        )
    }


@pytest.mark.parametrize(
    ("option", "gpus"), [("", None), ("npu=0", 2.0), ("npu=0.5,ngpus=2", 5.5), ("NPU,nodect=0", 5.0)]
)
def test_what_counts_as_gpus_is_an_option(
    option: str, gpus: float | None, ingest: Ingest, rows: Rows, found_checks: FoundChecks
) -> None:
    # 2 GPUs and 3 NPUs on one node.
    where = "exec_host=n1/0*8 exec_vnode=(n1:ncpus=8:ngpus=2:npu=3:scratch=9) Resource_List.select=1:ngpus=2:npu=3"
    trace = ingest(started(where), options={"gpu_resource": option})
    assert rows(trace, "jobs")[0].get("gpu_count") == gpus
    assert rows(trace, "placements")[0].get("gpu_count") == gpus
    assert found_checks(trace) == ({} if option else {"unknown_devices_of_jobs": (1, 1)})
    assert any("npu (1)" in note for note in trace.manifest.notes) is (not option)


def test_whole_nodes_have_gpus_that_only_the_record_tells(
    ingest: Ingest, rows: Rows, found_checks: FoundChecks
) -> None:
    gpus = {
        "Resource_List.select=2:ncpus=8 Resource_List.place=scatter:exclhost": None,
        "Resource_List.select=2:ncpus=8 Resource_List.place=excl": None,
        "Resource_List.nodes=2:ppn=8 Resource_List.naccesspolicy=singlejob": None,
        "Resource_List.select=2:ncpus=8 Resource_List.place=scatter:shared": 0.0,
        "Resource_List.select=2:ncpus=8": 0.0,
        # Where the record says it, it is known.
        "Resource_List.select=2:ncpus=8:ngpus=4 Resource_List.place=scatter:excl": 8.0,
        "Resource_List.select=2:ncpus=8:ngpus=0 Resource_List.place=scatter:excl": 0.0,
        "Resource_List.select=2:ncpus=8 Resource_List.ngpus=0 Resource_List.place=scatter:excl": 0.0,
    }
    trace = ingest(started(*(f"exec_host=a{n}/0*8+b{n}/0*8 {asked}" for n, asked in enumerate(gpus))))
    found = [job.get("gpu_count") for job in rows(trace, "jobs")]
    assert dict(zip(gpus, found, strict=True)) == gpus
    assert found_checks(trace) == {"whole_nodes_without_gpus": (3, 8)}
    assert trace.manifest.checks["whole_nodes_without_gpus"].examples == ["1.srv", "2.srv", "3.srv"]


def test_vnodes_of_a_whole_node_have_unknown_gpus(ingest: Ingest, rows: Rows) -> None:
    where = "exec_host=n1/0*8 exec_vnode=(n1:ncpus=8) Resource_List.select=1:ncpus=8 Resource_List.place=excl"
    trace = ingest(started(where))
    assert "gpu_count" not in rows(trace, "jobs")[0]
    assert "gpu_count" not in rows(trace, "placements")[0]


@pytest.mark.parametrize(
    ("chunk", "devices"),
    [
        ("2:ncpus=8:mem=4:mpiprocs=8:ompthreads=1:scratch=3:nodect=2", set()),
        ("1:npu=4", {"npu"}), ("1:nmics=2", {"nmics"}), ("1:naccelerators=1", {"naccelerators"}), ("1:npu=0", set()),
        ("1:ngpus_a100=2", {"ngpus_a100"}), ("1:ngpus=2:ngpus_a100=2", set()), ("1:gpu_mem=16:gpu_cap=80", set()),
    ],
)  # fmt: skip
def test_resources_that_are_accelerators_by_their_name(chunk: str, devices: set[str]) -> None:
    assert pbs.unknown_devices([chunk], {}) == devices
