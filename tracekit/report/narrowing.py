"""What a page can be narrowed to, and what its script needs for it: sums, and the sentences of each choice."""

from __future__ import annotations

import base64
import gzip
import json
from typing import TYPE_CHECKING, Any

from tracekit.report.first_numbers import AT_ONCE_S, FULL, HELD, LACKING, NO_GPU_JOBS, OF_PART, STATES, TAILS
from tracekit.report.lines import shown_time
from tracekit.report.sections.interface import finding
from tracekit.report.site_words import unit_of
from tracekit.report.table_view import filters_of
from tracekit.report.times import moment_words
from tracekit.tenant import INGESTED

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracekit.report.sections.interface import TraceFacts
    from tracekit.report.structure import AnswerInfo, PartsInfo, Report

__all__ = ["filters_of_page", "moments", "narrows", "parts_for_page"]

_CHOICES = 300
"""Most values of a kind to choose from."""
_SENTENCES = 60
"""Most values of a kind of which an answer has a sentence of its own."""


_OF_A_PART: Mapping[str, tuple[str, ...]] = {
    "queuing/run_time": ("gpu_class",),
    "queuing/delay_causes": ("gpu_class",),
    "queuing/out_of_order": ("gpu_class",),
    "queuing/cluster_timeline": ("cluster",),
    "queuing/timeline": ("cluster",),
    "utilization/vc": ("cluster", "vc"),
    "utilization/cluster_by_hour": ("cluster",),
    "replay/twins": ("cluster",),
    "replay/by_gpu_class": ("gpu_class",),
    "replay/by_vc": ("cluster",),
}
"""Questions whose sentence is as true of the rows of a part: those that tell a number, not which part comes first."""


def narrows(answer: AnswerInfo, facts: TraceFacts) -> list[str]:
    """Return what an answer can be narrowed to; replays may know another tenant than the page."""
    other = unit_of(answer["kind"], facts) != facts.tenant
    return [name for name in filters_of(answer) if not (other and name == INGESTED)]


def filters_of_page(report: Report, facts: TraceFacts) -> dict[str, list[str]]:
    """Return what the page can be narrowed to, where there is more than one thing to choose."""
    found: dict[str, list[str]] = {name: list(values) for name, values in _names(report).items()}
    for name in ("cluster", "vc"):
        # Some occur in answers alone, such as those of jobs without GPUs.
        known = found.setdefault(name, [])
        rows = (row for a in _answers(report) if name in narrows(a, facts) for row in a["rows"])
        known += sorted({row[name] for row in rows if row[name] is not None}.difference(known))
    order = ("cluster", "vc", "partition", "user", "gpu_model", "gpu_class")
    return {name: found[name][:_CHOICES] for name in order if len(found.get(name, ())) > 1}


def moments(report: Report, facts: TraceFacts) -> list[str]:
    """Return the times at which spans begin, and the end of the last one, in words; none without parts.

    The first span begins with the log, and the last one ends with it: jobs that were submitted last run on.
    """
    if report["parts"] is None:
        return []
    edges, when = list(report["parts"]["edges"]), report["time"]
    edges[0] = max(edges[0], when["first"] or edges[0])
    edges[-1] = max(edges[-1], when["last"] or edges[-1])
    return [moment_words(edge, facts) for edge in edges]


def parts_for_page(report: Report, facts: TraceFacts) -> dict[str, Any] | None:
    """Return what the page's script tells parts from; None where there are none."""
    parts = report["parts"]
    if parts is None:
        return None
    filters = filters_of_page(report, facts)
    return {
        "packed": _packed({**parts, "sentences": _sentences(report, filters, facts)}),
        "edges": parts["edges"],
        "shown": [shown_time(edge, facts) for edge in parts["edges"]],
        "moments": moments(report, facts),
        "words": {
            "tails": TAILS,
            "states": _states(report["opening"]["state"]),
            "held": HELD,
            "lacking": LACKING,
            "of_part": OF_PART,
            "at_once_s": AT_ONCE_S,
            "full": FULL,
        },
    }


def _states(said: str) -> dict[str, str]:
    """Return what is said of the waits of a part; where no job has GPUs, what is said of the whole log."""
    return dict.fromkeys(STATES, said.removesuffix(".")) if said in NO_GPU_JOBS.values() else STATES


def _packed(value: object) -> str:
    """Return a JSON value, compressed, as text: base64 of gzip."""
    body = json.dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=False).encode()
    return base64.b64encode(gzip.compress(body, mtime=0)).decode()


def _names(report: Report) -> Mapping[str, list[str]]:
    parts: PartsInfo | None = report["parts"]
    return {} if parts is None else parts["names"]


def _answers(report: Report) -> list[AnswerInfo]:
    return [answer for section in report["sections"] for answer in section["answers"]]


def _sentences(report: Report, filters: Mapping[str, list[str]], facts: TraceFacts) -> dict[str, dict[str, str]]:
    """Return, by question and choice, the sentence of the rows that a choice leaves, where it is another one.

    A choice is written as the page's script does: names of what is chosen and places among the filters, such as
    `cluster 0 vc 3`. Of rows that the report holds only a part of nothing is said.
    """
    places = {name: {value: i for i, value in enumerate(values[:_SENTENCES])} for name, values in filters.items()}
    found: dict[str, dict[str, str]] = {}
    for answer in _answers(report):
        told = _OF_A_PART.get(answer["name"], ())
        names = [name for name in narrows(answer, facts) if name in places and name in told]
        if not names or answer["finding"] is None or answer["row_count"] > len(answer["rows"]):
            continue
        groups: dict[str, list[Any]] = {}
        for row in answer["rows"]:
            chosen = [f"{name} {places[name][row[name]]}" for name in names if row[name] in places[name]]
            for key in dict.fromkeys((*chosen, " ".join(chosen))):
                if key:
                    groups.setdefault(key, []).append(row)
        said = {
            key: finding(answer["name"], rows, facts) for key, rows in groups.items() if len(rows) < answer["row_count"]
        }
        found[answer["name"]] = {key: words for key, words in said.items() if words and words != answer["finding"]}
    return found
