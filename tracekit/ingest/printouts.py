"""Printouts that are easily taken for logs: what each is, and the command whose output is a log.

They show one moment, or sums, or leave out what every question needs; no format reads them.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from tracekit.errors import SourceError
from tracekit.ingest.formats._slurm_text import COMMAND

if TYPE_CHECKING:
    from tracekit.ingest.files import SourceFile

__all__ = ["Printout", "printout_of"]

_LOOKED_AT = 64
"""Most files whose first bytes are looked at."""
_PODS = "kubectl get pods,workloads -A -o json > pods.json"
_QUEUE = "squeue shows only current jobs, without their GPUs and waits"


class Printout(NamedTuple):
    """A printout among the files of a source."""

    path: str
    what: str
    """What it is, and why it is no log."""
    cure: str
    """The command whose output is read."""


# The first bytes, what they are, and the command.
_KNOWN = tuple(
    (re.compile(pattern, re.MULTILINE), what, cure)
    for pattern, what, cure in (
        (rb"^\s*JOBID\b[^\n]*(?:NODELIST\(REASON\)|\bREASON\b)", _QUEUE, f"write the history with: {COMMAND}"),
        (
            rb"- \d{4}-\d\d-\d\dT\d\d:\d\d:\d\d \(\d+ secs\)|^Cluster\|Account\|Login\|Proper Name\|Used",
            "sreport prints totals for a period, not jobs",
            f"write the jobs with: {COMMAND}",
        ),
        (
            rb"\A(?:---\s+)?apiVersion: ?\S+",
            "kubectl printed YAML, which tracekit does not read",
            f"give -o json, as in: {_PODS}",
        ),
        (
            rb"\A(?:NAMESPACE\s+)?NAME\s+READY\s+STATUS\s+RESTARTS",
            "kubectl printed a table for people, without GPUs and times",
            f"print JSON: {_PODS}",
        ),
        (
            rb"^JOBID\s+USER\s+STAT\s+QUEUE\b",
            "bjobs printed a table for people, which cuts long cells",
            "write the history with: bhist -a -l -u all > bhist.txt",
        ),
        (
            rb"^Job id\s+Name\s+User\s+Time Use",
            "qstat shows only current jobs",
            "name the server's folder of accounting logs, $PBS_HOME/server_priv/accounting",
        ),
    )
)


def printout_of(files: list[SourceFile]) -> Printout | None:
    """Return the first of some files that is a known printout; None without any.

    Examples
    --------
    >>> [what for pattern, what, _ in _KNOWN if pattern.search(b"apiVersion: v1")]
    ['kubectl printed YAML, which tracekit does not read']
    """
    for file in files[:_LOOKED_AT]:
        try:
            head = file.head(4_096).removeprefix(b"\xef\xbb\xbf")
        except SourceError:
            continue
        for pattern, what, cure in _KNOWN:
            if pattern.search(head):
                return Printout(file.path, what, cure)
    return None
