"""The tenant is chosen at analysis: a column of jobs in the place of `vc`, and the site's word for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

import tracekit
from tests.command import run
from tracekit.characterize import answer_query, find_query, list_queries, run_query
from tracekit.errors import QueryError, UsageError
from tracekit.tenant import DIMENSIONS, VC, Tenant, tenant_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.reviewed import Golden
    from tracekit.trace import Trace

    MakeTrace = Callable[..., Trace]

# Two jobs of partition p, one of one that is called like a VC, one of none; the accounts cross them. Waits are 10, 30,
# 50 and 70 s.
JOBS: list[dict[str, Any]] = [
    {"job_id": "a", "vc": "old", "account": "x", "partition": "p", "user": "u", "gpu_count": 1, "queue_s": 10},
    {"job_id": "b", "vc": "old", "account": "y", "partition": "p", "user": "u", "gpu_count": 1, "queue_s": 30},
    {"job_id": "c", "vc": "old", "account": "y", "partition": "old", "user": "v", "gpu_count": 1, "queue_s": 50},
    {"job_id": "d", "vc": "new", "account": "y", "user": "v", "gpu_count": 1, "queue_s": 70},
]


def attempts() -> list[dict[str, Any]]:
    return [
        {
            "job_id": job["job_id"],
            "attempt": 0,
            "wait_s": job["queue_s"],
            "gpu_count": 1,
            "start_time": "2020-01-01 01:00",
            "end_time": "2020-01-01 02:00",
            "run_s": 3600,
        }
        for job in JOBS
    ]


@pytest.fixture
def trace(make_trace: MakeTrace) -> Trace:
    return make_trace(
        jobs=[{**job, "submit_time": "2020-01-01 00:00"} for job in JOBS],
        attempts=attempts(),
        capacity=[
            {"time": "2020-01-01", "vc": "old", "gpu_count": 8},
            {"time": "2020-01-01", "vc": "new", "gpu_count": 2},
        ],
    )


def waits(trace: Trace, by: str | None) -> dict[str | None, tuple[int, float]]:
    frame = run_query(trace, "queuing/queue_delay", by=by)
    name = "vc" if by is None else by
    return {tenant: (n, mean) for tenant, n, mean in frame.select(name, "waits", "mean_s").iter_rows()}


def test_waits_by_each_tenant_are_those_of_its_jobs(trace: Trace) -> None:
    assert waits(trace, None) == waits(trace, "vc") == {"old": (3, 30.0), "new": (1, 70.0)}
    assert waits(trace, "account") == {"x": (1, 10.0), "y": (3, 50.0)}
    assert waits(trace, "partition") == {"p": (2, 20.0), "old": (1, 50.0), None: (1, 70.0)}
    assert waits(trace, "user") == {"u": (2, 20.0), "v": (2, 60.0)}


def test_quotas_of_the_ingested_unit_say_nothing_of_another(trace: Trace, golden: Golden) -> None:
    stated = run_query(trace, "utilization/vc").rows_by_key("vc", named=True)
    assert stated["old"][0]["capacity_gpus"] == 8
    # A partition with the name of a VC does not inherit its quota: what it held at most stands for it.
    by = answer_query(trace.by("partition"), "utilization/vc")
    assert by.frame.rows_by_key("partition", named=True)["p"][0]["capacity_gpus"] == 2
    assert by.frame.rows_by_key("partition", named=True)["old"][0]["capacity_gpus"] == 1
    golden(by.notes)


def test_the_cluster_keeps_its_size_whichever_tenant_is_chosen(trace: Trace) -> None:
    whole, by = (answer_query(t, "queuing/cluster_timeline").frame for t in (trace, trace.by("user")))
    assert whole["capacity_gpus"].to_list() == by["capacity_gpus"].to_list()
    assert set(whole["capacity_gpus"].to_list()) == {10.0}


def test_the_number_of_tenants_and_the_capability_follow(trace: Trace) -> None:
    chosen = trace.by("partition")
    assert chosen.capabilities["tenants"].coverage == 0.75
    assert trace.capabilities["tenants"].note != chosen.capabilities["tenants"].note
    assert chosen.scan("jobs").collect()["vc"].to_list() == ["p", "p", "old", None]
    assert chosen.ingested_tenant == chosen.ingested.tenant
    assert chosen.ingested.scan("jobs").collect()["vc"].to_list() == ["old", "old", "old", "new"]
    found = run_query(trace, "overview/summary", by="partition")
    assert ("partitions", 2.0, "partitions") in found.rows()
    assert not found.filter(pl.col("metric") == "vcs").height


def test_a_user_is_not_named_twice(make_trace: MakeTrace) -> None:
    use = [{"job_id": "a", "gpu_util_pct": 1.0}]
    trace = make_trace(jobs=[JOBS[0]], attempts=attempts()[:1], job_usage=use)
    found = run_query(trace, "utilization/idle_jobs", by="user", min_run_s=1)
    assert found.columns[:3] == ["job_id", "user", "gpu_count"]
    assert run_query(trace, "utilization/idle_jobs", by="account", min_run_s=1)["account"].to_list() == ["x"]


def test_a_query_without_tenants_refuses_and_names_those_with(trace: Trace) -> None:
    with pytest.raises(QueryError, match="--by user: 'overview/status' has no breakdown by tenant") as error:
        run_query(trace, "overview/status", by="user")
    takes = [q.name for q in list_queries() if q.takes_tenant or "by" in {param.name for param in q.params}]
    assert {"queuing/queue_delay", "utilization/vc", "queuing/timeline", "queuing/delay_causes"} <= set(takes)
    assert "locality/fragmentation" not in takes
    assert error.value.hint == f"these queries do: {', '.join(takes)}"
    assert "\n" not in str(error.value)


def test_what_the_trace_does_not_know_is_refused_with_what_it_knows(trace: Trace) -> None:
    with pytest.raises(UsageError, match="the Trace does not record the qos of any job") as error:
        trace.by("qos")
    assert error.value.hint == "it records vc, account, partition, user"
    with pytest.raises(UsageError, match="'acount' is not a tenant"):
        trace.by("acount")
    assert trace.by(None) is trace


def test_the_command_names_the_column(trace: Trace) -> None:
    printed = run("query", trace.path, "queuing/queue_delay", "--by", "account", "-f", "csv")
    assert printed.returncode == 0
    assert printed.stdout.startswith("account,gpu_class,waits,")
    plain, same = (run("query", trace.path, "queuing/queue_delay", *by, "-f", "csv") for by in ((), ("--by", "vc")))
    assert plain.stdout == same.stdout


def test_replays_keep_the_ingested_tenant(trace: Trace) -> None:
    one, other = (tracekit.fit(t, scores=0) for t in (trace, trace.by("account")))
    assert one.document["users"] == other.document["users"]


@pytest.mark.parametrize("by", ["account", "partition", "gpu_model", "user"])
def test_waits_of_the_slurm_sample_recomputed(sample_trace: Callable[[str], Trace], by: str) -> None:
    trace = sample_trace("slurm")
    size = pl.col("gpu_count")
    jobs = trace.scan("jobs").filter(size.is_not_null()).select("job_id", pl.col(by).alias("tenant"), gpus=size)
    first = trace.scan("attempts").join(jobs, on="job_id").filter(pl.col("wait_s").is_not_null())
    expected = first.group_by("tenant").agg(n=pl.len(), total=pl.col("wait_s").sum()).collect()
    found = run_query(trace, "queuing/queue_delay", by=by)
    sums = found.group_by(by).agg(n=pl.col("waits").sum(), total=(pl.col("waits") * pl.col("mean_s")).sum())
    assert {r[0]: r[1] for r in sums.iter_rows()} == {r[0]: r[1] for r in expected.iter_rows()}
    assert {r[0]: r[2] for r in sums.iter_rows()} == pytest.approx({r[0]: r[2] for r in expected.iter_rows()})


@pytest.mark.parametrize(
    ("text", "account", "vc"),
    [
        ("Does {tenant.a} wait?", "Does an account wait?", "Does a VC wait?"),
        ("{tenant.Many} share nodes; {tenant.many} wait.", "Accounts share nodes; accounts wait.", None),
        ("{tenant.A}'s quota, in {tenant.spelled_many}", "An account's quota, in accounts", None),
        ("by {tenant.spelled}", "by account", "by virtual cluster"),
        ("a VC {auto, tenant} of {one}", "a VC {auto, tenant} of {one}", "a VC {auto, tenant} of {one}"),
    ],
)
def test_marks_become_the_word_of_the_site(text: str, account: str, vc: str | None) -> None:
    assert Tenant("account", "account", "accounts").fill(text) == account
    assert vc is None or VC.fill(text) == vc


def test_questions_have_no_marks_left_and_name_the_column() -> None:
    partition = Tenant("partition", "partition", "partitions")
    for query in (*list_queries(), *(query.of(partition) for query in list_queries())):
        texts = (query.title, query.question, query.rule, query.sql, *(c.meaning for c in query.columns))
        assert not any("{tenant" in text for text in (*texts, *(p.meaning for p in query.params))), query.name
    waits = find_query("queuing/queue_delay")
    assert [waits.columns[0].name, waits.of(partition).columns[0].name] == ["vc", "partition"]
    assert waits.of(partition).question.startswith("How long do attempts queue in each partition")
    assert waits.of(partition).of(partition) == waits.of(partition)


def test_the_parts_of_a_page_keep_the_tenant_next_to_its_own_column(trace: Trace) -> None:
    frame = run_query(trace, "overview/parts", by="user")
    mine = frame.filter(~pl.col("by_user"), pl.col("kind") == "waits")
    assert set(mine["vc"]) == {"u", "v"}
    assert mine["user"].null_count() == mine.height


@pytest.mark.parametrize(
    ("source", "options", "one", "many"),
    [
        ("philly", {}, "VC", "VCs"),
        ("slurm", {}, "account", "accounts"),
        ("slurm", {"vc": "partition"}, "partition", "partitions"),
        ("slurm", {"vc": "qos"}, "QOS", "QOSes"),
        ("swf", {"vc": "group"}, "group", "groups"),
        ("swf", {}, "queue", "queues"),
        ("csv", {"tenant": "project"}, "project", "projects"),
        ("csv", {}, "VC", "VCs"),
        ("kubernetes", {}, "namespace", "namespaces"),
    ],
)
def test_the_word_for_what_was_ingested(source: str, options: dict[str, str], one: str, many: str) -> None:
    tenant = tenant_of(source, options)
    assert (tenant.column, tenant.one, tenant.many) == ("vc", one, many)


@pytest.mark.parametrize("column", DIMENSIONS[1:])
def test_a_chosen_column_is_called_what_it_is(column: str) -> None:
    assert tenant_of("philly", {}, column).one.replace(" ", "_").lower() == column
