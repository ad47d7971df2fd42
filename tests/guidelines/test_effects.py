"""What a change would do: the same figures from replays that were made and from replays made on the spot."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import polars as pl
import pytest

from tests.guidelines.planted import DAY, Log, when
from tracekit.errors import UsageError
from tracekit.guidelines.effects import effect_of
from tracekit.guidelines.interface import Assumption, Trial
from tracekit.guidelines.replays import FolderReplays, LiveReplays, Replays
from tracekit.guidelines.run import guidelines
from tracekit.progress import Progress
from tracekit.replay.api import scenario_of
from tracekit.replay.study import run_study

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
    run_study(scenario_of(queue), ["fifo", "fifo,scan=skip"], out)
    return out


TRIAL = Trial("fifo", ("fifo,scan=skip",))


def test_a_folder_gives_the_difference_job_by_job(queue: Trace, folder: Path) -> None:
    effect = effect_of(TRIAL, FolderReplays(folder, queue))
    assert not isinstance(effect, str)
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
    assert any(told.startswith("D1, ") for told in effect.assumptions)


def test_replays_made_now_say_the_same(queue: Trace, folder: Path) -> None:
    live = effect_of(TRIAL, LiveReplays(queue, 1000, Progress()))
    made = effect_of(TRIAL, FolderReplays(folder, queue))
    assert not isinstance(live, str)
    assert not isinstance(made, str)
    assert live.changes == made.changes
    assert live.origin == "replays of the first 48 jobs"


def test_assumptions_widen_the_effect_to_a_bracket(queue: Trace) -> None:
    dear = Assumption("dear", lambda models: replace(models, spread=replace(models.spread, level="high")))
    effect = effect_of(replace(TRIAL, bracket=(dear,)), LiveReplays(queue, 16, Progress()))
    assert not isinstance(effect, str)
    assert [change.assumption for change in effect.changes] == ["defaults", "dear"]
    assert [change.jobs for change in effect.changes] == [16, 16]


def test_a_policy_that_is_not_there_is_named_with_the_command(queue: Trace, folder: Path) -> None:
    told = effect_of(Trial("fifo", ("qssf",)), FolderReplays(folder, queue))
    assert told == (
        "The replays hold fifo, fifo,scan=skip, not qssf. 'tracekit replay TRACE -p fifo -p qssf -o OUT' makes the "
        "replays that are needed."
    )


def test_a_trace_that_cannot_be_replayed_says_so(make_trace: MakeTrace) -> None:
    log = Log()
    log.job(0, 60)
    del log.tables["attempts"]
    for job in log.tables["jobs"]:
        job["gpu_count"] = None
    told = effect_of(TRIAL, LiveReplays(make_trace(**log.tables), 10, Progress()))
    assert isinstance(told, str)
    assert told.startswith("The trace cannot be replayed: ")


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
    """Schedules given as completion times by policy."""

    origin = "by hand"
    can_assume = False

    def __init__(self, gpus: list[float], **jct_s: list[float | None]) -> None:
        self.gpus, self.jct_s = gpus, jct_s

    def jobs(self, policy: str, assumption: Assumption | None = None) -> pl.DataFrame | str:
        submit: list[dt.datetime] = [when(DAY * k) for k in range(len(self.gpus))]
        jct = self.jct_s[policy]
        names = [str(k) for k in range(len(jct))]
        columns = {"job_id": names, "gpu_count": self.gpus, "submit_time": submit, "queue_s": jct, "jct_s": jct}
        return pl.DataFrame(columns, schema_overrides={"jct_s": pl.Float64, "queue_s": pl.Float64})

    def variants(self, trial: Trial) -> list[str]:
        return list(trial.changed)

    def assumptions(self, policies: Iterable[str]) -> tuple[str, ...]:
        return ()


def test_the_best_policy_is_told_by_size_of_job() -> None:
    tables = Tables([1, 1, 8], a=[10, 20, 50], b=[4, 6, 90], c=[20, 20, 40])
    effect = effect_of(Trial("a", ("b", "c")), tables)
    assert not isinstance(effect, str)
    assert [(b.gpu_class, b.policy, b.jobs, b.diff_s) for b in effect.best_by_class] == [
        ("1", "b", 2, -10.0),
        ("5-8", "c", 1, -10.0),
    ]


def test_jobs_that_one_policy_did_not_complete_are_left_out() -> None:
    effect = effect_of(Trial("a", ("b",)), Tables([1, 1], a=[10, 20], b=[5, None]))
    assert not isinstance(effect, str)
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
    effect = effect_of(Trial("a", ("b",)), Tables([1] * 6, a=[10.0] * 6, b=list(changed)))
    assert not isinstance(effect, str)
    assert effect.verdict == verdict
