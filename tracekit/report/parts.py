"""Filters of a page: the sums for parts of the cluster, and the choices that the filters offer."""

from __future__ import annotations

import base64
import gzip
import json
from typing import TYPE_CHECKING, Any

import polars as pl

from tracekit.report.axes import shown_time
from tracekit.report.charts import GPU_CLASSES
from tracekit.report.headline import AT_ONCE_S, FULL, HELD, LACKING, NO_GPU_JOBS, OF_PART, STATES, TAILS
from tracekit.report.sections.interface import finding
from tracekit.report.table_view import filters_of
from tracekit.report.times import moment_words
from tracekit.tenant import INGESTED, VC
from tracekit.text import cut

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracekit.answer import Answer
    from tracekit.report.facts import TraceFacts
    from tracekit.report.structure import AnswerInfo, PartsInfo, PartSums, Report
    from tracekit.tenant import Tenant


PARTS = "overview/parts"
"""The rows of this query are summed."""
DIMENSIONS = ("cluster", "vc", "partition", "gpu_model", "gpu_class")
"""Dimensions that select parts of a cluster, in addition to user and time."""
_CELLS = 20_000
"""Maximum number of rows of sums and of wait counts."""
_NAMES = 300
"""Maximum number of names that each dimension offers."""
_COARSEST = 20
"""Maximum width to which wait classes are merged [twentieths of a decade]."""
_DIGITS = 6
"""Number of significant digits of a sum."""
_SUMS: dict[str, pl.Expr] = {
    "jobs": pl.col("jobs").filter(pl.col("kind") == "waits"),
    "started": pl.col("jobs").filter((pl.col("kind") == "waits") & pl.col("bin").is_not_null()),
    "wait_s": pl.col("amount").filter(pl.col("kind") == "waits"),
    "completed": pl.col("amount").filter((pl.col("kind") == "ended") & (pl.col("status") == "completed")),
    "ended": pl.col("amount").filter(pl.col("kind") == "ended"),
    "held": pl.col("amount").filter(pl.col("kind") == "held"),
    "waiting": pl.col("amount").filter(pl.col("kind") == "waiting"),
    "owned": pl.col("amount").filter(pl.col("kind") == "owned"),
    "time_s": pl.col("amount").filter(pl.col("kind") == "time"),
    "samples": pl.col("jobs").filter(pl.col("kind") == "used"),
    "used": pl.col("amount").filter(pl.col("kind") == "used"),
}


def parts_info(answer: Answer | None, through_time: Answer | None, tenant: Tenant = VC) -> PartsInfo | None:
    """Return the sums of `overview/parts` that a page embeds, or None if one of the answers is missing or empty.

    Names are encoded as numbers. If there are more than `_CELLS` rows, neighbouring spans are merged, and then the
    dimension with the most values is dropped. Wait classes are first widened, then no longer split by time.

    Parameters
    ----------
    answer : Answer
        Answer to `PARTS`.
    through_time : Answer
        Answer to `overview/through_time`, which defines the start and end of the spans.
    tenant : Tenant
        The tenant of the answers.
    """
    if answer is None or through_time is None:
        return None
    rows, spans = answer.frame, through_time.frame.filter(pl.col("period") == "span")
    if not rows.height or not spans.height:
        return None
    columns = {name: name for name in (*DIMENSIONS, "user")}
    columns[INGESTED] = INGESTED if INGESTED in rows.columns else tenant.column
    names = {name: _most_first(rows, column) for name, column in columns.items()}
    coded = rows.with_columns(
        # -1 means an unnamed value, or a job that ended after the last span.
        *(
            pl.col(columns[name])
            .replace_strict(
                pl.Series(known, dtype=pl.String),
                pl.Series(range(len(known)), dtype=pl.Int64),
                default=-1,
                return_dtype=pl.Int64,
            )
            .alias(name)
            for name, known in names.items()
        ),
        pl.col("span").fill_null(0).cast(pl.Int64) - 1,
    )
    kept = [name for name in DIMENSIONS if len(names[name]) > 1]
    if set(names["partition"]) == set(names["cluster"]) and "partition" in kept:
        kept.remove("partition")  # each partition has nodes of its own and is a cluster here
    joined = 1
    while (sums := _sums(coded.filter(~pl.col("by_user")), kept, joined)).height > _CELLS:
        if spans.height > 15 * joined:
            joined *= 2
        else:
            kept.remove(max(kept, key=lambda name: len(names[name])))
    by_user = _sums(coded.filter("by_user"), ["cluster", "user"], joined)
    if by_user.height > _CELLS or len(names["user"]) < 2:
        by_user, names["user"] = by_user.clear(), []
    edges = [*spans["start_time"].gather_every(joined), spans["end_time"][-1]]
    return {
        "edges": [edge.isoformat() for edge in edges],
        "names": {name: [cut(one) for one in names[name]] for name in (*kept, *(["user"] if by_user.height else []))},
        "sums": _columns(sums),
        "waits": [_columns(one) for one in _waits(coded.filter(~pl.col("by_user")), kept, joined)],
        "user_sums": _columns(by_user),
        "user_waits": [_columns(one) for one in _waits(coded.filter("by_user"), ["cluster", "user"], joined)]
        if by_user.height
        else [],
    }


def _most_first(rows: pl.DataFrame, name: str) -> list[str]:
    """Return the names with the most jobs. GPU classes keep their natural order."""
    found = rows.filter(pl.col("kind") == "waits", pl.col(name).is_not_null()).group_by(name).agg(pl.col("jobs").sum())
    most = found.sort(["jobs", name], descending=[True, False])[name].to_list()[:_NAMES]
    return sorted(most, key=GPU_CLASSES.index) if name == "gpu_class" else most


def _sums(rows: pl.DataFrame, kept: list[str], joined: int) -> pl.DataFrame:
    keys = ["span", *kept]
    sums = {name: amounts.sum() for name, amounts in _SUMS.items()}
    summed = rows.with_columns(pl.col("span") // joined).group_by(keys).agg(**sums)
    return summed.with_columns(pl.col(list(_SUMS)).cast(pl.Float64).round_sig_figs(_DIGITS)).sort(keys)


def _waits(rows: pl.DataFrame, kept: list[str], joined: int) -> list[pl.DataFrame]:
    """Count jobs by wait class: over time if this gives few rows, otherwise for the whole log and by cluster."""
    known = rows.filter(pl.col("kind") == "waits", pl.col("bin").is_not_null()).with_columns(pl.col("span") // joined)

    def numbers(keys: list[str], coarse: int) -> pl.DataFrame:
        # -1 means no wait and stays a separate class.
        bins = pl.when(pl.col("bin") < 0).then(-1).otherwise(pl.col("bin") // coarse * coarse)
        found = known.with_columns(bin=bins).group_by([*keys, "bin"]).agg(pl.col("jobs").sum())
        return found.sort([*keys, "bin"]).with_columns(width=pl.lit(coarse))

    whole = numbers(["span", *kept], 1)
    if whole.height <= _CELLS:
        return [whole]
    cluster = ["cluster"] if "cluster" in kept else []
    found = []
    for keys in (kept, ["span", *cluster]):
        coarse = 1
        while (one := numbers(keys, coarse)).height > _CELLS and coarse < _COARSEST:
            coarse *= 2
        found.append(one)
    return found


def _columns(rows: pl.DataFrame) -> PartSums:
    """Return the columns as lists of plain numbers. Whole numbers become integers."""
    return {
        name: [int(value) if float(value).is_integer() else float(value) for value in rows[name]]
        for name in rows.columns
    }


_CHOICES = 300
"""Maximum number of values per filter."""
_SENTENCES = 60
"""Maximum number of filter values with a separate sentence for an answer."""


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
"""Questions whose sentence also applies to a part, because it gives a number instead of a ranking."""


def narrows(answer: AnswerInfo, facts: TraceFacts) -> dict[str, str]:
    """Return the filters that apply to an answer, with their columns. Replays may use a different tenant."""
    tenant = facts.tenant_of(answer["kind"])
    found = filters_of(answer, tenant)
    if tenant != facts.tenant:
        found.pop(INGESTED, None)
    return found


def filters_of_page(report: Report, facts: TraceFacts) -> dict[str, list[str]]:
    """Return the page's filters that offer more than one choice."""
    parts = report["parts"]
    found: dict[str, list[str]] = {} if parts is None else {name: list(known) for name, known in parts["names"].items()}
    for name in ("cluster", "vc"):
        # Some values, such as those of CPU jobs, occur only in answers.
        known = found.setdefault(name, [])
        columns = [(answer["rows"], narrows(answer, facts).get(name)) for answer in _answers(report)]
        values = {row[column] for rows, column in columns if column is not None for row in rows}
        known += sorted(values.difference([*known, None]))
    order = ("cluster", "vc", "partition", "user", "gpu_model", "gpu_class")
    return {name: found[name][:_CHOICES] for name in order if len(found.get(name, ())) > 1}


def moments(report: Report, facts: TraceFacts) -> list[str]:
    """Return the spans' start times and the end of the last span in words, or [] if the report has no parts.

    The first span begins at the start of the log. The last span ends at the end of the log, when the last jobs end.
    """
    if report["parts"] is None:
        return []
    edges, when = list(report["parts"]["edges"]), report["time"]
    edges[0] = max(edges[0], when["first"] or edges[0])
    edges[-1] = max(edges[-1], when["last"] or edges[-1])
    return [moment_words(edge, facts) for edge in edges]


def parts_for_page(report: Report, filters: Mapping[str, list[str]], facts: TraceFacts) -> dict[str, Any] | None:
    """Return the packed data from which the page's script computes a part's numbers, or None if there are no parts."""
    parts = report["parts"]
    if parts is None:
        return None
    said = report["opening"]["state"]
    sums = {**parts, "sentences": _sentences(report, filters, facts)}
    body = json.dumps(sums, ensure_ascii=True, separators=(",", ":"), allow_nan=False).encode()
    return {
        "packed": base64.b64encode(gzip.compress(body, mtime=0)).decode(),
        "edges": parts["edges"],
        "shown": [shown_time(edge, facts) for edge in parts["edges"]],
        "moments": moments(report, facts),
        "words": {
            "tails": TAILS,
            # If no job has GPUs, the sentence for the whole log also fits each part.
            "states": dict.fromkeys(STATES, said.removesuffix(".")) if said in NO_GPU_JOBS.values() else STATES,
            "held": HELD,
            "lacking": LACKING,
            "of_part": OF_PART,
            "at_once_s": AT_ONCE_S,
            "full": FULL,
        },
    }


def _answers(report: Report) -> list[AnswerInfo]:
    return [answer for section in report["sections"] for answer in section["answers"]]


def _sentences(report: Report, filters: Mapping[str, list[str]], facts: TraceFacts) -> dict[str, dict[str, str]]:
    """Return the sentences about each choice, by question, if they differ from the sentence for the whole log.

    A choice is written as in the page's script: filter names and positions of the chosen values, such as `cluster 0 vc
    3`. An answer has no such sentences if the report contains only some of its rows.
    """
    places = {name: {value: i for i, value in enumerate(values[:_SENTENCES])} for name, values in filters.items()}
    found: dict[str, dict[str, str]] = {}
    for answer in _answers(report):
        told = _OF_A_PART.get(answer["name"], ())
        columns = {name: c for name, c in narrows(answer, facts).items() if name in places and name in told}
        if not columns or answer["finding"] is None or answer["row_count"] > len(answer["rows"]):
            continue
        groups: dict[str, list[Any]] = {}
        for row in answer["rows"]:
            chosen = [f"{name} {places[name][row[c]]}" for name, c in columns.items() if row[c] in places[name]]
            for key in dict.fromkeys((*chosen, " ".join(chosen))):
                if key:
                    groups.setdefault(key, []).append(row)
        said = {
            key: finding(answer["name"], rows, facts) for key, rows in groups.items() if len(rows) < answer["row_count"]
        }
        found[answer["name"]] = {key: words for key, words in said.items() if words and words != answer["finding"]}
    return found
