"""What a page needs to tell its first numbers of a part: sums by cluster, tenant, user, size and time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl

from tracekit.text import cut

if TYPE_CHECKING:
    from tracekit.answer import Answer
    from tracekit.report.structure import PartsInfo, PartSums

__all__ = ["DIMENSIONS", "PARTS", "parts_info"]

PARTS = "overview/parts"
"""The query whose rows are summed."""
DIMENSIONS = ("cluster", "vc", "partition", "gpu_model", "gpu_class")
"""By what parts of a cluster are told apart, besides the user and the time."""
_CELLS = 20_000
"""Most rows of sums, and of numbers of waits."""
_NAMES = 300
"""Most names of one kind to choose from."""
_COARSEST = 20
"""Twentieths of a decade beyond which lengths of waits are not joined."""
_DIGITS = 6
"""Significant digits of a sum."""
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


def parts_info(answer: Answer | None, through_time: Answer | None) -> PartsInfo | None:
    """Return the sums of `overview/parts` as a page carries them; None where one of the answers is lacking or empty.

    Names are numbered. Where there are more than `_CELLS` rows, neighbouring spans are joined, and then the dimension
    with most values is given up; lengths of waits are told apart less finely, and then not through time.

    Parameters
    ----------
    answer : Answer
        To `PARTS`.
    through_time : Answer
        To `overview/through_time`, which says when spans begin and end.
    """
    if answer is None or through_time is None:
        return None
    rows, spans = answer.frame, through_time.frame.filter(pl.col("period") == "span")
    if not rows.height or not spans.height:
        return None
    names = {name: _most_first(rows, name) for name in (*DIMENSIONS, "user")}
    coded = rows.with_columns(
        # Whatever has no name of its own, and what ended after the last span, is -1.
        *(_code(pl.col(name), known).alias(name) for name, known in names.items()),
        pl.col("span").fill_null(0).cast(pl.Int64) - 1,
    )
    kept = [name for name in DIMENSIONS if len(names[name]) > 1]
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
    """Return the names with most jobs; those of GPU classes in their order."""
    found = rows.filter(pl.col("kind") == "waits", pl.col(name).is_not_null()).group_by(name).agg(pl.col("jobs").sum())
    most = found.sort(["jobs", name], descending=[True, False])[name].to_list()[:_NAMES]
    return sorted(most, key=_CLASSES.index) if name == "gpu_class" else most


_CLASSES = ("0", "<1", "1", "2-4", "5-8", ">8")


def _code(column: pl.Expr, known: list[str]) -> pl.Expr:
    numbers = pl.Series(range(len(known)), dtype=pl.Int64)
    return column.replace_strict(pl.Series(known, dtype=pl.String), numbers, default=-1, return_dtype=pl.Int64)


def _joined(joined: int) -> pl.Expr:
    return (pl.col("span") // joined).alias("span")


def _sums(rows: pl.DataFrame, kept: list[str], joined: int) -> pl.DataFrame:
    keys = ["span", *kept]
    summed = rows.with_columns(_joined(joined)).group_by(keys).agg(**{n: sum_.sum() for n, sum_ in _SUMS.items()})
    return summed.with_columns(pl.col(list(_SUMS)).cast(pl.Float64).round_sig_figs(_DIGITS)).sort(keys)


def _waits(rows: pl.DataFrame, kept: list[str], joined: int) -> list[pl.DataFrame]:
    """Return how many jobs waited how long: through time where that is few rows, else of the whole and by cluster."""
    known = rows.filter(pl.col("kind") == "waits", pl.col("bin").is_not_null()).with_columns(_joined(joined))

    def numbers(keys: list[str], coarse: int) -> pl.DataFrame:
        # -1, no wait, stays by itself.
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
    """Return the columns as lists of plain numbers; whole ones without a point."""
    return {name: [_plain(value) for value in rows[name]] for name in rows.columns}


def _plain(value: Any) -> int | float:
    return int(value) if float(value).is_integer() else float(value)
