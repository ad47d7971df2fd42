"""tracekit classify-logs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from tracekit.cli.display import TerminalProgress, print_notes, print_rows, printable
from tracekit.errors import UsageError
from tracekit.places import place_of, refuse_remote
from tracekit.settings import Flag, Force

if TYPE_CHECKING:
    from tracekit.characterize.joblogs import Classification, RuleBook
    from tracekit.trace import Trace


def classify_logs(
    sources: Annotated[
        list[Path] | None, typer.Argument(metavar="LOGS...", help="Job logs, or folders of job logs.")
    ] = None,
    out: Annotated[Path | None, Flag("-o --output FILE", "Parquet file for the failures table.")] = None,
    trace_folder: Annotated[str | None, Flag("--trace TRACE", "The Trace whose jobs wrote the logs.")] = None,
    add: Annotated[bool, Flag("--add", "Add the failures table to TRACE.")] = False,
    rules: Annotated[tuple[Path, ...], Flag("--rules FILE", "Your own rules (TOML); may be repeated.")] = (),
    rules_only: Annotated[bool, Flag("--rules-only", "Use only the rules from --rules.")] = False,
    name_pattern: Annotated[
        str | None,
        Flag("--name-pattern REGEX", "Pattern that finds the job in a log's name, with the groups job_id and attempt."),
    ] = None,
    list_rules: Annotated[bool, Flag("--list-rules", "Show the reasons and exit.")] = False,
    form: Annotated[Literal["table", "json"], Flag("-f --output-format", "Format of the summary.")] = "table",
    force: Force = False,
) -> None:
    """Find out from job logs why jobs failed: one root cause per failed attempt.

    A log's name identifies its job and attempt. With --trace, only the logs of failed attempts are read. A .lines.csv
    file next to FILE gives the log and line of each reason.

    Example: tracekit classify-logs job-logs --trace my-trace -o failures.parquet
    """
    from tracekit.characterize import joblogs
    from tracekit.trace import Trace

    if rules_only and not rules:
        raise UsageError("works only with --rules", where="--rules-only", hint="add --rules FILE")
    book = joblogs.load_rules(rules, built_in=not rules_only)
    if list_rules:
        _show_rules(book, form)
        return
    if not sources:
        raise UsageError("no logs are given", hint="give a log or a folder with logs")
    if add and trace_folder is None:
        raise UsageError("needs a Trace to add to", where="--add", hint="add --trace TRACE")
    if add and trace_folder is not None:
        refuse_remote(place_of(trace_folder))
    names = joblogs.LogNames(name_pattern)
    trace = None if trace_folder is None else Trace.open(trace_folder)
    if out is not None:
        joblogs.check_target(out, force=force)
    with TerminalProgress() as progress:
        found = joblogs.classify_logs(sources, rules=book, trace=trace, names=names, progress=progress)
    frame = found.frame()
    if out is not None:
        joblogs.write_failures(frame, out, force=force)
    if add and trace is not None:
        joblogs.add_to_trace(trace, frame, force=force)
    _show_notes(found, trace)
    _show_summary(found, form)
    if out is not None:
        typer.echo(f"failures: {out} ({len(found.failures):,} rows; lines: {joblogs.evidence_file(out)})", err=True)


def _show_rules(book: RuleBook, form: str) -> None:
    rows = [
        {
            "reason": reason.name,
            "title": reason.title,
            "category": reason.category,
            "signatures": sum(len(rule.signatures) for rule in book.rules if rule.reason == reason),
            "advice": reason.advice,
        }
        for reason in book.reasons
    ]
    print_rows(rows, form)


def _show_summary(found: Classification, form: str) -> None:
    rows = [
        {
            "reason": c.reason.name,
            "category": c.reason.category,
            "trials": c.trials,
            "share": round(c.share, 6),
            "jobs": c.jobs,
            "advice": c.reason.advice,
        }
        for c in found.counts()
    ]
    if rows or form == "json":
        print_rows(rows, form)
    else:
        typer.echo("no failed attempts")


def _show_notes(found: Classification, trace: Trace | None) -> None:
    """Print one line about the logs that were read and one for each kind of skipped log."""
    lines = [f"{found.logs:,} logs read ({found.bytes / 1e6:,.1f} MB), {len(found.failures):,} failed attempts"]
    if found.not_failed:
        lines.append(f"{found.not_failed:,} attempts did not fail according to the Trace; their logs were not read")
    if found.without_sign:
        lines.append(f"the logs of {found.without_sign:,} attempts show no failure")
    if found.unknown_logs:
        whom = (
            "belong to no attempt in the Trace" if trace is not None else "have a name that does not identify the job"
        )
        lines.append(f"{found.unknown_logs:,} logs {whom}; --name-pattern sets how to read names")
    if found.failed_without_log:
        lines.append(f"{found.failed_without_log:,} failed jobs of the Trace have no log")
    lines += [f"{count:,} {what} were skipped" for what, count in sorted(found.passed_over.items())]
    lines += [f"could not be read to the end: {what}" for what in found.damaged[:5]]
    if len(found.damaged) > 5:
        lines.append(f"{len(found.damaged) - 5:,} more logs could not be read to the end")
    print_notes(map(printable, lines))
