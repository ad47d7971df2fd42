"""The run times of a model as a table for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tracekit.fit.model import WorkloadModel

__all__ = ["summary_rows"]


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
