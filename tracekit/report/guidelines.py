"""Prepare guidelines for the page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tracekit import text
from tracekit.faults import Fault, Faults
from tracekit.guidelines.markdown import expected_text
from tracekit.report.summary import undecided
from tracekit.tenant import VC

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracekit.tenant import Tenant

_PRACTICE = (("Slurm", "slurm"), ("Kubernetes (Kueue, Volcano)", "kubernetes"), ("YARN", "yarn"))

_MEANS = {"queue": "wait", "jct": "completion time"}


def guidelines_view(document: Mapping[str, Any], tenant: Tenant = VC, faults: Faults | None = None) -> dict[str, Any]:
    """Prepare a document in the format of schemas/guidelines-1.json for the page.

    Returns
    -------
    dict
        `holding`: guidelines that hold, with their tables. `others`: guidelines that do not hold or cannot be decided.
        `decided`: whether any could be decided. If a guideline cannot be shown, its error is added to `faults` and
        stored in its `unmade`.
    """
    faults = Faults() if faults is None else faults
    entries = document["guidelines"]
    return {
        "holding": [_shown(e, tenant, faults) for e in entries if e["verdict"] == "holds"],
        "decided": not undecided(entries),
        "others": [e for verdict in ("does not hold", "cannot tell") for e in entries if e["verdict"] == verdict],
    }


def _shown(entry: Mapping[str, Any], tenant: Tenant, faults: Faults) -> dict[str, Any]:
    found = faults.run(f"the text of the guideline {entry['id']}", _holding, entry, tenant)
    if isinstance(found, Fault):
        return {"id": entry["id"], "title": entry["title"], "unmade": found}
    return {**found, "unmade": None}


def _holding(entry: Mapping[str, Any], tenant: Tenant) -> dict[str, Any]:
    finding, limits = entry["finding"], {t["key"]: t for t in entry["thresholds"]}
    return {
        **entry,
        "practices": [(title, entry["practice"][key]) for title, key in _PRACTICE],
        "numbers": [{**number, "threshold": limits.get(number["key"])} for number in finding["numbers"]],
        "details": _details(finding["rows"], tenant),
        "expected": expected_text(entry),
        "tried": _tried(entry["effect"]),
    }


def _details(rows: list[Mapping[str, Any]], tenant: Tenant) -> dict[str, Any]:
    """Return the rows of a finding as a table."""
    names = list(rows[0]) if rows else []
    numbers = [any(isinstance(r[n], int | float) and not isinstance(r[n], bool) for r in rows) for n in names]
    heads = [text.heading(n, None) if n != tenant.column else (tenant.head, "") for n in names]
    return {
        "columns": [{"head": h, "unit": u, "number": k} for (h, u), k in zip(heads, numbers, strict=True)],
        "rows": [[text.quantity(row[n], None, n) for n in names] for row in rows],
    }


def _tried(effect: Mapping[str, Any] | None) -> list[dict[str, str]]:
    """Return the change in each replay, with one row per policy and assumption."""
    if effect is None:
        return []
    rows = []
    for change in effect["changes"]:
        key = change["headline"]
        share, low, high = (change[f"{key}_diff_share{end}"] for end in ("", "_low", "_high"))
        rows.append(
            {
                "policy": change["policy"],
                "assumption": change["assumption"],
                "mean": _MEANS[key],
                "change": _signed(share),
                "range": f"{_signed(low)} to {_signed(high)}" if low is not None and high is not None else "",
            }
        )
    return rows


def _signed(share: float | None) -> str:
    return text.MISSING if share is None else text.signed_percent(share)
