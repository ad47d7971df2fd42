"""What a change would do: the same figures from replays that were made and from replays made on the spot."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import polars as pl
import pytest

from tests.guidelines.planted import DAY, Log, when
from tracekit.errors import UsageError
from tracekit.guidelines.effects import Effect, UnsupportedEffect, effect_of
from tracekit.guidelines.interface import Assumption, Trial
from tracekit.guidelines.replays import FolderReplays, LiveReplays, Replays
from tracekit.guidelines.run import guidelines
from tracekit.progress import Progress
from tracekit.replay.api import scenario_of
from tracekit.replay.run_policies import run_policies

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from tracekit.trace import Trace

    MakeTrace = Callable[..., Trace]


@pytest.fixture(scope="module")
def queue(make_trace: MakeTrace) -> Trace:
    """Six days on one node of 8 GPUs: a gang of 8 blocks six small jobs that would fit beside a running job."""
    log = Log()
    log.nodes("n", 8)
    for day in range(6):
        begin = day * DAY
        log.job(begin, 36_000, gpus=4, node="n")
        log.job(begin + 1, 3600, gpus=8, node="n", queue_s=36_000)
        for k in range(6):
            log.job(begin + 2 + k, 60, node="n", queue_s=39_600)
    return make_trace(**log.tables)


@pytest.fixture(scope="module")
def folder(queue: Trace, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("replays") / "out"
    run_policies(scenario_of(queue), ["fifo", "fifo,scan=skip"], out)
    return out


TRIAL = Trial("fifo", ("fifo,scan=skip",))


def test_a_folder_gives_the_difference_job_by_job(queue: Trace, folder: Path) -> None:
    effect = told(TRIAL, FolderReplays(folder, queue))
    (change,) = effect.changes
    # The small jobs start at once instead of 39,600 s later: six of eight jobs, to within the second of their arrival.
    assert change.jobs == 48
    assert change.jct_diff_s == pytest.approx(-39_600 * 6 / 8, rel=1e-3)
    compared = pl.read_parquet(folder / "comparison.parquet").row(1, named=True)
    assert change.jct_diff_s == pytest.approx(compared["jct_diff_s"])
    assert change.jct_diff_share == pytest.approx(compared["jct_diff_share"])
    assert change.jct_diff_share_low == pytest.approx(compared["jct_diff_share_low"])
    assert change.queue_diff_share_high == pytest.approx(compared["queue_diff_share_high"])
    assert effect.verdict == "better"
    assert effect.origin == "the replays in out (48 of 48 jobs)"
    assert any(text.startswith("D1, ") for text in effect.assumptions)


def test_replays_made_now_say_the_same(queue: Trace, folder: Path) -> None:
    live = told(TRIAL, LiveReplays(queue, 1000, Progress()))
    made = told(TRIAL, FolderReplays(folder, queue))
    assert live.changes == made.changes
    assert live.origin == "replays of the first 48 jobs"


def test_assumptions_widen_the_effect_to_a_bracket(queue: Trace) -> None:
    dear = Assumption("dear", lambda models: replace(models, spread=replace(models.spread, level="high")))
    effect = told(replace(TRIAL, bracket=(dear,)), LiveReplays(queue, 16, Progress()))
    assert [change.assumption for change in effect.changes] == ["defaults", "dear"]
    assert [change.jobs for change in effect.changes] == [16, 16]


def test_a_policy_that_is_not_there_is_named_with_the_command(queue: Trace, folder: Path) -> None:
    why = effect_of(Trial("fifo", ("qssf",)), FolderReplays(folder, queue))
    assert why == (
        "The replays hold fifo, fifo,scan=skip, not qssf. 'tracekit replay TRACE -p fifo -p qssf -o OUT' makes the "
        "replays that are needed."
    )


def test_a_trace_that_cannot_be_replayed_says_so(make_trace: MakeTrace) -> None:
    log = Log()
    log.job(0, 60)
    del log.tables["attempts"]
    for job in log.tables["jobs"]:
        job["gpu_count"] = None
    trace = make_trace(**log.tables)
    why = effect_of(TRIAL, LiveReplays(trace, 10, Progress()))
    assert isinstance(why, str)
    assert why.startswith(f"The trace cannot be replayed: {trace.path}: no job can be replayed")
    # An analysis reads the Trace in a place that is gone afterwards: it says what the user knows.
    why = effect_of(TRIAL, LiveReplays(trace, 10, Progress(), "my-logs"))
    assert isinstance(why, str)
    assert why.startswith("The trace cannot be replayed: my-logs: no job can be replayed")
    assert str(trace.path) not in why


def test_replays_of_another_trace_are_refused(make_trace: MakeTrace, folder: Path) -> None:
    log = Log()
    log.job(0, 60)
    with pytest.raises(UsageError, match="47 of 48 jobs are not in the Trace"):
        guidelines(make_trace(**log.tables), replay=folder)


def test_a_folder_without_replays_is_refused(queue: Trace, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is no output of 'tracekit replay'"):
        guidelines(queue, replay=tmp_path)


def test_a_damaged_summary_is_one_error(queue: Trace, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "fifo").mkdir()
    (tmp_path / "comparison.parquet").write_bytes((folder / "comparison.parquet").read_bytes())
    (tmp_path / "fifo" / "summary.json").write_text("{")
    with pytest.raises(UsageError, match="is damaged; make the replay again"):
        guidelines(queue, replay=tmp_path)


class Tables(Replays):
    """Schedules given as completion times by policy, each job ending as it starts, and the waits that the log has."""

    origin = "by hand"
    can_assume = False

    def __init__(self, gpus: list[float], log: list[float | None] | None = None, **jct_s: list[float | None]) -> None:
        self.gpus, self.jct_s = gpus, jct_s
        self.log = [60.0] * len(gpus) if log is None else log

    def jobs(self, policy: str, assumption: Assumption | None = None) -> pl.DataFrame | str:
        submit: list[dt.datetime] = [when(DAY * k) for k in range(len(self.gpus))]
        jct = self.jct_s[policy]
        names = [str(k) for k in range(len(jct))]
        columns = {"job_id": names, "gpu_count": self.gpus, "submit_time": submit, "queue_s": jct, "jct_s": jct}
        return pl.DataFrame(columns, schema_overrides={"jct_s": pl.Float64, "queue_s": pl.Float64})

    def variants(self, trial: Trial) -> list[str]:
        return list(trial.changed)

    def record(self) -> pl.DataFrame:
        names = [str(k) for k in range(len(self.log))]
        waits = pl.Series(self.log, dtype=pl.Float64)
        return pl.DataFrame({"job_id": names, "recorded_queue_s": waits, "recorded_jct_s": waits + 1})

    def assumptions(self, policies: Iterable[str]) -> tuple[str, ...]:
        return ()


def told(trial: Trial, replays: Replays) -> Effect:
    effect = effect_of(trial, replays)
    assert isinstance(effect, Effect), effect
    return effect


def test_the_best_policy_is_told_by_size_of_job() -> None:
    tables = Tables([1, 1, 8], a=[10, 20, 50], b=[4, 6, 90], c=[20, 20, 40])
    effect = told(Trial("a", ("b", "c")), tables)
    assert [(b.gpu_class, b.policy, b.jobs, b.diff_s) for b in effect.best_by_class] == [
        ("1", "b", 2, -10.0),
        ("5-8", "c", 1, -10.0),
    ]


def test_jobs_that_one_policy_did_not_complete_are_left_out() -> None:
    effect = told(Trial("a", ("b",)), Tables([1, 1], a=[10, 20], b=[5, None]))
    assert (effect.changes[0].jobs, effect.changes[0].jct_diff_s) == (1, -5.0)


@pytest.mark.parametrize(
    ("changed", "verdict"),
    [
        ([5.0] * 6, "better"),
        ([15.0] * 6, "worse"),
        ([10.0] * 6, "no change"),
        ([5.0, 16.0, 5.0, 16.0, 5.0, 12.0], "undecided"),
    ],
)
def test_the_verdict_needs_an_interval_on_one_side(changed: list[float], verdict: str) -> None:
    effect = told(Trial("a", ("b",)), Tables([1] * 6, a=[10.0] * 6, b=list(changed)))
    assert effect.verdict == verdict


def test_an_effect_stands_beside_what_the_log_recorded() -> None:
    effect = told(Trial("a", ("b",)), Tables([1] * 2, log=[20.0, 40.0], a=[10.0, 30.0], b=[5.0, 15.0]))
    found = effect.changes[0].support
    assert (found.recorded_jobs, found.recorded_queue_s, found.recorded_jct_s) == (2, 30.0, 31.0)
    assert (found.baseline_queue_s, found.policy_queue_s, found.reason) == (20.0, 10.0, None)


def test_an_effect_against_a_schedule_that_nobody_ran_is_not_told(tmp_path: Path) -> None:
    # Strict first in, first out lets these jobs wait 19.4 h; the log let them wait 0.4 h.
    replays = Tables([1, 1], log=[1440.0, 1440.0], a=[69_840.0] * 2, b=[60.0, 60.0])
    found = effect_of(Trial("a", ("b",)), replays)
    assert isinstance(found, UnsupportedEffect)
    assert found.sentence == (
        "A replay does not reproduce this log (19.4 h against 0.40 h waited); the effect cannot be told."
    )
    assert (found.baseline, found.policy, found.support.supported) == ("a", "b", False)


def test_an_effect_of_a_policy_that_waits_longer_than_the_log_did_is_not_told() -> None:
    found = effect_of(Trial("a", ("b",)), Tables([1, 1], log=[100.0] * 2, a=[110.0] * 2, b=[101.0] * 2))
    assert isinstance(found, UnsupportedEffect)
    assert found.sentence == (
        "Jobs wait longer under b than they did by the log (1.68 min against 1.67 min); the effect cannot be told."
    )


def test_a_log_without_starts_carries_no_effect() -> None:
    found = effect_of(Trial("a", ("b",)), Tables([1, 1], log=[None, None], a=[9.0] * 2, b=[3.0] * 2))
    assert isinstance(found, UnsupportedEffect)
    assert found.sentence.startswith("The log records no waits")


def test_policies_that_the_log_does_not_carry_are_left_out_of_the_ranking() -> None:
    tables = Tables([1, 1], a=[10.0] * 2, b=[8.0] * 2, c=[5.0, 116.0], d=[9.0] * 2)
    effect = told(Trial("a", ("b", "c", "d")), tables)
    assert [c.policy for c in effect.changes] == ["b", "d"]
    assert [(u.policy, u.assumption) for u in effect.unsupported] == [("c", "defaults")]
    # For the first of the two jobs c would be the best.
    assert {best.policy for best in effect.best_by_class} == {"b"}


def test_an_assumption_under_which_nothing_can_be_told_leaves_the_effect_undecided() -> None:
    class Bracketed(Tables):
        can_assume = True

        def jobs(self, policy: str, assumption: Assumption | None = None) -> pl.DataFrame | str:
            return super().jobs(policy if assumption is None else "b" if policy == "a" else "slow")

    point = Assumption("dear", lambda models: models)
    tables = Bracketed([1] * 6, a=[10.0] * 6, b=[5.0] * 6, slow=[90.0] * 6)
    assert told(Trial("a", ("b",)), tables).verdict == "better"
    effect = told(Trial("a", ("b",), bracket=(point,)), tables)
    assert (effect.verdict, [u.assumption for u in effect.unsupported]) == ("undecided", ["dear"])


def test_the_document_of_an_effect_that_is_not_told_names_why(make_trace: MakeTrace) -> None:
    """By the log half of the small jobs wait two hours beside a free node; no replay knows why."""
    log = Log()
    for k in range(40):
        begin = k * DAY / 2
        log.job(begin, 600, node="n", queue_s=7200)
        log.job(begin + 10_000, 300, gpus=8, node="n")
        log.job(begin + 10_000, 600, node="n", queue_s=300)
    found = guidelines(make_trace(**log.tables), only=["backfill"], try_jobs=1000)
    (entry,) = found.document()["guidelines"]
    assert (entry["verdict"], entry["effect"]) == ("holds", None)
    # Of three jobs one waits 5 min for the node, and by the log another waits 2 h.
    assert entry["no_effect"] == (
        "A replay does not reproduce this log (1.67 min against 41.7 min waited); the effect cannot be told."
    )
    record = entry["record"]
    assert (record["carried"], record["baseline"], record["policy"]) == (False, "fifo", "easy")
    assert (record["recorded_jobs"], record["recorded_queue_s"], record["baseline_queue_s"]) == (120, 2500.0, 100.0)
    for text in (found.markdown(), found.html()):
        assert "the effect cannot be told" in text
        assert "bears the advice out" not in text
        assert "Best by size" not in text


def test_replays_under_another_load_stand_beside_no_record(queue: Trace, tmp_path: Path) -> None:
    out = tmp_path / "faster"
    run_policies(scenario_of(queue, load=2.0), ["fifo", "fifo,scan=skip"], out)
    found = effect_of(TRIAL, FolderReplays(out, queue))
    assert isinstance(found, UnsupportedEffect)
    assert found.sentence.startswith("The log records no waits that these replays could be held against")


def test_the_cluster_that_was_replayed_is_named_with_its_share_of_the_waiting(make_trace: MakeTrace) -> None:
    log = Log()
    for day in range(6):
        for k in range(3):
            log.job(day * DAY + k, 3600, queue_s=3600 * k, cluster="Earth")
        log.job(day * DAY, 60, queue_s=27 * 3600, cluster="Venus")
    replays = LiveReplays(make_trace(**log.tables), 1000, Progress())
    effect_of(TRIAL, replays)
    # 3 h a day are waited in Earth, 27 h in Venus.
    assert replays.origin == "replays of the first 18 jobs of Earth, with 10.0 % of the waiting hours of all clusters"
    assert replays.part is not None
    assert replays.part.others == ("Venus",)
