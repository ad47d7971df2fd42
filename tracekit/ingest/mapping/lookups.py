"""Lookup tables of a mapping: what a cell stands for, in the mapping file or in a file of the source."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tracekit.errors import SourceError
from tracekit.ingest.mapping.blocks import read_rows
from tracekit.ingest.mapping.convert import converted, reject_rows
from tracekit.ingest.mapping.rules import LookedUp
from tracekit.ingest.mapping.tables import chooser

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracekit.ingest.files import SourceFile
    from tracekit.ingest.mapping.model import LogMap, Lookup
    from tracekit.ingest.sink import Sink

_MOST = 1_000_000
"""Keys of a lookup table, which is held in memory."""


def with_lookups(log_map: LogMap, files: Mapping[str, list[SourceFile]], sink: Sink) -> LogMap:
    """Return a mapping whose rules have the content of the lookup tables that they name.

    Raises
    ------
    SourceError
        A file cannot be read, or has too many keys.
    """
    found = {one.name: _words(one, files.get(one.key, []), sink) for one in log_map.lookups}
    if not found:
        return log_map
    tables = []
    for table in log_map.tables:
        rules = (replace(rule, tables={name: found[name] for name in rule.lookups}) for rule in table.rules)
        tables.append(replace(table, rules=tuple(rules)))
    return replace(log_map, tables=tuple(tables))


def _words(lookup: Lookup, files: list[SourceFile], sink: Sink) -> LookedUp:
    if lookup.reading is None:
        return LookedUp(lookup.words, exact=False)
    words: dict[str, str] = {}
    several: dict[str, None] = {}
    for file in files:
        with sink.opened(file) as opened:
            for rows in read_rows(opened, lookup.reading, chooser(lookup.rules, file.path, sink)):
                cells = converted(lookup.rules, rows, lookup.reading)
                frame = cells.frame.filter(reject_rows(opened, rows, cells.bad, cells.lost)).drop_nulls()
                for word, value in frame.iter_rows():
                    if words.setdefault(word, value) != value:
                        several[word] = None
                if len(words) > _MOST:
                    raise SourceError(
                        f"has more than {_MOST:,} keys of the lookup table {lookup.name}",
                        where=file.path,
                        hint="keep the rows that the log needs",
                    )
    sink.check(
        f"several_values_in_lookup_{lookup.name}"[:80],
        len(several),
        len(words),
        f"keys of the lookup table {lookup.name} with several values; their value is unknown",
        list(several),
    )
    return LookedUp({word: value for word, value in words.items() if word not in several}, exact=True)
