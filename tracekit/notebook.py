"""How objects print: a few lines of text, and in a notebook a small table of the same.

What a log or a user named is escaped and cut, so that it can neither run nor fill a screen.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from tracekit.text import shorten

if TYPE_CHECKING:
    from collections.abc import Iterable


_TITLE, _LINE = 160, 300
"""Most characters of a title, and of a line."""
_LEFT = 'style="text-align:left"'
"""Notebooks set the cells of a table flush right."""


@dataclass(frozen=True)
class Brief:
    """What an object says of itself.

    Examples
    --------
    >>> brief = Brief.of("Replay of 2 jobs", [("policy", "fifo"), ("mean wait", "3 min"), ("energy", None)])
    >>> print(brief)
    Replay of 2 jobs
      policy     fifo
      mean wait  3 min
    """

    title: str
    lines: tuple[tuple[str, str], ...]
    """What is said and its value, in order."""

    @classmethod
    def of(cls, title: str, lines: Iterable[tuple[str, str | None]]) -> Brief:
        """Return a brief without the lines whose value is None; every text is made visible and cut."""
        shown = tuple((what, shorten(value, _LINE)) for what, value in lines if value is not None)
        return cls(shorten(title, _TITLE), shown)

    def __str__(self) -> str:
        width = max((len(what) for what, _ in self.lines), default=0)
        return "\n".join([self.title, *(f"  {what:<{width}}  {value}" for what, value in self.lines)])

    def html(self) -> str:
        r"""Return the same as a table.

        Examples
        --------
        >>> "<b>" in Brief.of("<b>", [("name", "<b>")]).html()
        False
        """
        rows = "".join(
            f'<tr><th scope="row" {_LEFT}>{escape(what)}</th><td {_LEFT}>{escape(value)}</td></tr>'
            for what, value in self.lines
        )
        return f'<table class="tracekit"><caption {_LEFT}>{escape(self.title)}</caption><tbody>{rows}</tbody></table>'
