"""Items that have facts in common, in a folder that shards share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tracekit.shards.digests import digest_of_facts

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracekit.shards.work import SharedWork

__all__ = ["SharedItems"]


@dataclass(frozen=True)
class SharedItems:
    """Items of one kind, each told from the others by facts of its own."""

    work: SharedWork
    facts: Mapping[str, Any]
    """What all of them have in common: what they are, the contents of files, the program, settings."""

    def digest(self, **own: Any) -> str:
        """Return the digest of an item by its own facts, which must be all that makes its result another."""
        return digest_of_facts({**self.facts, **own})

    def among(self, **more: Any) -> SharedItems:
        """Return those items that have more facts in common."""
        return SharedItems(self.work, {**self.facts, **more})
