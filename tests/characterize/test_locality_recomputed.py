"""Utilization by spread, by neighbours, of dedicated nodes and of idle jobs, against a plain reading of the rules."""

from __future__ import annotations

import datetime as dt
import math
import random
from collections import defaultdict
from typing import TYPE_CHECKING, Any

import pytest

from tests.characterize.asking import Asking, seeds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tracekit.trace import Trace

    MakeTrace = Callable[..., Trace]

Row = dict[str, Any]
Tables = dict[str, list[Row]]
Key = tuple[Any, ...]
Results = dict[Key, tuple[Any, ...]]
Sample = tuple[Row, str, dt.datetime, float]
"""The attempt, the node, the time and the utilization."""

START = dt.datetime(2017, 10, 3, 0, 30)
MINUTES = 100
TABLES = ("jobs", "attempts", "placements", "nodes", "gpu_utilization", "job_usage")


def random_tables(rng: random.Random) -> Tables:
    """Rows that fit the schema and nothing else: the definitions must not lean on a tidy source."""
    tables: Tables = defaultdict(list)
    for number in range(rng.randint(1, 8)):
        name = f"j{number}"
        size = rng.choice([None, 0, 1, 2, 8, 16])
        tables["jobs"].append({"job_id": name, "gpu_count": size, "user": rng.choice(["u", None])})
        for attempt in range(rng.randint(number == 0, 2)):
            start = START + dt.timedelta(seconds=rng.randint(-3600, 60 * MINUTES))
            tables["attempts"].append(
                {
                    "job_id": name,
                    "attempt": attempt,
                    "start_time": rng.choice([None, start, start, start]),
                    "end_time": rng.choice([None, *[start + dt.timedelta(seconds=rng.randint(-60, 5000))] * 4]),
                    "run_s": rng.choice([None, rng.randint(0, 9999)]),
                    "gpu_count": rng.choice([None, 1, 2, 2]),
                }
            )
            for _ in range(rng.randint(number == 0, 2)):
                indices = rng.choice([None, [], [0], [1], [0, 1], [1, 1]])
                held = {"node_id": rng.choice("mn"), "gpu_index": indices, "gpu_count": rng.choice([1, 0, None])}
                tables["placements"].append({"job_id": name, "attempt": attempt, "task": "w", **held})
        if rng.random() < 0.5:
            usage = {"job_id": name, "task": rng.choice(["w", None]), "gpu_util_pct": rng.choice([None, 0, 5, 60])}
            tables["job_usage"].append(usage)
    for minute in range(MINUTES):
        for node in "mn":
            for gpu in (0, 1):
                value = rng.choice([None, rng.randint(0, 100), rng.random() * 100])
                time = START + dt.timedelta(minutes=minute)
                row: Row = {"time": time, "node_id": node, "gpu_index": gpu, "utilization_pct": value}
                tables["gpu_utilization"] += [row] if rng.random() < 0.9 else []
    return tables


def key_of(row: Row) -> Key:
    return row["job_id"], row["attempt"]


def placed(tables: Tables) -> dict[Key, list[Row]]:
    parts: dict[Key, list[Row]] = defaultdict(list)
    for p in tables["placements"]:
        parts[key_of(p)].append(p)
    return parts


def nodes_of(parts: list[Row]) -> set[str]:
    return {p["node_id"] for p in parts if p["gpu_index"] or (p["gpu_count"] or 0) > 0}


def period(attempt: Row) -> tuple[dt.datetime, dt.datetime] | None:
    start, end = attempt["start_time"], attempt["end_time"]
    return None if start is None or end is None else (start.replace(second=0, microsecond=0), end)


def matched(tables: Tables) -> Iterator[Sample]:
    read: dict[tuple[str, int], list[tuple[dt.datetime, float]]] = defaultdict(list)
    for u in tables["gpu_utilization"]:
        if u["utilization_pct"] is not None:
            read[u["node_id"], u["gpu_index"]].append((u["time"], u["utilization_pct"]))
    parts = placed(tables)
    for attempt in tables["attempts"]:
        when = period(attempt)
        if when is not None:
            gpus = {(p["node_id"], g) for p in parts[key_of(attempt)] for g in p["gpu_index"] or ()}
            for node, gpu in gpus:
                yield from ((attempt, node, t, v) for t, v in read[node, gpu] if when[0] <= t < when[1])


def summed_up(pooled: dict[Key, list[float]]) -> Results:
    """Return number, mean, median, 90th and 95th percentile by key."""
    results: Results = {}
    for key, values in pooled.items():
        ordered = sorted(values)
        ranks = [share * (len(ordered) - 1) for share in (0.5, 0.9, 0.95)]
        points = [
            ordered[math.floor(r)] + (ordered[math.ceil(r)] - ordered[math.floor(r)]) * (r - math.floor(r))
            for r in ranks
        ]
        results[key] = (len(values), math.fsum(values) / len(values), *points)
    return results


def by_spread(tables: Tables) -> Results:
    pooled: dict[Key, list[float]] = defaultdict(list)
    parts = placed(tables)
    for attempt, _, _, value in matched(tables):
        if attempt["gpu_count"] is not None:
            pooled[attempt["gpu_count"], len(nodes_of(parts[key_of(attempt)]))].append(value)
    return summed_up(pooled)


def by_colocation(tables: Tables, *, same_node: bool = False) -> Results:
    parts = placed(tables)
    there: dict[str, list[tuple[str, dt.datetime, dt.datetime]]] = defaultdict(list)
    for attempt in tables["attempts"]:
        when = period(attempt)
        for node in nodes_of(parts[key_of(attempt)]) if when is not None else ():
            there[node].append((attempt["job_id"], *when))  # type: ignore[misc]  # when is not None here
    pooled: dict[Key, list[float]] = defaultdict(list)
    for attempt, own, time, value in matched(tables):
        if attempt["gpu_count"] is not None:
            nodes = {own} if same_node else nodes_of(parts[key_of(attempt)])
            shared = any(
                job != attempt["job_id"] and since <= time < until
                for node in nodes
                for job, since, until in there[node]
            )
            pooled[attempt["gpu_count"], shared].append(value)
    return summed_up(pooled)


def observed_gpus(tables: Tables) -> dict[str, int]:
    observed: dict[str, int] = defaultdict(int)
    for u in tables["gpu_utilization"]:
        observed[u["node_id"]] = max(observed[u["node_id"]], u["gpu_index"] + 1)
    for p in tables["placements"]:
        most = max(p["gpu_index"], default=-1) + 1 if p["gpu_index"] is not None else math.ceil(p["gpu_count"] or 0)
        observed[p["node_id"]] = max(observed[p["node_id"]], most)
    for n in tables.get("nodes", []):
        observed[n["node_id"]] = max(observed[n["node_id"]], n["gpu_count"] or 0)
    return observed


def dedicated(tables: Tables, *, notebook: bool = False) -> Results:
    parts, observed = placed(tables), observed_gpus(tables)
    sizes = {j["job_id"]: j["gpu_count"] for j in tables["jobs"]}
    pooled: dict[Key, list[float]] = defaultdict(list)
    for attempt, _, _, value in matched(tables):
        known: dict[str, list[float]] = defaultdict(list)
        for node in {p["node_id"] for p in parts[key_of(attempt)]}:
            here = [p for p in parts[key_of(attempt)] if p["node_id"] == node]
            named = {g for p in here for g in p["gpu_index"] or ()}
            counts = [p["gpu_count"] for p in here if p["gpu_index"] is None]
            # A node on which a part of unknown size is all there is cannot be called held in full.
            known[node] = [len(named), *(c for c in counts if c is not None)]
            if not named and counts and not any(c is not None for c in counts):
                known[node] = [math.nan]
        held = {node: sum(numbers) for node, numbers in known.items()}
        size = sizes[attempt["job_id"]]
        few = size is not None and sum(1 for n in held.values() if n > 0) <= size / 8
        whole = size is not None and all(n == 0 or n >= observed[node] for node, n in held.items())
        if few if notebook else whole:
            pooled[size,].append(value)
    return summed_up(pooled)


def idle(tables: Tables, most: float, least: float) -> Results:
    values: dict[str, list[float]] = defaultdict(list)
    for attempt, _, _, value in matched(tables):
        values[attempt["job_id"]].append(value)
    results: Results = {}
    for job in tables["jobs"]:
        own = [a for a in tables["attempts"] if a["job_id"] == job["job_id"]]
        held = [a for a in own if a["run_s"] is not None and a["gpu_count"] is not None]
        pct = math.fsum(values[job["job_id"]]) / len(values[job["job_id"]]) if values[job["job_id"]] else None
        if pct is None:
            pct = _measured(job, tables)
        run = math.fsum(a["run_s"] for a in held)
        if job["gpu_count"] and held and pct is not None and pct <= most and run >= least:
            hours = math.fsum(a["run_s"] * a["gpu_count"] for a in held) / 3600
            results[job["job_id"],] = (
                job["user"],
                job.get("vc"),
                job["gpu_count"],
                run,
                pct,
                max(0.0, hours * (1 - pct / 100)),
            )
    return results


def _measured(job: Row, tables: Tables) -> float | None:
    """Return the mean by job_usage, where no placement names an instance."""
    known = []
    for u in tables.get("job_usage", []):
        if u["job_id"] == job["job_id"] and u["gpu_util_pct"] is not None:
            by_attempt: dict[int, list[float]] = defaultdict(list)
            for p in tables["placements"]:
                if p["job_id"] == job["job_id"] and p["task"] == u["task"] and p["gpu_count"] is not None:
                    by_attempt[p["attempt"]].append(p["gpu_count"])
            gpus = max(map(sum, by_attempt.values()), default=job["gpu_count"])
            if gpus:
                known.append((u["gpu_util_pct"], gpus))
    return sum(v for v, _ in known) / sum(g for _, g in known) if known else None


def check(ask: Asking, tables: Tables) -> None:
    cases: list[tuple[str, dict[str, Any], int, Results]] = [
        ("locality/utilization_by_spread", {}, 2, by_spread(tables)),
        ("locality/utilization_by_colocation", {}, 2, by_colocation(tables)),
        ("locality/utilization_by_colocation", {"rule": "same_node"}, 2, by_colocation(tables, same_node=True)),
        ("utilization/dedicated", {}, 1, dedicated(tables)),
        ("utilization/dedicated", {"rule": "notebook"}, 1, dedicated(tables, notebook=True)),
        ("utilization/idle_jobs", {}, 1, idle(tables, 10, 3600)),
        ("utilization/idle_jobs", {"threshold_pct": 50, "min_run_s": 600}, 1, idle(tables, 50, 600)),
    ]
    for name, params, key_columns, expected in cases:
        frame = ask(name, **params)
        found = {row[:key_columns]: row[key_columns:] for row in frame.rows()}
        assert len(found) == frame.height, "a key stands twice"
        assert set(found) == set(expected), (name, params)
        for key, values in expected.items():
            close = tuple(pytest.approx(v, rel=1e-9, abs=1e-6) if isinstance(v, float) else v for v in values)
            assert found[key] == close, (name, params, key)


@pytest.mark.parametrize("seed", seeds(3, 12))
def test_the_queries_agree_with_a_walk_through_the_samples(make_trace: MakeTrace, seed: int) -> None:
    tables = random_tables(random.Random(seed))
    check(Asking(make_trace(**tables)), tables)


@pytest.mark.parametrize("seed", seeds(2, 6))
def test_samples_are_pooled_once_whatever_they_are_distinguished_by(make_trace: MakeTrace, seed: int) -> None:
    tables = random_tables(random.Random(seed))
    ask = Asking(make_trace(**tables))
    of_known_size = sum(1 for attempt, *_ in matched(tables) if attempt["gpu_count"] is not None)
    for name in ("locality/utilization_by_spread", "locality/utilization_by_colocation"):
        assert ask(name)["samples"].sum() == of_known_size
    sizes = ask("utilization/gpu_by_size_status").select("gpu_count", "samples")
    total = dict(sizes.group_by("gpu_count").sum().rows())
    for rule in ("all_gpus", "notebook"):
        some = dict(ask("utilization/dedicated", rule=rule).select("gpu_count", "samples").rows())
        assert all(n <= total[size] for size, n in some.items())


@pytest.mark.parametrize("seed", seeds(1, 3))
def test_results_do_not_depend_on_the_order_of_the_rows(make_trace: MakeTrace, seed: int) -> None:
    tables = random_tables(random.Random(seed))
    ask = Asking(make_trace(**tables))
    other = Asking(make_trace(**{name: random.Random(7).sample(rows, len(rows)) for name, rows in tables.items()}))
    for name in (
        *("locality/utilization_by_spread", "locality/utilization_by_colocation"),
        *("utilization/dedicated", "utilization/idle_jobs"),
    ):
        assert ask(name).equals(other(name))


@pytest.mark.thorough
def test_the_queries_agree_on_the_sample_of_philly(sample_trace: Callable[[str], Trace]) -> None:
    trace = sample_trace("philly")
    tables = {t: trace.scan(t).collect().rows(named=True) for t in TABLES if trace.has(t)}
    assert len(by_spread(tables)) > 5
    check(Asking(trace), tables)


def test_idle_jobs_agree_on_the_sample_of_slurm(sample_trace: Callable[[str], Trace]) -> None:
    trace = sample_trace("slurm")
    tables = defaultdict(list, {t: trace.scan(t).collect().rows(named=True) for t in TABLES if trace.has(t)})
    found = Asking(trace)("utilization/idle_jobs", threshold_pct=100, min_run_s=0)
    expected = idle(tables, 100, 0)
    assert {row[0]: row[5:] for row in found.rows()} == {
        job: (pytest.approx(values[4]), pytest.approx(values[5])) for (job,), values in expected.items()
    }
    assert found.height > 3
