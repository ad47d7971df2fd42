"""Calibration of worlds whose log is a Trace: node events, and times of eligibility."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pytest

from tests.calibration.worlds import World, make_world, rows_of, simulate
from tracekit.calibration.api import calibrate, recall
from tracekit.calibration.effect import TwinEffect, total_effect
from tracekit.calibration.rules import HoldingLimits
from tracekit.calibration.twin import read_twin, write_twin
from tracekit.calibration.twins import Twins
from tracekit.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tracekit.calibration.api import Calibration, ClusterCalibration
    from tracekit.trace import Trace

    MakeTrace = Callable[..., Trace]


def only(trace: Trace) -> ClusterCalibration:
    return only_of(calibrate(trace))


def only_of(made: Calibration) -> ClusterCalibration:
    (found,) = made.clusters
    return found


@pytest.fixture(scope="module")
def broken() -> World:
    """Return a world in which six of eight nodes are down for three days each."""
    return make_world("nodes-down", 2, 0.7)


@pytest.fixture(scope="module")
def whole(make_trace: MakeTrace, broken: World) -> tuple[Trace, Calibration]:
    """Return the Trace of that world, and its calibration."""
    trace = make_trace(**rows_of(broken))
    return trace, calibrate(trace)


def test_nodes_that_were_down_are_found(whole: tuple[Trace, Calibration], tmp_path: Path) -> None:
    trace, made = whole
    found = only_of(made)
    assert trace.validate() == []
    assert (found.settings.capacity, found.score.grade) == ("events", "close")
    assert found.score.whole["ratio"] == pytest.approx(1.0, abs=0.01)
    assert set(found.candidates()["capacity"]) == {"stated", "events", "observed"}
    file = tmp_path / "twin.toml"
    write_twin(made.twin, file)
    assert 'capacity = "events"' in file.read_text()
    (again,) = recall(trace, read_twin(file, trace)).clusters
    assert (again.settings, again.score.grade) == (found.settings, "close")


def test_without_node_events_their_capacity_is_not_tried_and_not_taken(
    make_trace: MakeTrace, broken: World, whole: tuple[Trace, Calibration], tmp_path: Path
) -> None:
    rows = rows_of(broken)
    bare = make_trace(**{name: table for name, table in rows.items() if name != "node_events"})
    found = only(bare)
    assert set(found.candidates()["capacity"]) == {"stated", "observed"}
    assert found.score.whole["ratio"] < 0.95
    file = tmp_path / "twin.toml"
    write_twin(whole[1].twin, file)
    with pytest.raises(UsageError, match="uses the capacity 'events', which the Trace does not provide"):
        recall(bare, read_twin(file, bare))


@pytest.mark.parametrize(
    "seed", [pytest.param(0, marks=pytest.mark.thorough), *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 9))]
)
def test_events_count_where_they_took_nodes_away_and_only_there(make_trace: MakeTrace, seed: int) -> None:
    """The outages of one world are told of two others too, in which every node was there."""
    down = make_world("nodes-down", seed, 0.7)
    events = rows_of(down)["node_events"]
    found = [(down.kind, "events")]
    found += [(kind, "stated") for kind in ("passing", "strict")]
    for kind, capacity in found:
        log = make_trace(**{**rows_of(make_world(kind, seed, 0.7)), "node_events": events})
        settings, score = (one := only(log)).settings, one.score
        assert (kind, settings.capacity, score.grade) == (kind, capacity, "close")


@pytest.fixture(scope="module")
def held() -> World:
    """Return a world in which a fifth of the jobs are held for half a day to two days."""
    world = make_world("passing", 3, 0.85)
    random = np.random.default_rng(7)
    hold = np.where(random.random(len(world.jobs)) < 0.2, random.uniform(43_200, 172_800, len(world.jobs)).round(), 0.0)
    world = replace(world, jobs=[replace(job, delay=float(s)) for job, s in zip(world.jobs, hold, strict=True)])
    return replace(world, start=simulate(world))


def test_jobs_compete_from_the_time_at_which_they_were_eligible(make_trace: MakeTrace, held: World) -> None:
    rows = rows_of(held)
    trace = make_trace(**rows)
    found = only(trace)
    assert trace.validate() == []
    assert found.twin.delays.holds
    assert (found.score.grade, found.score.whole["agreeing_share"]) == ("close", 1.0)
    unheld = [{k: v for k, v in job.items() if k != "eligible_time"} for job in rows["jobs"]]
    without = only(make_trace(**{**rows, "jobs": unheld}))
    assert not without.twin.delays.holds
    assert without.score.grade == "poor"


def test_two_clusters_have_twins_of_their_own_whose_effects_add_up(make_trace: MakeTrace) -> None:
    """Venus lets nobody pass, Earth holds users to 16 GPUs; letting later jobs pass changes the first alone."""
    worlds = {"Venus": make_world("strict", 1, 0.85), "Earth": make_world("user-limit", 3, 1.0)}
    tables: dict[str, list[dict[str, object]]] = {}
    for name, world in worlds.items():
        for table, rows in rows_of(world).items():
            for row in rows:
                own = {str(key): f"{name}-{row[key]}" for key in ("job_id", "node_id") if key in row}
                place = {"cluster": name} if table in {"jobs", "nodes"} else {}
                tables.setdefault(table, []).append({**row, **own, **place})
    twins = Twins(make_trace(**{name: rows for name, rows in tables.items() if rows}), 100_000)
    found = {one.found.name: one for one in twins.clusters}
    waited = {name: sum(s - j.submit for s, j in zip(w.start, w.jobs, strict=True)) for name, w in worlds.items()}
    assert list(found) == sorted(waited, key=lambda name: -waited[name])
    assert [found[name].found.score.grade for name in ("Venus", "Earth")] == ["close", "close"]
    assert (found["Venus"].rules.scan, found["Earth"].rules.limits.user_gpus) == ("stop", 16)
    effects = [one.effect(replace(one.rules, scan="skip"), "queue") for one in found.values()]
    told = [effect for effect in effects if isinstance(effect, TwinEffect)]
    (alone,) = told
    assert alone.cluster == "Venus"
    venus = worlds["Venus"]
    submit = np.array([job.submit for job in venus.jobs])
    assert alone.changed_s == pytest.approx(float(np.mean(np.array(simulate(venus, "passing")) - submit)), rel=0.02)
    smallest = [replace(one.rules, order="smallest", scan="skip", limits=HoldingLimits()) for one in found.values()]
    parts = [one.effect(rules, "queue") for one, rules in zip(found.values(), smallest, strict=True)]
    both = total_effect([effect for effect in parts if isinstance(effect, TwinEffect)])
    truth = [
        (np.array(simulate(w, "shortest")) - np.array([job.submit for job in w.jobs])).sum() for w in worlds.values()
    ]
    jobs = sum(len(w.jobs) for w in worlds.values())
    assert both.jobs == jobs
    assert both.low_s - 1 <= sum(truth) / jobs <= both.high_s + 1
