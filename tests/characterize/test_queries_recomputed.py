"""Each query against a plain-Python reading of its definition, over random traces."""

from __future__ import annotations

import datetime as dt
import math
import random
from collections import defaultdict
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

import pytest

from tests.characterize.asking import Asking, samples, seeds
from tracekit.characterize import list_queries, run_query

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    import polars as pl

    from tracekit.trace import Trace

    MakeTrace = Callable[..., Trace]

Tables = dict[str, list[dict[str, Any]]]
Key = tuple[Any, ...]
Results = dict[Key, tuple[Any, ...]]

START = dt.datetime(2017, 10, 3, 0, 30)  # UTC, as stored times are
MINUTES = 100
STATUSES = ["completed", "failed", "cancelled", "timeout", "running", "unknown", None]
CLASSES = ["0", "<1", "1", "2-4", "5-8", ">8", None]
ZONE = "America/Los_Angeles"


def random_tables(rng: random.Random) -> Tables:
    """Rows that fit the schema and nothing else: the definitions must not lean on a tidy source."""
    tables: Tables = defaultdict(list)
    for number in range(rng.randint(1, 12)):
        tables["jobs"].append(_random_job(rng, f"j{number}"))
        for attempt in range(rng.randint(number == 0, 3)):
            tables["attempts"].append(_random_attempt(rng, f"j{number}", attempt))
            for _ in range(rng.randint(number == 0, 2)):
                indices = rng.choice([None, [0], [1], [0, 1], [1, 1]])
                held = {"node_id": rng.choice("mn"), "gpu_index": indices, "gpu_count": rng.choice([1, 0.5, None])}
                tables["placements"].append({"job_id": f"j{number}", "attempt": attempt, **held})
    for minute in range(MINUTES):
        time = START + dt.timedelta(minutes=minute)
        for node in "mn":
            for gpu in (0, 1):
                if rng.random() < 0.9:
                    value = rng.choice([None, rng.randint(0, 100), rng.random() * 100])
                    sample = {"time": time, "node_id": node, "gpu_index": gpu, "utilization_pct": value}
                    tables["gpu_utilization"].append(sample)
            if rng.random() < 0.5:
                tables["host_utilization"].append(_random_host(rng, time, node))
    return dict(tables)


def _random_job(rng: random.Random, name: str) -> dict[str, Any]:
    return {
        "job_id": name,
        "vc": rng.choice(["v", "w", None]),
        "status": rng.choice(STATUSES),
        "submit_time": rng.choice([None, START + dt.timedelta(minutes=rng.randint(0, 5000))]),
        "run_s": rng.choice([None, 0, rng.randint(1, 9999), rng.random() * 1e6]),
        "queue_s": rng.choice([None, 0, rng.randint(-5, 9999)]),
        "gpu_count": rng.choice([None, 0, 0.25, 1, 2, 4, 8, 16]),
        "node_count": rng.choice([None, 1, 2]),
        "instance_count": rng.choice([None, 1, 2, 3]),
        "attempt_count": rng.choice([None, 0, 1, 2, 5]),
    }


def _random_attempt(rng: random.Random, name: str, attempt: int) -> dict[str, Any]:
    start = START + dt.timedelta(seconds=rng.randint(-3600, 60 * MINUTES))
    return {
        "job_id": name,
        "attempt": attempt,
        "start_time": rng.choice([None, start, start]),
        "end_time": rng.choice([None, *[start + dt.timedelta(seconds=rng.randint(-60, 9000))] * 3]),
        "run_s": rng.choice([None, rng.randint(0, 9999), rng.random() * 1e5]),
        "wait_s": rng.choice([None, 0, rng.randint(0, 9999), rng.random() * 1e4]),
        "gpu_count": rng.choice([None, 0, 0.25, 1, 8]),
    }


def _random_host(rng: random.Random, time: dt.datetime, node: str) -> dict[str, Any]:
    return {
        "time": time,
        "node_id": node,
        "cpu_pct": rng.choice([None, rng.randint(0, 100), rng.random() * 100]),
        "memory_used_gib": rng.choice([None, rng.random() * 512]),
        "memory_total_gib": rng.choice([None, 0, 512, 503.8]),
    }


def class_of(gpus: float | None) -> str | None:
    if gpus is None:
        return None
    bounds = [(0, "0"), (0.999999, "<1"), (1, "1"), (4, "2-4"), (8, "5-8"), (math.inf, ">8")]
    return next(name for most, name in bounds if gpus <= most)


def mean(values: list[float]) -> float | None:
    return math.fsum(values) / len(values) if values else None


def quantile(values: list[float], share: float) -> float:
    ordered = sorted(values)
    rank = share * (len(ordered) - 1)
    low = ordered[math.floor(rank)]
    return low + (ordered[math.ceil(rank)] - low) * (rank - math.floor(rank))


def grouped(pairs: Iterable[tuple[Key, float | None]]) -> dict[Key, list[float]]:
    groups: dict[Key, list[float]] = defaultdict(list)
    for key, value in pairs:
        if value is not None:
            groups[key].append(value)
    return groups


def gpu_hours(tables: Tables, *, with_gaps: bool = False) -> dict[str, float | None]:
    found: dict[str, float | None] = {j["job_id"]: None for j in tables["jobs"]}
    for row in tables["jobs"] if with_gaps else tables["attempts"]:
        if row["run_s"] is not None and row["gpu_count"] is not None:
            found[row["job_id"]] = (found[row["job_id"]] or 0) + row["run_s"] * row["gpu_count"] / 3600
    return found


def shares(tables: Tables, key_of: Callable[[dict[str, Any]], Key], *, with_gaps: bool = False) -> Results:
    """Jobs, their share, GPU-hours and their share, by key."""
    hours = gpu_hours(tables, with_gaps=with_gaps)
    keys = {j["job_id"]: key_of(j) for j in tables["jobs"]}
    known = grouped((key, hours[job]) for job, key in keys.items())
    total = math.fsum(value for values in known.values() for value in values)
    results: Results = {}
    for key in set(keys.values()):
        jobs = list(keys.values()).count(key)
        held = math.fsum(known[key]) if key in known else None
        results[key] = (jobs, jobs / len(keys), held, held / total if held is not None and total else None)
    return results


def status(tables: Tables) -> Results:
    found = shares(tables, lambda j: (j["status"],))
    gpu = [j["status"] for j in tables["jobs"] if j["gpu_count"]]
    cpu = [j["status"] for j in tables["jobs"] if j["gpu_count"] == 0]
    kinds = {
        key: (gpu.count(key[0]), *(words.count(key[0]) / len(words) if words else None for words in (gpu, cpu)))
        for key in found
    }
    return {key: (*values, *kinds[key]) for key, values in found.items()}


def job_size(tables: Tables) -> Results:
    return shares(tables, lambda j: (class_of(j["gpu_count"]),))


def sized(tables: Tables) -> Tables:
    return {**tables, "jobs": [j for j in tables["jobs"] if j["gpu_count"] is not None]}


def gpu_request(tables: Tables) -> Results:
    kept = sized(tables)
    names = {j["job_id"] for j in kept["jobs"]}
    kept["attempts"] = [a for a in tables["attempts"] if a["job_id"] in names]
    found = shares(kept, lambda j: (j["gpu_count"],))
    return {key: (jobs, jobs_share, hours_share) for key, (jobs, jobs_share, _, hours_share) in found.items()}


def instance_request(tables: Tables) -> Results:
    known = {**tables, "jobs": [j for j in sized(tables)["jobs"] if j["instance_count"]]}
    names = {j["job_id"] for j in known["jobs"]}
    known["attempts"] = [a for a in tables["attempts"] if a["job_id"] in names]
    found = shares(known, lambda j: (round(j["gpu_count"] / j["instance_count"], 6),))
    return {key: (jobs, jobs_share, hours_share) for key, (jobs, jobs_share, _, hours_share) in found.items()}


def status_by_size(tables: Tables) -> Results:
    hours = gpu_hours(tables)
    by_class: dict[str | None, list[str | None]] = defaultdict(list)
    held = grouped(((class_of(j["gpu_count"]), j["status"]), hours[j["job_id"]]) for j in tables["jobs"])
    for job in sized(tables)["jobs"]:
        by_class[class_of(job["gpu_count"])].append(job["status"])
    return {
        (size, word): (
            words.count(word),
            words.count(word) / len(words),
            math.fsum(held[size, word]) if (size, word) in held else None,
        )
        for size, words in by_class.items()
        for word in set(words)
    }


def retries(tables: Tables) -> Results:
    results: Results = {}
    for size in {class_of(j["gpu_count"]) for j in sized(tables)["jobs"]}:
        jobs = [j for j in tables["jobs"] if class_of(j["gpu_count"]) == size]
        again = [j["attempt_count"] - 1 for j in jobs if j["attempt_count"]]
        words = [j["status"] for j in jobs if j["status"] not in (None, "unknown")]
        bad = [w in ("failed", "timeout", "node_fail", "out_of_memory") for w in words]
        late = [w == "timeout" for w in words]
        results[size,] = (len(jobs), mean(again), mean([float(b) for b in bad]), mean([float(w) for w in late]))
    return results


def run_time(tables: Tables) -> Results:
    groups = grouped(((class_of(j["gpu_count"]),), j["run_s"]) for j in sized(tables)["jobs"])
    points = (0.1, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99)
    return {k: (len(v), mean(v), *(quantile(v, p) for p in points), max(v)) for k, v in groups.items()}


def queue_delay(tables: Tables) -> Results:
    jobs = {j["job_id"]: j for j in sized(tables)["jobs"]}
    return _delays(jobs, ((a["job_id"], a["wait_s"]) for a in tables["attempts"] if a["job_id"] in jobs))


def _delays(jobs: dict[str, dict[str, Any]], waits: Iterable[tuple[str, float | None]]) -> Results:
    groups = grouped(((jobs[name]["vc"], class_of(jobs[name]["gpu_count"])), wait) for name, wait in waits)
    points = (0.5, 0.75, 0.9, 0.95, 0.99)
    return {k: (len(v), mean(v), *(quantile(v, p) for p in points), max(v)) for k, v in groups.items()}


def notebook_delay(tables: Tables) -> Results:
    """Walk each job attempt by attempt with two variables, as the notebook of the Philly traces does."""
    jobs = {j["job_id"]: j for j in sized(tables)["jobs"]}
    waits: list[tuple[str, float]] = []
    for name, job in jobs.items():
        wait, since = 0.0, job["submit_time"]
        for a in sorted((a for a in tables["attempts"] if a["job_id"] == name), key=lambda a: a["attempt"]):
            if since is not None and a["start_time"] is not None:
                wait, since = (a["start_time"] - since).total_seconds(), a["end_time"]
            waits.append((name, wait))
    return _delays(jobs, ((name, wait) for name, wait in waits if wait))


def delay_by_spread(tables: Tables) -> Results:
    jobs = {j["job_id"]: j for j in sized(tables)["jobs"] if j["gpu_count"] and j["node_count"] is not None}
    groups = grouped(
        ((class_of(jobs[a["job_id"]]["gpu_count"]), jobs[a["job_id"]]["node_count"]), a["wait_s"])
        for a in tables["attempts"]
        if a["job_id"] in jobs and a["attempt"] == 0
    )
    return {k: (len(v), mean(v), quantile(v, 0.5), quantile(v, 0.9)) for k, v in groups.items()}


def arrivals_by_hour(tables: Tables) -> Results:
    local = [
        (j["submit_time"].replace(tzinfo=dt.UTC).astimezone(ZoneInfo(ZONE)), j["gpu_count"])
        for j in tables["jobs"]
        if j["submit_time"] is not None
    ]
    days = {t.date() for t, _ in local}
    span = (max(days) - min(days)).days + 1 if days else None
    known = any(g is not None for _, g in local)
    results: Results = {}
    for hour in range(24):
        here = [g for t, g in local if t.hour == hour]
        gpu_jobs = sum(1 for g in here if g) if known else None
        results[hour,] = (len(here), gpu_jobs, len(here) / span if span else None)
    return results


def held_samples(tables: Tables) -> dict[Key, list[float]]:
    """Walk each attempt minute by minute, as the notebook of the Philly traces does."""
    sample: dict[Key, dict[dt.datetime, float | None]] = defaultdict(dict)
    for u in tables["gpu_utilization"]:
        sample[u["node_id"], u["gpu_index"]][u["time"]] = u["utilization_pct"]
    placed: dict[Key, set[Key]] = defaultdict(set)
    for p in tables["placements"]:
        placed[p["job_id"], p["attempt"]] |= {(p["node_id"], index) for index in p["gpu_index"] or ()}
    jobs = {j["job_id"]: j for j in sized(tables)["jobs"]}
    pooled: list[tuple[Key, float | None]] = []
    for a in tables["attempts"]:
        if a["start_time"] is None or a["end_time"] is None or a["job_id"] not in jobs:
            continue
        gpus = [sample[gpu] for gpu in placed[a["job_id"], a["attempt"]] if gpu in sample]
        if not gpus:
            continue
        key = (jobs[a["job_id"]]["gpu_count"], jobs[a["job_id"]]["status"])
        minute = a["start_time"].replace(second=0)
        while minute < a["end_time"]:
            pooled += [(key, found[minute]) for found in gpus if minute in found]
            minute += dt.timedelta(minutes=1)
    return grouped(pooled)


def gpu_by_size_status(tables: Tables) -> Results:
    points = (0.05, 0.25, 0.5, 0.75, 0.95)
    return {k: (len(v), mean(v), *(quantile(v, p) for p in points)) for k, v in held_samples(tables).items()}


def held_gpus(tables: Tables) -> Results:
    every = [value for values in held_samples(tables).values() for value in values]
    if not every:
        return {}
    return {("busy_share",): (math.fsum(every) / 100 / len(every), "share"), ("samples",): (len(every), "samples")}


def host(tables: Tables) -> Results:
    pooled: list[tuple[Key, float | None]] = []
    for row in tables.get("host_utilization", []):
        pooled.append((("cpu",), row["cpu_pct"]))
        used, total = row["memory_used_gib"], row["memory_total_gib"]
        pooled.append((("memory",), 100 * used / total if used is not None and total else None))
    groups = grouped(pooled)
    return {k: (len(v), mean(v), *(quantile(v, p) for p in (0.5, 0.9, 0.95))) for k, v in groups.items()}


def summary(tables: Tables) -> Results:
    jobs = tables["jobs"]
    sizes = [j["gpu_count"] for j in jobs]
    runs = [j["run_s"] for j in jobs if j["run_s"] is not None]
    queues = [j["queue_s"] for j in jobs if j["queue_s"] is not None]
    times = [j["submit_time"] for j in jobs if j["submit_time"] is not None]
    hours = [h for h in gpu_hours(tables).values() if h is not None]
    # Both GPUs of both machines are sampled in all but a vanishing share of the examples.
    nodes = {u["node_id"]: 0 for u in tables["gpu_utilization"]} | {p["node_id"]: 0 for p in tables["placements"]}
    for u in tables["gpu_utilization"]:
        nodes[u["node_id"]] = max(nodes[u["node_id"]], u["gpu_index"] + 1)
    return {
        ("jobs",): (len(jobs), "jobs"),
        ("gpu_jobs",): (sum(1 for s in sizes if s), "jobs"),
        ("cpu_jobs",): (sizes.count(0), "jobs"),
        ("jobs_of_unknown_size",): (sizes.count(None), "jobs"),
        ("users",): (None, "users"),
        ("vcs",): (len({j["vc"] for j in jobs} - {None}) or None, "VCs"),
        ("clusters",): (None, "clusters"),
        ("attempts",): (len(tables["attempts"]), "attempts"),
        ("nodes",): (None, "nodes"),
        ("gpus_listed",): (None, "GPUs"),
        ("gpus_observed",): (sum(nodes.values()), "GPUs"),
        ("gpu_hours",): (math.fsum(hours) if hours else None, "GPU-hours"),
        ("mean_run_s",): (mean(runs), "s"),
        ("median_run_s",): (quantile(runs, 0.5) if runs else None, "s"),
        ("mean_queue_s",): (mean(queues), "s"),
        ("median_queue_s",): (quantile(queues, 0.5) if queues else None, "s"),
        ("completed_share",): (mean([float(j["status"] == "completed") for j in jobs]), "share"),
        ("unknown_status_share",): (mean([float(j["status"] in (None, "unknown")) for j in jobs]), "share"),
        ("days_covered",): ((max(times) - min(times)).total_seconds() / 86400 if times else None, "days"),
        **doubts(tables),
        **of_gpu_and_cpu_jobs(jobs),
    }


def of_gpu_and_cpu_jobs(jobs: list[dict[str, Any]]) -> Results:
    gpu, cpu = [j for j in jobs if j["gpu_count"]], [j for j in jobs if j["gpu_count"] == 0]

    def known(own: list[dict[str, Any]], column: str) -> list[float]:
        return [j[column] for j in own if j[column] is not None]

    def share(own: list[dict[str, Any]], *words: str | None) -> float | None:
        return mean([float(j["status"] in words) for j in own])

    def middle(values: list[float]) -> float | None:
        return quantile(values, 0.5) if values else None

    return {
        ("gpu_mean_queue_s",): (mean(known(gpu, "queue_s")), "s"),
        ("gpu_median_queue_s",): (middle(known(gpu, "queue_s")), "s"),
        ("gpu_median_run_s",): (middle(known(gpu, "run_s")), "s"),
        ("gpu_completed_share",): (share(gpu, "completed"), "share"),
        ("gpu_failed_share",): (share(gpu, "failed"), "share"),
        ("gpu_timeout_share",): (share(gpu, "timeout"), "share"),
        ("gpu_unknown_status_share",): (share(gpu, None, "unknown"), "share"),
        ("cpu_median_queue_s",): (middle(known(cpu, "queue_s")), "s"),
        ("cpu_median_run_s",): (middle(known(cpu, "run_s")), "s"),
        ("cpu_completed_share",): (share(cpu, "completed"), "share"),
        ("pools",): (None, "pools"),
    }


def doubts(tables: Tables) -> Results:
    rows = tables.get("doubtful_times", [])
    held = {(a["job_id"], a["attempt"]): a["gpu_count"] or 0 for a in tables["attempts"] if a["run_s"] is not None}
    hours = 0.0
    for row in rows:
        if row["earliest"] is not None and row["column"] != "submit_time":
            gpus = held.get((row["job_id"], row["attempt"] or 0), 0)
            hours += gpus * (row["latest"] - row["earliest"]).total_seconds() / 3600
    return {
        ("impossible_times",): (sum(row["earliest"] is None for row in rows), "times"),
        ("hour_in_doubt_times",): (sum(row["earliest"] != row["latest"] for row in rows), "times"),
        ("gpu_hours_in_doubt",): (hours, "GPU-hours"),
    }


ORACLES: dict[str, tuple[int, Callable[[Tables], Results]]] = {
    "overview/summary": (1, summary),
    "overview/status": (1, status),
    "overview/job_size": (1, job_size),
    "overview/arrivals_by_hour": (1, arrivals_by_hour),
    "queuing/run_time": (1, run_time),
    "queuing/queue_delay": (2, queue_delay),
    "locality/delay_by_spread": (2, delay_by_spread),
    "utilization/gpu_by_size_status": (2, gpu_by_size_status),
    "utilization/held_gpus": (1, held_gpus),
    "utilization/host": (1, host),
    "failures/status_by_size": (2, status_by_size),
    "failures/retries": (1, retries),
    "workload/gpu_request": (1, gpu_request),
}
"""By query: how many columns are the key, and the recomputation."""

OTHER_RULES: dict[tuple[str, str], tuple[int, Callable[[Tables], Results]]] = {
    ("queuing/queue_delay", "notebook"): (2, notebook_delay),
    ("workload/gpu_request", "instance"): (1, instance_request),
}
"""The same by query and rule, where a query offers rules by name."""


def keyed(frame: pl.DataFrame, key_columns: int) -> Results:
    found = {row[:key_columns]: row[key_columns:] for row in frame.rows()}
    assert len(found) == frame.height, "a key stands twice"
    return found


def assert_same(found: Results, expected: Results) -> None:
    assert set(found) == set(expected)
    for key, values in expected.items():
        # Times are summed to the microsecond, hence the absolute tolerance.
        close = tuple(pytest.approx(v, rel=1e-9, abs=1e-6) if isinstance(v, float) else v for v in values)
        assert found[key] == close, key


def test_the_shipped_queries_checked_here_exist() -> None:
    assert set(ORACLES) <= {query.name for query in list_queries()}


@pytest.mark.parametrize("seed", seeds(4, 15))
def test_every_query_agrees_with_its_recomputation(make_trace: MakeTrace, seed: int) -> None:
    tables = random_tables(random.Random(seed))
    ask = Asking(make_trace(**tables, manifest_overrides={"timezone": ZONE}))
    for name, (key_columns, recompute) in ORACLES.items():
        assert_same(keyed(ask(name), key_columns), recompute(tables))
    for (name, rule), (key_columns, recompute) in OTHER_RULES.items():
        assert_same(keyed(ask(name, rule=rule), key_columns), recompute(tables))


@pytest.mark.parametrize("seed", seeds(3, 8))
def test_gpu_time_with_gaps_is_whole_run_time_times_gpus(make_trace: MakeTrace, seed: int) -> None:
    tables = random_tables(random.Random(seed))
    trace = make_trace(**tables)
    found = {key: row[:4] for key, row in keyed(run_query(trace, "overview/status", gpu_time="with_gaps"), 1).items()}
    assert_same(found, shares(tables, lambda j: (j["status"],), with_gaps=True))


@pytest.mark.parametrize("seed", seeds(2, 5))
def test_results_do_not_depend_on_the_order_of_the_rows(make_trace: MakeTrace, seed: int) -> None:
    tables = random_tables(random.Random(seed))
    ask = Asking(make_trace(**tables))
    other = Asking(make_trace(**{name: random.Random(7).sample(rows, len(rows)) for name, rows in tables.items()}))
    for name in ORACLES:
        assert ask(name).equals(other(name)), name


@pytest.mark.parametrize("seed", seeds(3, 10))
def test_shares_sum_to_one(make_trace: MakeTrace, seed: int) -> None:
    ask = Asking(make_trace(**random_tables(random.Random(seed))))
    for name in ("overview/status", "overview/job_size", "workload/gpu_request"):
        frame = ask(name)
        if frame.height:
            assert frame["jobs_share"].sum() == pytest.approx(1)
            assert frame["gpu_hours_share"].sum() in (pytest.approx(1), 0)
    frame = ask("failures/status_by_size")
    for total in frame.select("gpu_class", "jobs_share").group_by("gpu_class").sum()["jobs_share"]:
        assert total == pytest.approx(1)


@pytest.mark.parametrize("seed", seeds(3, 10))
def test_classes_stand_in_the_order_of_size(make_trace: MakeTrace, seed: int) -> None:
    ask = Asking(make_trace(**random_tables(random.Random(seed))))
    for name in ("overview/job_size", "queuing/run_time", "failures/retries"):
        places = [CLASSES.index(c) for c in ask(name)["gpu_class"]]
        assert places == sorted(places)


@pytest.fixture(scope="module", params=samples("philly", "slurm", "alibaba-pai"))
def sample(request: pytest.FixtureRequest, sample_trace: Callable[[str], Trace]) -> tuple[Asking, Tables]:
    trace = sample_trace(request.param)
    return Asking(trace), defaultdict(list, {t: trace.scan(t).collect().rows(named=True) for t in trace.tables})


@pytest.mark.parametrize("name", ORACLES)
def test_the_queries_agree_on_every_sample_trace(
    sample: tuple[Asking, Tables], name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask, tables = sample
    trace = ask.trace
    if ask.is_refused(name):
        return
    monkeypatch.setitem(globals(), "ZONE", trace.timezone)
    key_columns, recompute = ORACLES[name]
    found, expected = keyed(ask(name), key_columns), recompute(tables)
    if name == "overview/summary":
        # The random traces have neither users nor clusters nor a machine list, so that these are recomputed here.
        jobs = tables["jobs"]
        users, clusters = ({job[column] for job in jobs} - {None} for column in ("user", "cluster"))
        expected["users",] = (len(users) or None, "users")
        expected["clusters",] = (len(clusters) or None, "clusters")
        tenants = {(job["cluster"], job["vc"]) for job in jobs if job["vc"] is not None}
        expected["vcs",] = (len(tenants) or None, "VCs")
        # What the source never tells is unknown, not none.
        if all(job["gpu_count"] is None for job in jobs):
            expected["gpu_jobs",], expected["cpu_jobs",] = (None, "jobs"), (None, "jobs")
        if all(job["status"] in (None, "unknown") for job in jobs):
            shares_of_ends = [key for key, (_, unit) in expected.items() if unit == "share"]
            expected |= dict.fromkeys(shares_of_ends, (None, "share"))
        if not trace.has("attempts"):
            expected["attempts",] = (None, "attempts")
        for left in ("nodes", "gpus_listed", "gpus_observed"):
            del found[left,], expected[left,]
    assert_same(found, expected)


@pytest.mark.parametrize(("name", "rule"), OTHER_RULES)
def test_the_other_rules_agree_on_every_sample_trace(sample: tuple[Asking, Tables], name: str, rule: str) -> None:
    ask, tables = sample
    if ask.is_refused(name):
        return
    key_columns, recompute = OTHER_RULES[name, rule]
    assert_same(keyed(ask(name, rule=rule), key_columns), recompute(tables))
