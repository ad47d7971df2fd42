"""Find the parts of split files by their names, and check that none is missing.

Public traces that exceed the size limit of a host are split: the PAI tables are pai_instance_table.tar.gz.partaa,
.partab and so on.
"""

from __future__ import annotations

import re
from collections import defaultdict
from dataclasses import dataclass
from functools import reduce
from itertools import pairwise
from typing import TYPE_CHECKING

from tracekit.errors import SourceError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

__all__ = ["Parts", "find_parts", "find_pieces"]

_NAMED = re.compile(r"(?P<whole>.+)(?P<link>\.part[-_.]?)(?P<index>\d+|(?!ial$)[a-z]{2,3})")
_ENDINGS = "gz|tgz|zip|bz2|xz|tar|csv|tsv|txt|json|jsonl|log|swf"
_BARE = re.compile(rf"(?P<whole>.+\.(?:{_ENDINGS}))(?P<link>\.)(?P<index>\d{{2,}}|(?!(?:{_ENDINGS})$)[a-z]{{2,3}})")
_ARCHIVE = re.compile(r".+\.(?:gz|tgz|zip|bz2|xz|tar)")


@dataclass(frozen=True)
class Parts:
    """A split file."""

    path: Path
    """Where the whole file would be."""
    pieces: list[Path]
    """Its parts in order."""


@dataclass(frozen=True)
class _Piece:
    path: Path
    whole: str
    style: tuple[str, bool]
    """The text before the number, and whether the number is in letters."""
    number: int


def find_parts(paths: Iterable[Path]) -> list[Parts]:
    """Return the split files among the files of one folder.

    Names with `.part` before the number or letters are always parts. A bare number or letters (`log.csv.001`,
    `log.csv.aa`) make parts only after a usual suffix and when the first one is present; after the suffix of an
    archive, a number always does. Parts beside the whole file are ignored.

    Raises
    ------
    SourceError
        A part is missing, or parts of one file are named in two ways.
    """
    paths = list(paths)
    names = {path.name for path in paths}
    groups: dict[str, dict[tuple[str, bool], list[_Piece]]] = defaultdict(lambda: defaultdict(list))
    for path in paths:
        piece = _piece(path)
        if piece is not None and piece.whole not in names:
            groups[piece.whole][piece.style].append(piece)
    found = []
    for whole, styles in groups.items():
        kept = [sorted(group, key=lambda p: (p.number, p.path.name)) for group in styles.values() if _is_meant(group)]
        if not kept:
            continue
        if len(kept) > 1:
            raise _two_ways(whole, kept[0][0], kept[1][0])
        _refuse_gaps(whole, kept[0])
        found.append(Parts(kept[0][0].path.with_name(whole), [piece.path for piece in kept[0]]))
    return found


def find_pieces(path: Path) -> list[Path]:
    """Return the files beside `path` that may be parts of the same file, with itself; none if it is not a part."""
    piece = _piece(path)
    if piece is None:
        return []
    beside = sorted(other for other in path.parent.iterdir() if other.is_file())
    return [other for other in beside if (found := _piece(other)) is not None and found.whole == piece.whole]


def _piece(path: Path) -> _Piece | None:
    match = _NAMED.fullmatch(path.name) or _BARE.fullmatch(path.name)
    if match is None:
        return None
    index = match["index"]
    letters = not index.isdecimal()
    number = reduce(lambda value, letter: value * 26 + ord(letter) - ord("a"), index, 0) if letters else int(index)
    return _Piece(path, match["whole"], (match["link"], letters), number)


def _is_meant(group: list[_Piece]) -> bool:
    """Return whether files with such names are parts; rotated logs end in numbers too."""
    link, letters = group[0].style
    if link != "." or (not letters and _ARCHIVE.fullmatch(group[0].whole)):
        return True
    return min(piece.number for piece in group) <= (0 if letters else 1)


def _refuse_gaps(whole: str, group: list[_Piece]) -> None:
    if group[0].number > (0 if group[0].style[1] else 1):
        raise _missing(whole, group, f"the first one present is '{group[0].path.name}'")
    for before, after in pairwise(group):
        if before.number == after.number:
            raise _two_ways(whole, before, after)
        if before.number + 1 != after.number:
            raise _missing(whole, group, f"'{before.path.name}' is followed by '{after.path.name}'")


def _missing(whole: str, group: list[_Piece], why: str) -> SourceError:
    return SourceError(f"a part of '{whole}' is missing: {why}", where=group[0].path.parent, hint="fetch all its parts")


def _two_ways(whole: str, one: _Piece, other: _Piece) -> SourceError:
    return SourceError(
        f"the parts of '{whole}' are named in two ways: '{one.path.name}' and '{other.path.name}'",
        where=one.path.parent,
        hint="keep the parts of one file only",
    )
