"""Make the digest of a week: turn the history into a folder of pages."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson

from tracekit import text
from tracekit.anonymous import opened
from tracekit.characterize.notes import noted
from tracekit.characterize.session import Session
from tracekit.damage import explain_damage
from tracekit.digests.document import digest_document, shown, whose
from tracekit.digests.weeks import (
    SLACK,
    USE_TABLES,
    has_gpu_jobs,
    last_whole_week,
    week_at,
    week_of,
    weekly_figures,
    weeks_before,
)
from tracekit.errors import QueryError, UsageError
from tracekit.faults import Fault, Faults
from tracekit.guidelines.markdown import escaped, table
from tracekit.outputs import StagedFolder, output_errors
from tracekit.report.data import fault_infos
from tracekit.report.page import draw_plain_page, draw_unmade_page
from tracekit.report.unmade import summary_line
from tracekit.text import MISSING, duration
from tracekit.timezones import known_zone

if TYPE_CHECKING:
    import datetime as dt
    from collections.abc import Callable, Iterator, Sequence

    from tracekit.digests.document import ChangeInfo, Digest, Figures, Part
    from tracekit.digests.weeks import Week
    from tracekit.progress import Progress
    from tracekit.trace import Trace


# The content of both kinds of pages for a part of a digest: formatted numbers and sentences.

_SERIES = {
    "jobs": ("jobs", "jobs"),
    "GPU-hours": ("held_gpu_h", "GPU-hours"),
    "used": ("used_share", "share"),
    "median wait": ("wait_p50_s", "s"),
    "p90 wait": ("wait_p90_s", "s"),
    "failed": ("failed_share", "share"),
    "timed out": ("timeout", "jobs"),
}
"""The figure and unit of each column in the table of weeks."""
_OVERVIEW = {
    "jobs": ("jobs", "jobs"),
    "GPU-hours": ("held_gpu_h", "GPU-hours"),
    "used": ("used_share", "share"),
    "idle GPU-hours": ("idle_gpu_h", "GPU-hours"),
    "failed GPU-hours": ("failed_gpu_h", "GPU-hours"),
    "median wait": ("wait_p50_s", "s"),
}
"""The figure and unit of each column in the table of users or accounts on the operator's page."""
_VERDICTS = {"above": "more than usual", "below": "less than usual", "usual": "as usual", "too few": "too little data"}


def part_view(digest: Digest, part: Part) -> dict[str, Any]:
    """Return the cards, sentences and tables of a part."""
    figures = part["figures"]
    weeks = [*zip(digest["weeks_before"], part["weeks"], strict=True), (digest["week"], figures)]
    return {
        "cards": _cards(digest, figures),
        "changed": [_sentence(c) for c in part["changes"] if c["verdict"] in {"above", "below"}],
        "unchanged": part["unmade"] or _unchanged(digest, part["changes"]),
        "comparison": [_compared(c) for c in part["changes"]],
        "series": [[name, *(_amount(week[f], unit) for f, unit in _SERIES.values())] for name, week in weeks],
    }


def overview_row(part: Part) -> list[str]:
    """Return a part's cells in the table on the operator's page, except for its name."""
    words = {"above": "more", "below": "less"}
    changed = [f"{words[c['verdict']]}: {c['words']}" for c in part["changes"] if c["verdict"] in words]
    return [*(_amount(part["figures"][f], unit) for f, unit in _OVERVIEW.values()), ", ".join(changed)]


def _cards(digest: Digest, f: Figures) -> list[dict[str, str]]:
    jobs, hours, share, wait = (partial(_figure, f, unit) for unit in ("jobs", "GPU-hours", "share", "s"))
    idle = "no telemetry for these jobs"
    if f["idle_gpu_h"] is not None:
        idle = f"{hours('idle_gpu_h')} GPU-hours idle (telemetry covers {share('coverage_share')} of the time)"
    waiting = f"90 % within {wait('wait_p90_s')}, and {jobs('waiting')} still waiting at the end"
    beside = f"plus {text.counted(f['cpu_jobs'], 'CPU jobs')}" if f["cpu_jobs"] else "submitted"
    lost = f"{hours('failed_gpu_h')} in failed runs, {hours('timeout_gpu_h')} in timed-out runs"
    if f["running_gpu_h"]:
        lost += f", {hours('running_gpu_h')} in jobs that are still running"
    ended = f"{jobs('failed')} of {jobs('ended')} ended jobs, and {jobs('timeout')} timed out"
    cards = (
        (digest["jobs_are"], jobs("jobs"), beside),
        ("GPU-hours allocated", hours("held_gpu_h"), lost),
        ("share used", share("used_share"), idle),
        ("median wait", wait("wait_p50_s"), waiting),
        ("failed jobs", share("failed_share"), ended),
    )
    return [{"label": label, "text": value, "note": note} for label, value, note in cards]


def _sentence(change: ChangeInfo) -> str:
    value, low, high = (_amount(change[key], change["unit"]) for key in ("value", "usual_low", "usual_high"))
    words = change["words"]
    return f"{words[:1].upper()}{words[1:]}: {value}, {change['verdict']} the usual {low} to {high}."


def _unchanged(digest: Digest, found: Sequence[ChangeInfo]) -> str:
    """Return the sentence for a week without a change."""
    judged = [c for c in found if c["verdict"] != "too few"]
    if not judged:
        return "There are too few jobs or too few full previous weeks to find changes."
    return f"No change beyond the usual variation of the {len(digest['weeks_before'])} previous weeks."


def _compared(change: ChangeInfo) -> list[str]:
    unit = change["unit"]
    usual = MISSING
    if change["usual_low"] is not None and change["usual_high"] is not None:
        usual = f"{_amount(change['usual_low'], unit)} to {_amount(change['usual_high'], unit)}"
    cells = (_amount(change[key], unit) for key in ("value", "before"))
    return [change["words"], *cells, usual, _VERDICTS[change["verdict"]]]


def _figure(figures: Figures, unit: str, name: str) -> str:
    return _amount(figures[name], unit)


def _amount(value: float | None, unit: str) -> str:
    return MISSING if value is None else _FORMATS[unit](value)


_FORMATS: dict[str, Callable[[float], str]] = {
    "jobs": lambda value: text.count(round(value)),
    "GPU-hours": lambda value: "< 0.1" if 0 < value < 0.05 else text.count(round(value, 1)),
    "share": text.percent,
    "s": duration,
}


# The pages of a digest, as HTML and as Markdown.

MOST_ROWS = 200
"""Maximum number of users or accounts in the table on the operator's page. digest.json has all of them."""
_COMPARED = ("figure", "this week", "previous weeks (median)", "usual", "")


def pages(digest: Digest, faults: Faults) -> Iterator[tuple[str, str]]:
    """Return the path and content of each page. The operator's page is last and lists the pages that failed.

    A page that fails shows the error and is added to `faults`.
    """
    for part in digest["parts"]:
        for ending, draw in _FORMS.items():
            yield _page(digest, part, ending, draw, faults)
    while True:
        known = len(faults.found)
        first = [_page(digest, digest["everyone"], ending, draw, faults) for ending, draw in _FORMS.items()]
        if len(faults.found) == known:
            yield from first
            return


def _page(
    digest: Digest, part: Part, ending: str, draw: Callable[[Digest, Part, Faults], str], faults: Faults
) -> tuple[str, str]:
    path = f"{part['file']}.{ending}"
    made = faults.run(f"the page {path}", draw, digest, part, faults)
    if not isinstance(made, Fault):
        return path, made
    heading, data = _heading(digest, part), "../digest.json" if "/" in path else "digest.json"
    if ending == "html":
        return path, draw_unmade_page("digest", heading, made, (data,))
    return path, f"# {escaped(heading)}\n\n{escaped(made.sentence)}\n"


def _heading(digest: Digest, part: Part) -> str:
    return f"Week {digest['week']}" if part is digest["everyone"] else shown(part["name"])


def _overview(digest: Digest, faults: Faults) -> list[dict[str, Any]]:
    """Return the rows of the table of all parts: name, address of the page, and cells."""
    rows = [
        {"name": shown(part["name"]), "file": part["file"], "cells": _row(part, faults)}
        for part in digest["parts"][:MOST_ROWS]
    ]
    if digest["nobody"] is not None:
        rows.append({"name": shown(None), "file": None, "cells": _row(digest["nobody"], faults)})
    return rows


def _row(part: Part, faults: Faults) -> list[str]:
    found = faults.run(f"the row of {whose(part['name'], part['file'])}", overview_row, part)
    if isinstance(found, Fault):
        return [*[MISSING] * len(_OVERVIEW), found.remark]
    return found


def _html(digest: Digest, part: Part, faults: Faults) -> str:
    overview = part is digest["everyone"]
    rows = _overview(digest, faults) if overview else []
    unmade = faults.found if overview else ()
    return draw_plain_page(
        "digest.html.j2",
        digest=digest,
        heading=_heading(digest, part),
        view=part_view(digest, part),
        compared=_COMPARED,
        series=("week", *_SERIES),
        heads=(*_OVERVIEW, "changed"),
        rows=rows,
        more=max(len(digest["parts"]) - MOST_ROWS, 0) if overview else 0,
        overview=overview,
        unmade=unmade,
        unmade_line=summary_line(unmade, "digest"),
    )


def _markdown(digest: Digest, part: Part, faults: Faults) -> str:
    overview, view = part is digest["everyone"], part_view(digest, part)
    lines = [f"# {escaped(_heading(digest, part))}", ""]
    lines += [f"Week {digest['week']}, {digest['words']}, time zone {escaped(digest['timezone'])}.", ""]
    lines += table(("figure", "value", "remark"), [(c["label"], c["text"], c["note"]) for c in view["cards"]])
    lines += ["", "## What changed", ""]
    lines += [f"- {escaped(sentence)}" for sentence in view["changed"]] or [view["unchanged"]]
    lines += ["", *table(_COMPARED, view["comparison"]), ""]
    if overview:
        lines += [f"## By {digest['by']}", ""]
        rows = _overview(digest, faults)
        names = [_link(row["name"], row["file"]) for row in rows]
        body = table((digest["by"], *_OVERVIEW, "changed"), [("", *row["cells"]) for row in rows])
        # Cells are escaped as a whole, except for links.
        lines += [
            *body[:2],
            *(line.replace("|  |", f"| {name} |", 1) for name, line in zip(names, body[2:], strict=True)),
        ]
        if len(digest["parts"]) > MOST_ROWS:
            lines += ["", f"digest.json lists {len(digest['parts']) - MOST_ROWS:,} more rows."]
        lines.append("")
    lines += ["## Previous weeks", "", *table(("week", *_SERIES), view["series"]), ""]
    if overview and faults.found:
        lines += ["## What could not be made", "", *(f"- {escaped(fault.sentence)}" for fault in faults.found), ""]
    lines += [f"Note: {escaped(note)}." for note in digest["notes"]]
    lines += ["", escaped(digest["rule"]), ""]
    return "\n".join(lines)


_FORMS = {"html": _html, "md": _markdown}


def _link(name: str, file: str | None) -> str:
    return escaped(name) if file is None else f"[{escaped(name)}]({file}.md)"


WEEKS = 8
"""Number of earlier weeks that are used for comparison."""
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
    """Write the digest of a week: a page for the operator, and a page for each user or account.

    If a page fails, the other pages are still made. The failed page shows the error, the operator's page counts it, and
    the digest's `faults` list it.

    >>> import tracekit
    >>> tracekit.digest("history", "digest", week="2026-W47")  # doctest: +SKIP

    Parameters
    ----------
    history : Trace or path
        Trace of all weeks so far.
    out : path
        Folder to write: index.html, index.md, digest.json, and users/ or accounts/ with two files per name.
    week : str, optional
        ISO week in the time zone of the Trace. By default, the last full week.
    by : str
        user or account.
    anonymize : bool
        Whether to replace names by pseudonyms, including the names of the files and of the history itself.
    salt_file : str or Path, optional
        File with the salt of the pseudonyms. If it does not exist, it is created.
    force : bool
        Whether to replace an earlier digest.
    memory_limit : str, optional
        Memory limit for joins before they spill to disk, such as '2GB'.
    progress : Progress, optional
        Reports each part that fails.

    Raises
    ------
    UsageError
        The week does not exist, the log ends before it, or the log does not name users or accounts. A salt file
        is given without `anonymize`, or it cannot be used.
    QueryError
        The log does not record when jobs were submitted.
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
    """Return the digest of a week without writing it (see `digest`). `faults` records changes that fail."""
    faults = Faults() if faults is None else faults
    if by not in {"user", "account"}:
        raise UsageError(f"'{by[:60]}' is neither 'user' nor 'account'", where="--by", hint="choose one of them")
    if not history.has("jobs"):
        raise QueryError("the trace has no jobs", where=history.path)
    with Session(history, memory_limit).connect(USE_TABLES) as con:
        named = f'SELECT min(submit_time), greatest(max(submit_time), max(start_time), max(end_time)), count("{by}")'
        begin, end, names = con.execute(f"{named} FROM jobs").fetchall()[0]
        if begin is None or end is None:
            raise QueryError("the trace does not record when jobs were submitted", where=history.path)
        if not names:
            other = "account" if by == "user" else "user"
            raise UsageError(f"the log has no {by} names", where="--by", hint=f"try --by {other}")
        zone = known_zone(history.timezone)
        chosen = last_whole_week(end, zone) if week is None else week_of(week, zone)
        if week is None and chosen.until <= begin:  # the history has only a few days
            chosen = week_at(end, zone)
        if chosen.since > end or chosen.until <= begin:
            what = f"the history does not cover {chosen.name}"
            hint = f"it covers {begin:%Y-%m-%d} to {end:%Y-%m-%d} (UTC)"
            raise UsageError(what, where="--week", hint=hint)
        before = weeks_before(chosen, WEEKS, begin)
        gpu_only = has_gpu_jobs(con)
        figures = weekly_figures(con, [*before, chosen], by, gpu_only=gpu_only)
        lost = con.execute(
            "SELECT count(*) FROM open_attempts AS o INNER JOIN attempts AS a ON o.job_id = a.job_id"
            " AND o.attempt = a.attempt WHERE o.lost IS NOT NULL AND a.gpu_count > 0"
        ).fetchall()[0][0]
    notes = _notes(chosen, begin, end, gpu_only=gpu_only)
    notes += [note.sentence() for note in noted("past limit", lost)]
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
    """Return the caveats that readers should know before they read the figures."""
    notes = []
    if end < week.until - SLACK:
        missing = duration((week.until - end).total_seconds())
        notes.append(f"the history ends {missing} before the end of the week, so the figures are too small")
    if begin > week.since + SLACK:
        missing = duration((begin - week.since).total_seconds())
        notes.append(f"the history begins {missing} after the start of the week, so the figures are too small")
    if not gpu_only:
        notes.append("the log has no jobs with GPUs, so all jobs count")
    return notes
