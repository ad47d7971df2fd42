"""Candidates of a calibration that shards try together."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from hashlib import blake2b
from typing import TYPE_CHECKING, Any

from tracekit.shards.digests import digest_of_facts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tracekit.calibration.workbench import Settings, Workbench
    from tracekit.shards.work import SharedWork

__all__ = ["SharedTries"]


@dataclass(frozen=True)
class SharedTries:
    """The candidates of one cluster; every stage of its search needs all results of the stages before."""

    work: SharedWork
    facts: Mapping[str, Any]
    """What all candidates of the cluster have in common: the Trace, the jobs that are looked at, the program."""

    def of(
        self, bench: Workbench, candidates: list[Settings], make: Callable[[Settings], dict[str, Any]], what: str
    ) -> list[dict[str, Any]]:
        """Return what was found of each candidate, as `make` gives it, after those that nobody tried were tried.

        Parameters
        ----------
        bench : Workbench
            On which they are tried: which jobs are learnt from is part of what a candidate is.
        candidates : list of Settings
        make : callable
            Tries one.
        what : str
            What the candidates are, for messages, a plural.

        Raises
        ------
        UnfinishedError
            Some were not tried, and this process only gathers.
        """
        learnt = blake2b(bench.among.tobytes(), digest_size=16).hexdigest()
        makers = {}
        for one in candidates:
            settings = {"rules": asdict(one.rules), "capacity": one.capacity, "delays": one.delays}
            digest = digest_of_facts({**self.facts, "learnt": learnt, "settings": settings})
            makers[digest] = lambda one=one: make(one)
        return self.work.of(makers, what)
