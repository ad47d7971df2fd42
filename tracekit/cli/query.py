"""tracekit query."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tracekit.characterize.limits import LONGEST_S
from tracekit.cli.needs import say_need_of_query
from tracekit.cli.options import (
    Anonymize,
    EngineName,
    Master,
    MemoryLimit,
    SaltFile,
    TableFormat,
    TenantColumn,
    TextFormat,
    opened_part,
    pairs,
)
from tracekit.cli.settings import takes
from tracekit.cli.tables import write_frame
from tracekit.settings import PartSettings
from tracekit.tables.window import SIZES, WHERE

if TYPE_CHECKING:
    import polars as pl

    from tracekit.answer import Answer
    from tracekit.trace import Trace

__all__ = ["query"]


@takes(PartSettings)
def query(
    settings: PartSettings,
    trace: Annotated[
        str | None,
        typer.Argument(
            metavar="TRACE",
            help="Folder made by 'tracekit ingest', also in a bucket (docs/buckets.md).",
            show_default=False,
            path_type=str,
        ),
    ] = None,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="NAME",
            help=(
                "Name of a query, such as queuing/run_time, or your own SQL file. Without it, list the queries, "
                "and which of them the Trace can answer."
            ),
            show_default=False,
        ),
    ] = None,
    form: Annotated[
        TableFormat, typer.Option("-f", "--output-format", help="How to write the result.")
    ] = TableFormat.table,
    out: Annotated[
        Path | None, typer.Option("-o", "--output", metavar="FILE", help="Write to a file; '-' is stdout.")
    ] = None,
    param: Annotated[
        list[str] | None, typer.Option("--param", metavar="NAME=VALUE", help="Parameter of the query; may be repeated.")
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(
            "--where",
            metavar="COLUMN=VALUE",
            help=f"Use only jobs with this value; may be repeated. Columns: {', '.join(WHERE)}; "
            f"sizes in GPUs: {', '.join(SIZES)}.",
        ),
    ] = None,
    by: TenantColumn = None,
    published: Annotated[
        bool,
        typer.Option("--published", help="Show published numbers next to the measured ones, for a public trace."),
    ] = False,
    intervals: Annotated[
        bool,
        typer.Option(
            "--intervals", help="Add the ends of 95 % confidence intervals as columns, if the query has intervals."
        ),
    ] = False,
    anonymize: Anonymize = False,
    salt_file: SaltFile = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the file that -o names.")] = False,
    memory_limit: MemoryLimit = None,
    engine: EngineName = "duckdb",
    master: Master = None,
    sandbox: Annotated[
        bool | None,
        typer.Option(
            "--sandbox/--no-sandbox",
            help="Let the SQL read only the tables of the Trace. The default for SQL files inside the Trace.",
            show_default=False,
        ),
    ] = None,
    time_limit: Annotated[
        float | None,
        typer.Option(
            "--time-limit",
            metavar="SECONDS",
            min=0.001,
            help=f"Time limit for the SQL: in the sandbox {LONGEST_S:g} by default, otherwise none.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Answer one question about a Trace, or list the questions that tracekit answers.

    --from, --to, --cluster and --where select a part: the jobs submitted in that time, to that cluster, with these
    values, and all their records. In a partitioned Trace, only the needed partitions are read.

    Example: tracekit query my-trace queuing/run_time -f csv -o run_time.csv
    """
    if trace is None or name is None:
        _list_questions(trace, form, out, force=force)
        return
    from tracekit.anonymous import opened
    from tracekit.characterize import answer_query, find_query
    from tracekit.characterize.engines import engine_of
    from tracekit.characterize.run import tenant_of_query
    from tracekit.damage import hidden_names
    from tracekit.outputs import check_files

    file = None if out is None or str(out) == "-" else out
    if file is not None:
        check_files(file, force=force)
    asked = find_query(name)
    say_need_of_query(trace, asked, memory_limit)
    column, params = tenant_of_query(asked, by, pairs(param, "--param"))
    with hidden_names(hide=anonymize):
        part = opened_part(trace, settings, pairs(where, "--where"))
    with (
        opened(part, anonymize=anonymize, salt_file=salt_file, memory_limit=memory_limit) as source,
        engine_of(engine, master) as runs,
    ):
        chosen = source.trace.by(column)
        found = answer_query(
            chosen,
            asked,
            params,
            memory_limit=memory_limit,
            sandbox=sandbox,
            time_limit_s=time_limit,
            own_process=True,
            engine=runs,
            intervals=intervals,
        )
        answer = found.named(chosen.tenant)
        write_frame(_with_ends(answer) if intervals else answer.frame, form, file, force=force)
        for note in (*source.notes, *answer.notes):
            typer.echo(f"note: {note}", err=True)
        if published:
            _show_published(chosen, name, found, memory_limit, table=form is TableFormat.table)


def _list_questions(trace: str | None, form: TableFormat, out: Path | None, *, force: bool) -> None:
    """Write what can be asked, and whether a Trace holds what each question needs."""
    import polars as pl

    from tracekit.characterize import lacks, list_queries
    from tracekit.cli.display import print_rows
    from tracekit.trace import Trace

    opened = None if trace is None else Trace.open(trace)
    rows = []
    for query in list_queries():
        row = {"name": query.name, "question": query.question, "paper": query.paper}
        if opened is not None:
            missing = lacks(query, opened)
            row["can run here"] = "no, lacks " + "; ".join(missing) if missing else "yes"
        rows.append(row)
    if out is None and form in (TableFormat.table, TableFormat.json):
        print_rows(rows, TextFormat(form.value))
    else:
        write_frame(pl.DataFrame(rows), form, None if str(out) == "-" else out, force=force)


def _with_ends(answer: Answer) -> pl.DataFrame:
    """Return the result with the ends of each interval behind its column."""
    import polars as pl

    ends = answer.intervals
    if ends is None:
        typer.echo("note: no column of this query has a confidence interval", err=True)
        return answer.frame
    frame = pl.concat([answer.frame, ends], how="horizontal")
    order = [n for c in answer.frame.columns for n in (c, f"{c}_low", f"{c}_high") if n in frame.columns]
    return frame.select(order)


def _show_published(trace: Trace, name: str, answer: Answer, memory_limit: str | None, *, table: bool) -> None:
    """Show what is published about the answer: below a table, or as notes beside data that others read."""
    from tracekit.characterize import find_query
    from tracekit.characterize.published import CONFIDENCE, compare_published, release_of
    from tracekit.characterize.session import Session
    from tracekit.cli.display import print_table
    from tracekit.report.published import amount as shown
    from tracekit.report.published import difference, published_number, published_text
    from tracekit.text import visible

    query = find_query(name)
    found = compare_published(trace, answer, Session(trace, memory_limit)) if query.shipped else []
    numbers = [published_number(n) for n in found]
    release = release_of(trace)
    if not numbers or release is None:
        kind = visible(trace.manifest.format)
        typer.echo(f"note: no published numbers for {query.name} of a trace of format {kind}", err=True)
        return
    typer.echo(f"note: {release.note}", err=True)
    rows = [
        (n["what"], published_text(n), shown(n["measured"], n["unit"]), difference(n), n["confidence"], n["artefact"])
        for n in numbers
    ]
    if table:
        heads = ("published number", "published", "measured", "difference", "sure", "source")
        print_table(heads, rows, title="Published beside measured")
    else:
        for what, stated, measured, differs, sure, where in rows:
            typer.echo(f"note: {what}: published {stated} ({where}, {sure}), here {measured}, {differs}", err=True)
    letters = {n["confidence"] for n in numbers}
    for letter, words in CONFIDENCE.items():
        if letter in letters:
            typer.echo(f"note: {letter}: {words}", err=True)
    for note in dict.fromkeys(n["population_note"] for n in numbers if n["population_note"]):
        places = ", ".join(dict.fromkeys(n["artefact"] for n in numbers if n["population_note"] == note))
        typer.echo(f"note: {places}: {note}", err=True)
