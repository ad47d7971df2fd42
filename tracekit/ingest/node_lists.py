"""Expand node lists with ranges in brackets, as written by Slurm and many site scripts: `gpu[01-03,07],login1`."""

from __future__ import annotations

import itertools
import re

MAX_NODES = 65_536
"""Maximum number of nodes in a list; no Slurm cluster is larger."""

_RANGE = re.compile(r"(\d{1,12})(?:-(\d{1,12}))?", re.ASCII)


def expand_nodes(text: str, limit: int = MAX_NODES) -> list[str]:
    """Expand a list such as `gpu[01-03,07],login1` or `a[1-2]b[3-4]` to nodes, in order and without repeats.

    Parameters
    ----------
    text : str
        Node list. A number's leading zeros are part of the name.
    limit : int
        Maximum number of nodes in the list. The nodes are counted before the list is expanded.
    """
    groups = [_groups(part) for part in split_outside(text, ",")]
    sizes = 0
    for parts in groups:
        product = 1
        for part in parts:
            product *= sum(last - first + 1 for first, last, _ in part) if isinstance(part, list) else 1
        sizes += product
    if sizes > limit:
        raise ValueError(f"names more than {limit} nodes")
    names = (
        "".join(name)
        for parts in groups
        for name in itertools.product(*([part] if isinstance(part, str) else _numbers(part) for part in parts))
    )
    return list(dict.fromkeys(names))


def _groups(text: str) -> list[str | list[tuple[int, int, int]]]:
    """Return the literals and the ranges (first, last, digits) in a name."""
    parts: list[str | list[tuple[int, int, int]]] = []
    for piece in re.split(r"(\[[^\[\]]*\])", text):
        if piece.startswith("["):
            parts.append([_range(item) for item in piece[1:-1].split(",")])
        elif re.search(r"[\[\]\s]", piece):
            raise ValueError("is not a node list")
        elif piece:
            parts.append(piece)
    if not parts:
        raise ValueError("is not a node list")
    return parts


def _range(text: str) -> tuple[int, int, int]:
    match = _RANGE.fullmatch(text)
    if match is None or (match[2] and int(match[2]) < int(match[1])):
        raise ValueError("is not a node list")
    return int(match[1]), int(match[2] or match[1]), len(match[1])


def _numbers(ranges: list[tuple[int, int, int]]) -> list[str]:
    return [str(number).zfill(digits) for first, last, digits in ranges for number in range(first, last + 1)]


def split_outside(text: str, separator: str) -> list[str]:
    """Split a list at its separators, except inside brackets.

    Examples
    --------
    >>> split_outside("gpu[01-03,07],login1", ",")
    ['gpu[01-03,07]', 'login1']
    """
    parts, begin, inside = [], 0, False
    for mark in re.finditer(rf"[\[\]]|{re.escape(separator)}", text):
        if mark[0] in "[]":
            inside = mark[0] == "["
        elif not inside:
            parts.append(text[begin : mark.start()])
            begin = mark.end()
    return [*parts, text[begin:]]
