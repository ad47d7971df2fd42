"""Placement rules under tasks that only arrive: several of them, as one table."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tracekit.errors import UsageError, nearest
from tracekit.outputs import StagedFolder, output_errors
from tracekit.progress import Progress
from tracekit.replay.fractions.inflate import inflate_jobs
from tracekit.replay.fractions.supply import RULES

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tracekit.replay.scenario import Scenario

__all__ = ["run_inflation"]

_MARKER = "inflation.parquet"


def run_inflation(
    scenario: Scenario,
    rules: Sequence[str] | None,
    load: float,
    out: Path,
    *,
    force: bool = False,
    progress: Progress | None = None,
) -> pl.DataFrame:
    """Let tasks arrive up to `load` times the GPUs under each rule; write OUT and return its last lines.

    OUT holds inflation.parquet and inflation.csv: policy, and the columns of `inflate.inflate`.

    Parameters
    ----------
    rules : sequence of str, optional
        Names of placement rules, all when None.

    Returns
    -------
    polars.DataFrame
        Of each rule the last whole percent.

    Raises
    ------
    UsageError
        There is no such rule, or the load cannot be used.
    OutputError
        OUT exists or cannot be written.
    """
    progress = progress or Progress()
    # best-fit is spelled with a hyphen where it is a placement of a replay.
    chosen = list(dict.fromkeys(r.replace("-", "") for r in rules or RULES))
    for rule in chosen:
        if rule not in RULES:
            raise UsageError(f"'{rule[:60]}' is not a placement rule for tasks that arrive", hint=nearest(rule, RULES))
    staged = StagedFolder(out, force=force, marker=_MARKER, kind="a placement study")
    try:
        tables = []
        for rule in chosen:
            progress.stage(f"filling the cluster by {rule}")
            table = inflate_jobs(scenario.jobs, scenario.cluster, rule, scenario.seed, load)
            tables.append(table.select(pl.lit(rule).alias("policy"), pl.all()))
        found = pl.concat(tables)
        with output_errors(out):
            found.write_parquet(staged.path / _MARKER)
            found.write_csv(staged.path / "inflation.csv")
        staged.commit()
    finally:
        staged.discard()
    return found.group_by("policy", maintain_order=True).last()
