"""Literal text that every match of a regular expression must contain.

It lets a log be searched for a few bytes first, and for the expressions only where these were found. What is not
understood gives no literal, never a wrong one.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["required_literals"]

_REPEAT = re.compile(r"[*+?]|\{\d+(?:,\d*)?\}")
_FLAGS = re.compile(r"\(\?[a-zA-Z]+\)")
_GROUP = re.compile(r"\(\?(?::|P?<\w+>|[a-zA-Z]+:)|\((?!\?)")
_CLASS = re.compile(r"\[\^?\]?(?:\\.|\[:\w+:\]|[^\]\\])*\]")
_MOST = 32
"""Most texts that a part of an expression is spelled out to."""

_ZERO_WIDTH = frozenset({"^", "$", r"\b", r"\B"})


def required_literals(
    pattern: str, shortest: int, commonness: Callable[[str], float] = lambda text: -len(text)
) -> tuple[str, ...]:
    r"""Return texts of which every match of `pattern` contains at least one, in lower case.

    Parameters
    ----------
    pattern : str
        A regular expression in RE2's syntax.
    shortest : int
        Least length of a text that is of use.
    commonness : callable
        Tells how often a text is met; of several sets of texts the one is returned whose texts are the rarest together.
        The longer text is the rarer by default.

    Returns
    -------
    tuple of str
        Empty when there are no such texts.

    Examples
    --------
    >>> required_literals(r"\bout of memory|oom-kill\S* \d+", 5)
    ('out of memory', 'oom-kill')
    >>> required_literals(r"\w+Error", 7)
    ()
    """
    try:
        reader = _Reader(pattern, shortest, commonness)
        found, end = reader.alternatives(0)
    except (ValueError, RecursionError):
        return ()
    return found.texts if end == len(pattern) and reader.usable(found.texts) else ()


class _Part(NamedTuple):
    """Texts that stand for a part of an expression."""

    texts: tuple[str, ...]
    """Empty when there are none."""
    exact: bool
    """The part matches these texts and no other; else every match of it contains one of them."""


_NOTHING = _Part(("",), exact=True)


class _Reader:
    """Reads one expression by recursive descent."""

    def __init__(self, pattern: str, shortest: int, commonness: Callable[[str], float]) -> None:
        self._pattern = pattern
        self._shortest = shortest
        self._commonness = commonness

    def alternatives(self, at: int) -> tuple[_Part, int]:
        """Read branches up to a closing bracket or the end."""
        branches: list[_Part] = []
        while True:
            branch, at = self._branch(at)
            branches.append(branch)
            if at >= len(self._pattern) or self._pattern[at] == ")":
                return self._either(branches), at
            at += 1

    def _either(self, branches: list[_Part]) -> _Part:
        if all(branch.exact for branch in branches):
            return _Part(tuple(dict.fromkeys(text for branch in branches for text in branch.texts)), exact=True)
        told = [branch.texts if not branch.exact or self.usable(branch.texts) else () for branch in branches]
        return _Part(tuple(dict.fromkeys(text for texts in told for text in texts)) if all(told) else (), exact=False)

    def _branch(self, at: int) -> tuple[_Part, int]:
        pattern = self._pattern
        candidates: list[tuple[str, ...]] = []
        run = _NOTHING.texts
        whole = True
        while at < len(pattern) and pattern[at] not in "|)":
            flags = _FLAGS.match(pattern, at)
            if flags:
                at = flags.end()
                continue
            part, at = self._repeated(at)
            if part.exact and len(run) * len(part.texts) <= _MOST:
                run = tuple(dict.fromkeys(before + text for before in run for text in part.texts))
                continue
            whole = False
            candidates += [run, part.texts]
            run = _NOTHING.texts
        if whole:
            return _Part(run, exact=True), at
        usable = [texts for texts in (*candidates, run) if self.usable(texts)]
        best = min(usable, key=lambda texts: sum(map(self._commonness, texts)), default=())
        return _Part(best, exact=False), at

    def _repeated(self, at: int) -> tuple[_Part, int]:
        """Read a group or an atom and what says how often it stands there."""
        part, at = self._item(at)
        repeat = _REPEAT.match(self._pattern, at)
        if not repeat:
            return part, at
        at = repeat.end() + (self._pattern[repeat.end() : repeat.end() + 1] in ("?", "+"))
        if repeat[0] == "?" and part.exact:
            return _Part((*part.texts, ""), exact=True), at
        if part == _NOTHING:
            return part, at
        once = repeat[0] == "+" or (repeat[0][0] == "{" and int(re.findall(r"\d+", repeat[0])[0]) > 0)
        return _Part(part.texts if once and self.usable(part.texts) else (), exact=False), at

    def _item(self, at: int) -> tuple[_Part, int]:
        group = _GROUP.match(self._pattern, at)
        if not group:
            literal, at = _atom(self._pattern, at)
            return (_Part((), exact=False) if literal is None else _Part((literal,), exact=True)), at
        inner, at = self.alternatives(group.end())
        if at >= len(self._pattern):
            raise ValueError
        return inner, at + 1

    def usable(self, texts: tuple[str, ...]) -> bool:
        """Return whether the texts can be searched for."""
        return bool(texts) and all(len(text) >= self._shortest and text.isascii() for text in texts)


def _atom(pattern: str, at: int) -> tuple[str | None, int]:
    """Read one atom: its literal text, '' when it takes no room, None when it is not one text."""
    if pattern[at] == "(":
        raise ValueError  # a group of a kind that is not known here
    if pattern[at] == "[":
        found = _CLASS.match(pattern, at)
        if not found:
            raise ValueError
        return None, found.end()
    width = 2 if pattern[at] == "\\" else 1
    text = pattern[at : at + width]
    if text in _ZERO_WIDTH:
        return "", at + width
    if width == 1:
        return (None if text == "." else text.lower()), at + 1
    if len(text) < 2 or text[1] in "QEpPxC01234567":
        raise ValueError
    if text[1].isalpha():
        return {r"\t": "\t"}.get(text), at + 2
    return text[1].lower(), at + 2
