"""The machine that a file is of, where only its name tells."""

from __future__ import annotations

import re

from tracekit.errors import SourceError


def host_of(path: str, hosts: frozenset[str]) -> str:
    """Return the machine whose name is a whole word of the file's path, the longest of several.

    Raises
    ------
    SourceError
        The path holds no machine of the log, or several.
    """
    words = [path.rpartition(".")[0], path]
    found = [
        host
        for host in hosts
        if any(re.search(rf"(?<![0-9A-Za-z]){re.escape(host)}(?![0-9A-Za-z])", word) for word in words)
    ]
    longest = max((len(host) for host in found), default=0)
    best = [host for host in found if len(host) == longest]
    if len(best) == 1:
        return best[0]
    what = (
        f"its name matches several machines of the log: {', '.join(sorted(best)[:4])}"
        if best
        else "its name matches no machine of the log"
    )
    raise SourceError(what, where=path, hint="name the file after its machine, such as node7.csv")
