"""tracekit query."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tracekit.characterize.limits import LONGEST_S
from tracekit.cli.display import file_of, print_notes, print_rows, print_table, write_frame
from tracekit.cli.needs import say_need, tables_of
from tracekit.cli.options import OptionalTrace, Where
from tracekit.damage import hidden_names
from tracekit.settings import (
    Anonymize,
    EngineName,
    Flag,
    ForceFile,
    Master,
    MemoryLimit,
    OutFile,
    SaltFile,
    TableForm,
    TenantColumn,
)
from tracekit.tables.window import Window, chosen_jobs, utc
from tracekit.text import visible

if TYPE_CHECKING:
    import polars as pl

    from tracekit.answer import Answer
    from tracekit.characterize.query import Query
    from tracekit.trace import Trace


def query(
    trace: OptionalTrace = None,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help="Name of a query, such as queuing/run_time, or your own SQL file. If omitted, list the queries and "
            "show which of them the Trace can answer.",
        ),
    ] = None,
    start: Annotated[
        dt.datetime | None, Flag("--from TIME", "Use only jobs submitted from this time on (ISO 8601, UTC).")
    ] = None,
    end: Annotated[dt.datetime | None, Flag("--to TIME", "Use only jobs submitted before this time.")] = None,
    cluster: Annotated[
        str | None, Flag("--cluster --cluster-name NAME", "Use only jobs submitted to this cluster.")
    ] = None,
    allow_missing: Annotated[
        bool, Flag("--allow-missing", "Skip partitions that are missing or damaged, and name them.")
    ] = False,
    form: TableForm = "table",
    out: OutFile = None,
    params: Annotated[
        Mapping[str, str] | None, Flag("--param NAME=VALUE", "Parameter of the query; may be repeated.")
    ] = None,
    where: Where = None,
    by: TenantColumn = None,
    published: Annotated[
        bool, Flag("--published", "For a public trace, show published numbers next to measured ones.")
    ] = False,
    intervals: Annotated[
        bool,
        Flag("--intervals", "Add columns with 95 % confidence intervals, if the query has any."),
    ] = False,
    anonymize: Anonymize = False,
    salt_file: SaltFile = None,
    force: ForceFile = False,
    memory_limit: MemoryLimit = None,
    engine: EngineName = "duckdb",
    master: Master = None,
    sandbox: Annotated[
        bool | None,
        Flag(
            "--sandbox/--no-sandbox",
            "Restrict the SQL to the tables of the Trace. This is the default for SQL files inside the Trace.",
        ),
    ] = None,
    time_limit: Annotated[
        float | None,
        Flag(
            "--time-limit SECONDS",
            f"Time limit for the SQL. The default is {LONGEST_S:g} in the sandbox, and no limit outside it.",
            0.001,
        ),
    ] = None,
) -> None:
    """Answer one question about a Trace, or list all questions.

    --from, --to, --cluster-name and --where select jobs by submission time, cluster and column values, together with
    all their records. In a partitioned Trace, only the needed partitions are read.

    Example: tracekit query my-trace queuing/run_time -f csv -o run_time.csv
    """
    if trace is None or name is None:
        _list_questions(trace, form, out, force=force)
        return
    from tracekit.anonymous import opened
    from tracekit.characterize import answer_query, find_query
    from tracekit.characterize.engines import engine_of
    from tracekit.characterize.run import tenant_of_query
    from tracekit.trace import Trace

    file = file_of(out, force=force)
    asked = find_query(name)
    say_need(trace, asked.name if asked.shipped else "", memory_limit, tables=tables_of(asked))
    column, given = tenant_of_query(asked, by, params or {})
    with hidden_names(hide=anonymize):
        limits = Window(utc(start), utc(end), cluster, chosen_jobs(where))
        part = Trace.open(trace, limits=limits, allow_missing=allow_missing)
    with (
        opened(part, anonymize=anonymize, salt_file=salt_file, memory_limit=memory_limit) as source,
        engine_of(engine, master) as runs,
    ):
        chosen = source.trace.by(column)
        found = answer_query(
            chosen,
            asked,
            given,
            memory_limit=memory_limit,
            sandbox=sandbox,
            time_limit_s=time_limit,
            own_process=True,
            engine=runs,
            intervals=intervals,
        )
        write_frame(_with_ends(found) if intervals else found.frame, form, file, force=force)
        print_notes((*source.notes, *found.notes))
        if published:
            _show_published(chosen, asked, found, memory_limit, table=form == "table")


def _list_questions(trace: str | None, form: str, out: Path | None, *, force: bool) -> None:
    """Write the list of questions and, given a Trace, which of them it has the data for."""
    import polars as pl

    from tracekit.characterize import lacks, list_queries
    from tracekit.trace import Trace

    opened = None if trace is None else Trace.open(trace)
    rows = []
    for query in list_queries():
        row = {"name": query.name, "question": query.question, "paper": query.paper}
        if opened is not None:
            missing = lacks(query, opened)
            row["can run here"] = "no, lacks " + "; ".join(missing) if missing else "yes"
        rows.append(row)
    if out is None and form in ("table", "json"):
        print_rows(rows, form)
    else:
        write_frame(pl.DataFrame(rows), form, None if str(out) == "-" else out, force=force)


def _with_ends(answer: Answer) -> pl.DataFrame:
    """Return the result with each interval's bounds after its column."""
    import polars as pl

    ends = answer.intervals
    if ends is None:
        typer.echo("note: no column of this query has a confidence interval", err=True)
        return answer.frame
    frame = pl.concat([answer.frame, ends], how="horizontal")
    order = [n for c in answer.frame.columns for n in (c, f"{c}_low", f"{c}_high") if n in frame.columns]
    return frame.select(order)


def _show_published(trace: Trace, query: Query, answer: Answer, memory_limit: str | None, *, table: bool) -> None:
    """Show published numbers below a table, or as notes if programs read the output."""
    from tracekit.characterize.published import CONFIDENCE, compare_published, release_of
    from tracekit.characterize.session import Session
    from tracekit.report.published import amount as shown
    from tracekit.report.published import difference, published_number, published_text

    found = compare_published(trace, answer, Session(trace, memory_limit)) if query.shipped else []
    numbers = [published_number(n) for n in found]
    release = release_of(trace)
    if not numbers or release is None:
        kind = visible(trace.manifest.format)
        typer.echo(f"note: no published numbers for {query.name} of a trace of format {kind}", err=True)
        return
    print_notes([release.note])
    rows = [
        (n["what"], published_text(n), shown(n["measured"], n["unit"]), difference(n), n["confidence"], n["artefact"])
        for n in numbers
    ]
    if table:
        heads = ("published number", "published", "measured", "difference", "sure", "source")
        print_table(heads, rows, title="Published and measured")
    else:
        print_notes(
            f"{what}: published {stated} ({where}, {sure}), here {measured}, {differs}"
            for what, stated, measured, differs, sure, where in rows
        )
    letters = {n["confidence"] for n in numbers}
    print_notes(f"{letter}: {words}" for letter, words in CONFIDENCE.items() if letter in letters)
    for note in dict.fromkeys(n["population_note"] for n in numbers if n["population_note"]):
        places = dict.fromkeys(n["artefact"] for n in numbers if n["population_note"] == note)
        print_notes([f"{', '.join(places)}: {note}"])
