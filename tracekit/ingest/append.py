"""Add a newer export to a Trace, so that daily dumps build up a history.

If both contain a job, machine, quota or sample, the newer record replaces the older one in the same table row. All
other rows are kept. The merged tables are written next to the Trace and replace it in one step. Appending the same
files again changes nothing.
"""

from __future__ import annotations

import os
import re
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tracekit.errors import OutputError, SourceError, TraceError, UsageError
from tracekit.ingest.checks import COMMON_CHECKS
from tracekit.ingest.merge_tables import attach, write_listed_records, write_tables
from tracekit.manifest import Addition, Check
from tracekit.trace import MANIFEST_NAME, Trace, is_trace

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import duckdb

    from tracekit.ingest.interface import Format, TimeFrame
    from tracekit.ingest.sink import Sink
    from tracekit.manifest import FileAccount, Manifest

_AGAIN = "; summed over the exports, so repeated rows count again"


@dataclass(frozen=True)
class Earlier:
    """The Trace to append to, in its state when the ingest began."""

    trace: Trace
    """The Trace itself."""
    stamp: bytes
    """Content of its manifest.json. If this content differs later, another run has changed the Trace."""

    def require_same_reading(self, form: Format, options: Mapping[str, str]) -> None:
        """Reject a format or option that would change what the columns mean.

        Raises
        ------
        UsageError
            The Trace was read with another format or option, or the format's ids change between exports.
        """
        found, where = self.trace.manifest, self.trace.path
        if form.no_append:
            raise UsageError(
                f"a source in the format {form.name} cannot be appended: {form.no_append}",
                where="--append",
                hint="ingest each source into its own Trace",
            )
        if found.format != form.name:
            raise UsageError(
                f"was ingested from the format {found.format}, but the source has the format {form.name}",
                where=where,
                hint="ingest the source into another Trace",
            )
        for name, option in form.options.items():
            before = found.options.get(name, option.default)
            if options[name] != before and not option.file:
                raise UsageError(
                    f"was ingested with {name}={before}, but the source uses {name}={options[name]}",
                    where=where,
                    hint=f"use --option {name}={before}" if before else f"leave out --option {name}",
                )

    def require_same_times(self, frame: TimeFrame, source: Path) -> None:
        """Reject times whose origin differs from the Trace's origin.

        Raises
        ------
        SourceError
            The times are relative to an unknown start, or their kind or time zone differs from the Trace's.
        """
        found = self.trace.manifest
        hint = "ingest the source into another Trace"
        if frame.base == "relative":
            raise SourceError(
                "cannot be appended: its times count from the start of each export, so times in different exports "
                "cannot be compared",
                where=source,
                hint=hint,
            )
        if (found.time_base, found.timezone) != (frame.base, frame.timezone):
            raise SourceError(
                f"its times are {frame.base} and read in {frame.timezone}, but those of {self.trace.path} are "
                f"{found.time_base} and read in {found.timezone}",
                where=source,
                hint=hint,
            )

    def nothing_new(self, accounts: Sequence[FileAccount]) -> str:
        """Return why the files add nothing to the Trace, or '' if they may add something."""
        known = _known(self.trace.manifest.files)
        if all((a.path, a.sha256) in known for a in accounts):
            return f"{self.trace.path} already contains every file of the source"
        return "" if any(a.records for a in accounts) else "the source has no records, as on an idle day"

    def require_unchanged(self) -> None:
        """Check that nobody has changed the Trace that is about to be replaced.

        Raises
        ------
        OutputError
            Another run has replaced the Trace since this ingest began.
        """
        path = self.trace.path / MANIFEST_NAME
        if not path.is_file() or path.read_bytes() != self.stamp:
            raise OutputError("was changed while this append ran", where=self.trace.path, hint="append again")

    def merge(self, manifest: Manifest, form: Format, sink: Sink, *, narrow: bool) -> None:
        """Merge the new export's staged tables and manifest with the Trace's tables and manifest.

        The format's check counts are added up in `sink`. The caller runs the common checks and measures capabilities.
        With `narrow`, unchanged partitions of the Trace are reused.

        Raises
        ------
        SourceError
            A job or machine id belongs to one cluster in the Trace and to another in the export.
        TraceError
            One of the Trace's tables is damaged.
        """
        sink.progress.stage("merging it into the Trace")
        fresh = sink.writer.scratch / "new"
        fresh.mkdir()
        for table in manifest.tables:
            sink.path(table).replace(fresh / f"{table}.parquet")
        shown = _manifest_names(self.trace.manifest.files, manifest.files)
        with sink.connect() as con, self._join_errors():
            renamed = attach(con, self.trace, fresh, by_cluster=form.nodes_from_jobs)
            narrow = narrow and not renamed  # after a rename, every row that names a machine changes
            self._require_one_cluster(con)
            self._note_clusters(con, sink)
            form.merge_jobs(con, sink.options)
            kept = write_tables(con, sink.writer, self.trace, nodes_from_jobs=form.nodes_from_jobs, narrow=narrow)
            write_listed_records(con, sink.writer, shown)
            for table, partitions in kept.items():
                sink.writer.adopt(table, partitions, self.trace.path)
            self._count(con, shown, manifest, sink)
        manifest.files = self.trace.manifest.files + [
            replace(account, path=shown[account.path]) for account in manifest.files if account.path in shown
        ]
        manifest.notes = _newest_notes(self.trace.manifest.notes, manifest.notes)

    @contextmanager
    def _join_errors(self) -> Iterator[None]:
        import duckdb

        try:
            yield
        except (duckdb.OutOfMemoryException, duckdb.IOException):
            raise
        except duckdb.Error as error:
            raise TraceError(
                f"cannot be joined with the source: {str(error).splitlines()[0]}",
                where=self.trace.path,
                hint="run 'tracekit validate TRACE' for details",
            ) from error

    def _require_one_cluster(self, con: duckdb.DuckDBPyConnection) -> None:
        for table, key, what in (("jobs", "job_id", "job"), ("nodes", "node_id", "machine")):
            name, before, now = con.execute(
                f"""SELECT min(n.{key}), arg_min(o.cluster, n.{key}), arg_min(n.cluster, n.{key})
                FROM old_{table} o JOIN new_{table} n USING ({key}) WHERE o.cluster <> n.cluster"""
            ).fetchall()[0]
            if name is not None:
                raise SourceError(
                    f"the {what} '{name}' belongs to cluster '{before}' in the Trace and to '{now}' in the source",
                    where=self.trace.path,
                    hint="keep one Trace per cluster, or make the ids unique",
                )

    def _note_clusters(self, con: duckdb.DuckDBPyConnection, sink: Sink) -> None:
        listed = "SELECT coalesce(list(DISTINCT cluster ORDER BY cluster), []) FROM"
        before, now = (con.execute(f"{listed} {side}_jobs").fetchall()[0][0] for side in ("old", "new"))
        if before and now and not set(before) & set(now):
            sink.note(
                f"the clusters in the appended export ({', '.join(now[:6])}) differ from all earlier "
                f"ones ({', '.join(before[:6])}), so no job was matched"
            )

    def _count(self, con: duckdb.DuckDBPyConnection, shown: Mapping[str, str], manifest: Manifest, sink: Sink) -> None:
        """Record how many rows were added, and add up the check counts of both exports."""
        alone = con.execute("SELECT count(*) FROM new_jobs ANTI JOIN identity USING (side, job_id)").fetchall()[0][0]
        added, seen, older, reopened = con.execute(
            """SELECT count(*) FILTER (WHERE NOT old), count(*) FILTER (WHERE old AND new),
                      count(*) FILTER (WHERE old AND new AND NOT newer), count(*) FILTER (WHERE reopened)
            FROM outcome"""
        ).fetchall()[0]
        for name, count, condition, meaning in (
            ("older_records", older, "old AND new AND NOT newer",
             "jobs whose state in an appended export is older than in the Trace; the Trace keeps its record"),
            ("reopened_jobs", reopened, "reopened",
             "jobs that had ended in the Trace but run or wait again in an appended export"),
        ):  # fmt: skip
            examples = con.execute(f"SELECT min(final_id, 5) FROM outcome WHERE {condition}").fetchall()[0][0]
            sink.check(name, count, seen, meaning, examples)
        _sum_checks(self.trace.manifest.checks, sink.checks)
        before = self.trace.manifest
        manifest.additions = [
            *before.additions,
            Addition(
                created=manifest.created,
                tracekit_version=manifest.tracekit_version,
                files=list(shown.values()),
                jobs_added=alone + added,
                jobs_replaced=seen - older,
                jobs_older=older,
            ),
        ]
        manifest.created = before.created
        several = con.execute("SELECT count(*) FROM merged_attempts WHERE attempt > 0").fetchall()[0][0]
        sink.retries = sink.retries or before.capabilities["retries"].available or several > 0


def open_earlier(out: Path) -> Earlier | None:
    """Return the Trace at `out` to append to, or None if it does not exist yet.

    Raises
    ------
    TraceError
        The Trace is damaged or was written by an incompatible version.
    """
    place = Path(os.path.realpath(out))
    return Earlier(Trace.open(place), (place / MANIFEST_NAME).read_bytes()) if is_trace(place) else None


def _known(files: Iterable[FileAccount]) -> set[tuple[str, str]]:
    """Return the names and checksums of the files already read. Numbered names are also listed without the number."""
    return {(path, f.sha256) for f in files for path in (f.path, re.sub(r"#[0-9]+$", "", f.path))}


def _manifest_names(before: Iterable[FileAccount], now: Iterable[FileAccount]) -> dict[str, str]:
    """Return the manifest name of each new file. Skip files that were already read.

    A different file with the same name gets a number, so its records and rejects stay separate.
    """
    known, used = _known(before), {f.path for f in before}
    shown: dict[str, str] = {}
    for account in now:
        if (account.path, account.sha256) in known:
            continue
        name, number = account.path, 1
        while name in used:
            number += 1
            name = f"{account.path}#{number}"
        used.add(name)
        shown[account.path] = name
    return shown


def _sum_checks(before: Mapping[str, Check], checks: dict[str, Check]) -> None:
    """Add the counts of earlier exports to those of the newest export, except for common checks, which run again."""
    now = dict(checks)
    checks.clear()
    for name in dict.fromkeys([*before, *now]):
        if name in COMMON_CHECKS:
            continue
        parts = [part[name] for part in (before, now) if name in part]
        of = [part.of for part in parts if part.of is not None]
        checks[name] = Check(
            count=sum(part.count for part in parts),
            of=sum(of) if of else None,
            meaning=parts[-1].meaning.removesuffix(_AGAIN) + _AGAIN,
            examples=[e for part in parts for e in part.examples][:5],
        )


def _newest_notes(before: Iterable[str], now: Iterable[str]) -> list[str]:
    """Merge the notes of all exports. Of notes that differ only in numbers, keep the newest."""
    notes = {re.sub(r"\d+", "0", note): note for note in before}
    notes |= {re.sub(r"\d+", "0", note): note for note in now}
    return list(notes.values())
