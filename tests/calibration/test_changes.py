"""Rules that change in the middle of a log: when they changed, and what is made of the jobs since."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import orjson
import pytest

from tests.calibration.benches import trace_of_site
from tests.command import run
from tests.replay.builders import make_cluster, make_jobs
from tests.worlds.kinds import DAY, KNOWN, make_site
from tests.worlds.site import Rules as SiteRules
from tests.worlds.slurm_dump import START
from tracekit.answer import Answer
from tracekit.calibration.api import calibrate, recall
from tracekit.calibration.changes import _division, _Parts
from tracekit.calibration.fidelity import fidelity_of
from tracekit.calibration.rules import HoldingLimits, Rules
from tracekit.calibration.search import Tried
from tracekit.calibration.twin import read_twin, twin_text, write_twin
from tracekit.calibration.twins import Twins
from tracekit.calibration.workbench import SPANS, Settings, Workbench
from tracekit.report.replay_answers import twin_answers
from tracekit.report.sections.interface import finding

if TYPE_CHECKING:
    from pathlib import Path

    from tests.reviewed import Golden
    from tests.worlds.site import Site
    from tracekit.calibration.api import Calibration
    from tracekit.trace import Trace


def bench_of_five() -> Workbench:
    """Return five jobs: one that ended before 100 s, one that ran then, one that waited then, and two later ones."""
    jobs = make_jobs(
        [(0, 1, 50), (10, 2, 200), (60, 1, 30), (100, 1, 20), (150, 1, 20)],
        limit_ms=[60_000, 300_000, 60_000, -1, 60_000],
        recorded_start_ms=[0, 20_000, 120_000, 130_000, 150_000],
        recorded_end_ms=[50_000, 220_000, 150_000, 150_000, 170_000],
    )
    held = np.array([0, 5000, 50_000, 10_000, 0])
    cluster = make_cluster([4, 4], changes=[(90, 0, False), (160, 0, True)])
    return Workbench(jobs, {"stated": lambda *_: cluster}, np.ones(5, bool), held)


def test_a_later_part_begins_with_the_jobs_that_run_and_wait_then() -> None:
    made = bench_of_five().since(100_000)
    jobs = made.jobs
    assert jobs.origin == bench_of_five().jobs.origin + dt.timedelta(seconds=100)
    assert (made.lead, made.unused, made.later) == (2, 1, True)
    assert jobs.submit_ms.tolist() == [0, 0, 0, 50_000]
    assert jobs.work_ms.tolist() == [120_000, 30_000, 20_000, 20_000]
    assert jobs.limit_ms.tolist() == [220_000, 60_000, -1, 60_000]
    assert jobs.recorded_start_ms.tolist() == [-1, -1, 30_000, 50_000]
    assert jobs.recorded_end_ms.tolist() == [-1, -1, 50_000, 70_000]
    assert made.held_ms is not None
    assert made.held_ms.tolist() == [0, 10_000, 10_000, 0]
    assert made.own.tolist() == [False, False, True, True]
    assert made.among.tolist() == [False, False, True, False]  # the first 60 % of 50 s
    assert np.isnan(made.recorded_s).tolist() == [True, True, False, False]


def test_a_later_part_begins_with_the_nodes_that_are_there_then() -> None:
    cluster = bench_of_five().since(100_000).clusters["stated"](False, 1.0)
    assert cluster.absent.tolist() == [1, 0]
    assert (cluster.change_ms.tolist(), cluster.change_node.tolist(), cluster.change_up.tolist()) == (
        [60_000],
        [0],
        [1],
    )


def candidate(order: str, by_span: list[float]) -> Tried:
    return Tried("order", Settings(Rules(order=order), "stated", delays=False), 0.0, 0.0, 0, by_span=by_span)  # type: ignore[arg-type]  # one of Order


@pytest.mark.parametrize(("jobs", "expected"), [(400, True), (399, False)])
def test_the_best_division_lies_between_the_parts_that_two_candidates_fit(jobs: int, expected: bool) -> None:
    # Ten days. The first candidate fits the first 60 % and the second the others; a third fits all of it half as well.
    rows = [(k * 864_000 / 400, 1, 10) for k in range(jobs)]
    starts = [round(submit * 1000) for submit, _, _ in rows]
    log = make_jobs(rows, recorded_start_ms=starts, recorded_end_ms=[start + 10_000 for start in starts])
    log = log if expected else log.rows(np.arange(199))
    bench = Workbench(log, {"stated": lambda *_: make_cluster([1])}, np.ones(len(log), bool))
    cut = int(0.6 * SPANS)
    tried = [
        candidate("arrival", [0.0] * cut + [1.0] * (SPANS - cut)),
        candidate("shortest", [1.0] * cut + [0.1] * (SPANS - cut)),
        candidate("smallest", [0.5] * SPANS),
        Tried("order", Settings(Rules(), "observed", delays=False), np.inf, np.nan, 0, "cannot run"),
    ]
    found = _division(bench, tried)
    if not expected:
        assert found is None  # 199 jobs are too few for two parts of 100
        return
    assert found is not None
    assert found.before.settings.rules.order == "arrival"
    assert found.at_ms == pytest.approx(0.6 * log.submit_ms.max(), abs=86_400_000 / 40)
    # 160 spans of the first candidate are worse than 240 of the second: the best of the whole is 160.
    assert found.whole == pytest.approx(160)
    assert found.share == pytest.approx(16 / 160)


def test_a_candidate_that_fits_exactly_leaves_nothing_to_divide() -> None:
    assert _division(bench_of_five(), [candidate("arrival", [0.0] * SPANS)]) is None


def parts(before: float = 5.0, new: float = 0.4, days: int = 6, learnt: int = 50) -> _Parts:
    """Return 100 jobs before a change and 100 after, ten a day; the later rules are closer on the first days only."""
    day = np.arange(100) // 10
    later = np.where(day < days, new, 1.01)
    return _Parts(0, 100, learnt, before, np.ones(100), later, day)


@pytest.mark.parametrize(
    ("one", "whole", "expected"),
    [
        (parts(), 200.0, True),
        (parts(before=10.0, new=0.0), 200.0, True),
        (
            parts(before=10.1, new=0.0),
            200.0,
            False,
        ),  # the earlier rules fit the earlier jobs less than ten times better
        (parts(new=0.0), 45.4 / 0.69, True),
        (parts(new=0.0), 45.4 / 0.71, False),  # one set of rules fits the whole log almost as well
        (parts(days=5, new=0.0), 200.0, False),  # the later rules are closer on half of the days
        (parts(learnt=49), 200.0, False),
        (parts(learnt=51), 200.0, False),
    ],
)
def test_a_change_has_to_be_clear(one: _Parts, whole: float, expected: bool) -> None:
    assert one.changed(whole) is expected


def changed(kind: str, seed: int) -> Site:
    """Return a site whose rules change on day 20 of 28."""
    if kind == "limit":
        return make_site("rule change", seed)
    plain = replace(make_site("outages", seed), outages=[])
    later = SiteRules(backfill="strict") if kind == "strict" else SiteRules(order=kind)
    return replace(plain, later=(20 * DAY, later))


def day_of_change(found: Calibration) -> list[float]:
    """Return the days on which the rules of the clusters changed."""
    return [
        (one.since - START.replace(tzinfo=None)).total_seconds() / DAY
        for one in found.clusters
        if one.since is not None
    ]


@pytest.fixture(scope="module")
def limited(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    return trace_of_site(changed("limit", 0), tmp_path_factory.mktemp("limited"))


@pytest.fixture(scope="module")
def found(limited: Trace) -> Calibration:
    return calibrate(limited)


@pytest.mark.thorough
def test_the_twin_is_that_of_the_rules_since_the_change(found: Calibration) -> None:
    (one,) = found.clusters
    assert day_of_change(found) == [pytest.approx(20, abs=1)]
    assert one.rules_before is not None
    assert one.rules_before.limits == HoldingLimits()
    assert one.settings.rules.limits == HoldingLimits(user_gpus=16)
    assert one.score.grade == "close"
    assert one.why_no_effect is None
    assert len(one.bench.jobs) + one.bench.unused == 1500
    assert not one.unseen[: one.bench.lead].any()


@pytest.mark.thorough
def test_the_time_of_the_change_is_in_every_answer(found: Calibration, limited: Trace, golden: Golden) -> None:
    (one,) = found.clusters
    told = orjson.loads(orjson.dumps(fidelity_of(one).to_dict()))
    assert one.since is not None
    assert told["since"] == one.since.isoformat()
    assert told["rules_before"] == "first in, first out; jobs may pass a job that cannot start"
    answer = twin_answers(Twins(limited, 100_000))[0]
    assert isinstance(answer, Answer)
    (row,) = answer.frame.to_dicts()
    assert row["since"] == one.since
    golden([*one.sentences, str(finding("replay/twins", [row | {"since": row["since"].isoformat()}]))])


@pytest.mark.thorough
def test_a_twin_with_a_change_is_read_back_and_scored_alike(found: Calibration, limited: Trace, tmp_path: Path) -> None:
    file = tmp_path / "twin.toml"
    write_twin(found.twin, file)
    twin = read_twin(file, limited)
    assert twin == found.twin
    (before,), (after,) = found.clusters, recall(limited, twin).clusters
    assert after.since == before.since
    assert after.score.whole == before.score.whole


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("since", "says"),
    [
        ("soon", "'soon' is not a time"),
        ("2026-02-01", "is not after the first and before the last submission"),
        ("2026-05-01T00:00:00Z", "is not after the first and before the last submission"),
    ],
)
def test_a_time_that_cannot_be_used_is_refused(
    found: Calibration, limited: Trace, tmp_path: Path, since: str, says: str
) -> None:
    file = tmp_path / "twin.toml"
    (one,) = found.clusters
    assert one.since is not None
    text = twin_text(found.twin)
    assert one.since.isoformat() in text
    file.write_text(text.replace(one.since.isoformat(), since), encoding="utf-8")
    done = run("calibrate", limited.path, "--twin", file, "--report", tmp_path / "out")
    assert done.returncode == 2
    assert says in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "least"), [("limit", 9), ("strict", 7), ("shortest", 5)])
def test_a_change_is_found_within_two_days_in_most_sites(kind: str, least: int, tmp_path: Path) -> None:
    """A change of the order shows only once jobs wait: in some sites, none does until day 24."""
    days = [day_of_change(calibrate(trace_of_site(changed(kind, seed), tmp_path / str(seed)))) for seed in range(10)]
    assert sum(abs(day - 20) <= 2 for found in days for day in found) >= least


@pytest.mark.slow
@pytest.mark.parametrize("kind", KNOWN)
def test_no_change_is_found_in_sites_without_one(kind: str, tmp_path: Path) -> None:
    sites = [replace(make_site(kind, seed), later=None) for seed in range(5)]
    found = [calibrate(trace_of_site(site, tmp_path / str(k))) for k, site in enumerate(sites)]
    assert [day_of_change(one) for one in found] == [[]] * 5
