"""The files of a plan."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson

from tracekit.outputs import StagedFolder, output_errors
from tracekit.text import duration

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tracekit.capacity_plan.result import CapacityPlan
    from tracekit.capacity_plan.spares.result import SparePlan

__all__ = ["plan_folder", "table_rows", "write_plan"]

PLAN_NAME = "plan.json"


def plan_folder(out: Path, *, force: bool) -> StagedFolder:
    """Return the folder of a plan, which is complete or not there.

    Raises
    ------
    OutputError
        OUT exists, or cannot be written.
    """
    return StagedFolder(out, force=force, marker=PLAN_NAME, kind="a capacity plan")


def write_plan(
    made: CapacityPlan | SparePlan, staged: StagedFolder, draw: Callable[[dict[str, Any]], str] | None = None
) -> None:
    """Write plan.json, and plan.svg by a function that draws what it holds.

    Raises
    ------
    OutputError
        The place cannot be written.
    """
    facts = made.to_dict()
    with output_errors(staged.target):
        text = orjson.dumps(facts, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
        (staged.path / PLAN_NAME).write_bytes(text)
        if draw is not None:
            (staged.path / "plan.svg").write_text(draw(facts), encoding="utf-8")
    staged.commit()


_COLUMNS = (  # a wait that is not known is that of jobs that never start
    ("mean wait", "mean_wait_s"),
    ("median wait", "p50_wait_s"),
    ("p90 wait", "p90_wait_s"),
)


def table_rows(made: CapacityPlan) -> tuple[list[str], list[list[object]]]:
    """Return headers and rows of the table that a terminal shows: waits in words, shares in percent."""
    headers = ["nodes", "GPUs", *(title for title, _ in _COLUMNS), "p90 interval", "GPU time held [%]"]
    several = {
        title: key
        for title, key in (("policy", "policy"), ("load", "growth"))
        if len({row[key] for row in made.capacity}) > 1
    }
    target, costs = made.question.target is not None, any(row["cost_per_day"] is not None for row in made.capacity)
    headers = [*several, *headers, *(["start in time [%]", "target"] if target else []), *(["cost a day"] * costs)]
    rows = []
    for row in made.capacity:
        waits = [_or_never(row[key]) for _, key in _COLUMNS]
        ends = [row["p90_wait_low_s"], row["p90_wait_high_s"]]
        between = f"{_or_never(ends[0])} to {_or_never(ends[1])}"
        held = None if row["held_share"] is None else round(100 * row["held_share"], 1)
        cells: list[object] = [*(row[key] for key in several.values()), row["nodes"], row["gpus"]]
        cells += [*waits, between, held]
        if target:
            share = row["within_target_share"]
            cells += [None if share is None else round(100 * share, 1), "kept" if row["meets_target"] else "missed"]
        if costs:
            cells.append(None if row["cost_per_day"] is None else round(row["cost_per_day"]))
        rows.append(cells)
    return headers, rows


def _or_never(seconds: float | None) -> str:
    return "never" if seconds is None else duration(seconds)
