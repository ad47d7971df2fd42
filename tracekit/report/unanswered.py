"""Questions without an answer, grouped by the reasons."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from tracekit.manifest import CAPABILITIES
from tracekit.schema import COMMON_TABLES

if TYPE_CHECKING:
    from collections.abc import Iterable

    from tracekit.report.structure import UnansweredInfo

__all__ = ["by_reason", "in_words"]

_NAMES = re.compile(rf"\b({'|'.join(sorted({*CAPABILITIES, *COMMON_TABLES}, key=len, reverse=True))})\b")
_GPU = re.compile(r"\bgpu\b")


def by_reason(unanswered: Iterable[UnansweredInfo]) -> list[tuple[str, list[UnansweredInfo]]]:
    """Return each set of reasons once, in words, with the questions that it leaves without an answer.

    Sets of reasons and questions keep the order in which they come.
    """
    found: dict[tuple[str, ...], list[UnansweredInfo]] = {}
    for question in unanswered:
        found.setdefault(tuple(question["reasons"]), []).append(question)
    return [(" ".join(in_words(r) for r in reasons), questions) for reasons, questions in found.items()]


def in_words(reason: str) -> str:
    """Return a reason with the names of capabilities and tables in words.

    Examples
    --------
    >>> in_words("The trace has no gpu_index: the source does not tell it.")
    'The trace has no GPU index: the source does not tell it.'
    """
    return _NAMES.sub(lambda name: _GPU.sub("GPU", name[0].replace("_", " ")), reason)
