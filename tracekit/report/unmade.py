"""What is missing from a report, for its page and its text: unanswered questions and failed parts."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from tracekit.faults import Fault
from tracekit.manifest import CAPABILITIES
from tracekit.report.sections.interface import section_title, sections_in_order
from tracekit.schema import COMMON_TABLES
from tracekit.text import counted

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tracekit.faults import Faults
    from tracekit.report.structure import FaultInfo, Report, UnansweredInfo


_NAMES = re.compile(rf"\b({'|'.join(sorted({*CAPABILITIES, *COMMON_TABLES}, key=len, reverse=True))})\b")
_GPU = re.compile(r"\bgpu\b")


def by_reason(unanswered: Iterable[UnansweredInfo]) -> list[tuple[str, list[UnansweredInfo]]]:
    """Return each set of reasons once, in words, with the questions that it leaves unanswered.

    The sets of reasons and the questions keep their order.
    """
    found: dict[tuple[str, ...], list[UnansweredInfo]] = {}
    for question in unanswered:
        found.setdefault(tuple(question["reasons"]), []).append(question)
    return [(" ".join(in_words(r) for r in reasons), questions) for reasons, questions in found.items()]


def in_words(reason: str) -> str:
    """Write the names of capabilities and tables in a reason as words.

    Examples
    --------
    >>> in_words("The trace has no gpu_index: the source does not record it.")
    'The trace has no GPU index: the source does not record it.'
    """
    return _NAMES.sub(lambda name: _GPU.sub("GPU", name[0].replace("_", " ")), reason)


_NAMED = 3
"""Maximum number of parts named on the first screen."""


def all_faults(infos: Sequence[FaultInfo], faults: Faults) -> list[Fault]:
    """Return the faults of a document, followed by those found since."""
    stated = [Fault(info["part"], info["reason"]) for info in infos]
    known = {fault.part for fault in stated}
    return stated + [fault for fault in faults.found if fault.part not in known]


def summary_line(found: Sequence[Fault], whole: str = "report") -> str:
    """Give the number of parts of the `whole` that failed, with the first names, or return '' if none failed.

    Examples
    --------
    >>> summary_line([Fault("the fit", "ValueError: x")])
    '1 part of this report could not be made: the fit.'
    """
    if not found:
        return ""
    names = ", ".join(fault.part for fault in found[:_NAMED])
    more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
    return f"{counted(len(found), 'parts')} of this {whole} could not be made: {names}{more}."


def with_failed_sections(report: Report) -> list[dict[str, Any]]:
    """Return all sections, even those without any answer, each with its `failed` questions."""
    known = {section["name"]: section for section in report["sections"]}
    failing: dict[str, list[UnansweredInfo]] = {}
    for question in report["unanswered"]:
        if question["failed"]:
            failing.setdefault(question["name"].rpartition("/")[0] or "other", []).append(question)
    return [
        {
            **(known.get(name) or {"name": name, "title": section_title(name), "lead": "", "answers": []}),
            "failed": failing.get(name, []),
        }
        for name in sections_in_order({*known, *failing})
    ]
