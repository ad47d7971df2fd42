"""The run times of a model, and the scores of generators, as tables for people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracekit.text import counted

if TYPE_CHECKING:
    from tracekit.fit.model import WorkloadModel


WORKLOADS = {
    "model": "model",
    "resample": "resample",
    "hybrid_arrivals": "hybrid, arrivals of the log",
    "hybrid_jobs": "hybrid, jobs of the log",
    "poisson_jobs": "jobs one by one (naive)",
    "poisson_lognormal": "jobs one by one, lognormal (naive)",
}
"""What scored workloads are called in tables."""
SCORED_FIGURES = (
    *("gap_distribution", "gap_variation", "hourly_variation", "gpu_hours_per_day", "size_mix", "run_time_p99_s"),
    *("wait_fifo_mean_s", "wait_easy_mean_s", "wait_srtf_mean_s"),
)
"""Rows of `tracekit.fit.scores` that a short table has as columns."""


def summary_rows(model: WorkloadModel) -> tuple[list[str], list[list[object]]]:
    """Return headers and rows: every group of run times with its chosen family, both criteria, and its goodness."""
    headers = ["run time of", "measure", "jobs", "censored", "family", "least AIC", "AIC", "BIC", "KS", "A-D", "p (KS)"]
    rows: list[list[object]] = []
    for entry in model.run_times:
        if entry["vc"] is not None:
            name = "VC " + "/".join(v for v in (entry["cluster"], entry["vc"]) if v)
        else:
            parts = [f"{entry['gpu_class']} GPU" if entry["gpu_class"] else "", entry["status"] or ""]
            name = ", ".join(p for p in parts if p) or "all jobs"
        head: list[object] = [name, entry["measure"], entry["n"]]
        if entry["pooled_to"] is not None:
            whose = " ".join(entry["pooled_classes"]) if entry["pooled_to"] == "neighbours" else entry["pooled_to"]
            rows.append([*head, None, f"as {whose}", *[None] * 6])
            continue
        if entry["chosen"] is None:
            rows.append([*head, entry["right_censored"], entry["reason"], *[None] * 6])
            continue
        fit = next(f for f in entry["families"] if f["family"] == entry["chosen"])
        p = entry["bootstrap"]["p_ks"] if entry["bootstrap"] else None
        figures = [fit["aic"], fit["bic"], fit["ks"], fit["anderson_darling"], p]
        rows.append([*head, entry["right_censored"], entry["chosen"], entry["best_by"]["aic"], *figures])
    return headers, rows


def score_rows(model: WorkloadModel) -> list[dict[str, Any]]:
    """Return the scores as a short table: the held-out log, each generator and baseline, and blocks of the log.

    Values are medians over seeds; empty where nothing was scored.
    """
    scores = model.document.get("scores") or {"reason": "not scored"}
    if scores["reason"] is not None:
        return []
    rows = {row["row"]: row for row in scores["rows"] if row["row"] in SCORED_FIGURES}

    def line(name: str, rank: float | None, values: dict[str, float | None]) -> dict[str, Any]:
        return {"workload": name, "mean_rank": rank, **{row: values.get(row) for row in SCORED_FIGURES}}

    found = [line("the log, held-out part", None, {name: row["held_out"] for name, row in rows.items()})]
    for total in scores["totals"]:
        own = {
            name: entry["value"]
            for name, row in rows.items()
            for entry in row["generators"]
            if entry["generator"] == total["generator"]
        }
        found.append(line(WORKLOADS[total["generator"]], total["mean_rank"], own))
    blocks = {name: row["log_blocks"]["value"] for name, row in rows.items() if row["log_blocks"] is not None}
    if blocks:
        found.append(line("the log, earlier blocks", None, blocks))
    return found


def score_words(model: WorkloadModel) -> str:
    """Return what was scored how, or why nothing was, one sentence without its full stop."""
    scores = model.document.get("scores") or {"reason": "the model is of an earlier version"}
    if scores["reason"] is not None:
        return f"generators were not scored: {scores['reason']}"
    learned, held = scores["learned"], scores["held_out"]
    best = scores["best"] if scores["best"] != "hybrid" else f"hybrid ({scores['hybrid']} of the log)"
    return (
        f"nearest to the log: {best}; fitted to {counted(learned['jobs'], 'jobs')} of"
        f" {counted(learned['days'], 'days')}, judged on {counted(held['jobs'], 'jobs')} of the"
        f" {counted(held['days'], 'days')} after them, {counted(scores['seeds'], 'draws')} each"
        + (f"; waits on {scores['machines']}" if scores["machines"] is not None else "")
    )
