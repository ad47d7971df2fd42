"""Run several policies on one scenario: replay each, write its files, compare them all."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from tracekit.errors import UsageError
from tracekit.outputs import StagedFolder, output_errors
from tracekit.progress import Progress
from tracekit.replay.outcome import LOG_KINDS
from tracekit.replay.registry import named_policy
from tracekit.replay.registry import policies as known_policies
from tracekit.replay.results.comparison import ReplayResult, compare_policies
from tracekit.replay.results.effects import beside_record
from tracekit.replay.results.recorded_times import TWIN
from tracekit.replay.results.tables import write_files
from tracekit.text import percent

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tracekit.replay.outcome import Outcome
    from tracekit.replay.results.effects import TwinOfLog
    from tracekit.replay.scenario import Scenario

__all__ = ["PANEL", "PolicyComparison", "folder_names", "left_out_sentences", "run_policies", "standard_panel"]

_MARKER = "comparison.parquet"
_LONGEST_NAME = 120


TWIN_FILE = "twin.toml"
"""The file in the folder of the twin that states it."""

PANEL = (
    "fifo",
    "fifo,scan=skip",
    "sjf",
    "ssf",
    "srtf",
    "srsf",
    "las",
    "gittins",
    "qssf",
    "easy",
    "conservative",
    "fair-share",
    "drf",
    "philly",
    "kueue",
    "hived",
    "recorded",
)
"""The standard panel, as on a command line; the first is what the others are compared with."""


def standard_panel() -> tuple[str, ...]:
    """Return the panel without policies that are not installed."""
    known = known_policies()
    return tuple(text for text in PANEL if text.partition(",")[0] in known)


@dataclass(frozen=True)
class PolicyComparison:
    """What was compared."""

    comparison: pl.DataFrame
    """One row a policy, see `compare_policies`, and the log's own schedule, see `beside_record`."""
    assumptions: dict[str, dict[str, Any]]
    """Every assumption that any of the policies used, by its id."""
    skipped: dict[str, str]
    """Policies of the panel that cannot run here, with the reason."""


def run_policies(
    scenario: Scenario,
    policies: Sequence[str] | None,
    out: Path,
    *,
    twin: TwinOfLog | None = None,
    force: bool = False,
    log: bool = False,
    draw: Callable[[pl.DataFrame], str] | None = None,
    progress: Progress | None = None,
) -> PolicyComparison:
    """Replay policies and write OUT, whole or not at all.

    OUT holds <policy>/summary.json, jobs.parquet and timeline.parquet (and violations.parquet of the recorded schedule,
    log.parquet where the event log is asked for), and comparison.parquet, .csv and .svg.

    Parameters
    ----------
    scenario : Scenario
        What they run on.
    policies : sequence of str, optional
        As on a command line; the first is what the others are compared with. The standard panel when None, less those
        that cannot run here.
    out : Path
        The folder.
    twin : TwinOfLog, optional
        The twin that the scenario is of; it comes first, and is called 'twin'. OUT/twin states it in twin.toml.
    force : bool
        Replace an earlier comparison.
    log : bool
        Keep the event logs.
    draw : callable, optional
        Turns the comparison into an SVG.
    progress : Progress, optional
        Advances with the jobs submitted to each policy.

    Raises
    ------
    UsageError
        A named policy does not exist or cannot run here, two are the same, or none of the panel can run.
    OutputError
        OUT exists or cannot be written.
    """
    progress = progress or Progress()
    chosen, labels = _chosen(standard_panel() if policies is None else policies, twin)
    names = folder_names(labels)
    staged = StagedFolder(out, force=force, marker=_MARKER, kind="a comparison of replays")
    results: list[ReplayResult] = []
    skipped: dict[str, str] = {}
    try:
        for policy, label, name in zip(chosen, labels, names, strict=True):
            progress.stage(f"replaying {label}", total=len(scenario.jobs))
            try:
                result = replace(scenario.run(policy, log=log, progress=_Advance(progress)), policy=label)
            except UsageError as error:
                if policies is not None or label == TWIN:
                    raise
                skipped[label] = str(error)
                continue
            _write(staged.path / name, result, twin if label == TWIN else None)
            results.append(_slim(result))
        if not results:
            raise UsageError(f"no policy of the panel can run here: {next(iter(skipped.values()), 'there is none')}")
        progress.stage("comparing")
        compared = compare_policies(results, seed=scenario.seed, measured=scenario.measured)
        compared = beside_record(compared, results, scenario.measured, twin=twin)
        with output_errors(out):
            compared.write_parquet(staged.path / _MARKER)
            compared.write_csv(staged.path / "comparison.csv")
            if draw is not None:
                (staged.path / "comparison.svg").write_text(draw(compared), encoding="utf-8")
        staged.commit()
    finally:
        staged.discard()
    assumptions: dict[str, dict[str, Any]] = {}
    for result in results:
        for key, value in result.summary["assumptions"].items():
            if assumptions.setdefault(key, value) != value:
                assumptions[f"{key} of {result.policy}"] = value
    return PolicyComparison(compared, assumptions, skipped)


def _chosen(policies: Sequence[str], twin: TwinOfLog | None) -> tuple[list[Any], list[str]]:
    """Return the policies and what to call them; in a twin each as it stands in place of its order, after its own."""
    if twin is None:
        chosen = [named_policy(text) for text in policies]
        return chosen, [policy.label for policy in chosen]
    chosen = [named_policy(twin.in_place(text)) for text in policies]
    return [named_policy(twin.policy), *chosen], [TWIN, *(policy.label for policy in chosen)]


class _Advance:
    """Advances the progress by the jobs submitted since it was last called."""

    def __init__(self, progress: Progress) -> None:
        self._progress, self._submitted = progress, 0

    def __call__(self, submitted: int) -> None:
        self._progress.advance(submitted - self._submitted)
        self._submitted = submitted


def _write(folder: Path, result: ReplayResult, twin: TwinOfLog | None) -> None:
    write_files(folder, result.jobs, result.outcome, result.summary)
    with output_errors(folder):
        if twin is not None:
            (folder / TWIN_FILE).write_text(twin.text, encoding="utf-8")
        if result.outcome.violations is not None:
            result.outcome.violations.write_parquet(folder / "violations.parquet")
        if result.outcome.log is not None:
            _log_table(result).write_parquet(folder / "log.parquet")


def _log_table(result: ReplayResult) -> pl.DataFrame:
    """Return the event log with kinds and jobs by name; node and gpu are indices, NULL where there is none."""
    log = result.outcome.log
    if log is None:
        return pl.DataFrame()
    words = {number: word for word, number in LOG_KINDS.items()}
    jobs = pl.Series("job", log["job"].astype(np.int64))
    known = pl.when(pl.col("job") >= 0).then(pl.col("job"))
    return (
        pl.DataFrame([jobs, *(pl.Series(n, log[n].copy()) for n in ("time_ms", "node", "gpu", "value"))])
        .with_columns(
            kind=pl.Series(log["kind"].copy()).replace_strict(words, return_dtype=pl.String),
            node=pl.when(pl.col("node") >= 0).then("node"),
            gpu=pl.when(pl.col("gpu") >= 0).then("gpu"),
            job_id=result.jobs.job_id.gather(pl.select(jobs.clip(0)).to_series()) if len(result.jobs) else None,
        )
        .select("time_ms", "kind", pl.when(known.is_not_null()).then("job_id").alias("job_id"), "node", "gpu", "value")
    )


def _slim(result: ReplayResult) -> ReplayResult:
    """Return what a comparison looks at, so that ten schedules of a million jobs fit into memory."""
    none = np.zeros(0, np.int64)
    small = np.zeros(0, np.int32)
    outcome: Outcome = replace(
        result.outcome,
        run_ms=none,
        overhead_ms=none,
        held_milli_ms=none,
        preemptions=small,
        migrations=small,
        nodes_spanned=small,
        log=None,
        violations=None,
    )
    return replace(result, outcome=outcome)


def folder_names(labels: Sequence[str]) -> list[str]:
    """Return a folder name for each policy: its label, made safe for file systems, no two alike.

    >>> folder_names(["srtf,overhead=helios", "my rule.py:A", "my*rule.py:A"])
    ['srtf,overhead=helios', 'my_rule.py_A', 'my_rule.py_A-2']
    """
    names: list[str] = []
    for label in labels:
        base = re.sub(r"[^A-Za-z0-9_.,=+-]", "_", label)[:_LONGEST_NAME].strip(".") or "policy"
        name, number = base, 1
        # Some file systems ignore case.
        while name.lower() in {n.lower() for n in names}:
            number += 1
            name = f"{base}-{number}"
        names.append(name)
    return names


def left_out_sentences(scenario: Scenario) -> list[str]:
    """Return one sentence for each reason why jobs are left out, with their share of the GPU-hours."""
    sentences = []
    for part, share in scenario.jobs.shares_left_out():
        words = "" if share is None else f", with {percent(share)} of the GPU-hours"
        what = "1 job is" if part.jobs == 1 else f"{part.jobs:,} jobs are"
        sentences.append(f"{what} left out: {part.reason}{words}")
    return sentences
