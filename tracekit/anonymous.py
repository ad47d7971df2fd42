"""Copy a Trace with pseudonyms instead of names, for results that are shared outside the organization.

Queries, pages and models from the copy can only show pseudonyms, because it contains no names. It replaces identifiers
of people, teams, jobs and machines, and all columns that this module does not know. It keeps scheduler words and
hardware models, and drops free text.

A pseudonym, such as user-3f9a2c51, is the kind of name and the first digits of the name's HMAC-SHA256, keyed with the
salt. Without the salt, nobody can recover a name, not even by trying all names. With the same salt, all pages use the
same pseudonyms.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import re
import secrets
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from tracekit import schema
from tracekit.damage import hidden_names
from tracekit.databases import connect_duckdb
from tracekit.errors import OutputError, UsageError
from tracekit.interruption import temporary_folder
from tracekit.outputs import StagedFiles
from tracekit.tables.parquet import files_sql
from tracekit.trace import Trace
from tracekit.trace_writer import TraceWriter

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    import duckdb

    from tracekit.manifest import Addition, Manifest
    from tracekit.schema import Column


_KINDS = {
    "job_id": "job",
    "node_id": "node",
    "source_file": "file",
    "partitions": "partition",
    "features": "feature",
}
"""The kind of name in each column that is not called after its kind."""

_KEPT = frozenset(
    {
        "workload",
        "status",
        "started_by",
        "gpu_model",
        "gpu_instance",
        "gpu_index",
        "state",
        "cause",
        "category",
        "signature",
        "column",
    }
)
"""Text columns that contain only tracekit's own words or hardware models."""

_FIRST_WORD = {
    "source_status": "^[A-Za-z_]+",
    "wait_reason": "^(?:[A-Z][a-z]+(?:[A-Z][A-Za-z]*)+|[A-Z]{2,}[A-Z]*[a-z][A-Za-z]*"
    "|Cleaning|Constraints|Dependency|Licenses|Priority|Prolog|Reservation|Resources|Unschedulable)\\b",
}
"""Scheduler words that a name may follow, as in CANCELLED by 1234. A known wait reason is a camel-case code or one of
these words. Any other may begin with the name of a host or a person."""

_LEFT_OUT = frozenset({"raw", "source", "source_cause"})
"""Free text."""

_DIGITS, _MANY_DIGITS = 8, 16
"""Digits in a pseudonym: the usual number, and the number for kinds with up to millions of names."""
_MANY = frozenset({"job", "name", "group", "instance"})

_TIME = "^[0-9TZ:.,+/ -]*$"

_HIDDEN = "(hidden)"
_OPTIONS = frozenset({"vc", "tenant", "queue_from", "unit", "timezone", "waits"})
"""Format options whose value is one of tracekit's own words."""

_NOTE = "names are pseudonyms, and the ingest notes are left out"

SALT_VARIABLE = "TRACEKIT_SALT"
"""Environment variable that may contain the salt."""

_SHORTEST = 16
"""Minimum length of a salt. Brute force could find a shorter one."""
_DRAWN = 32
"""Number of bytes in a random salt."""
_LARGEST = 1 << 16

_BLOCK = 64
"""Number of bytes in a SHA-256 block."""


@dataclass(frozen=True)
class Pseudonyms:
    """The pseudonyms that one salt gives."""

    salt: bytes = field(repr=False)
    digits: Mapping[str, int] = field(default_factory=dict)
    """Number of hexadecimal digits in a pseudonym, by kind of name."""

    def of(self, kind: str, name: str) -> str:
        """Return the pseudonym of a name."""
        found = hmac.new(self._key, f"{kind}:{name}".encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()
        return f"{kind}-{found[: self.digits[kind]]}"

    def sql(self, kind: str, column: str) -> str:
        """Return SQL for the HMAC of a column in hexadecimal digits, or NULL if the column is NULL."""
        block = self._key.ljust(_BLOCK, b"\0")
        inner, outer = (bytes(byte ^ pad for byte in block).hex() for pad in (0x36, 0x5C))
        return f"sha256(unhex('{outer}') || unhex(sha256(unhex('{inner}') || encode('{kind}:' || {column}))))"

    @property
    def _key(self) -> bytes:
        return hashlib.sha256(self.salt).digest()


@dataclass(frozen=True)
class HiddenTrace:
    """A Trace, and the pseudonyms that replaced its names."""

    trace: Trace
    pseudonyms: Pseudonyms | None = None
    """The pseudonyms, or None if names were not replaced."""
    notes: tuple[str, ...] = ()
    """Sentences about the salt that the user should see."""


@contextmanager
def opened(
    trace: Trace | str | Path,
    *,
    anonymize: bool = True,
    salt_file: Path | None = None,
    memory_limit: str | None = None,
) -> Iterator[HiddenTrace]:
    """Open a Trace, or a copy with pseudonyms that is removed at the end of the block.

    Parameters
    ----------
    trace : Trace, str or Path
        The Trace, or its folder.
    anonymize : bool
        Whether to replace names.
    salt_file : Path, optional
        File with the salt (see `read_salt`).
    memory_limit : str, optional
        Maximum memory DuckDB may use for the copy before it spills to disk, such as '2GB'.

    Raises
    ------
    UsageError
        A salt file is invalid, or is given without `anonymize`.
    """
    if not anonymize:
        if salt_file is not None:
            raise UsageError("works only with --anonymize", where="--salt-file", hint="add --anonymize")
        yield HiddenTrace(Trace.of(trace))
        return
    with hidden_names(), temporary_folder("anonymous") as folder:
        known = Trace.of(trace)
        salt, note = read_salt(salt_file)
        hidden = anonymous_trace(known, folder / "trace", salt, memory_limit)
        yield replace(hidden, notes=() if note is None else (note,))


def anonymous_trace(trace: Trace, place: Path, salt: bytes, memory_limit: str | None = None) -> HiddenTrace:
    """Write a copy of a Trace with pseudonyms instead of names.

    Parameters
    ----------
    trace : Trace
        The Trace, which is not changed.
    place : Path
        Folder of the copy.
    salt : bytes
        Key of the pseudonyms. The same salt gives the same pseudonyms.
    memory_limit : str, optional
        Maximum memory DuckDB may use before it spills to disk, such as '2GB'.

    Raises
    ------
    UsageError
        Two names get the same pseudonym with this salt.
    DamagedTraceError
        A table cannot be read.
    OutputError
        The output cannot be written.
    """
    with trace.connect(memory_limit) as con, TraceWriter(place) as writer:
        names = _with_digits(con, trace, Pseudonyms(salt))
        for table in trace.tables:
            columns = ", ".join(f'{_expression(c, names)} AS "{c.name}"' for c in schema.common(table).columns)
            writer.copy(table, con, f"SELECT {columns} FROM {table}")
        manifest = _hidden_manifest(trace.manifest, names)
        writer.drain()
        _cut(writer, trace)
        manifest.tables = writer.tables()
        return HiddenTrace(writer.commit(manifest), names)


def _cut(writer: TraceWriter, trace: Trace) -> None:
    """Partition the tables that are partitioned in `trace`."""
    tables = [table for table in trace.tables if trace.manifest.tables[table].partitions is not None]
    if not tables:
        return
    with connect_duckdb() as con:
        for table in ("jobs", "nodes"):
            columns = ", ".join(f'CAST(NULL AS {c.sql}) AS "{c.name}"' for c in schema.common(table).columns)
            files = writer.files(table)
            rows = f"* FROM read_parquet({files_sql(files)})" if files else f"{columns} WHERE false"
            con.execute(f"CREATE VIEW {table} AS SELECT {rows}")
        writer.cut(con, tables)


def kind_of(column: Column) -> str | None:
    """Return the kind of names in a column, or None for a column without names."""
    if (
        (column.kind != "string" and column.item != "string")
        or column.name in {*_KEPT, *_FIRST_WORD, *_LEFT_OUT}
        or column.name in {"reason", "value"}
    ):
        return None
    return _KINDS.get(column.name, column.name)


def _expression(column: Column, names: Pseudonyms) -> str:
    quoted = f'"{column.name}"'
    kind = kind_of(column)
    if kind is not None:
        name = quoted if column.item is None else "x"
        hidden = f"'{kind}-' || left({names.sql(kind, name)}, {names.digits[kind]})"
        return hidden if column.item is None else f"list_sort(list_transform({quoted}, lambda x: {hidden}))"
    if column.name in _LEFT_OUT:
        return "NULL"
    if column.name in _FIRST_WORD:
        return f"nullif(regexp_extract({quoted}, '{_FIRST_WORD[column.name]}'), '')"
    if column.name == "value":
        return f"CASE WHEN regexp_matches({quoted}, '{_TIME}') THEN {quoted} END"
    if column.name == "reason":
        return f"regexp_replace({quoted}, '[''\"].*[''\"]', '{_HIDDEN}', 's')"
    return quoted


def _with_digits(con: duckdb.DuckDBPyConnection, trace: Trace, names: Pseudonyms) -> Pseudonyms:
    """Return the pseudonyms, with enough digits to tell the names of each kind apart."""
    columns: dict[str, list[str]] = {"file": [], "partition": []}
    for table in trace.tables:
        for column in schema.common(table).columns:
            kind = kind_of(column)
            if kind is not None:
                name = f'"{column.name}"' if column.item is None else f'unnest("{column.name}")'
                columns.setdefault(kind, []).append(f"SELECT DISTINCT {name} AS name FROM {table}")
    digits = {}
    for kind, selects in columns.items():
        digits[kind] = _MANY_DIGITS if kind in _MANY else _DIGITS
        if not selects:
            continue
        found = con.execute(
            f"SELECT count(*), count(DISTINCT left(h, {digits[kind]})), count(DISTINCT left(h, {_MANY_DIGITS}))"
            f" FROM (SELECT {names.sql(kind, 'name')} AS h FROM ({' UNION '.join(selects)}) WHERE name IS NOT NULL)"
        ).fetchall()
        known, told, told_by_many = found[0]
        if told < known:
            digits[kind] = _MANY_DIGITS
        if told_by_many < known:
            raise UsageError(f"two names of the kind '{kind}' get the same pseudonym", hint="use another salt")
    return replace(names, digits=digits)


def _hidden_manifest(manifest: Manifest, names: Pseudonyms) -> Manifest:
    return replace(
        manifest,
        files=[replace(file, path=names.of("file", file.path), sha256="") for file in manifest.files],
        checks={
            name: replace(check, meaning=_hide(check.meaning), examples=[]) for name, check in manifest.checks.items()
        },
        options={
            name: value if name in _OPTIONS and re.fullmatch(r"[\w/+-]{1,40}", value) else _HIDDEN
            for name, value in manifest.options.items()
        },
        capabilities={name: replace(can, note=_hide(can.note)) for name, can in manifest.capabilities.items()},
        notes=[_NOTE],
        additions=[_hidden_addition(one, names) for one in manifest.additions],
    )


def _hidden_addition(addition: Addition, names: Pseudonyms) -> Addition:
    return replace(addition, files=[names.of("file", path) for path in addition.files])


def _hide(text: str) -> str:
    """Replace quotations in `text`, because they may come from the log."""
    return re.sub(r"(?<!\w)['\"].*['\"](?!\w)", _HIDDEN, text, flags=re.DOTALL)


def read_salt(file: Path | None) -> tuple[bytes, str | None]:
    """Return the salt, and a sentence about its origin if the user should know.

    The salt is the content of `file`; if the file does not exist, it is created with a random salt. Without `file`, the
    salt is the environment variable TRACEKIT_SALT or, if that is not set, random and not kept.

    Raises
    ------
    UsageError
        The file cannot be read, or the salt is too short.
    OutputError
        The file cannot be written.
    """
    if file is not None:
        return _of_file(file)
    given = os.environ.get(SALT_VARIABLE)
    if given is not None:
        return _checked(given.encode("utf-8", "surrogateescape"), SALT_VARIABLE), None
    return (
        secrets.token_bytes(_DRAWN),
        "these pseudonyms are for this run only; with --salt-file FILE, later pages use the same ones",
    )


def _of_file(file: Path) -> tuple[bytes, str | None]:
    try:
        if os.path.lexists(file):
            with file.open("rb") as known:
                return _checked(known.read(_LARGEST), file), None
        drawn = secrets.token_hex(_DRAWN).encode()
        with StagedFiles(file, force=False) as staged:
            part = staged.part(file)
            part.chmod(0o600)  # no other user may read it, not even briefly
            part.write_bytes(drawn + b"\n")
            staged.commit()
    except OutputError:
        raise
    except OSError as error:
        raise UsageError(f"cannot read the salt: {error.strerror}", where=file, hint="choose another file") from error
    return drawn, f"a random salt was written to {file}; keep it secret, because anyone who has it can recognize names"


def _checked(salt: bytes, where: Path | str) -> bytes:
    found = salt.strip()
    if len(found) < _SHORTEST:
        raise UsageError(
            f"the salt has fewer than {_SHORTEST} characters, so names could be guessed",
            where=where,
            hint="name a new file, to which tracekit writes a random salt",
        )
    return found
