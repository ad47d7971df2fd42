"""Read a source in this process and with workers, and check that the Traces are the same."""

from __future__ import annotations

import pickle
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import polars as pl

from tracekit.ingest import ingest_logs
from tracekit.progress import Progress

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from pathlib import Path

    from tracekit.trace import Trace
    from tracekit.workers import Workers

__all__ = ["Heard", "Pickled", "assert_same", "both"]


class Pickled:
    """Workers in this process that exchange only bytes, begin with the last item, and do the first one twice."""

    def __init__(self) -> None:
        self.begun: list[Any] = []
        self.started = False

    def start(self) -> None:
        self.started = True

    def in_order(self, work: Callable[[Any], Any], items: Sequence[Any]) -> Generator[Any]:
        sent = pickle.dumps(work)

        def done(item: Any) -> Any:
            self.begun.append(item)
            return pickle.loads(pickle.dumps(pickle.loads(sent)(pickle.loads(pickle.dumps(item)))))

        if items:
            done(items[0])  # by a machine that is lost before it reports the result
        found = [done(item) for item in reversed(items)]
        yield from reversed(found)


class Heard(Progress):
    """Stores the notes."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


def both(source: Path, place: Path, workers: Workers, **settings: Any) -> Trace:
    """Return this process's Trace, after checking that the workers' Trace is the same."""
    alone = ingest_logs(source, place / "alone", **settings)
    together = ingest_logs(source, place / "together", workers=workers, **settings)
    assert_same(alone, together)
    assert sorted(path.name for path in place.iterdir() if path.name.startswith(".")) == []
    return alone


def assert_same(one: Trace, other: Trace) -> None:
    """Compare tables row by row, their files by checksum, and everything in the manifests except times."""
    assert one.tables == other.tables
    for table in one.tables:
        left, right = one.scan(table).collect(), other.scan(table).collect()
        assert left.schema == right.schema
        assert left.equals(right), table
        names = [c for c, kind in left.schema.items() if kind == pl.Float64]
        assert left.select(pl.col(names).is_nan().sum()).equals(right.select(pl.col(names).is_nan().sum()))
    assert replace(one.manifest, created="") == replace(other.manifest, created="")
