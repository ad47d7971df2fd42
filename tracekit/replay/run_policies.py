"""Run several policies on one scenario: replay each policy, write its files, and compare them all."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from tracekit.errors import UsageError
from tracekit.outputs import StagedFolder, output_errors
from tracekit.progress import Progress
from tracekit.replay.jobs import TWIN
from tracekit.replay.panels import meant_by
from tracekit.replay.registry import named_policy
from tracekit.replay.results.comparison import ReplayResult, compare_policies
from tracekit.replay.results.effects import beside_record
from tracekit.replay.results.tables import log_table, write_files
from tracekit.spreadsheets import csv_safe
from tracekit.text import percent

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    import polars as pl

    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.outcome import Outcome
    from tracekit.replay.results.effects import TwinOfLog
    from tracekit.replay.scenario import Scenario


_MARKER = "comparison.parquet"
_LONGEST_NAME = 120


TWIN_FILE = "twin.toml"
"""The file in the twin's folder that describes the twin."""


def engine_speed(jobs: int, seconds: float) -> str:
    """Format the engine's time and its jobs per second, such as '0.52 s (158,000 jobs/s)'."""
    if seconds <= 0:
        return "0 s"
    per_second = jobs / seconds
    digits = max(len(f"{per_second:.0f}") - 3, 0)
    return f"{seconds:.3g} s ({round(per_second, -digits):,.0f} jobs/s)"


@dataclass(frozen=True)
class PolicyComparison:
    """A comparison of policies."""

    comparison: pl.DataFrame
    """One row per policy (see `compare_policies`), and one for the log's own schedule (see `beside_record`)."""
    assumptions: dict[str, dict[str, Any]]
    """All assumptions of the policies, by id."""
    skipped: dict[str, str]
    """Policies of the panel that cannot run here, each with the reason."""
    speeds: dict[str, str]
    """Engine time of each policy, in words. It depends on the machine, so it is not in the comparison files."""


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
    """Replay policies and write OUT completely or not at all.

    OUT contains comparison.parquet, .csv and .svg, and for each policy a folder with summary.json, jobs.parquet and
    timeline.parquet. The folder also contains violations.parquet for the recorded schedule, and log.parquet if the
    event log is requested.

    Parameters
    ----------
    scenario : Scenario
        The scenario to run the policies on.
    policies : sequence of str, optional
        Policies as on the command line, or the name of a panel. The others are compared with the first. None means the
        standard panel. Policies of a panel that cannot run here are skipped.
    out : Path
        The output folder.
    twin : TwinOfLog, optional
        The twin that the scenario is based on. It comes first and is called 'twin', and OUT/twin/twin.toml describes
        it.
    force : bool
        Whether to replace an earlier comparison.
    log : bool
        Whether to keep the event logs.
    draw : callable, optional
        Plots the comparison as an SVG.
    progress : Progress, optional
        Advances with the jobs submitted under each policy.

    Raises
    ------
    UsageError
        A named policy does not exist or cannot run here, two are the same, or no policy of the panel can run.
    OutputError
        OUT exists or cannot be written.
    """
    progress = progress or Progress()
    meant, optional = meant_by(policies)
    chosen, labels = _chosen(meant, twin)
    # In a twin the first policy is the twin's own.
    left_out = [False] * (len(chosen) - len(meant)) + [text in optional for text in meant]
    names = folder_names(labels)
    staged = StagedFolder(out, force=force, marker=_MARKER, kind="a comparison of replays")
    results: list[ReplayResult] = []
    skipped: dict[str, str] = {}
    speeds: dict[str, str] = {}
    try:
        for policy, label, name, leave_out in zip(chosen, labels, names, left_out, strict=True):
            progress.stage(f"replaying {label}", total=len(scenario.jobs))
            try:
                result = replace(scenario.run(policy, log=log, progress=_Advance(progress)), policy=label)
            except UsageError as error:
                if not leave_out:
                    raise
                skipped[label] = str(error)
                continue
            _write(staged.path / name, result, result.cluster or scenario.cluster, twin if label == TWIN else None)
            speeds[label] = engine_speed(len(scenario.jobs), result.outcome.wall_s)
            results.append(_slim(result))
        if not results:
            raise UsageError(
                f"none of the default policies can run here: {next(iter(skipped.values()), 'there is none')}"
            )
        progress.stage("comparing")
        compared = compare_policies(results, seed=scenario.seed, measured=scenario.measured)
        compared = beside_record(compared, results, scenario.measured, twin=twin)
        with output_errors(out):
            compared.write_parquet(staged.path / _MARKER)
            csv_safe(compared).write_csv(staged.path / "comparison.csv")
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
    return PolicyComparison(compared, assumptions, skipped, speeds)


def _chosen(policies: Sequence[str], twin: TwinOfLog | None) -> tuple[list[Any], list[str]]:
    """Return the policies and their labels. A twin adds its own policy first and replaces its order for the others."""
    if twin is None:
        chosen = [named_policy(text) for text in policies]
        return chosen, [policy.label for policy in chosen]
    chosen = [named_policy(twin.in_place(text)) for text in policies]
    return [named_policy(twin.policy), *chosen], [TWIN, *(policy.label for policy in chosen)]


class _Advance:
    """Advances the progress by the number of jobs submitted since the last call."""

    def __init__(self, progress: Progress) -> None:
        self._progress, self._submitted = progress, 0

    def __call__(self, submitted: int) -> None:
        self._progress.advance(submitted - self._submitted)
        self._submitted = submitted


def _write(folder: Path, result: ReplayResult, cluster: Cluster, twin: TwinOfLog | None) -> None:
    write_files(folder, result.jobs, result.outcome, result.summary)
    with output_errors(folder):
        if twin is not None:
            (folder / TWIN_FILE).write_text(twin.text, encoding="utf-8")
        if result.outcome.violations is not None:
            result.outcome.violations.write_parquet(folder / "violations.parquet")
        if result.outcome.log is not None:
            log_table(result.jobs, result.outcome, cluster).write_parquet(folder / "log.parquet")


def _slim(result: ReplayResult) -> ReplayResult:
    """Return only what a comparison needs, so that ten schedules of a million jobs fit into memory."""
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
    """Return a folder name for each policy: its label, made safe for file systems and unique.

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
    """Return one sentence per reason why jobs are excluded, with their share of the GPU-hours."""
    sentences = []
    for part, share in scenario.jobs.shares_left_out():
        words = "" if share is None else f", with {percent(share)} of the GPU-hours"
        what = "1 job is" if part.jobs == 1 else f"{part.jobs:,} jobs are"
        sentences.append(f"{what} left out: {part.reason}{words}")
    return sentences
