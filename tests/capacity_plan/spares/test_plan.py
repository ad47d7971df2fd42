"""Plans of spares: planted worlds in which the answer is known, and InfiniteHBD's."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from scipy import stats

import tracekit
from tests.capacity_plan.spares.walk import walked
from tests.capacity_plan.spares.worlds import DAY, HOUR, event, failing, pool_of
from tests.command import run
from tracekit.capacity_plan.question import SpareQuestion
from tracekit.capacity_plan.spare_plan import spare_curve, spares_answer
from tracekit.capacity_plan.spare_runs import PARTS, GangRuns, Kind, NodePool
from tracekit.ingest import ingest_logs
from tracekit.replay.outages.asked import CheckpointsAsked
from tracekit.replay.outages.theory import best_interval

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.reviewed import Golden
    from tracekit.capacity_plan.search import Answer, Curve
    from tracekit.trace import Trace

    MakeTrace = Callable[..., Trace]

DATA = Path(__file__).resolve().parents[4] / "shared" / "data" / "infinitehbd"
FREE = CheckpointsAsked(60.0, 0.0, 0.0)


def waiting(pool: NodePool, gang: int, spares: int, kind: Kind = "recorded") -> float:
    values = GangRuns(pool, gang, FREE, 20, 0).of(kind, spares)
    return float(values[:, PARTS.index("waiting_share")].mean())


@pytest.mark.parametrize("spares", [0, 1, 3])
def test_a_gang_waits_as_often_as_more_nodes_are_away_than_there_are_spares(spares: int) -> None:
    """Nodes that fail by themselves, 2.4 % of the time away: how many are away at once is binomial."""
    pool = pool_of(48, 1000 * DAY, failing(48, 1000, 20, 12, 3))
    away = 0.5 / 20.5
    exact = float(stats.binom.sf(spares, 16 + spares, away))
    assert waiting(pool, 16, spares) == pytest.approx(exact, rel=0.12, abs=0.001)
    # Nodes that fail four together wait less often, and spares help them less.
    together = pool_of(48, 1000 * DAY, failing(48, 1000, 20, 12, 3, together=4))
    if spares == 3:
        assert waiting(together, 16, spares) > 3 * exact


@pytest.mark.parametrize("spares", [1, 3])
def test_drawn_outages_of_nodes_that_fail_by_themselves_stay_independent(spares: int) -> None:
    """19 draws out of only ten nodes contain many twice: a node and its copy must not fail at the same times."""
    pool = pool_of(10, 1000 * DAY, failing(10, 1000, 20, 12, 3))
    exact = float(stats.binom.sf(spares, 8 + spares, 0.5 / 20.5))
    assert waiting(pool, 8, spares, "model") == pytest.approx(exact, rel=0.2, abs=0.001)
    # Nodes that fail five together still do so when they are drawn.
    together = pool_of(10, 1000 * DAY, failing(10, 1000, 20, 12, 3, together=5))
    assert waiting(together, 8, spares, "model") > 3 * exact


def answered(pool: NodePool, gang: int, target: float) -> tuple[Curve, Answer]:
    curve = spare_curve(GangRuns(pool, gang, FREE, 5, 0), "recorded")
    return curve, spares_answer(curve, target)


def test_the_answer_by_hand() -> None:
    """Of three nodes each is away for a fifth of the time, one after the other: two are always up, three 40 %."""
    away = [(n, (2 * n + 1) * 10 * HOUR, (2 * n + 3) * 10 * HOUR, True) for n in range(3)]
    pool = pool_of(3, 100 * HOUR, away)
    alone, answer = answered(pool, 2, 0.99)
    assert (answer.number, answer.low, answer.high, answer.most) == (1, 1, 1, 1)
    assert alone.tried[1][:, 0] == pytest.approx([1.0] * 5, abs=1e-3)
    assert alone.tried[0][:, 0] == pytest.approx([0.6] * 5, abs=1e-3)
    _, low = answered(pool, 2, 0.5)
    assert (low.number, low.low, low.high) == (0, 0, 0)
    _, none = answered(pool, 3, 0.5)
    assert (none.number, none.low, none.high, none.best_number, none.most) == (None, None, None, 0, 0)
    assert -none.best == pytest.approx(0.4, abs=1e-3)


def test_a_checkpoint_that_takes_too_much_keeps_no_ratio_whatever_the_spares(
    make_trace: MakeTrace, golden: Golden
) -> None:
    """Half of the time goes into checkpoints; every two hours of 1,000 one of ten nodes fails for an hour."""
    events = [event(f"n{k % 10}", 2 * k + 0.5, 2 * k + 1.5) for k in range(500)]
    nodes = [{"node_id": f"n{k}", "gpu_count": 8} for k in range(10)]
    made = tracekit.plan_spares(
        make_trace(node_events=events, nodes=nodes), 16, checkpoint="interval=60,cost=60,restart=60", resamples=5
    )
    assert made.answers["recorded"].number is None
    golden(made.sentences)
    # Another interval is the better answer, and is found, by how often the gang itself failed.
    assert made.best is not None
    row = next(r for r in made.rows if (r["outages"], r["spares"]) == ("recorded", made.best.spares))
    rate = row["restarts_per_day"] / (86_400 * (1 - row["waiting_share"]))
    assert 1 / 12 < 3600 * rate < 1 / 5
    assert made.best.interval_s == pytest.approx(best_interval(60, rate))
    assert made.best.ettr > 1.7 * made.best.instead_of
    facts = made.to_dict()
    assert facts["answer"]["reached"] is False
    assert facts["best_checkpoint"]["ettr_as_asked"] == made.best.instead_of


def test_daly_and_none(make_trace: MakeTrace) -> None:
    events = [event(f"n{k % 10}", 20 * k + 0.5, 20 * k + 1.5) for k in range(50)]
    trace = make_trace(node_events=events)
    daly = tracekit.plan_spares(trace, "2nodes", checkpoint="interval=daly,cost=60,restart=60", resamples=5)
    # A node fails once in 200 h, two of them once in 100 h: sqrt(2 * 60 * 360,000), with two small corrections.
    assert daly.interval_s == pytest.approx(6573 * (1 + np.sqrt(60 / 720_000) / 3) - 60, rel=0.01)
    none = tracekit.plan_spares(trace, "2nodes", checkpoint="interval=none,restart=60", resamples=5)
    assert none.interval_s is None
    assert none.best is None
    assert none.rows[-1]["lost_share"] > 0.9
    assert none.to_dict()["checkpoint"] == {"interval_s": None, "cost_s": 0.0, "restart_s": 60.0}


def test_a_trace_with_jobs_and_one_without_give_the_same(make_trace: MakeTrace) -> None:
    tables = {"node_events": [event("a", 0, 10), event("b", 20, 40), event("c", 90, 100)]}
    jobs = [{"job_id": "j", "submit_time": "2020-01-01 02:00", "end_time": "2020-01-02"}]
    alone, beside = make_trace(**tables), make_trace(**tables, jobs=jobs)
    plans = [tracekit.plan_spares(trace, "2nodes", 0.9, resamples=10) for trace in (alone, beside)]
    assert plans[0].to_dict() == plans[1].to_dict()
    again = tracekit.plan_spares(alone, "2nodes", 0.9, resamples=10, seed=1)
    assert again.rows != plans[0].rows


def test_the_command(make_trace: MakeTrace, tmp_path: Path, golden: Golden) -> None:
    nodes = [{"node_id": f"n{k}", "gpu_count": 8, "cluster": "x"} for k in range(6)]
    trace = make_trace(nodes=nodes, node_events=[event(f"n{k % 6}", 24 * k, 24 * k + 6) for k in range(30)])
    words = ("plan", trace.path, "--gang", "32", "--ettr", "0.9", "--checkpoint", "interval=3600,cost=36,restart=60")
    out = tmp_path / "out"
    done = run(*words, "--for", "cluster=x", "--resamples", "5", "-o", out)
    assert done.returncode == 0, done.stderr
    assert {p.name for p in out.iterdir()} == {"plan.json", "plan.svg"}
    facts = json.loads((out / "plan.json").read_text())
    assert list(facts) == [
        "gang", "target", "checkpoint", "recorded", "spares", "answer", "answers", "best_checkpoint", "sentences",
        "assumptions", "resamples", "interval_share", "seed",
    ]  # fmt: skip
    assert facts["gang"] == {"gpus": 32, "nodes": 4}
    assert facts["recorded"] == {
        "nodes": 6, "gpus_per_node": 8, "days": 29.25, "outages": 30,
        "down_per_node_day": pytest.approx(30 / 6 / 29.25),
        "availability_share": pytest.approx(1 - 30 * 6 / (6 * 29.25 * 24)), "most_nodes_up": 6,
    }  # fmt: skip
    assert [a["outages"] for a in facts["answers"]] == ["recorded", "model"]
    assert facts["answer"] == facts["answers"][0]
    # One node is always enough: never are two away.
    assert facts["answer"]["spares"] == 1
    for row in facts["spares"]:
        parts = ("ettr", "saving_share", "lost_share", "restarting_share", "waiting_share")
        assert sum(row[name] for name in parts) == pytest.approx(1)
        assert row["ettr_low"] <= row["ettr"] + 1e-12 <= row["ettr_high"] + 2e-12
        assert row["meets_target"] == (row["ettr"] >= 0.9)
    assert all(sentence in done.stdout for sentence in facts["sentences"])
    golden(facts["sentences"])
    assert "checkpoints: every" in done.stdout
    assert (out / "plan.svg").read_text().startswith("<svg")
    for more, says in (
        (("--target", "p90<=1h"), "--target: does not apply to --gang, which plans spares; omit one of them"),
        (("--growth", "2"), "--growth: does not apply to --gang"),
        (("--node-cost", "0"), "--node-cost: does not apply to --gang"),
        (("--limit", "5"), "--limit: has no effect with --gang, which replays one job"),
        (("--workers", "2"), "--workers: has no effect with --gang"),
        (("--for", "size=8"), "--for: size=... and vc=... do not apply to --gang; use only cluster=NAME"),
        (("--gang", "57"), "--gang: the job needs 8 nodes, but the log has 6 nodes"),
    ):
        wrong = run(*words, *more, "-o", tmp_path / "other")
        assert (wrong.returncode, wrong.stderr.count("\n")) == (2, 1), wrong.stderr
        assert says in wrong.stderr
    for ratio in ("0.9", "0"):
        alone = run("plan", trace.path, "--ettr", ratio, "-o", tmp_path / "other")
        assert "--ettr: works only with --gang; add --gang N or omit the option" in alone.stderr
    assert not (tmp_path / "other").exists()


@pytest.mark.thorough
@pytest.mark.skipif(not DATA.is_dir(), reason="the data of InfiniteHBD are not here")
def test_infinitehbd(tmp_path: Path) -> None:
    """Runs of real outages agree with the walk; more spares never do worse by much, and three to six keep 95 %."""
    trace = ingest_logs(DATA, tmp_path / "trace", options={"gpus_per_server": "8"})
    made = tracekit.plan_spares(trace, 256, checkpoint="interval=3600,cost=60,restart=300", resamples=10)
    assert (made.gang_nodes, made.recorded["nodes"]) == (32, 400)
    for answer in made.answers.values():
        assert answer.number is not None
        assert 2 <= answer.number <= 6
    for kind in ("recorded", "model"):
        means = [row["ettr"] for row in made.rows if row["outages"] == kind]
        assert all(b > a - 0.005 for a, b in pairwise(means))
    question = SpareQuestion.of(256, checkpoint="interval=3600,cost=60,restart=300", resamples=10)
    pool = NodePool.of(trace, question)
    runs = GangRuns(pool, 32, question.checkpoint, 10, 0)
    for number in range(3):
        own = runs.outages("model", 3, number)
        rows = zip(own.node.tolist(), own.since_ms.tolist(), own.until_ms.tolist(), own.kills.tolist(), strict=True)
        inside = [row for row in rows if row[1] < pool.span_ms]
        *parts, failures = walked(32, 35, inside, pool.span_ms, 3_660_000, 3600 / 3660, 300_000)
        found = runs.of("model", 3)[number]
        assert found[:5] == pytest.approx([part / pool.span_ms for part in parts], abs=2e-6)
        assert found[5] == pytest.approx(failures / pool.days)
