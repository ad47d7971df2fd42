"""What a timeline left out, and where its numbers come from: a kind of note with its numbers.

The words of all kinds are in one table, and a sentence is made where an answer is shown. So the notes of several
clusters can be added, and name tenants in the site's word.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tracekit.tenant import VC

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.tenant import Tenant

OWNED = "GPUs of a cluster: "
"""Start of the sentence on what a cluster has."""

SENTENCES = {
    "end unknown": "{0:,} {1} whose end is unknown or impossible are left out of the load",
    "past limit": (
        "{0:,} attempts with GPUs that the log says still run have passed their time limit, or a later run has their"
        " GPUs: they count up to then (Slurm's cure: sacctmgr show runawayjobs)"
    ),
    "wait unknown": "{0:,} waits whose length is unknown or below zero are left out",
    "wait below zero": "{0:,} waits below zero are contradictions of the source and are left out",
    "beginning unknown": "{0} left out, whose wait has no known beginning or end",
    # Where quotas come from: one of these in each answer about them.
    "no tenants": "there are no {tenant.many}; what is owned are all GPUs of the cluster",
    "quotas": "quota: the capacity that the trace states",
    "quotas of some": "quota: the capacity that the trace states; {0} of {1} {tenant.many} are not in it",
    "peaks": "quota: a proxy, the most GPUs that each {tenant.one} held at one time",
    "peaks alone": (
        "quota: a proxy, the most GPUs that each {tenant.one} held at one time, since the trace states none"
    ),
    "p95": "quota: a proxy, the 95th percentile over time of the GPUs that each {tenant.one} held",
    "cluster": OWNED + "{sources}",
    "out of service": (
        "{0:,.1f} GPU-hours of {1:,} nodes out of service do not count as capacity: no job had these GPUs"
    ),
    "nodes": "nodes: the {0} number of GPUs of each",
    "size unknown": "{0:,} placements are on nodes of unknown size and hold nothing here",
    "GPUs unknown": "attempts on several nodes left out, since not all GPUs of these are known: {0:,}",
    "room without nodes": (
        "the log does not say on which nodes jobs ran: a job counts as placeable when what it may use has room for it"
    ),
    "causes without nodes": (
        "the log does not say on which nodes jobs ran, so that fragmentation cannot be separated from other causes"
    ),
    "failed attempts": "failed attempts on {0} nodes, each counted on every node that it was on: {1}",
    "outcome unknown": "attempts on nodes left out, since how they ended is unknown: {0}",
    "run time unknown": "attempts on nodes left out, since their run time is unknown: {0}",
    "backwards": "events that end before they begin are left out: {0:,}",
    "unlisted": "nodes that only events name, beside which others may exist that never failed: {0:,}",
}
"""The sentence of each kind, in the order in which an answer has them: first what adds up, then what is the same."""

SOURCES = {
    "given": "{0}, by the parameter gpus",
    "listed": "the GPUs of its node list{0}",
    "seen": "the most GPUs that jobs held on each machine, observed{0}",
    "total": "a stated total",
    "quotas": "the sum of the quotas of its {tenant.many}, which are no machines{0}",
    "other quotas": "the sum of the quotas that the source states, which are no machines{0}",
    "most held": "the most GPUs that its jobs held at one time, observed, since the trace states no number",
    "nothing held": "unknown, since no job is known to have held any",
    "proxies": "the sum of the proxies of its {tenant.many}",
}
"""Where the number of a cluster's GPUs comes from."""


@dataclass(frozen=True)
class Note:
    """A note on rows that were computed."""

    kind: str
    """Key of `SENTENCES`."""
    sums: tuple[float, ...] = ()
    """Numbers that add up over the parts of a trace."""
    facts: tuple[str, ...] = ()
    """Words that are the same for all parts."""
    sources: tuple[tuple[str, str], ...] = ()
    """Keys of `SOURCES` with their words; those of several parts are listed one after the other."""

    def sentence(self, tenant: Tenant = VC) -> str:
        """Return the note in words, without a full stop."""
        sources = " or ".join(SOURCES[kind].format(words, tenant=tenant) for kind, words in self.sources) or "unknown"
        return SENTENCES[self.kind].format(*self.sums, *self.facts, tenant=tenant, sources=sources)


def noted(kind: str, number: int, *facts: str) -> list[Note]:
    """Return a note with a number, or none if the number is 0."""
    return [Note(kind, (number,), facts)] if number else []


def add_notes(parts: Sequence[Sequence[Note]]) -> tuple[Note, ...] | None:
    """Return the notes of the whole from those of its parts; None if the parts contradict each other.

    A note with numbers may be missing in a part, which then has none of them; all others must be the same in all.
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
