"""Write a report as Markdown: the page's sentences, with the names of the files that contain all rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.faults import Fault, Faults
from tracekit.guidelines.markdown import effect_text, escaped, table
from tracekit.report.unmade import all_faults, by_reason, summary_line, with_failed_sections
from tracekit.text import count, counted, visible

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from tracekit.report.structure import AnswerInfo, Report, WhatChanged

_FILES = 50
"""Maximum number of source files whose hashes are listed."""


def markdown(report: Report, faults: Faults | None = None) -> str:
    """Return a report as Markdown with all text escaped. Failed parts are marked and added to `faults`."""
    faults = Faults() if faults is None else faults
    return faults.settled(lambda: _text(report, faults))


def _text(report: Report, faults: Faults) -> str:
    found = all_faults(report["faults"], faults)
    title = escaped(report["title"])
    lines = [f"# {title}: GPU cluster report", "", *([escaped(summary_line(found)), ""] if found else [])]
    lines += _or_fault(faults, "the first screen", _opening, report)
    for section in with_failed_sections(report):
        lines += ["", f"## {escaped(section['title'])}"]
        lines += ["", escaped(section["lead"])] if section["lead"] else []
        for answer in section["answers"]:
            part = f"the text of {answer['name']}"
            lines += [
                "",
                *_or_fault(faults, part, _answer, answer, above=[f"### {escaped(answer['question'])}"]),
            ]
        for question in section["failed"]:
            lines += ["", f"### {escaped(question['question'])}", "", escaped(" ".join(question["reasons"]))]
    advice = _or_fault(faults, "the guidelines", _guidelines, report, faults, found)
    rest = _or_fault(faults, "the part on data quality and method", _rest, report)
    unmade = [f"- {escaped(fault.sentence)}" for fault in found]
    return "\n".join([*lines, "", *advice, *rest, *(["## What could not be made", "", *unmade, ""] if unmade else [])])


def _or_fault(
    faults: Faults, part: str, make: Callable[..., list[str]], *values: object, above: Sequence[str] = ()
) -> list[str]:
    """Return the lines of a part or, if it fails, the lines `above` it and the reason."""
    made = faults.run(part, make, *values)
    return [*above, "", escaped(made.sentence), ""] if isinstance(made, Fault) else made


def _opening(report: Report) -> list[str]:
    summary = report["opening"]
    lines = _changed(summary["changed"])
    for lack in summary["lacks"]:
        cure = f"Add it: {escaped(lack['cure'])}" if lack["cure"] else ""
        lines.append(f"- **{escaped(lack['text'])}** {cure}")
    lines += [""]
    lines += [escaped(summary["about"]), ""]
    lines += [f"{escaped(report['time']['text'])}. Source format {escaped(report['source']['format'])}.", ""]
    lines += table(("number", "value", "remark"), [(h["label"], h["text"], h["note"]) for h in report["headline"]])
    lines += ["", *(f"- {escaped(' '.join(filter(None, (d['text'], d['more']))))}" for d in summary["doubts"])]
    lines += ["", f"## {escaped(summary['heading'])}", "", escaped(summary["verdict"]), ""]
    for number, change in enumerate(summary["changes"], 1):
        no_effect = f" {change['no_effect']}" if change["no_effect"] else ""
        effect = f" Does it help? {change['effect']}" if change["effect"] else no_effect
        lines.append(f"{number}. **{escaped(change['title'])}.** {escaped(change['finding'] + effect)}")
    return lines


def _changed(found: WhatChanged | None) -> list[str]:
    if found is None:
        return []
    rows = [(r["what"], r["before"], r["after"], r["change"], r["certainty"]) for r in found["rows"]]
    heads = ("measure", *found["heads"], "difference", "certainty, 95 % interval")
    shown = [*table(heads, rows), ""] if rows else []
    return [f"## {escaped(found['heading'])}", "", escaped(found["text"]), "", *shown, escaped(found["periods"]), ""]


def _answer(answer: AnswerInfo) -> list[str]:
    lines = [f"### {escaped(answer['question'])}", ""]
    if answer["finding"]:
        lines += [escaped(answer["finding"]), ""]
    if answer["published"]:
        lines += [f"{counted(len(answer['published']), 'published numbers')} in report.json.", ""]
    if answer["files"]:
        lines += [f"Rows: {escaped(answer['files'][-1])}", ""]
    return lines


def _guidelines(report: Report, faults: Faults, found: Sequence[Fault]) -> list[str]:
    document = report["guidelines"]
    if document is None:
        why = [escaped(fault.sentence) for fault in found if fault.part == "the guidelines"]
        return ["## Guidelines", "", *why, ""] if why else []
    lines = ["## Guidelines", "", escaped(report["opening"]["verdict"])]
    for verdict, heading in (
        ("holds", ""),
        ("does not hold", "Not found"),
        ("cannot tell", "Could not be checked with this log"),
    ):
        entries = [entry for entry in document["guidelines"] if entry["verdict"] == verdict]
        if heading and entries:
            lines += ["", f"{heading}: {escaped('; '.join(entry['title'] for entry in entries))}."]
        elif entries:
            lines += ["", *(_problem(entry, faults) for entry in entries)]
    return [*lines, "", "guidelines.md contains the cost, risk, settings and thresholds of each guideline.", ""]


def _problem(entry: Mapping[str, Any], faults: Faults) -> str:
    """Return a list item for a problem, with the measurement, the advice and the expected effect."""
    made = faults.run(
        f"the text of the guideline {entry['id']}",
        lambda: f"{entry['finding']['text']} {entry['advice']} Does it help? {effect_text(entry)}",
    )
    return f"- **{escaped(entry['title'])}.** {escaped(made.sentence if isinstance(made, Fault) else made)}"


def _rest(report: Report) -> list[str]:
    quality, lines = report["quality"], []
    lacking = [u for u in report["unanswered"] if not u["failed"]]
    if lacking:
        lines += ["## Questions that this trace cannot answer", ""]
        lines += [f"- {escaped(reason)} ({counted(len(u), 'questions')})" for reason, u in by_reason(lacking)]
        lines += [""]
    lines += ["## Data quality", ""]
    lines += [
        f"{quality['records']:,} source records: {quality['kept']:,} kept, {quality['rejected']:,} set aside.",
        "",
    ]
    lines += [f"- {escaped(r['reason'])}: {r['count']:,} records set aside" for r in quality["rejects"]]
    lines += [f"- {escaped(c['meaning'])}: {c['count']:,} found" for c in quality["checks"] if c["count"]]
    lines += [f"- {escaped(note)}" for note in quality["notes"]]
    totals = [(t["used_for"], count(t["gpus"]), visible(t["source"])) for t in report["gpu_totals"]]
    lines += ["", *table(("used for", "GPUs", "where the number comes from"), totals)] if totals else []
    lines += ["", "## How to reproduce", ""]
    lines += [f"tracekit {escaped(report['tracekit_version'])}, {report['created']}:", ""]
    # Markdown syntax has no effect in an indented block.
    lines += [f"    {visible(report['command'])}", ""] if report["command"] else []
    hashes = [(f["path"], f["sha256"], f["records"]) for f in quality["files"][:_FILES]]
    more = len(quality["files"]) - len(hashes)
    lines += table(("file", "SHA-256", "records"), hashes) if hashes else []
    return [*lines, *(["", f"{counted(more, 'more files')} in report.json."] if more > 0 else []), ""]
