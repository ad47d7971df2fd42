"""The parts of the page: which questions stand together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ["tabs_of"]

_TABS = (
    ("overview", "Overview", ("change",)),
    ("queueing", "Queueing", ("queuing",)),
    ("placement", "Placement", ("locality",)),
    ("use", "Use and efficiency", ("utilization",)),
    ("failing", "Failures and goodput", ("failures",)),
    ("people", "Users and money", ("users", "money")),
    ("what-if", "What-if and plan", ("replay", "plan")),
    ("work", "Workload", ("overview", "workload", "fit")),
    ("more", "More questions", ()),
    ("quality-and-method", "Data quality and method", ()),
)
"""Id and title of each part, and the groups of questions that stand in it; other groups stand in "more"."""


def tabs_of(sections: Sequence[dict[str, Any]], *, advice: bool) -> list[dict[str, Any]]:
    """Return the parts that have something to show, with their sections; `advice` says whether there are guidelines."""
    always = {"overview", "quality-and-method", *(["what-if"] if advice else [])}
    placed = {group for _, _, groups in _TABS for group in groups}
    found = []
    for name, title, groups in _TABS:
        own = [s for s in sections if s["name"] in groups or (name == "more" and s["name"] not in placed)]
        if own or name in always:
            found.append({"id": f"part-{name}", "name": name, "title": title, "sections": own})
    return found
