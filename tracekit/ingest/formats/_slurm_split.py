"""Divide a line of `sacct` whose free text holds the delimiter, or lines whose free text holds line breaks.

Anybody may write anything into names, comments and command lines. The columns in front of the first of them and behind
the last are counted from both ends; those between two of them have forms (times, durations, lists), and of all
divisions only those remain in which every such cell has its form. A line is divided where they agree on every column
that is read.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

__all__ = ["FREE_TEXT", "SEVERAL_LINES", "begins_record", "divide", "fits"]

FREE_TEXT = frozenset(
    {"jobname", "comment", "admincomment", "systemcomment", "constraints", "extra", "submitline", "workdir"}
    | {"container", "stdin", "stdout", "stderr", "stdinexpanded", "stdoutexpanded", "stderrexpanded", "failednode"}
)
"""Columns in which anybody may write anything, the delimiter included; in lower case."""

SEVERAL_LINES = frozenset({"comment", "admincomment", "systemcomment", "extra", "submitline"})
"""Those of them in which line breaks are likely: in a job's name or a folder they would be damage."""

_MOST_EXTRA = 64
"""Most delimiters in free text for which divisions are tried; each adds a division for each column."""

_WORDS = r"Unknown|None|N/A|\(null\)|INVALID|UNLIMITED|Partition_Limit|NOT_SET"
_FORMS = {
    "time": r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:Z|[+-]\d\d:?\d\d)?|\d{1,12}",
    "duration": r"(?:\d{1,9}-)?(?:\d{1,9}:)*\d{1,9}(?:\.\d{1,9})?",
    "amount": r"-?\d{1,20}(?:\.\d{1,9})?[KMGTPEkmgtpe]?[Bbcn]?",
    "code": r"\d{1,5}:\d{1,5}",
    "tres": r"[^\s=,]+=[^=,]*(?:,[^\s=,]+=[^=,]*)*",
    "gres": r"[^\s,]+(?:,[^\s,]+)*",
    "state": r"[A-Z_]+\+?(?: by .+)?",
    "job": r"\d{1,20}\S*",
    "nodes": r"[\w.,\[\]-]+|None assigned",
    "word": r"\S*",
}
_KINDS = {
    "time": "submit eligible start end",
    "duration": "elapsed suspended timelimit cputime totalcpu usercpu systemcpu planned reserved avecpu mincpu resvcpu "
    "plannedcpu",
    "amount": "elapsedraw timelimitraw cputimeraw resvcpuraw plannedcpuraw uid gid associd dbindex qosraw wckeyid "
    "priority consumedenergy consumedenergyraw reservationid alloccpus allocnodes ncpus reqcpus nnodes ntasks reqnodes "
    "reqmem maxrss averss maxvmsize avevmsize maxpages avepages maxdiskread maxdiskwrite avediskread avediskwrite "
    "avecpufreq maxrsstask maxvmsizetask maxpagestask maxdiskreadtask maxdiskwritetask mincputask restarts",
    "code": "exitcode derivedexitcode",
    "tres": "alloctres reqtres tresusageinave tresusageinmax tresusageinmaxnode tresusageinmaxtask tresusageinmin "
    "tresusageinminnode tresusageinmintask tresusageintot tresusageoutave tresusageoutmax tresusageoutmaxnode "
    "tresusageoutmaxtask tresusageoutmin tresusageoutminnode tresusageoutmintask tresusageouttot",
    "gres": "allocgres reqgres",
    "state": "state",
    "job": "jobid jobidraw",
    "nodes": "nodelist maxrssnode maxvmsizenode maxpagesnode maxdiskreadnode maxdiskwritenode mincpunode",
    "word": "account partition qos user cluster group wckey reason flags mcslabel layout reqcpufreq reqcpufreqgov "
    "reqcpufreqmin reqcpufreqmax reservation blockid sluid licenses",
}
_ALWAYS = frozenset({"jobid", "submit", "state"})
_FORM_OF = {
    name: re.compile(_FORMS[kind] if name in _ALWAYS else f"(?:{_FORMS[kind]}|{_WORDS})?", re.ASCII)
    for kind, names in _KINDS.items()
    for name in names.split()
}
"""The form of each column that is no free text; cells of other columns may be anything without the delimiter."""

# By what is read of the columns from here on: where each of these columns begins, counted in pieces.
_Divisions = dict[tuple[int, ...], tuple[int, ...]]


def divide(pieces: Sequence[str], names: Sequence[str], read: Collection[int], delimiter: str) -> list[str] | None:
    """Return the cells of a line, or None where its division is not certain.

    Parameters
    ----------
    pieces : sequence of str
        The line, cut at every delimiter.
    names : sequence of str
        The columns, in lower case.
    read : collection of int
        Positions of the columns that matter.
    delimiter : str
        Joins the pieces of one cell.
    """
    extra = len(pieces) - len(names)
    free = [place for place, name in enumerate(names) if name in FREE_TEXT]
    if extra < 0 or (extra and not free) or (extra > _MOST_EXTRA and len(free) > 1):
        return None
    if not extra:
        return list(pieces)
    first, last = free[0], free[-1]
    if first == last:
        end = first + 1 + extra
        return [*pieces[:first], delimiter.join(pieces[first:end]), *pieces[end:]]
    # The divisions from a column on, by how many pieces more than columns there are before it.
    found: list[_Divisions] = [{(): ()} if shift == extra else {} for shift in range(extra + 1)]
    for place in range(last, first - 1, -1):
        found = [_before(place, shift, pieces, names, read, found) for shift in range(extra + 1)]
    if len(found[0]) != 1:
        return None
    (begins,) = found[0].values()
    ends = (*begins[1:], last + 1 + extra)
    middle = [delimiter.join(pieces[a:b]) for a, b in zip(begins, ends, strict=True)]
    return [*pieces[:first], *middle, *pieces[last + 1 + extra :]]


def fits(cells: Sequence[str], names: Sequence[str]) -> bool:
    """Return whether every cell of a record has the form of its column."""
    return all(name in SEVERAL_LINES or _may_be(name, cell) for name, cell in zip(names, cells, strict=True))


def begins_record(pieces: Sequence[str], names: Sequence[str]) -> bool | None:
    """Return whether a line is the begin of a record; None where no job id is in front of the free text."""
    first = next((place for place, name in enumerate(names) if name in FREE_TEXT), len(names))
    if "jobid" not in names[:first]:
        return None
    return len(pieces) > first and fits(pieces[:first], names[:first])


def _may_be(name: str, cell: str) -> bool:
    form = _FORM_OF.get(name)
    return "\n" not in cell and (form is None or form.fullmatch(cell) is not None)


def _before(
    place: int, shift: int, pieces: Sequence[str], names: Sequence[str], read: Collection[int], after: list[_Divisions]
) -> _Divisions:
    """Return the divisions from one column on: two at most, since two already contradict each other."""
    begin = place + shift
    if names[place] in FREE_TEXT:
        widths = range(len(after) - shift)
        if names[place] not in SEVERAL_LINES:
            widths = range(next((w for w in widths if "\n" in pieces[begin + w]), len(widths)))
    else:
        widths = range(1 if _may_be(names[place], pieces[begin]) else 0)
    found: _Divisions = {}
    for width in widths:
        for key, begins in after[shift + width].items():
            found.setdefault((begin, width, *key) if place in read else key, (begin, *begins))
            if len(found) > 1:
                return found
    return found
