"""Swapped, zero, far and missing times in every format: the record stays, without times that cannot be."""

from __future__ import annotations

import datetime as dt
import itertools
from typing import TYPE_CHECKING, NamedTuple

import polars as pl
import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from tracekit.ingest import ingest_logs

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.trace import Trace

_MAP = """
[source]
[jobs.columns]
job_id = "id"
submit_time = "s"
start_time = "b"
end_time = "e"
"""


class Log(NamedTuple):
    """How a format writes a job of three times."""

    format: str
    path: str
    header: str
    record: str
    form: str
    """strftime of a time; '' for seconds."""
    unknown: str = ""
    tail: str = ""
    between: str = "\n"
    zone_h: int = 0
    """Hours from UTC of the wall clock."""


LOGS = [
    Log(
        "helios",
        "Earth/cluster_log.csv",
        "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n",
        "{id},u,v,1,1,1,COMPLETED,{s},{b},{e},,",
        "%Y-%m-%d %H:%M:%S",
        zone_h=8,
    ),
    Log(
        "acme",
        "trace_seren.csv",
        "job_id,user,node_num,gpu_num,cpu_num,type,state,submit_time,start_time,end_time,duration,queue,gpu_time\n",
        "{id},u,1,1,1,Other,COMPLETED,{s},{b},{e},,,",
        "%Y-%m-%d %H:%M:%S+00:00",
    ),
    Log(
        "slurm",
        "sacct.txt",
        "JobID|Submit|Start|End|State|NodeList|AllocTRES\n",
        "{id}|{s}|{b}|{e}|COMPLETED|n1|gres/gpu=1",
        "%Y-%m-%dT%H:%M:%S",
        "Unknown",
    ),
    Log("csv", "jobs.csv", "id,s,b,e\n", "{id},{s},{b},{e}", "%Y-%m-%dT%H:%M:%SZ"),
    Log(
        "philly",
        "cluster_job_log",
        "[",
        '{{"jobid": "{id}", "vc": "v", "user": "u", "status": "Pass", "submitted_time": "{s}", "attempts": '
        '[{{"start_time": "{b}", "end_time": "{e}", "detail": [{{"ip": "m1", "gpus": ["gpu0"]}}]}}]}}',
        "%Y-%m-%d %H:%M:%S",
        "None",
        "]",
        ",\n",
        -7,
    ),
    Log(
        "alibaba-dlrm",
        "disaggregated_DLRM_trace.csv",
        "instance_sn,role,app_name,cpu_request,cpu_limit,gpu_request,gpu_limit,rdma_request,rdma_limit,memory_request,"
        "memory_limit,disk_request,disk_limit,max_instance_per_node,creation_time,scheduled_time,deletion_time\n",
        "{id},HN,a,1,1,1,1,1,1,1,1,1,1,1,{s},{b},{e}",
        "",
    ),
    Log(
        "alibaba-openb",
        "openb_pod_list_default.csv",
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time\n",
        "{id},1,1,1,1000,,LS,Failed,{s},{e},{b}",
        "",
    ),
]
_ORIGIN = {"": dt.datetime(1970, 1, 1)}
_GOOD = st.integers(0, 10_000_000)
"""Seconds since the log's own beginning."""
_FAR = st.sampled_from([-dt.timedelta(days=12_000), dt.timedelta(days=12_000), dt.timedelta(days=29_000)])
_TIME = st.one_of(_GOOD, _GOOD, _GOOD, st.none(), st.just("epoch"), _FAR)


def _moment(log: Log, time: int | str | dt.timedelta | None) -> dt.datetime | None:
    """Return the instant [UTC] of a drawn time."""
    begin = _ORIGIN.get(log.form, dt.datetime(2017, 5, 1))
    if time is None:
        return None
    if time == "epoch":
        return dt.datetime(1970, 1, 1)
    return begin + (time if isinstance(time, dt.timedelta) else dt.timedelta(seconds=int(time)))


def _written(log: Log, moment: dt.datetime | None) -> str:
    if moment is None:
        return log.unknown
    if not log.form:
        return str(round((moment - dt.datetime(1970, 1, 1)).total_seconds()))
    local = moment + dt.timedelta(hours=log.zone_h)
    return local.strftime(log.form).zfill(len("2017-01-01 00:00:00") if local.year < 1000 else 0)


def _expected(log: Log, times: tuple[dt.datetime | None, ...]) -> list[dt.datetime | None]:
    """Return the submission, start and end that remain by the rule in words: dates of the log, in order."""
    begin = _ORIGIN.get(log.form, dt.datetime(2017, 5, 1))
    kept: list[dt.datetime | None] = []
    for time in times:
        earlier = [known for known in kept if known is not None]
        near = time is not None and abs((time - begin).days) < 5_000
        kept.append(time if near and time is not None and time >= max([dt.datetime(1970, 1, 1), *earlier]) else None)
    return kept


def _ingested(log: Log, records: list[tuple[dt.datetime | None, ...]], folder: Path) -> Trace:
    lines = [
        log.record.format(id=i + 1, **dict(zip("sbe", (_written(log, time) for time in times), strict=True)))
        for i, times in enumerate(records)
    ]
    source = folder / "source" / log.path
    source.parent.mkdir(parents=True, exist_ok=True)
    source.write_text(log.header + log.between.join(lines) + log.tail + "\n")
    options = {}
    if log.format == "csv":
        (folder / "map.toml").write_text(_MAP)
        options = {"map": str(folder / "map.toml")}
    return ingest_logs(folder / "source", folder / "trace", format_name=log.format, options=options, force=True)


_Drawn = list[tuple[int | str | dt.timedelta | None, ...]]
_DRAWN = st.lists(st.tuples(_TIME, _TIME, _TIME), min_size=1, max_size=6)
_FEW = settings(max_examples=2, suppress_health_check=[HealthCheck.function_scoped_fixture])
_MANY = settings(_FEW, max_examples=8)


@pytest.mark.parametrize("log", LOGS, ids=[log.format for log in LOGS])
@_FEW
@given(drawn=_DRAWN)
@example(drawn=[(5, "epoch", 7), (5, 7, 6), (None, 5, dt.timedelta(days=12_000)), (7, 6, None), ("epoch", 5, 6)])
def test_every_record_is_kept_and_only_possible_times_stand(log: Log, drawn: _Drawn, tmp_path: Path) -> None:
    _hold_to_the_rule(log, drawn, tmp_path)


@pytest.mark.thorough
@pytest.mark.parametrize("log", LOGS, ids=[log.format for log in LOGS])
@_MANY
@given(drawn=_DRAWN)
def test_every_record_of_many_logs_is_kept(log: Log, drawn: _Drawn, tmp_path: Path) -> None:
    _hold_to_the_rule(log, drawn, tmp_path)


def _hold_to_the_rule(log: Log, drawn: _Drawn, tmp_path: Path) -> None:
    sound = (100, 200, 5_000_000)
    # A record without submission has no place in Slurm's own accounting.
    drawn = [(100 if log.format == "slurm" and times[0] is None else times[0], *times[1:]) for times in drawn]
    records = [tuple(_moment(log, time) for time in times) for times in [sound] * (2 * len(drawn) + 1) + drawn]
    trace = _ingested(log, records, tmp_path)
    assert trace.validate() == []
    jobs = trace.scan("jobs").collect().sort(pl.col("job_id").str.extract(r"(\d+)$").cast(pl.Int64))
    names = ["submit_time", "start_time", "end_time"]
    assert jobs.select(names).rows() == [tuple(_expected(log, times)) for times in records]
    assert [(file.records, file.rejected) for file in trace.manifest.files] == [(len(records), 0)]
    for table, columns in (("jobs", ("queue_s", "run_s")), ("attempts", ("wait_s", "run_s"))):
        for column in columns:
            assert not trace.scan(table).filter(pl.col(column) < 0).collect().height
    # Each time that the source states and the Trace lacks is listed by its line, and counted.
    first = log.header.count("\n") + 1
    lost = {
        (first + row, name)
        for row, times in enumerate(records)
        for name, time, kept in zip(names, times, _expected(log, times), strict=True)
        if time is not None and kept is None
    }
    listed = trace.scan("doubtful_times").collect() if trace.has("doubtful_times") else pl.DataFrame()
    shown = {(row["line"], row["column"]) for row in listed.iter_rows(named=True)}
    assert shown == lost
    checks = trace.manifest.checks
    counted = sum(checks[name].count for name in ("impossible_dates", "ends_before_start", "starts_before_queued"))
    assert counted == len(lost)


_PAI = {
    "pai_job_table.csv": "{id},alias,u,Terminated,{s},{e}",
    "pai_task_table.csv": "{id},worker,1,Terminated,{s},{e},100,1,100,T4",
    "pai_instance_table.csv": "{id},worker,i{id},w{id},1,Terminated,{b},{e},m1",
}
_SWF = {"log.swf": "{id} {s} {wait} {run} 1 -1 -1 1 -1 -1 1 1 1 -1 1 1 -1 -1"}
_SPOT = {"job_info_df.csv": "{id},o,A10,1,1,1,{s},10,HP"}
_SPOT_HEADER = "job_name,organization,gpu_model,cpu_request,gpu_request,worker_num,submit_time,duration,job_type\n"


_SECONDS = {"alibaba-pai": (_PAI, "", ""), "swf": (_SWF, "", "-1"), "alibaba-spot": (_SPOT, _SPOT_HEADER, "")}
"""The files of a format, their header, and its word for unknown."""
_DRAWN_S = st.lists(
    st.tuples(*[st.one_of(_GOOD, st.none(), st.sampled_from([0, -500, 10**12]))] * 3), min_size=1, max_size=6
)


@pytest.mark.parametrize("form", _SECONDS)
@_FEW
@given(drawn=_DRAWN_S)
@example(drawn=[(5, 4, 7), (5, 7, 6), (None, -500, 10**12), (10**12, 6, None), (0, 0, 0)])
def test_no_time_of_seconds_goes_back(form: str, drawn: list[tuple[int | None, ...]], tmp_path: Path) -> None:
    _hold_to_their_order(form, drawn, tmp_path)


@pytest.mark.thorough
@pytest.mark.parametrize("form", _SECONDS)
@_MANY
@given(drawn=_DRAWN_S)
def test_no_time_of_many_logs_of_seconds_goes_back(
    form: str, drawn: list[tuple[int | None, ...]], tmp_path: Path
) -> None:
    _hold_to_their_order(form, drawn, tmp_path)


def _hold_to_their_order(form: str, drawn: list[tuple[int | None, ...]], tmp_path: Path) -> None:
    files, header, unknown = _SECONDS[form]
    source = tmp_path / "source"
    source.mkdir(exist_ok=True)
    records = [(100, 200, 300)] * (2 * len(drawn) + 1) + drawn
    for name, record in files.items():
        lines = []
        for number, times in enumerate(records):
            s, b, e = times
            wait = None if s is None or b is None else b - s
            run = None if b is None or e is None else e - b
            values = {"s": s, "b": b, "e": e, "wait": wait, "run": run}
            cells = {
                k: unknown if v is None or (form == "swf" and abs(v) > 10**9) else str(v) for k, v in values.items()
            }
            lines.append(record.format(id=number + 1, **cells))
        (source / name).write_text(header + "\n".join(lines) + "\n")
    trace = ingest_logs(source, tmp_path / "trace", format_name=form, force=True)
    assert trace.validate() == []
    assert trace.scan("jobs").collect().height == len(records)
    for table in trace.tables:
        frame = trace.scan(table).collect()
        for column in ("queue_s", "wait_s", "run_s"):
            if column in frame.columns:
                assert not frame.filter(pl.col(column) < 0).height
        order = [name for name in ("submit_time", "start_time", "end_time") if name in frame.columns]
        for earlier, later in itertools.combinations(order, 2):
            assert not frame.filter(pl.col(later) < pl.col(earlier)).height
