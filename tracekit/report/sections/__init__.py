"""The sections of a report: for each query, what its numbers say and how they are drawn.

One module a group of queries; a module registers its functions by query name. A query without a function here
still has its question and its table in the report.
"""

from __future__ import annotations

from tracekit.report.sections.interface import (
    Facts,
    chart,
    finding,
    has_chart,
    may_be_empty,
    panels,
    question_of,
    reading_order,
    says,
    section_lead,
    section_title,
    sections_in_order,
    why_empty,
)

__all__ = [
    "Facts",
    "chart",
    "finding",
    "has_chart",
    "may_be_empty",
    "panels",
    "question_of",
    "reading_order",
    "says",
    "section_lead",
    "section_title",
    "sections_in_order",
    "why_empty",
]
