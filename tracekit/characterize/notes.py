"""Notes on the data that a timeline excluded and on the sources of its numbers.

One table contains the sentences of all kinds. Sentences are built only when an answer is shown, because notes on
several clusters can be added up, and tenants have the site's own word.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tracekit.tenant import VC

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.tenant import Tenant

OWNED = "GPUs of a cluster: "
"""Start of the sentence on a cluster's GPUs."""

SENTENCES = {
    "end unknown": "{0:,} {1} with an unknown or impossible end are excluded from the load",
    "past limit": (
        "{0:,} attempts with GPUs still run according to the log, but exceeded their time limit or lost their GPUs "
        "to a later run; they count up to then (for Slurm: sacctmgr show runawayjobs)"
    ),
    "wait unknown": "{0:,} waits of unknown or negative length are excluded",
    "wait below zero": "{0:,} waits that are negative in the source are excluded",
    "beginning unknown": "{0} excluded, because the beginning or the end of the wait is unknown",
    # The source of the quotas; each answer about quotas has one of these notes.
    "no tenants": "there are no {tenant.many}; the owned GPUs are all GPUs of the cluster",
    "quotas": "quota: the capacity recorded in the trace",
    "quotas of some": "quota: the capacity recorded in the trace; {0} of {1} {tenant.many} have none",
    "peaks": "quota: a proxy, the most GPUs that each {tenant.one} used at one time",
    "peaks alone": (
        "quota: a proxy, the most GPUs that each {tenant.one} used at one time, because the trace records none"
    ),
    "p95": "quota: a proxy, the 95th percentile over time of the GPUs that each {tenant.one} used",
    "cluster": OWNED + "{sources}",
    "out of service": (
        "{0:,.1f} GPU-hours of {1:,} nodes out of service do not count as capacity, because no job used these GPUs"
    ),
    "nodes": "GPUs per node: the {0} number",
    "size unknown": "{0:,} placements on nodes of unknown size are excluded",
    "split unknown": (
        "attempts whose GPUs on each node are unknown, counted with an even share on each of their nodes: {0:,}"
    ),
    "GPUs unknown": "attempts on several nodes excluded, because not all of their nodes' GPUs are known: {0:,}",
    "room without nodes": (
        "the log does not say on which nodes jobs ran, so a job counts as placeable if it is within its quota"
    ),
    "causes without nodes": (
        "the log does not say on which nodes jobs ran, so fragmentation cannot be separated from other causes"
    ),
    "failed attempts": "failed attempts on {0} nodes, each counted on every node that it used: {1}",
    "outcome unknown": "attempts on nodes excluded, because it is unknown how they ended: {0}",
    "run time unknown": "attempts on nodes excluded, because their run time is unknown: {0}",
    "backwards": "events that end before they begin are excluded: {0:,}",
    "unlisted": "nodes known only from events: {0:,}; others that never failed may exist",
}
"""The sentence of each kind, in the order in which answers list them: kinds that add up first, then the others."""

SOURCES = {
    "given": "{0}, by the parameter gpus",
    "listed": "the GPUs of its node list{0}",
    "seen": "the most GPUs that jobs used on each machine, observed{0}",
    "total": "a recorded total",
    "quotas": "the sum of the quotas of its {tenant.many}, which are not machines{0}",
    "other quotas": "the sum of the quotas in the source, which are not machines{0}",
    "most held": "the most GPUs that its jobs used at one time, observed, because the trace records no number",
    "nothing held": "unknown, because no job is known to have used any",
    "proxies": "the sum of the proxies of its {tenant.many}",
}
"""The source of a cluster's number of GPUs, in words."""


@dataclass(frozen=True)
class Note:
    """A note on rows that were computed."""

    kind: str
    """Key of `SENTENCES`."""
    sums: tuple[float, ...] = ()
    """Numbers that add up over the parts of a trace."""
    facts: tuple[str, ...] = ()
    """Words that are the same in all parts."""
    sources: tuple[tuple[str, str], ...] = ()
    """Keys of `SOURCES` with their words. The keys of several parts are concatenated."""

    def sentence(self, tenant: Tenant = VC) -> str:
        """Return the note in words, without a full stop."""
        sources = " or ".join(SOURCES[kind].format(words, tenant=tenant) for kind, words in self.sources) or "unknown"
        return SENTENCES[self.kind].format(*self.sums, *self.facts, tenant=tenant, sources=sources)


def noted(kind: str, number: int, *facts: str) -> list[Note]:
    """Return a note with a number, or no note if the number is 0."""
    return [Note(kind, (number,), facts)] if number else []


def add_notes(parts: Sequence[Sequence[Note]]) -> tuple[Note, ...] | None:
    """Return the notes of the whole from the notes of its parts, or None if the parts contradict each other.

    If a note with numbers is missing in a part, it counts as 0. All other notes must be equal in all parts.
    """
    by_kind: dict[str, list[Note]] = {}
    for note in (note for part in parts for note in part):
        by_kind.setdefault(note.kind, []).append(note)
    whole = []
    for kind in SENTENCES:
        if kind not in by_kind:
            continue
        found = by_kind[kind]
        first = found[0]
        if (len(found) < len(parts) and not first.sums) or any(note.facts != first.facts for note in found):
            return None
        sums = tuple(map(sum, zip(*(note.sums for note in found), strict=True)))
        sources = tuple(dict.fromkeys(source for note in found for source in note.sources))
        whole.append(replace(first, sums=sums, sources=sources))
    return tuple(whole)
