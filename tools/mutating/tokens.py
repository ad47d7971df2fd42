"""Changes of single tokens in Cython files, which Python's tokenizer can read but Cosmic Ray cannot."""

from __future__ import annotations

import io
import re
import tokenize
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["Change", "changes"]

# As with Cosmic Ray, each comparison is negated and has its boundary moved, and each operation is replaced with its
# opposite.
_BOTH_WAYS = "== !=, + -, << >>, & |, += -=, &= |=, and or, True False, break continue"
_ONE_WAY = {"<": ("<=", ">="), "<=": ("<", ">"), ">": (">=", "<="), ">=": (">", "<"), "*": "+", "//": "*", "%": "*"}
_OTHERS: dict[str, tuple[str, ...]] = {
    **{old: tuple(new) for old, new in _ONE_WAY.items()},
    **{old: (new,) for pair in _BOTH_WAYS.split(", ") for old, new in (pair.split(), pair.split()[::-1])},
    "not": ("",),
}
_DEFINITION = re.compile(r"(?:cdef|cpdef|def)\b[^=]*?\b(\w+)\(")


class Change(NamedTuple):
    """The replacement of one token with another."""

    what: str
    """Description of the change, 'old to new'."""
    within: str
    """The function that contains the token, or '' outside functions."""
    line: int
    """Position of the token, from 1."""
    column: int
    old: str
    new: str

    def made(self, text: str) -> str:
        """Return the text with the change applied."""
        lines = text.splitlines(keepends=True)
        line = lines[self.line - 1]
        lines[self.line - 1] = line[: self.column] + self.new + line[self.column + len(self.old) :]
        return "".join(lines)


def changes(text: str) -> Iterator[Change]:
    """Yield every change of a .pxi or .pyx file in line order.

    Only operators with a blank on both sides are taken as binary. Therefore, pointer stars, address operators, signs of
    numbers and cast brackets stay unchanged.
    """
    within = ""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.start[1] == 0 and token.type == tokenize.NAME:
            definition = _DEFINITION.match(token.line)
            within = definition[1] if definition else ""
        row, column = token.start
        if token.type == tokenize.NUMBER:
            others = _numbers(token.string)
        elif token.type == tokenize.OP and token.line[column - 1 : column] + token.line[token.end[1] :][:1] != "  ":
            continue
        elif token.type in (tokenize.OP, tokenize.NAME):
            others = _OTHERS.get(token.string, ())
        else:
            continue
        for new in others:
            yield Change(f"{token.string} to {new or 'nothing'}", within, row, column, token.string, new)


def _numbers(text: str) -> tuple[str, ...]:
    """Return an integer's successor and predecessor."""
    try:
        return str(int(text, 0) + 1), str(int(text, 0) - 1)
    except ValueError:
        return ()
