"""Failures of machines: counted by hand, planted laws told apart and recovered, and drawn."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl
import pytest

import tracekit
from tests.fit.workloads import workload
from tracekit.fit.choice import Effort
from tracekit.fit.model import WorkloadModel
from tracekit.fit.node_failures import _times_between, _window, fit_node_failures, times_away
from tracekit.fit.synthetic import draw_node_events

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.reviewed import Golden
    from tracekit.trace import Trace

NONE = Effort(replicates=0)
DAY = 86_400
BEGIN = np.datetime64("2020-04-06")


def event(node: str, since: str, until: str | None, state: str = "down", cause: str | None = "fan") -> dict[str, Any]:
    return {
        "node_id": node,
        "start_time": f"2020-04-{since}",
        "end_time": until and f"2020-04-{until}",
        "state": state,
        "cause": cause,
        "source": "test",
    }


def jobs(last: str = "2020-04-11") -> list[dict[str, Any]]:
    at = {"run_s": 60, "gpu_count": 1, "status": "completed"}
    return [{"job_id": str(n), "submit_time": day, **at} for n, day in enumerate(("2020-04-01", last))]


def test_times_to_failure_and_away_by_hand(make_trace: Callable[..., Trace]) -> None:
    """Ten days, four nodes: a fails on day 2 and, in two events that overlap, on day 5; b failed before; c is away.

    a works 2 d, then 1 d, then from day 7 on until the end; b from day 1 on; c 4 d; d all the time.
    """
    events = [
        event("a", "03", "05"),
        event("a", "06", "07", cause="nic"),
        event("a", "06 12:00", "08", "drained"),
        event("b", "01", "02"),
        event("c", "05", None),
    ]
    trace = make_trace(jobs=jobs(), nodes=[{"node_id": n} for n in "abcd"], node_events=events)
    frame = trace.scan("node_events").collect()
    frame = frame.select(
        "node_id", "state", "cause", since=pl.col("start_time").dt.epoch("us"), until=pl.col("end_time").dt.epoch("us")
    )
    window = _window(trace, frame)
    assert (window.nodes, (window.end - window.begin) / 86_400e6) == (4, 10)
    spans = times_away(frame, window)
    until_failure, cut = _times_between(spans, window)
    assert sorted(until_failure / DAY) == [1, 2, 4]
    assert sorted(cut / DAY) == [3, 9, 10]
    assert sorted(((spans["until"] - spans["since"]) / 86_400e6).to_list()) == [1, 2, 2, 6]
    assert spans.filter("open")["node_id"].to_list() == ["c"]


def test_only_faults_are_failures(make_trace: Callable[..., Trace], golden: Golden) -> None:
    events = [
        event("a", "02", "03", cause=None),
        event("a", "04", "05", "drained", "nic"),
        event("b", "02", "03", "drained", None),
        event("b", "04", "05", "drained", "unknown"),
        event("b", "06", "07", "drained", "maintenance"),
        event("b", "08", "09", "down", "maintenance"),
        event("c", "02", "03", "maintenance", None),
        event("c", "04", "05", "degraded", "gpu memory"),
    ]
    found = fit_node_failures(make_trace(jobs=jobs(), node_events=events), 0, NONE)
    assert (found["events"], found["failures"], found["maintenance"], found["nodes"]) == (8, 2, 3, 3)
    everything, rare = found["groups"]
    assert everything["causes"] == rare["causes"] == {"nic": 1, "unknown": 1}
    assert (everything["group"], everything["failures"], everything["down_share"]) == ("all", 2, 0.5)
    assert rare["until_failure"]["chosen"] is None
    none = fit_node_failures(make_trace(jobs=jobs(), node_events=events[2:]), 0, NONE)
    assert none["groups"] is None
    golden(none["reason"])


def test_without_jobs_the_time_is_that_of_the_events(make_trace: Callable[..., Trace]) -> None:
    events = [event("a", "03", "05"), event("b", "07", None, cause="nic")]
    found = fit_node_failures(make_trace(node_events=events), 0, NONE)
    assert (found["days"], found["nodes"], found["failures"]) == (4.0, 2, 2)  # from the 3rd to the 7th


def test_a_trace_without_node_events_has_none_and_says_why(make_trace: Callable[..., Trace], golden: Golden) -> None:
    found = fit_node_failures(make_trace(jobs=jobs()), 0, NONE)
    assert found["groups"] is None
    golden(found["reason"])


def planted(
    shape: float, scale_s: float, cause: str, seed: int, nodes: int = 150, days: int = 400
) -> list[dict[str, Any]]:
    """Return the failures of nodes that work for Weibull times, and are away for about an hour."""
    rng = np.random.default_rng(seed)
    events = []
    for node in range(nodes):
        now = 0.0
        while (now := now + float(scale_s * rng.weibull(shape))) < 400 * DAY:
            back = now + float(rng.lognormal(np.log(3600), 0.7))
            since, until = (str(BEGIN + np.timedelta64(round(t), "s")) for t in (now, back))
            events.append({"node_id": f"n{node}", "start_time": since, "end_time": until, "state": "down"})
            events[-1] |= {"cause": cause, "source": "test"}
            now = back
    return events


@pytest.fixture(scope="module")
def failing(make_trace: Callable[..., Trace]) -> Trace:
    """Fans fail without memory every 100 days; GPUs soon or never, with shape 0.5; one power supply."""
    tables = workload(400)
    for n, job in enumerate(tables["jobs"]):
        job.update(submit_time=str(BEGIN + np.timedelta64(n * DAY, "s")), start_time=None, end_time=None)
    events = planted(1.0, 100 * DAY, "fan", 1) + planted(0.5, 200 * DAY, "gpu memory", 2)
    events += [{**events[0], "cause": "power", "source": "other"}]
    nodes = [{"node_id": f"n{i}", "gpu_count": 8} for i in range(150)]
    return make_trace(jobs=tables["jobs"], nodes=nodes, node_events=events)


def test_planted_laws_are_distinguished_and_recovered(failing: Trace) -> None:
    found = fit_node_failures(failing, 0, NONE)
    groups = {g["group"]: g for g in found["groups"]}
    assert list(groups) == ["all", "fan", "gpu memory", "other"]
    for cause, law, truth in (
        ("fan", "expon", {"scale": 100 * DAY}),
        ("gpu memory", "weibull_min", {"c": 0.5, "scale": 200 * DAY}),
    ):
        entry = groups[cause]["until_failure"]
        assert entry["chosen"] == law
        fit = next(f for f in entry["families"] if f["family"] == law)
        for name, value in truth.items():
            assert abs(fit["parameters"][name] - value) < 3 * fit["standard_errors"][name]
        assert entry["right_censored"] == pytest.approx(150, abs=5)
        away = next(f for f in groups[cause]["away"]["families"] if f["family"] == "lognorm")
        assert away["parameters"]["scale"] == pytest.approx(3600, rel=0.1)
    assert groups["fan"]["mean_until_failure_s"] == pytest.approx(100 * DAY, rel=0.12)


@pytest.mark.thorough
def test_generate_draws_failures_of_its_machines(failing: Trace, tmp_path: Path) -> None:
    model = tracekit.fit(failing, replicates=0, scores=0)
    WorkloadModel.checked(model.document)
    before = {g["group"]: g for g in model.document["node_failures"]["groups"]}
    source: WorkloadModel | Trace
    for name, source in (("model", model), ("days", failing)):
        made = tracekit.generate(source, tmp_path / name, days=390, seed=1)
        assert made.validate() == []
        assert "node_events" in made.tables
        again = {g["group"]: g for g in fit_node_failures(made, 0, NONE)["groups"]}
        for cause in ("fan", "gpu memory"):
            rate = again[cause]["failures"] / again[cause]["node_days"]
            assert rate == pytest.approx(before[cause]["failures"] / before[cause]["node_days"], rel=0.2)
            assert again[cause]["until_failure"]["chosen"] == before[cause]["until_failure"]["chosen"]
        nodes = set(made.scan("nodes").collect()["node_id"])
        assert set(made.scan("node_events").collect()["node_id"]) <= nodes
    twice = tracekit.generate(model, tmp_path / "again", days=390, seed=1)
    files = [(folder / "node_events.parquet").read_bytes() for folder in (tmp_path / "model", twice.path)]
    assert files[0] == files[1]
    # A file of an earlier version has no failures.
    del model.document["node_failures"]
    assert "node_events" not in tracekit.generate(model, tmp_path / "old", days=5).tables


def test_nothing_is_drawn_for_no_machines_or_causes_too_rare(failing: Trace) -> None:
    found = fit_node_failures(failing, 0, NONE)
    rng = np.random.default_rng(0)
    none = draw_node_events(found, pl.Series("node_id", [], pl.String), (0, 10**15), rng)
    assert none is None or none.is_empty()
    rare = {"groups": [g for g in found["groups"] if g["group"] == "other"]}
    assert draw_node_events(rare, pl.Series("node_id", ["n1"]), (0, 10**15), rng) is None
    assert draw_node_events(None, pl.Series("node_id", ["n1"]), (0, 10**15), rng) is None
