"""A question that SQL answers."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from tracekit.answer import Question
from tracekit.tenant import INGESTED

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.answer import Kind


@lru_cache(maxsize=1000)
def words_of(sql: str) -> frozenset[str]:
    """Return the words of SQL in lower case, comments left out: the names in it, and more."""
    return frozenset(re.findall(r"\w+", re.sub(r"--[^\n]*", "", sql).lower()))


RESERVED_PARAMS = ("time_base", "timezone")
"""Parameters that are bound to what the manifest says when a query uses them."""


@dataclass(frozen=True, kw_only=True)
class Query(Question):
    """A question, and the SQL that answers it; a user's file may say nothing of its columns."""

    kind: Kind = "query"
    sql: str
    """The whole file, so that line numbers hold."""
    path: Path
    tables: tuple[str, ...] = ()
    """Tables that the Trace must have."""
    needs: tuple[str, ...] = ()
    """Capabilities that the Trace must have."""
    also: tuple[str, ...] = ()
    """Tables that are read where the Trace has them, and are empty where it has not."""
    one_of: tuple[str, ...] = ()
    """Tables of which the Trace must have at least one; the others are empty."""
    tenant: str | None = None
    """How the answer depends on the tenant, where its columns do not tell: 'split', 'compared' or 'none'."""
    views: tuple[str, ...] = ()
    """For a shared view: the views it stands on."""
    merge: tuple[str, ...] = ()
    """Common tables, in their order, that read telemetry and only group, count, add and take the least or largest: what
    they say of each day, merged in the same way, is what they say of all days. Nothing else here reads telemetry."""
    shipped: bool = True
    """Whether the file came with tracekit."""
    described: bool = True
    """Whether the file has a header."""

    @property
    def takes_tenant(self) -> bool:
        """Whether another tenant gives another answer; nothing is known of a user's own SQL."""
        if self.tenant is None:
            return not self.shipped or any(column.name == INGESTED for column in self.columns)
        return self.tenant != "none"

    @classmethod
    def of_text(cls, sql: str, path: Path, *, also: tuple[str, ...] = (), merge: tuple[str, ...] = ()) -> Query:
        """Return a query without a header, from its SQL alone; `path` is what its errors name."""
        return cls(
            name="sql",
            title="",
            question="",
            columns=(),
            sql=sql,
            path=path,
            also=also,
            merge=merge,
            shipped=False,
            described=False,
        )
