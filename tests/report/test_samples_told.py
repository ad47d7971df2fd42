"""What the reports of sample logs tell in words, reviewed as a whole: first screen, findings, guidelines; no tables."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.reviewed import Golden
    from tracekit.analysis import Analysis
    from tracekit.report.structure import Report


@pytest.mark.parametrize("name", ["philly", "slurm", pytest.param("slurm-outages", marks=pytest.mark.thorough)])
def test_what_a_report_tells(golden: Golden, analyzed: Callable[[str], Analysis], name: str) -> None:
    report: Report = json.loads(analyzed(name).data.read_text(encoding="utf-8"))
    lines = [*_first_screen(report), *_findings(report), *_guidelines(report)]
    assert len(lines) > 50
    golden("\n".join(lines))


def _parts(*texts: str | None) -> str:
    return f"- {' | '.join(filter(None, texts))}"


def _first_screen(report: Report) -> Iterator[str]:
    opening = report["opening"]
    yield from ("# First screen", opening["about"], opening["state"], opening["verdict"], opening["heading"])
    yield from (_parts("Lacks", lack["text"], lack["cure"]) for lack in opening["lacks"])
    for change in opening["changes"]:
        yield _parts(change["title"], change["finding"], change["effect"] or change["no_effect"])
    yield from (_parts("Doubt", doubt["text"], doubt["more"]) for doubt in opening["doubts"])
    yield from (_parts(one["label"], one["text"], one["note"], one["change"]) for one in report["headline"])
    yield f"- {report['time']['text']}"


def _findings(report: Report) -> Iterator[str]:
    """Yield leads and findings, but those of a fit: machines may differ in the last digits of an optimum."""
    for section in report["sections"]:
        yield from ("", f"# {section['title']}", section["lead"])
        told = (a for a in section["answers"] if a["finding"] and a["kind"] != "fit")
        yield from (f"- {answer['name']}: {answer['finding']}" for answer in told)


def _guidelines(report: Report) -> Iterator[str]:
    assert report["guidelines"] is not None
    yield from ("", "# Guidelines")
    for one in report["guidelines"]["guidelines"]:
        yield f"- {one['title']}: {one['verdict']}. {' '.join(one['why'])}".rstrip()
        parts = [one["finding"], one["effect"], one["losses"]]
        yield from (f"  - {part['text']}" for part in parts if part is not None)
        yield from (f"  - {one[key]}" for key in ("advice", "no_effect") if one[key] is not None)
