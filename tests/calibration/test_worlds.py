"""Calibration on clusters whose scheduler is known, simulated by code that shares nothing with the engine."""

from __future__ import annotations

import functools
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import polars as pl
import pytest

from tests.calibration.benches import bench_of, effect_of_change
from tests.calibration.worlds import KINDS, World, make_world, simulate
from tracekit.calibration.api import ClusterCalibration, calibrate_jobs

if TYPE_CHECKING:
    from tracekit.calibration.effect import TwinEffect
    from tracekit.calibration.rules import Quotas, Rules

LOADS = (0.7, 0.85, 1.0, 1.1, 0.6)
EXACT = (
    "strict",
    "passing",
    "priority",
    "fair-share",
    "partitions",
    "user-limit",
    "quotas",
    "shortest",
    "lent",
    "queues",
)
"""Worlds whose rule is one of the candidates, to the letter."""

RULES = {
    "strict": {"order": "arrival", "scan": "stop", "backfill": "none"},
    "passing": {"order": "arrival", "scan": "skip", "backfill": "none"},
    "priority": {"order": "priority", "scan": "skip"},
    "fair-share": {"order": "fair-share-user", "scan": "skip"},
    "partitions": {"quotas": "partitions", "scan": "stop"},
    "quotas": {"quotas": "limits", "scan": "skip"},
    "lent": {"quotas": "idle", "scan": "skip"},
    "queues": {"order": "arrival", "scan": "stop", "queues": "vc"},
    "shortest": {"order": "smallest", "scan": "skip"},
    "easy": {"order": "arrival", "backfill": "easy", "estimates": "limit"},
}
"""What names the mechanism of a world."""


def world(kind: str, seed: int) -> World:
    return make_world(kind, seed, LOADS[seed % len(LOADS)])


def calibrated(world: World) -> ClusterCalibration:
    return calibrate_jobs(bench_of(world))


@functools.cache
def known_and_found(kind: str, seed: int) -> tuple[World, ClusterCalibration]:
    """Return a world and its calibration, made once."""
    known = world(kind, seed)
    return known, calibrated(known)


@pytest.mark.parametrize("kind", EXACT)
@pytest.mark.parametrize("seed", [0, pytest.param(1, marks=pytest.mark.thorough)])
def test_the_rule_of_a_cluster_is_found_and_waits_are_those_of_the_log(kind: str, seed: int) -> None:
    _, found = known_and_found(kind, seed)
    assert found.score.grade == "close"
    assert found.score.whole["ratio"] == pytest.approx(1.0, abs=0.001)
    assert found.score.whole["agreeing_share"] == 1.0
    rules = found.settings.rules
    for name, value in RULES.get(kind, {}).items():
        assert getattr(rules, name) == value
    assert (rules.limits.user_gpus == 16) == (kind == "user-limit")


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.thorough) for seed in (2, 4))])
def test_backfilling_by_time_limits_is_found(seed: int) -> None:
    found = calibrated(world("easy", seed))
    assert (found.settings.rules.backfill, found.settings.rules.estimates) == ("easy", "limit")
    assert found.score.whole["ratio"] == pytest.approx(1.0, abs=0.1)


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.thorough)])
def test_quotas_that_are_taken_back_are_found(seed: int) -> None:
    """Which job is stopped where several could be is the scheduler's own matter, so that waits differ a little."""
    found = calibrated(world("reclaimed", seed))
    assert found.settings.rules.quotas == "reclaim"
    assert found.score.carries
    assert found.score.whole["ratio"] == pytest.approx(1.0, abs=0.15)


@pytest.mark.thorough
def test_a_long_log_is_scored_part_by_part_by_what_was_known_before(monkeypatch: pytest.MonkeyPatch) -> None:
    known, found = known_and_found("passing", 1)
    assert "rolling" not in found.score.table["scope"].to_list()
    monkeypatch.setattr("tracekit.calibration.api._LEAST_DAYS", 20)
    table = calibrated(known).score.table.filter(pl.col("scope") == "rolling")
    assert table["name"].to_list() == ["days 11 to 17", "days 17 to 22", "days 22 to 28"]
    assert table["ratio"].to_list() == pytest.approx([1.0] * 3, abs=0.001)
    submit = np.array([job.submit for job in known.jobs])
    parts = [
        ((submit >= a * submit.max()) & (submit < b * submit.max())) for a, b in ((0.4, 0.6), (0.6, 0.8), (0.8, 2))
    ]
    assert table["jobs"].to_list() == [int(part.sum()) for part in parts]
    # A scheduler that is changed in the last part is not foretold by what came before, if the change is not found.
    monkeypatch.setattr("tracekit.calibration.api.rule_change", lambda *_: None)
    late = np.where(parts[2], np.array(known.start) + 36_000, known.start)
    changed = calibrated(replace(known, start=late.tolist(), end=[])).score.table.filter(pl.col("scope") == "rolling")
    assert changed["ratio"][0] == pytest.approx(1.0, abs=0.001)
    assert changed["ratio"][2] < 0.9


@pytest.mark.parametrize(
    "kind", ["strict", "easy", *(pytest.param(kind, marks=pytest.mark.thorough) for kind in ("quotas", "fair-share"))]
)
def test_the_first_jobs_of_a_long_log_lead_to_the_same_rules(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    known = world(kind, 2)
    found = calibrated(known)
    monkeypatch.setattr("tracekit.calibration.workbench._EXCERPT", 200)
    monkeypatch.setattr("tracekit.calibration.workbench._WAITED", 50)
    excerpt = bench_of(known).excerpt()
    assert excerpt is not None
    assert 200 <= len(excerpt.jobs) < len(found.bench.jobs) / 2
    again = calibrated(known)
    assert again.settings == found.settings
    assert len(again.tried) < len(found.tried) / 2


def test_a_scheduler_outside_the_search_is_not_called_close() -> None:
    """Last come, first served: no candidate does that."""
    known = world("passing", 1)
    starts = _last_come_first(known)
    found = calibrated(replace(known, start=starts, end=[]))
    assert not found.score.carries
    assert isinstance(effect_of_change(found, "easy,noise=limit"), str)


def _last_come_first(world: World) -> list[float]:
    """Return the starts where the queue is turned round: submissions are ranked by how late they came."""
    from tests.calibration import worlds

    def rule(state: worlds._State, now: float) -> worlds._Choice:
        return worlds._first(state, worlds._arrived(state)[::-1])

    worlds._RULES["last"] = rule
    try:
        return simulate(world, "last")
    finally:
        del worlds._RULES["last"]


CHANGES: dict[str, tuple[str | None, str]] = {
    "easy": ("easy,noise=limit", "easy"),
    "smallest": ("ssf,scan=skip", "shortest"),
    "lend": (None, "passing"),
}
"""Changes: the policy in the twin, None for quotas that are lent, and the rule of the simulator."""


def changes_of(kind: str) -> list[str]:
    """Return the changes that are tried on a kind of world."""
    if kind in {"partitions", "quotas"}:
        return ["lend"]
    return [name for name in ("easy", "smallest") if CHANGES[name][1] != kind]


def truth_and_effect(known: World, found: ClusterCalibration, change: str) -> tuple[float, TwinEffect | str]:
    """Return the mean wait that the change gives in the simulator [s], and what the twin says."""
    policy, rule = CHANGES[change]
    asked: str | Rules
    if policy is None:
        pooled: Quotas = "none" if known.kind == "partitions" else "idle"
        asked = replace(found.settings.rules, quotas=pooled, scan="skip")
        known = replace(known, node_vc=[])
    else:
        asked = policy
    submit = np.array([job.submit for job in known.jobs])
    return float(np.mean(np.array(simulate(known, rule)) - submit)), effect_of_change(found, asked)


def tally(kinds: tuple[str, ...], seeds: range) -> dict[str, list[float]]:
    """Return, one entry a change: told, and of those told whether inside, the wrong sign, and the width."""
    rows: dict[str, list[float]] = {"told": [], "inside": [], "wrong": [], "width": []}
    for kind in kinds:
        for seed in seeds:
            known, found = known_and_found(kind, seed)
            for change in changes_of(kind):
                truth, effect = truth_and_effect(known, found, change)
                rows["told"].append(not isinstance(effect, str))
                if isinstance(effect, str):
                    continue
                rows["inside"].append(effect.low_s - 1 <= truth <= effect.high_s + 1)
                shorter, longer = effect.verdict == "shorter", effect.verdict == "longer"
                rows["wrong"].append((shorter and truth > effect.recorded_s) or (longer and truth < effect.recorded_s))
                rows["width"].append((effect.high_s - effect.low_s) / effect.recorded_s)
    return rows


def check(rows: dict[str, list[float]]) -> None:
    """Assert that effects hold the truth in 90 % of the worlds, never with the wrong sign, and say something."""
    assert np.mean(rows["told"]) >= 0.8
    assert np.mean(rows["inside"]) >= 0.9
    assert sum(rows["wrong"]) == 0
    assert np.median(rows["width"]) <= 0.6


@pytest.mark.thorough
def test_effects_hold_what_the_simulator_gives() -> None:
    check(tally(EXACT, range(2)))


@pytest.mark.slow
def test_effects_hold_in_many_worlds() -> None:
    rows = tally(KINDS, range(40))
    print({name: float(np.mean(values)) for name, values in rows.items()}, "median width", np.median(rows["width"]))
    check(rows)


# Two backfillings that differ in which of several free places a later job gets drift apart where the cluster is full:
# in 5 of 40 worlds of EASY the held-out mean is off by more than a tenth.
@pytest.mark.slow
@pytest.mark.parametrize(("kind", "least"), [*((kind, 0.9) for kind in (*EXACT, "nodes-down")), ("easy", 0.8)])
def test_held_out_waits_are_within_ten_percent_in_many_worlds(kind: str, least: float) -> None:
    off = [abs(calibrated(world(kind, seed)).score.whole["ratio"] - 1) for seed in range(40)]
    assert np.mean(np.array(off) <= 0.1) >= least
