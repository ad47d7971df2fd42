"""Reasons that a log gives for waits: their families, what a calibration makes of them, and what a twin misses."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import orjson
import polars as pl
import pytest

from tests.calibration.benches import bench_of, trace_of_site
from tests.calibration.worlds import make_world
from tests.replay.builders import make_jobs
from tests.worlds.kinds import make_site
from tests.worlds.site import Limit, last_limits
from tests.worlds.site import Rules as RulesOfSite
from tracekit.answer import Answer
from tracekit.calibration.api import calibrate
from tracekit.calibration.fidelity import fidelity, write_fidelity
from tracekit.calibration.reasons import (
    ARRAY_TASKS,
    AWAY,
    CONTENTION,
    HELD,
    UNMODELED,
    USER_GPUS,
    USER_JOBS,
    VC_GPUS,
    VC_JOBS,
    Reason,
    WaitReasons,
    covered_families,
    families_of,
    shown,
    stage_shares,
)
from tracekit.calibration.rules import HoldingLimits, Rules
from tracekit.calibration.search import most_held_while_waiting, search
from tracekit.calibration.twins import Twins
from tracekit.characterize import run_query
from tracekit.report.replay_answers import twin_answers
from tracekit.report.sections.interface import finding

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.reviewed import Golden
    from tracekit.trace import Trace

WORDS = {
    "Resources": ({CONTENTION}, "contention"),
    "Priority": ({CONTENTION}, "contention"),
    "QOSMaxGRESPerUser": ({USER_GPUS}, "limit"),
    "MaxGRESPerAccount": ({VC_GPUS}, "limit"),
    "AssocGrpGRES": ({USER_GPUS, VC_GPUS}, "limit"),
    "ReqNodeNotAvail": ({AWAY}, "nodes"),
    "NodeDown": ({AWAY}, "nodes"),
    "BeginTime": ({HELD}, "begin time"),
    "Dependency": ({HELD}, "dependency"),
    "JobHeldUser": ({HELD}, "held"),
    "JobArrayTaskLimit": ({ARRAY_TASKS, HELD}, "limit"),
    "QOSMaxJobsPerUserLimit": ({USER_JOBS}, "limit"),
    "AssocGrpJobsLimit": ({USER_JOBS, VC_JOBS}, "limit"),
    "QOSMaxGRESMinutesPerJob": ({UNMODELED}, "limit"),
    "QOSGrpGRES": ({UNMODELED}, "limit"),
    "AssocGrpCpuLimit": ({UNMODELED}, "limit"),
    "Reservation": ({UNMODELED}, "nodes"),
    "Licenses": ({UNMODELED}, "contention"),
    "resources": ({UNMODELED}, "unlisted"),
    "Mystery": ({UNMODELED}, "unlisted"),
}
"""Reason words, their families, and their group in the query queuing/wait_reasons."""


@pytest.mark.parametrize("word", WORDS)
def test_each_word_has_its_families(word: str) -> None:
    assert families_of(word) == WORDS[word][0]


def test_the_query_groups_the_same_words(make_trace: Callable[..., Trace]) -> None:
    groups = {group for _, group in WORDS.values()}
    for group in groups:
        words = [word for word, (_, of) in WORDS.items() if of == group]
        jobs = [
            {"job_id": word, "wait_reason": word, "gpu_count": 1, "queue_s": 10.0, "attempt_count": 1} for word in words
        ]
        attempts = [{"job_id": word, "attempt": 0, "wait_s": 10.0} for word in words]
        frame = run_query(make_trace(jobs=jobs, attempts=attempts), "queuing/wait_reasons")
        assert frame.select("reason_group", "jobs").rows() == [(group, len(words))]


FOUR = WaitReasons(pl.Series(["QOSMaxGRESPerUser", None, "AssocGrpGRES", "Licenses"]))


def test_shares_are_those_of_the_waiting_hours() -> None:
    # 100 s in all. The third job has not started.
    found = FOUR.summed(np.array([60.0, 30.0, np.nan, 10.0]))
    assert found == [Reason("QOSMaxGRESPerUser", 1, 0.6), Reason("Licenses", 1, 0.1)]
    contention = {"order": 0.3, "backfilling": 0.3, "order of a site": 0.3}
    assert stage_shares(found) == pytest.approx(contention | {"quotas and limits": 0.6, "limits of a site": 0.6})
    assert shown(found) == "QOSMaxGRESPerUser (60.0 % of the hours waited), Licenses (10.0 % of the hours waited)"
    assert FOUR.summed(np.zeros(4)) == []
    assert shown([Reason("Licenses", 1, 0.004)]) is None


def test_a_family_names_its_jobs() -> None:
    assert FOUR.naming(USER_GPUS).tolist() == [True, False, True, False]
    assert FOUR.naming(VC_GPUS).tolist() == [False, False, True, False]
    assert FOUR.rows(np.array([3, 2])).words.to_list() == ["Licenses", "AssocGrpGRES"]


@pytest.mark.parametrize(
    ("rules", "holds", "away", "expected"),
    [
        (Rules(), False, False, {CONTENTION}),
        (Rules(limits=HoldingLimits(user_gpus=8)), True, False, {CONTENTION, USER_GPUS, HELD}),
        (Rules(limits=HoldingLimits(vc_gpus=8)), False, True, {CONTENTION, VC_GPUS, AWAY}),
        (Rules(quotas="idle"), False, False, {CONTENTION, VC_GPUS}),
    ],
)
def test_rules_include_their_families(rules: Rules, holds: bool, away: bool, expected: set[str]) -> None:
    assert covered_families(rules, holds=holds, away=away) == expected


def test_a_limit_is_read_from_the_jobs_that_waited_for_it() -> None:
    # ann runs on 4 GPUs while her second job waits for her limit; bob runs on 6 while his waits for free GPUs.
    jobs = make_jobs(
        [(0, 4, 100), (0, 6, 100), (10, 4, 100), (10, 2, 100)],
        user=["ann", "bob", "ann", "bob"],
        recorded_start_ms=[0, 0, 100_000, 100_000],
        recorded_end_ms=[100_000, 100_000, 200_000, 200_000],
    )
    everyone = np.ones(4, bool)
    assert most_held_while_waiting(jobs, jobs.user, everyone) == 6
    assert most_held_while_waiting(jobs, jobs.user, everyone, np.array([False, False, True, False])) == 4
    assert most_held_while_waiting(jobs, jobs.user, everyone, np.zeros(4, bool)) == 0


def test_a_search_tries_first_what_the_reasons_name() -> None:
    """All waits are due to a user limit, so that no limit of a VC is tried."""
    world = make_world("user-limit", 1, 0.7, jobs=900)
    bench = bench_of(world)
    waited = pl.Series(bench.recorded_s > 0)
    words = pl.select(pl.when(waited).then(pl.lit("QOSMaxGRESPerUser"))).to_series()
    named = replace(bench, reasons=WaitReasons(words))
    without, found = search(bench), search(named)
    assert found.best.rules.limits.user_gpus == world.user_limit
    assert found.best.rules.scan == "skip"
    stages = list(dict.fromkeys(one.stage for one in found.tried))
    assert stages.index("quotas and limits") == 1  # the first candidate is that of the stage 'order'
    assert found.tried[1].stage == "quotas and limits"
    assert any(one.settings.rules.quotas == "idle" for one in without.tried)
    assert not any(one.settings.rules.quotas in {"limits", "idle", "reclaim"} for one in found.tried)
    assert not any(one.settings.rules.limits.vc_gpus for one in found.tried)


def test_few_reasons_exclude_no_limit() -> None:
    bench = bench_of(make_world("passing", 1, 0.8, jobs=600))
    words = pl.Series(["Dependency"] * 49 + [None] * (len(bench.jobs) - 49), dtype=pl.String)
    assert any(one.settings.rules.quotas == "idle" for one in search(replace(bench, reasons=WaitReasons(words))).tried)
    words = pl.Series(["Dependency"] * 50 + [None] * (len(bench.jobs) - 50), dtype=pl.String)
    found = search(replace(bench, reasons=WaitReasons(words))).tried
    assert not any(one.settings.rules.quotas == "idle" or one.settings.rules.limits for one in found)


def _logged(limit: Limit, folder: Path) -> Trace:
    site = make_site("jobs per user", 0)
    site = replace(site, jobs=site.jobs[:400], rules=RulesOfSite(limits=(limit,)))
    return trace_of_site(site, folder, last_limits(site))


@pytest.mark.thorough
def test_a_limit_on_the_jobs_of_a_user_is_found(tmp_path: Path) -> None:
    (one,) = calibrate(_logged(Limit("jobs", "user", 4), tmp_path)).clusters
    assert one.score.grade == "close"
    assert one.settings.rules.site is not None
    assert one.settings.rules.site.limits == ("user:jobs:4",)
    assert not one.missing_reasons


@pytest.fixture(scope="module")
def few_jobs(tmp_path_factory: pytest.TempPathFactory) -> Trace:
    """The log of a site whose QOS runs at most twelve jobs, which no replay can limit."""
    return _logged(Limit("jobs", "qos", 12), tmp_path_factory.mktemp("reasons"))


@pytest.mark.thorough
def test_a_twin_that_does_not_fit_names_the_reasons_that_it_misses(
    few_jobs: Trace, tmp_path: Path, golden: Golden
) -> None:
    jobs = few_jobs.scan("jobs").select("wait_reason", "queue_s").collect()
    held = jobs.filter(wait_reason="QOSGrpJobsLimit")
    share = float(held["queue_s"].sum()) / float(jobs["queue_s"].sum())
    study = fidelity(few_jobs)
    (one,) = study.clusters
    assert one.score.grade in {"poor", "rough"}
    (missing,) = one.missing_reasons
    assert missing[:2] == ("QOSGrpJobsLimit", len(held))
    assert missing.waiting_share == pytest.approx(share)
    write_fidelity(study, tmp_path / "out")
    told = orjson.loads((tmp_path / "out" / "fidelity.json").read_bytes())["clusters"][0]["reasons"]
    expected = {"word": "QOSGrpJobsLimit", "jobs": len(held), "in_twin": False}
    assert told == [expected | {"waiting_share": pytest.approx(share)}]
    answer = twin_answers(Twins(few_jobs, 1000))[0]
    assert isinstance(answer, Answer)
    (row,) = answer.frame.to_dicts()
    assert row["missing_share"] == pytest.approx(share)
    golden([study.sentences[-1], str(finding("replay/twins", [row]))])
