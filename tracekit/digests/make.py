"""The digest of a week, from a history to its folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import orjson

from tracekit.anonymous import opened
from tracekit.characterize.occupancy import PAST_LIMIT
from tracekit.characterize.session import Session
from tracekit.damage import explain_damage
from tracekit.digests.document import digest_document
from tracekit.digests.figures import has_gpu_jobs, weekly_figures
from tracekit.digests.pages import pages
from tracekit.digests.use import USE_TABLES
from tracekit.digests.weeks import SLACK, last_whole_week, week_at, week_of, weeks_before
from tracekit.errors import QueryError, UsageError
from tracekit.faults import Faults
from tracekit.outputs import StagedFolder, output_errors
from tracekit.report.data import fault_infos
from tracekit.text import duration
from tracekit.timezones import known_zone

if TYPE_CHECKING:
    import datetime as dt

    from tracekit.digests.document import Digest
    from tracekit.digests.weeks import Week
    from tracekit.progress import Progress
    from tracekit.trace import Trace

__all__ = ["WEEKS", "digest", "digest_of"]

WEEKS = 8
"""How many weeks before are compared with."""
_DATA = "digest.json"


def digest(
    history: Trace | str | Path,
    out: str | Path,
    *,
    week: str | None = None,
    by: str = "user",
    anonymize: bool = False,
    salt_file: str | Path | None = None,
    force: bool = False,
    memory_limit: str | None = None,
    progress: Progress | None = None,
) -> Digest:
    """Write the digest of a week: a page for the operator, and one for each user or account.

    A page that fails stops no other page: it says that it could not be made, the operator's page counts it, and
    `faults` of the digest lists it.

    >>> import tracekit
    >>> tracekit.digest("history", "digest", week="2026-W47")  # doctest: +SKIP

    Parameters
    ----------
    history : Trace or path
        Trace of the weeks so far.
    out : path
        Folder that is written: index.html, index.md, digest.json, and users/ or accounts/ with two files a name.
    week : str, optional
        ISO week in the time zone of the Trace; the last whole one by default.
    by : str
        user or account.
    anonymize : bool
        Whether names are replaced by pseudonyms, those of files and of the history itself too.
    salt_file : str or Path, optional
        Where the salt of the pseudonyms is, or is kept where there is no such file.
    force : bool
        Replace an earlier digest.
    memory_limit : str, optional
        Most memory for joins before they spill to disk, such as '2GB'.
    progress : Progress, optional
        Is given each part that fails.

    Raises
    ------
    UsageError
        There is no such week, or the log ends before it; the log does not name users or accounts; there is a file of
        a salt and nothing to anonymize, or it cannot be used.
    QueryError
        The log does not tell when jobs were submitted.
    OutputError
        The folder exists, or cannot be written.
    """
    salt = None if salt_file is None else Path(salt_file)
    faults = Faults(progress, with_messages=not anonymize)
    staged = StagedFolder(Path(out), force=force, marker=_DATA, kind="a digest")
    try:
        with opened(history, anonymize=anonymize, salt_file=salt, memory_limit=memory_limit) as hidden:
            made = digest_of(hidden.trace, week=week, by=by, memory_limit=memory_limit, faults=faults)
        made["notes"] = [*hidden.notes, *made["notes"]]
        with output_errors(staged.target):
            (staged.path / f"{by}s").mkdir()
            for name, content in pages(made, faults):
                (staged.path / name).write_text(content, encoding="utf-8", errors="backslashreplace", newline="\n")
            made["faults"] = fault_infos(faults)
            data = orjson.dumps(made, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
            (staged.path / _DATA).write_bytes(data)
        staged.commit()
    except BaseException:
        staged.discard()
        raise
    return made


@explain_damage()
def digest_of(
    history: Trace,
    *,
    week: str | None = None,
    by: str = "user",
    memory_limit: str | None = None,
    faults: Faults | None = None,
) -> Digest:
    """Return the digest of a week without writing it; see `digest`. `faults` records changes that fail."""
    faults = Faults() if faults is None else faults
    if by not in {"user", "account"}:
        raise UsageError(f"'{by[:60]}' is neither user nor account", where="--by", hint="choose one of them")
    if not history.has("jobs"):
        raise QueryError("the trace has no jobs", where=history.path)
    with Session(history, memory_limit).connect(USE_TABLES) as con:
        named = f'SELECT min(submit_time), greatest(max(submit_time), max(start_time), max(end_time)), count("{by}")'
        begin, end, names = con.execute(f"{named} FROM jobs").fetchall()[0]
        if begin is None or end is None:
            raise QueryError("the trace does not tell when jobs were submitted", where=history.path)
        if not names:
            other = "account" if by == "user" else "user"
            raise UsageError(f"the log names no {by}s", where="--by", hint=f"try --by {other}")
        zone = known_zone(history.timezone)
        chosen = last_whole_week(end, zone) if week is None else week_of(week, zone)
        if week is None and chosen.until <= begin:  # a history of a few days
            chosen = week_at(end, zone)
        if chosen.since > end or chosen.until <= begin:
            what = f"the history has nothing of {chosen.name}"
            hint = f"it reaches from {begin:%Y-%m-%d} to {end:%Y-%m-%d} (UTC)"
            raise UsageError(what, where="--week", hint=hint)
        before = weeks_before(chosen, WEEKS, begin)
        gpu_only = has_gpu_jobs(con)
        figures = weekly_figures(con, [*before, chosen], by, gpu_only=gpu_only)
        lost = con.execute(
            "SELECT count(*) FROM open_attempts AS o INNER JOIN attempts AS a ON o.job_id = a.job_id"
            " AND o.attempt = a.attempt WHERE o.lost IS NOT NULL AND a.gpu_count > 0"
        ).fetchall()[0][0]
    notes = _notes(chosen, begin, end, gpu_only=gpu_only)
    notes += [f"{lost:,} attempts with GPUs {PAST_LIMIT}"] if lost else []
    made = digest_document(
        figures,
        chosen,
        before,
        trace=history.path.name,
        by=by,
        gpu_only=gpu_only,
        notes=notes,
        faults=faults,
    )
    made["faults"] = fault_infos(faults)
    return made


def _notes(week: Week, begin: dt.datetime, end: dt.datetime, *, gpu_only: bool) -> list[str]:
    """Return what a reader should know before the figures."""
    notes = []
    if end < week.until - SLACK:
        missing = duration((week.until - end).total_seconds())
        notes.append(f"the history ends {missing} before the week does, so that its figures are too small")
    if begin > week.since + SLACK:
        missing = duration((begin - week.since).total_seconds())
        notes.append(f"the history begins {missing} after the week does, so that its figures are too small")
    if not gpu_only:
        notes.append("the log knows of no job with GPUs: all jobs count")
    return notes
