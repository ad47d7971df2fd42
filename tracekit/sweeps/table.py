"""The table of a sweep: one row a run."""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import Any

import polars as pl

from tracekit.sweeps.file import SweepRun

FIGURES: dict[str, type[pl.DataType]] = {
    "jobs": pl.Int64,
    "completed": pl.Int64,
    "unschedulable": pl.Int64,
    **dict.fromkeys(
        (
            "avg_jct_s",
            "median_jct_s",
            "p95_jct_s",
            "p99_jct_s",
            "avg_queue_s",
            "median_queue_s",
            "p95_queue_s",
            "p99_queue_s",
            "max_queue_s",
            "avg_bounded_slowdown",
            "makespan_s",
            "gpu_utilization_share",
            "fragmentation_share",
        ),
        pl.Float64,
    ),
    "preemptions": pl.Int64,
    "migrations": pl.Int64,
    **dict.fromkeys(
        (
            "gpu_hours_lost_to_overhead",
            "jain_fairness_vc",
            "max_finish_time_ratio",
            "late_share",
            "energy_kwh",
            "energy_cost",
        ),
        pl.Float64,
    ),
}

_TYPES = {"str": pl.String, "bool": pl.Boolean, "float": pl.Float64, "int": pl.Int64}
PARAMETERS: dict[str, type[pl.DataType]] = {
    field.name: _TYPES[str(field.type).removesuffix(" | None")] for field in fields(SweepRun)
}
"""Columns of what a run is of."""

EFFECTS: dict[str, type[pl.DataType]] = {
    f"{figure}_{what}{end}_s": pl.Float64
    for what in ("queue", "jct")
    for figure, end in (("recorded", ""), ("expected", ""), ("expected", "_low"), ("expected", "_high"))
}
"""Columns of what the log recorded and of what a run in a twin would make of it."""


def told_of(summary: dict[str, Any]) -> dict[str, Any]:
    """Return what the table tells of a summary, so that the rest of many need not be kept."""
    return {key: summary[key] for key in (*FIGURES, "cluster", "effect", "error") if key in summary}


def table_of(rows: list[tuple[str, SweepRun, dict[str, Any]]]) -> pl.DataFrame:
    """Return the table of runs, each with its digest and its summary, or {'error': why there is none}."""
    return pl.DataFrame(
        [
            {
                "digest": digest,
                **asdict(run),
                "cluster_nodes": summary.get("cluster", {}).get("nodes"),
                "cluster_gpus": summary.get("cluster", {}).get("gpus"),
                **{key: summary.get(key) for key in FIGURES},
                **{key: summary.get("effect", {}).get(key) for key in EFFECTS},
                "effect_jobs": summary.get("effect", {}).get("jobs"),
                "effect_reason": summary.get("effect", {}).get("reason"),
                "error": summary.get("error"),
            }
            for digest, run, summary in rows
        ],
        schema={
            "digest": pl.String,
            **PARAMETERS,
            "cluster_nodes": pl.Int64,
            "cluster_gpus": pl.Int64,
            **FIGURES,
            **EFFECTS,
            "effect_jobs": pl.Int64,
            "effect_reason": pl.String,
            "error": pl.String,
        },
        orient="row",
    )
