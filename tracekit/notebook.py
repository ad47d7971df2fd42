"""Show objects as a few lines of text, or as a small table in a notebook.

Names from a log or a user are escaped and cut, so they cannot run as code or fill the screen.
"""

from __future__ import annotations

from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING

from tracekit.text import shorten

if TYPE_CHECKING:
    from collections.abc import Iterable


_TITLE, _LINE = 160, 300
"""Maximum length of a title, and of a line."""
_LEFT = 'style="text-align:left"'
"""Style that left-aligns table cells, which notebooks right-align by default."""


@dataclass(frozen=True)
class Brief:
    """A short description of an object.

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
    """Labels and values, in order."""

    @classmethod
    def of(cls, title: str, lines: Iterable[tuple[str, str | None]]) -> Brief:
        """Return a brief without lines whose value is None, with all strings made visible and cut."""
        shown = tuple((what, shorten(value, _LINE)) for what, value in lines if value is not None)
        return cls(shorten(title, _TITLE), shown)

    def __str__(self) -> str:
        width = max((len(what) for what, _ in self.lines), default=0)
        return "\n".join([self.title, *(f"  {what:<{width}}  {value}" for what, value in self.lines)])

    def html(self) -> str:
        r"""Return the labels and values as an HTML table.

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
