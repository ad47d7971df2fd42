"""Markdown that GitHub and MkDocs render the same way."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ["bullets", "code", "codes", "head", "plain", "sentence", "table"]

_CODE = re.compile(r"(`+)(.+?)\1", re.DOTALL)
_LONE_UNDERSCORE = re.compile(r"(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])")


def head(title: str, source: str, intro: str) -> list[str]:
    """Return the first lines of a generated page."""
    return [f"# {title}", "", intro, "", f"<!-- Generated from {source} by tools/reference.py; do not edit. -->"]


def plain(text: str) -> str:
    r"""Escape all markup in `text`, except inside backquotes.

    Examples
    --------
    >>> plain("run_s * gpu_count of <Cluster>, as `a*b`")
    'run_s \\* gpu_count of &lt;Cluster>, as `a*b`'
    """
    pieces, at = [], 0
    for match in _CODE.finditer(text):
        pieces += [_escaped(text[at : match.start()]), match[0]]
        at = match.end()
    return "".join([*pieces, _escaped(text[at:])])


def _escaped(text: str) -> str:
    text = text.replace("&", "&amp;").replace("<", "&lt;").replace("*", r"\*").replace("`", r"\`")
    return _LONE_UNDERSCORE.sub(r"\_", text)


def code(text: object) -> str:
    """Return text as inline code, in double backquotes if it contains a backquote."""
    shown = str(text)
    return f"`` {shown} ``" if "`" in shown else f"`{shown}`"


def codes(names: Iterable[object]) -> str:
    """Return names as inline code, separated by commas."""
    return ", ".join(code(name) for name in names)


def sentence(text: str) -> str:
    """Return the text with a full stop at its end."""
    return text if not text or text[-1] in ".!?:" else f"{text}."


def bullets(lines: Iterable[str]) -> list[str]:
    """Return a bullet list with one bullet per string, preceded by a blank line."""
    return ["", *(f"- {plain(' '.join(line.split()))}" for line in lines)]


def table(headers: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """Return a table of Markdown cells, preceded by a blank line, or [] if there are no rows."""
    lines = [f"| {' | '.join(_cell(cell) for cell in row)} |" for row in rows]
    return ["", f"| {' | '.join(headers)} |", f"|{'---|' * len(headers)}", *lines] if lines else []


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", r"\|")
