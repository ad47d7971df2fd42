"""Compare several traces: run the same queries on each, and write one page and one set of tables.

    tracekit.compare(["philly-trace", "helios-trace"], "out")

writes the following files, either all or none:

    out/compare.html        one page that works offline
    out/compare.json        everything the page shows
    out/tables/<query>.csv  every row of every trace, starting with the trace's name and ending with published numbers
    out/published.csv       every published number next to the measured one
    out/traces/<name>/      the Trace of each source given as raw logs

If a part fails, such as a query or a chart, the page says so in its place, and the other parts are still made.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from tracekit.answer import Answer, Unanswered
from tracekit.damage import explain_damage
from tracekit.errors import SourceError, TooManyIntervalsError, UsageError
from tracekit.faults import Fault, Faults
from tracekit.outputs import StagedFolder, output_errors, real_path
from tracekit.places import place_of
from tracekit.progress import Progress
from tracekit.text import shorten
from tracekit.trace import Trace, home_of, is_trace

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tracekit.answer import Row
    from tracekit.characterize import Query
    from tracekit.characterize.session import Session
    from tracekit.report.compare import ComparedAnswer, Comparison, UnansweredByAll
    from tracekit.report.structure import WhatChanged

NAME_LIMIT = 100
"""Maximum length of a trace's name."""

_MARKER = "compare.json"
_DIFFERENCES = "the differences between the traces"
_SHOWN = 30
"""Maximum length of a trace's name within a sentence."""


@dataclass(frozen=True)
class ComparisonFiles:
    """The output of `compare`."""

    folder: Path
    page: Path
    data: Path
    """compare.json."""
    tables: Mapping[str, Path]
    """The CSV file of each query that at least one trace answered, by query name."""
    unanswered: Mapping[str, Mapping[str, tuple[str, ...]]]
    """Why a trace has no answer, by query and trace."""
    faults: tuple[Fault, ...] = ()
    """Parts that failed with an error. All other parts are complete."""


@explain_damage()
def compare(
    traces: Sequence[Trace | str | Path | tuple[str, Trace | str | Path]],
    out: str | Path,
    *,
    queries: Sequence[str] | None = None,
    force: bool = False,
    memory_limit: str | None = None,
    progress: Progress | None = None,
) -> ComparisonFiles:
    """Run the same queries on several traces, and write the answers side by side with published numbers.

    If a part fails, the page says so in its place, `ComparisonFiles.faults` lists it, and the other parts are still
    made.

    Parameters
    ----------
    traces : sequence of Trace, str, Path or tuple
        Two or more Traces, their folders, folders with a Trace named 'trace', or raw logs, which are ingested with
        default options. To name a trace, give (name, path). By default, its name is the folder's.
    out : str or Path
        Folder of the page and its tables.
    queries : sequence of str, optional
        Names of queries, or SQL files. The default is all built-in queries.
    force : bool
        Whether to replace an existing comparison at `out`.
    memory_limit : str, optional
        Maximum memory that joins may use before they spill to disk, such as '2GB'.
    progress : Progress, optional
        Shows the current step.

    Raises
    ------
    UsageError
        Fewer than two traces are given, two have the same name, or the output would replace a source.
    SourceError
        Raw logs cannot be read.
    TraceError
        A folder is not a usable Trace.
    QueryError
        The query does not exist.
    DamagedTraceError, StoreError
        A Trace is damaged, or its store fails.
    OutputError
        `out` exists or cannot be written.
    """
    from tracekit.characterize import find_query, list_queries

    target, progress = Path(out), progress or Progress()
    faults = Faults(progress)
    named = [t if isinstance(t, tuple) else (None, t) for t in traces]
    given = [(name, t.path if isinstance(t, Trace) else t) for name, t in named]
    places = [place_of(path) for _, path in given]
    paths = dict(zip(_names(given), (home_of(place) or place for place in places), strict=True))
    _check(paths, target)
    asked = list_queries() if not queries else [find_query(name) for name in dict.fromkeys(queries)]
    twice = [q.name for i, q in enumerate(asked) if q.name in {other.name for other in asked[:i]}]
    if twice:
        raise UsageError(f"two queries have the name '{twice[0]}'", where="--query", hint="rename a file")
    staged = StagedFolder(target, force=force, marker=_MARKER, kind="a comparison")
    try:
        opened = {name: _open(name, path, staged.path, memory_limit, progress) for name, path in paths.items()}
        comparison = _compare(
            opened,
            paths,
            asked,
            staged.path,
            command=_command(given, target, queries, memory_limit),
            whole=not queries,
            memory_limit=memory_limit,
            progress=progress,
            faults=faults,
        )
        progress.stage("writing the page")
        _write(comparison, staged.path, faults)
        staged.commit()
    finally:
        staged.discard()
    answers = [a for s in comparison["sections"] for a in s["answers"]]
    missing = [(a["name"], a["unanswered"]) for a in (*answers, *comparison["unanswered"])]
    return ComparisonFiles(
        folder=target,
        page=target / "compare.html",
        data=target / _MARKER,
        tables={a["name"]: target / a["file"] for a in answers if a["file"] is not None},
        unanswered={name: {m["trace"]: tuple(m["reasons"]) for m in several} for name, several in missing if several},
        faults=faults.found,
    )


def _check(paths: Mapping[str, Path], target: Path) -> None:
    if len(paths) < 2:
        raise UsageError(f"a comparison needs at least two traces, not {len(paths)}")
    outer = real_path(target)
    for path in paths.values():
        if not path.exists():
            raise SourceError("the trace or source does not exist", where=path)
        if real_path(path).is_relative_to(outer):
            raise UsageError(
                "the source is in the output folder, which is replaced", where=path, hint="choose another -o"
            )


def _names(given: Sequence[tuple[str | None, str | Path]]) -> list[str]:
    """Return each trace's name: the given one, or the folder's.

    If folders share a name, it is prefixed with the parent folder's name, then numbered.
    """
    stated = [_readable(name) for name, _ in given if name is not None]
    for i, own in enumerate(stated):
        if not own.strip() or len(own) > NAME_LIMIT:
            raise UsageError(
                f"the name of a trace must have 1 to {NAME_LIMIT} characters", where=own[:NAME_LIMIT] or "''"
            )
        if own in stated[:i]:
            raise UsageError(f"two traces have the name '{own}'", hint="choose another name")
    places = [real_path(place_of(path)) for _, path in given]
    # analyze calls every Trace 'trace', so use the parent folder's name.
    homes = [place.parent if place.name == "trace" else place for place in places]
    folders = [home.name or "trace" for home in homes]
    names: list[str] = []
    for (name, _), home, folder in zip(given, homes, folders, strict=True):
        base = _readable(f"{home.parent.name}/{folder}" if folders.count(folder) > 1 else folder)[:NAME_LIMIT]
        free = (one for n in count(1) if (one := base if n == 1 else f"{base} ({n})") not in {*names, *stated})
        names.append(next(free) if name is None else _readable(name))
    return names


def _readable(name: str) -> str:
    """Return `name` as valid Unicode, which a folder's name need not be."""
    return name.encode("utf-8", "backslashreplace").decode("utf-8")


def _open(name: str, path: Path, folder: Path, memory_limit: str | None, progress: Progress) -> Trace:
    if is_trace(path):
        return Trace.open(path)
    from tracekit.ingest import ingest_logs

    progress.note(f"{path} is not a Trace, so it is read as raw logs")
    home = folder / "traces"
    with output_errors(folder):
        home.mkdir(exist_ok=True)
    safe = "".join(c if c.isalnum() or c in "-_." else "-" for c in name)[:60].strip(".") or "trace"
    place = home / (safe if not (home / safe).exists() else f"{safe}-{len(list(home.iterdir())) + 1}")
    return ingest_logs(path, place, memory_limit=memory_limit, progress=progress)


def _compare(
    traces: Mapping[str, Trace],
    paths: Mapping[str, Path],
    queries: Sequence[Query],
    folder: Path,
    *,
    command: str,
    whole: bool,
    memory_limit: str | None,
    progress: Progress,
    faults: Faults,
) -> Comparison:
    """Run every query on every trace, write the tables, and return the content of compare.json.

    With `whole`, also compute the differences between the traces. `faults` records parts that fail.
    """
    from tracekit.characterize.session import Session
    from tracekit.report.compare import COMPARE_SCHEMA_VERSION, described, sections
    from tracekit.report.data import creation_time
    from tracekit.version import __version__

    answered: list[ComparedAnswer] = []
    missing: list[UnansweredByAll] = []
    sessions = {name: Session(trace, memory_limit) for name, trace in traces.items()}
    progress.stage("asking", len(queries))
    for query in queries:
        answers = {name: _ask(name, traces[name], query, session, faults) for name, session in sessions.items()}
        progress.advance(1)
        if any(isinstance(answer, Answer) for answer in answers.values()):
            made = faults.run(
                f"the answers to {query.name}", _answered, query, answers, traces, sessions, folder, faults
            )
            if not isinstance(made, Fault):
                answered.append(made)
                continue
            answers = {name: query.unanswered(made.remark, failed=True) for name in answers}
        missing.append(
            {
                "name": query.name,
                "title": query.title,
                "question": query.question,
                "unanswered": [
                    {"trace": name, "reasons": list(a.reasons)}
                    for name, a in answers.items()
                    if isinstance(a, Unanswered)
                ],
            }
        )
    with output_errors(folder):
        if isinstance(faults.run("the file published.csv", _write_published, answered, folder), Fault):
            (folder / "published.csv").unlink(missing_ok=True)
    progress.stage("comparing the traces")
    opening = faults.run_or(None, _DIFFERENCES, _differences, traces, memory_limit, progress, faults) if whole else None
    return {
        "schema_version": COMPARE_SCHEMA_VERSION,
        "tracekit_version": __version__,
        "created": creation_time(),
        "command": command,
        "title": ", ".join(traces),
        "traces": [described(name, trace, paths[name]) for name, trace in traces.items()],
        "opening": opening,
        "sections": sections(answered),
        "unanswered": missing,
        "faults": [],
    }


def _answered(
    query: Query,
    answers: Mapping[str, Answer | Unanswered],
    traces: Mapping[str, Trace],
    sessions: Mapping[str, Session],
    folder: Path,
    faults: Faults,
) -> ComparedAnswer:
    """Write the table of a question that at least one trace answers, and return its entry for compare.json."""
    from tracekit.characterize.published import compare_published
    from tracekit.report.compare import compared, long_table

    found = {name: answer for name, answer in answers.items() if isinstance(answer, Answer)}
    published = {
        name: faults.run_or(
            [],
            f"the published numbers of {query.name} for {shorten(name, _SHOWN)}",
            compare_published,
            traces[name],
            answer,
            sessions[name],
        )
        if query.shipped
        else []
        for name, answer in found.items()
    }
    file = f"tables/{query.name}.csv"
    with output_errors(folder):
        table = faults.run(f"the file {file}", lambda: _write_csv(long_table(found, published), folder, file))
        if isinstance(table, Fault):
            (folder / file).unlink(missing_ok=True)
    return compared(query, answers, published, None if isinstance(table, Fault) else file, faults)


def _differences(
    traces: Mapping[str, Trace], memory_limit: str | None, progress: Progress, faults: Faults
) -> WhatChanged:
    """Return the differences between the first trace and the others, by measure, with their uncertainty."""
    from tracekit.characterize.changes import compare_periods
    from tracekit.report.changed import changed_or_reason, changed_rows, what_differs

    (first, base), *others = traces.items()
    found: dict[str, list[Row] | str] = {}
    for name, trace in others:
        what = f"the comparison of {shorten(name, _SHOWN)} with {shorten(first, _SHOWN)}"
        compare = partial(compare_periods, base, trace, memory_limit=memory_limit)
        answers = faults.run(what, changed_or_reason, compare)
        if isinstance(answers, str):
            progress.note(f"{name} cannot be compared with {first}: {answers.removesuffix('.')}")
            found[name] = answers
        elif isinstance(answers, Fault):
            found[name] = answers.sentence
        else:
            found[name] = changed_rows({answer.name: answer for answer in answers if isinstance(answer, Answer)})
    return what_differs(first, found)


def _ask(name: str, trace: Trace, query: Query, session: Session, faults: Faults) -> Answer | Unanswered:
    """Return a trace's answer to a query, or the reason why the trace has no answer."""
    from tracekit.characterize import lacks

    reasons = lacks(query, trace)
    if reasons:
        # A missing capability already explains why a table is missing.
        stated = [r for r in reasons if not r.startswith("The trace has no table")]
        return query.unanswered(*(stated or reasons))
    found = faults.run(f"the answer of {shorten(name, _SHOWN)} to {query.name}", _answer, trace, query, session)
    return query.unanswered(found.remark, failed=True) if isinstance(found, Fault) else found


def _answer(trace: Trace, query: Query, session: Session) -> Answer | Unanswered:
    from tracekit.characterize import answer_query

    try:
        # Sites may have different words for tenants, so the page uses the general one.
        return replace(answer_query(trace, query, session=session), question=query)
    except TooManyIntervalsError as error:
        return query.unanswered(error.sentence)


def _write_csv(frame: pl.DataFrame, folder: Path, file: str) -> None:
    from tracekit.report.files import write_csv

    with output_errors(folder):
        write_csv(folder / file, frame)


def _write_published(answered: Sequence[ComparedAnswer], folder: Path) -> None:
    """Write every published number next to the measured value. Do nothing if there are no published numbers."""
    rows = [{"trace": n["trace"], "query": a["name"], **n["number"]} for a in answered for n in a["published"]]
    if rows:
        _write_csv(pl.DataFrame(rows, infer_schema_length=None), folder, "published.csv")


def _write(comparison: Comparison, folder: Path, faults: Faults) -> None:
    from tracekit.report.compare_page import render_comparison
    from tracekit.report.data import fault_infos, write_json

    comparison["faults"] = fault_infos(faults)
    page = render_comparison(comparison, faults)
    comparison["faults"] = fault_infos(faults)
    with output_errors(folder):
        write_json(folder / _MARKER, comparison)
        (folder / "compare.html").write_text(page, encoding="utf-8", errors="backslashreplace", newline="\n")


def _command(
    given: Sequence[tuple[str | None, str | Path]], out: Path, queries: Sequence[str] | None, memory_limit: str | None
) -> str:
    words = ["tracekit", "compare", *(str(path) if name is None else f"{name}={path}" for name, path in given)]
    words += ["-o", str(out)]
    for query in queries or ():
        words += ["--query", query]
    return shlex.join([*words, *(["--memory-limit", memory_limit] if memory_limit is not None else [])])
