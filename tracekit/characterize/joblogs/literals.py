"""Literal texts of which every match of a regular expression contains one.

Logs are searched for a few texts first, and for the expressions only in the lines where one of these was found. What is
not understood gives no text, never a wrong one.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["required_literals"]

_SHORTEST = 3
"""Length of the shortest text that is worth looking for [characters]."""

_ORDINARY = {"check", "error", "failed", "nccl ", "point", "timeout", "warning"}
"""Texts that logs are full of, whatever happened: others are better."""

_TOKEN = re.compile(
    r"""
    (?P<unknown> \\[QEpPxC0-9])
  | (?P<nothing> \(\?[a-zA-Z-]+\) | \\[bB] | [$^])
  | (?P<open> \((?!\?) | \(\?(?:P?<\w+>|[a-zA-Z-]*:))
  | (?P<close> \))
  | (?P<bar> \|)
  | (?P<optional> (?:[*?] | \{0(?:,\d*)?\})[?+]?)
  | (?P<repeated> (?:\+ | \{\d+(?:,\d*)?\})[?+]?)
  | (?P<any> \. | \\[a-zA-Z] | \\?[^\x00-\x7f] | \[\^?\]?(?:\\.|\[:\^?\w+:\]|[^\]\\])*\])
  | \\?(?P<text> .)
    """,
    re.VERBOSE | re.DOTALL,
)


def required_literals(pattern: str) -> tuple[str, ...]:
    r"""Return texts of which every match of `pattern` contains at least one, in lower case.

    Returns
    -------
    tuple of str
        ASCII characters; empty when there are no such texts.

    Examples
    --------
    >>> required_literals(r"\bout of memory|oom-kill\S* \d+")
    ('out of memory', 'oom-kill')
    >>> required_literals(r"\w+\d")
    ()
    """
    tokens = [(match.lastgroup or "", match[match.lastgroup or 0]) for match in _TOKEN.finditer(pattern)]
    if any(kind == "unknown" for kind, _ in tokens):
        return ()
    try:
        return _texts_of(iter(tokens))
    except RecursionError:
        return ()


def _texts_of(tokens: Iterator[tuple[str, str]]) -> tuple[str, ...]:
    """Read branches up to a closing bracket or the end."""
    branches: list[tuple[str, ...]] = []
    parts: list[tuple[str, ...]] = []
    """What each match of the branch contains: of each part one of its texts, nothing known where it has none."""
    text = ""
    for kind, found in tokens:
        if kind == "text":
            text += found.lower()
        elif kind in ("optional", "repeated"):
            if text:
                parts.append((text[:-1] if kind == "optional" else text,))
            elif kind == "optional" and parts:
                parts.pop()
            text = ""
        elif kind in ("any", "open"):
            parts += [(text,), _texts_of(tokens) if kind == "open" else ()]
            text = ""
        elif kind == "bar":
            branches.append(_rarest([*parts, (text,)]))
            parts, text = [], ""
        elif kind == "close":
            break
    branches.append(_rarest([*parts, (text,)]))
    return tuple(dict.fromkeys(text for texts in branches for text in texts)) if all(branches) else ()


def _rarest(parts: list[tuple[str, ...]]) -> tuple[str, ...]:
    """Return the part whose shortest text is the longest, none of them ordinary if possible; empty if all are short."""
    usable = [texts for texts in parts if min(map(len, texts), default=0) >= _SHORTEST]
    return max(usable, key=lambda texts: (_ORDINARY.isdisjoint(texts), min(map(len, texts))), default=())
