"""Failures, users, gangs, groups and relaxation against a plain reading of the rules, on random and sample traces."""

from __future__ import annotations

import math
import random
import statistics
from collections import Counter, defaultdict
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from tests.characterize.asking import Asking, samples, seeds
from tests.guidelines.planted import when
from tracekit.characterize import run_query

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tracekit.trace import Trace

    MakeTrace = Callable[..., Trace]

Row = dict[str, Any]
Tables = dict[str, list[Row]]
Key = tuple[Any, ...]
Results = dict[Key, tuple[Any, ...]]

BAD = ("failed", "timeout", "node_fail", "out_of_memory")
STATUSES = ["completed", "cancelled", "preempted", "running", "unknown", None, *BAD]


def random_tables(rng: random.Random) -> Tables:
    tables: Tables = defaultdict(list)
    for number in range(rng.randint(1, 15)):
        job = {
            "job_id": f"j{number}",
            "user": rng.choice(["u", "v", "w", None]),
            "vc": rng.choice(["p", None, None]),
            "name": rng.choice(["s", None]),
            "cluster": rng.choice(["X", "Y", None]),
            "group": rng.choice(["g", "h", None]),
            "status": rng.choice(STATUSES),
            "gpu_count": rng.choice([None, 0, 0.25, 1, 2, 8, 17]),
            "cpu_count": rng.choice([None, 1, 4]),
            "node_count": rng.choice([None, 1, 3]),
            "instance_count": rng.choice([None, 1, 2]),
            "run_s": rng.choice([None, 0, rng.randint(1, 9999), rng.random() * 1e5]),
        }
        tables["jobs"].append(job)
        for attempt in range(rng.randint(number == 0, 3)):
            part = {"job_id": job["job_id"], "attempt": attempt}
            tables["attempts"].append(
                {
                    **part,
                    "start_time": rng.choice([None, when(rng.randint(0, 50) * 1200)]),
                    "status": rng.choice(STATUSES),
                    "gpu_count": rng.choice([None, 0, 0.25, 1, 8]),
                    "run_s": rng.choice([None, -1, 0, rng.randint(1, 9999), rng.random() * 1e5]),
                    "wait_s": rng.choice([None, 0, rng.randint(1, 9999)]),
                }
            )
            nodes = rng.choices(["m", "n", "o", None], k=rng.randint(number == 0, 3))
            tables["placements"] += [{**part, "node_id": node} for node in nodes]
            if rng.random() < 0.5 or number == 0:
                reason, category = rng.choice([("oom", "user"), ("mpi", "infrastructure"), ("none", None)])
                row = {**part, "reason": reason, "category": category}
                tables["failures"] += [row] * rng.randint(1, 2)
    return tables


def class_of(gpus: float | None) -> str | None:
    if gpus is None:
        return None
    bounds = [(0, "0"), (0.999999, "<1"), (1, "1"), (4, "2-4"), (8, "5-8"), (math.inf, ">8")]
    return next(name for most, name in bounds if gpus <= most)


def total(values: Iterable[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return math.fsum(known) if known else None


def mean(values: Iterable[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return math.fsum(known) / len(known) if known else None


def ratio(part: float | None, whole: float | None) -> float | None:
    return None if part is None or not whole else part / whole


def quantile(values: Iterable[float | None], share: float) -> float | None:
    ordered = sorted(v for v in values if v is not None)
    if not ordered:
        return None
    rank = share * (len(ordered) - 1)
    low = ordered[math.floor(rank)]
    return low + (ordered[math.ceil(rank)] - low) * (rank - math.floor(rank))


def gpu_h(attempt: Row) -> float | None:
    known = attempt["run_s"] is not None and attempt["gpu_count"] is not None
    return attempt["run_s"] * attempt["gpu_count"] / 3600 if known else None


def by_job(tables: Tables) -> dict[str, list[Row]]:
    attempts: dict[str, list[Row]] = defaultdict(list)
    for a in tables["attempts"]:
        attempts[a["job_id"]].append(a)
    return attempts


def job_h(tables: Tables) -> dict[str, float | None]:
    attempts = by_job(tables)
    return {j["job_id"]: total(gpu_h(a) for a in attempts[j["job_id"]]) for j in tables["jobs"]}


def outcomes(tables: Tables, *, retried: bool) -> list[tuple[Row, bool | None]]:
    """Return each attempt with whether it failed."""
    last = {job: max(a["attempt"] for a in own) for job, own in by_job(tables).items()}
    found: list[tuple[Row, bool | None]] = []
    for a in tables["attempts"]:
        known = a["status"] not in (None, "unknown")
        again = True if retried and a["attempt"] < last[a["job_id"]] else None
        found.append((a, a["status"] in BAD if known else again))
    return found


def grouped(rows: Iterable[Row], key: Callable[[Row], Key]) -> dict[Key, list[Row]]:
    groups: dict[Key, list[Row]] = defaultdict(list)
    for row in rows:
        groups[key(row)].append(row)
    return groups


def run_time_to_failure(tables: Tables, *, retried: bool = False) -> Results:
    size = {j["job_id"]: class_of(j["gpu_count"]) for j in tables["jobs"]}
    bad = [a for a, f in outcomes(tables, retried=retried) if f and a["run_s"] is not None and size[a["job_id"]]]
    return {
        key: (
            len(own),
            *(quantile([a["run_s"] for a in own], p) for p in (0.5, 0.9, 0.95)),
            total(map(gpu_h, own)),
            sum(a["status"] == "timeout" for a in own),
        )
        for key, own in grouped(bad, lambda a: (size[a["job_id"]],)).items()
    }


def by_user(tables: Tables, *, retried: bool = False) -> Results:
    user = {j["job_id"]: j["user"] for j in tables["jobs"]}
    lost = grouped([a for a, f in outcomes(tables, retried=retried) if f], lambda a: (user[a["job_id"]],))
    results: Results = {}
    gpu_jobs = [j for j in tables["jobs"] if j["gpu_count"]]
    for key, own in grouped(gpu_jobs or tables["jobs"], lambda j: (j["user"],)).items():
        known = [j["status"] in BAD for j in own if j["status"] not in (None, "unknown")]
        late = sum(j["status"] == "timeout" for j in own)
        hours = total(map(gpu_h, lost.get(key, [])))
        results[key] = (len(own), sum(known), ratio(sum(known), len(known)), late, hours)
    return results


def reasons(tables: Tables) -> Results:
    users = {j["job_id"]: j["user"] for j in tables["jobs"]}
    attempts = {(a["job_id"], a["attempt"]): a for a in tables["attempts"]}
    trials = {(f["job_id"], f["attempt"], f["reason"], f["category"]): f for f in tables["failures"]}
    every = total(gpu_h(attempts[f["job_id"], f["attempt"]]) for f in trials.values())
    results: Results = {}
    for key, own in grouped(trials.values(), lambda f: (f["reason"], f["category"])).items():
        runs = [attempts[f["job_id"], f["attempt"]] for f in own]
        hours = total(map(gpu_h, runs))
        who = {users[f["job_id"]] for f in own} - {None}
        points = [quantile([a["run_s"] for a in runs], p) for p in (0.5, 0.9, 0.95)]
        jobs = len({f["job_id"] for f in own})
        results[key] = (len(own), jobs, len(who) or None, *points, hours, ratio(hours, every))
    return results


def sessions_of(firsts: list[tuple[str, Row]]) -> dict[tuple[str, str], Key]:
    """Return the session of each job on each node."""
    session: dict[tuple[str, str], Key] = {}
    for mine in grouped([{"node": n, **a} for n, a in firsts], lambda a: (a["user"],)).values():
        before, number = None, 0
        for a in sorted(mine, key=lambda a: (a["start_time"] is None, a["start_time"], a["job_id"], a["node"])):
            start = a["start_time"]
            if before is None or start is None or (start - before).total_seconds() > 3600:
                number += 1
            before = start
            session[a["node"], a["job_id"]] = (a["job_id"],) if start is None else (number, start.date())
    return session


def trials_of(held: dict[str, list[Row]]) -> dict[str, list[tuple[Key, bool]]]:
    """Return the trials of each node, each as its stratum and whether it failed; step by step as the rule has it."""
    firsts = [
        (node, min(attempts, key=lambda a: a["attempt"]))
        for node, own in held.items()
        for attempts in grouped(own, lambda a: (a["job_id"],)).values()
    ]
    session = sessions_of(firsts)
    kept = first_of(firsts, lambda n, a: (n, a["user"], session[n, a["job_id"]]))

    def place(a: Row) -> Key:
        return (a["cluster"], a["vc"], a["kind"])

    def group(a: Row) -> Key:
        return (*place(a), a["user"], a["name"], a["group"])

    def grouped_by_user(a: Row) -> bool:
        return a["name"] is not None or a["group"] is not None

    sizes = Counter(group(a) for _, a in kept if grouped_by_user(a))
    named = [(n, a) for n, a in kept if sizes[group(a)] >= 10]
    rest = first_of(
        [(n, a) for n, a in kept if sizes[group(a)] < 10],
        lambda n, a: (n, *group(a)) if grouped_by_user(a) else (n, a["job_id"]),
    )
    users = Counter((*place(a), a["user"]) for _, a in rest)
    frequent = [(n, a) for n, a in rest if users[*place(a), a["user"]] >= 10]
    seldom = first_of(
        [(n, a) for n, a in rest if users[*place(a), a["user"]] < 10], lambda n, a: (n, *place(a), a["user"])
    )
    found: dict[str, list[tuple[Key, bool]]] = defaultdict(list)
    for n, a in named:
        found[n].append((("group", *group(a)), a["failed"]))
    for n, a in frequent:
        found[n].append((("user", *place(a), a["user"]), a["failed"]))
    for n, a in seldom:
        found[n].append((("tenant", *place(a)), a["failed"]))
    return found


def first_of(trials: list[tuple[str, Row]], key: Callable[[str, Row], Key]) -> list[tuple[str, Row]]:
    found: dict[Key, tuple[str, Row]] = {}
    for n, a in sorted(trials, key=lambda t: (t[1]["start_time"] is None, t[1]["start_time"], t[1]["job_id"])):
        found.setdefault(key(n, a), (n, a))
    return list(found.values())


def by_node(tables: Tables, *, of_attempts: bool = False) -> Results:
    """Return all but the p-values, which have tests of their own; no node is suspect in these traces."""
    jobs = {j["job_id"]: j for j in tables["jobs"]}
    judged = {}
    for a, f in outcomes(tables, retried=False):
        if f is not None and a["run_s"] is not None and a["run_s"] >= 0:
            job = jobs[a["job_id"]]
            about = {name: job.get(name) for name in ("user", "cluster", "vc", "name", "group")}
            more = {"start_time": a.get("start_time"), "kind": class_of(job["gpu_count"]), "failed": f}
            judged[a["job_id"], a["attempt"]] = {**a, **about, **more}
    held: dict[str, dict[Key, Row]] = defaultdict(dict)
    for p in tables["placements"]:
        key = (p["job_id"], p["attempt"])
        if p["node_id"] is not None and key in judged:
            held[p["node_id"]][key] = judged[key]
    attempts = {node: list(own.values()) for node, own in held.items()}
    trials = trials_of(attempts)
    if of_attempts:
        trials = {node: [((a["kind"],), a["failed"]) for a in own] for node, own in attempts.items()}
    by_stratum: dict[Key, list[float]] = defaultdict(list)
    for own in trials.values():
        for stratum, failed in own:
            by_stratum[stratum].append(float(failed))
    results: Results = {}
    for node, runs in attempts.items():
        bad = sum(1 for a in runs if a["failed"])
        hours = math.fsum(a["run_s"] for a in runs) / 3600
        own = trials.get(node, [])
        expected = math.fsum(statistics.fmean(by_stratum[stratum]) for stratum, _ in own)
        tested = (len(own), sum(1 for _, f in own if f), expected)
        late = sum(1 for a in runs if a["failed"] and a["status"] == "timeout")
        results[node,] = (len(runs), bad, late, bad / len(runs), hours, hours / bad if bad else None, *tested)
    return results


def queueing(tables: Tables) -> Results:
    hours, attempts = job_h(tables), by_job(tables)
    results: Results = {}
    for key, own in grouped([j for j in tables["jobs"] if j["gpu_count"]], lambda j: (j["user"],)).items():
        waits = total(a["wait_s"] for j in own for a in attempts[j["job_id"]])
        known = [j["status"] == "completed" for j in own if j["status"] not in (None, "unknown")]
        held = total(hours[j["job_id"]] for j in own)
        results[key] = (len(own), held, None if waits is None else waits / 3600, ratio(sum(known), len(known)))
    return results


def concentration(tables: Tables) -> Results:
    hours, attempts = job_h(tables), by_job(tables)
    gpu: list[float | None] = []
    cpu: list[float | None] = []
    every: list[float | None] = []
    for own in grouped([j for j in tables["jobs"] if j["user"] is not None], lambda j: (j["user"],)).values():
        gpu.append(total(hours[j["job_id"]] for j in own))
        runs = [(j, total(a["run_s"] for a in attempts[j["job_id"]])) for j in own]
        known = [(j, r * j["cpu_count"]) for j, r in runs if r is not None and j["cpu_count"] is not None]
        cpu.append(total(s for j, s in known if j["gpu_count"] == 0))
        every.append(total(s for _, s in known))
    curves = []
    for times in (gpu, cpu, every):
        heaviest = sorted((t for t in times if t is not None), reverse=True)
        curves.append([ratio(total(heaviest[:k]), total(heaviest)) for k in range(1, len(times) + 1)])
    n = len(gpu)
    return {(k / n,): shares for k, shares in enumerate(zip(*curves, strict=True), 1)}


def gangs(tables: Tables) -> Results:
    hours = job_h(tables)
    every = total(hours.values())
    return {
        key: (len(own), len(own) / len(tables["jobs"]), ratio(total(hours[j["job_id"]] for j in own), every))
        for key, own in grouped(tables["jobs"], lambda j: (j["instance_count"],)).items()
    }


def recurrence(tables: Tables) -> Results:
    hours = job_h(tables)
    results: Results = {}
    for key, own in grouped([j for j in tables["jobs"] if j["group"] is not None], lambda j: (j["group"],)).items():
        runs = [j["run_s"] for j in own if j["run_s"] is not None]
        users = len({j["user"] for j in own} - {None}) or None
        spread = ratio(statistics.stdev(runs), statistics.fmean(runs)) if len(runs) > 1 else None
        results[key] = (len(own), users, quantile(runs, 0.5), spread, total(hours[j["job_id"]] for j in own))
    return results


def relaxation(tables: Tables) -> Results:
    first = {a["job_id"]: a["wait_s"] for a in tables["attempts"] if a["attempt"] == 0}
    spread = [j for j in tables["jobs"] if j["gpu_count"] and j["node_count"] is not None]
    sizes = grouped(spread, lambda j: (class_of(j["gpu_count"]),))
    return {
        key: (
            len(own),
            len(own) / len(sizes[key[0],]),
            mean(first.get(j["job_id"]) for j in own),
            sum(first.get(j["job_id"]) is not None for j in own),
        )
        for key, own in grouped(
            spread, lambda j: (class_of(j["gpu_count"]), j["node_count"] / math.ceil(j["gpu_count"] / 8))
        ).items()
    }


CASES: dict[str, tuple[int, Callable[[Tables], Results], dict[str, Any]]] = {
    "failures/run_time_to_failure": (1, run_time_to_failure, {}),
    "failures/run_time_to_failure retried": (1, lambda t: run_time_to_failure(t, retried=True), {"rule": "retried"}),
    "failures/by_user": (1, by_user, {}),
    "failures/by_user retried": (1, lambda t: by_user(t, retried=True), {"rule": "retried"}),
    "failures/reasons": (2, reasons, {}),
    "failures/by_node": (1, by_node, {}),
    "failures/by_node sized_attempts": (1, lambda t: by_node(t, of_attempts=True), {"exposure": "sized_attempts"}),
    "users/queueing": (1, queueing, {}),
    "users/concentration": (1, concentration, {}),
    "workload/gangs": (1, gangs, {}),
    "workload/recurrence": (1, recurrence, {}),
    "locality/relaxation": (2, relaxation, {}),
}
"""By query: how many columns are the key, the recomputation, and the parameters."""


TESTED = ("p_value", "adjusted_p_value", "adjusted_p_value_without_one_user", "suspect")


def check(ask: Asking, tables: Tables, case: str) -> None:
    keys, recompute, params = CASES[case]
    frame = ask(case.partition(" ")[0], **params).drop(TESTED, strict=False)
    found = {row[:keys]: row[keys:] for row in frame.rows()}
    expected = recompute(tables)
    assert len(found) == frame.height, "a key stands twice"
    assert set(found) == set(expected)
    for key, values in expected.items():
        close = tuple(pytest.approx(v, rel=1e-6, abs=1e-6) if isinstance(v, float) else v for v in values)
        assert found[key] == close, (case, key)


@pytest.mark.parametrize("seed", seeds(3, 8))
def test_the_queries_agree_with_their_recomputation(make_trace: MakeTrace, seed: int) -> None:
    tables = random_tables(random.Random(seed))
    ask = Asking(make_trace(**tables))
    for case in CASES:
        check(ask, tables, case)


@pytest.fixture(scope="module", params=samples("philly", "slurm", "alibaba-pai"))
def sample(request: pytest.FixtureRequest, sample_trace: Callable[[str], Trace]) -> tuple[Asking, Tables]:
    trace = sample_trace(request.param)
    names = [t for t in ("jobs", "attempts", "placements") if trace.has(t)]
    return Asking(trace), defaultdict(list, {t: trace.scan(t).collect().rows(named=True) for t in names})


@pytest.mark.parametrize("case", CASES)
def test_the_queries_agree_on_every_sample_trace(sample: tuple[Asking, Tables], case: str) -> None:
    ask, tables = sample
    if not ask.is_refused(case.partition(" ")[0]):
        check(ask, tables, case)


@pytest.mark.parametrize("seed", seeds(1, 3))
def test_results_do_not_depend_on_the_order_of_the_rows(make_trace: MakeTrace, seed: int) -> None:
    tables = random_tables(random.Random(seed))
    ask = Asking(make_trace(**tables))
    other = Asking(make_trace(**{name: random.Random(7).sample(rows, len(rows)) for name, rows in tables.items()}))
    for case in CASES:
        name, params = case.partition(" ")[0], CASES[case][2]
        assert ask(name, **params).equals(other(name, **params)), case


@pytest.mark.parametrize("seed", seeds(3, 8))
def test_the_curve_of_the_users_rises_ever_less_up_to_one(make_trace: MakeTrace, seed: int) -> None:
    # Times that run backwards are contradictions of a source; a curve of them has no shape.
    tables = random_tables(random.Random(seed))
    tables["attempts"] = [a for a in tables["attempts"] if a["run_s"] != -1]
    frame = run_query(make_trace(**tables), "users/concentration")
    for column in ("gpu_time_share", "cpu_time_share"):
        curve = frame[column]
        if curve.null_count() < len(curve):
            steps = curve.diff().fill_null(curve.first())
            assert curve.last() == pytest.approx(1)
            assert all(later <= earlier + 1e-12 for earlier, later in pairwise(steps))
            assert steps.min() >= -1e-12  # type: ignore[operator]  # the shares of a curve are numbers
            assert (curve >= frame["user_share"] - 1e-12).all()


@pytest.mark.parametrize("seed", seeds(2, 8))
def test_totals_agree_between_the_queries(make_trace: MakeTrace, seed: int) -> None:
    tables = random_tables(random.Random(seed))
    tables["jobs"] = [{**j, "gpu_count": j["gpu_count"] or 1} for j in tables["jobs"]]
    ask = Asking(make_trace(**tables))
    for rule in ("stated", "retried"):
        by_size = ask("failures/run_time_to_failure", rule=rule)["gpu_hours_lost"].sum()
        assert ask("failures/by_user", rule=rule)["gpu_hours_lost"].sum() == pytest.approx(by_size)
    assert ask("workload/gangs")["jobs_share"].sum() == pytest.approx(1)
    shares = ask("locality/relaxation").group_by("gpu_class").agg(pl.col("jobs_share").sum())
    assert all(share == pytest.approx(1) for share in shares["jobs_share"])
    assert ask("failures/reasons")["rtf_demand_share"].sum() in (pytest.approx(1), 0)
    nodes = ask("failures/by_node")
    assert not nodes["suspect"].any()
    assert nodes["expected_failed_trials"].sum() == pytest.approx(nodes["failed_trials"].sum())
