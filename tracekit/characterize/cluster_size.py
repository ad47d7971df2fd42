"""The number of GPUs of the cluster, by a named source, since sources differ."""

from __future__ import annotations

import csv
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from tracekit.characterize.views import connect_with_views
from tracekit.damage import explain_damage
from tracekit.errors import UsageError
from tracekit.trace import Trace

if TYPE_CHECKING:
    import duckdb


__all__ = ["FROM_JOBS", "Capacity", "capacity"]

_TABLES = ("nodes", "placements", "gpu_utilization", "capacity")
FROM_JOBS = frozenset({"slurm"})
"""Formats without a list of machines: their table of nodes holds those that jobs ran on, each with the most GPUs that
jobs held there at one time, so that it observes and lists nothing."""

_SOURCES = "choose 'listed', 'observed' or a CSV file with the columns node_id,gpu_count"


@dataclass(frozen=True)
class Capacity:
    """The number of GPUs by one source."""

    source: str
    """'listed', 'observed' or the path of a file."""
    gpus: int
    """All GPUs [GPUs]."""
    by_node: pl.DataFrame
    """node_id and gpu_count [GPUs], ordered by node_id; empty when the source states only totals."""
    alternatives: dict[str, int] = field(default_factory=dict)
    """GPUs by each other source that the trace has [GPUs]."""
    note: str = ""
    """The source of the number in words."""
    word: str = ""
    """The same in a word or two: listed, stated, observed, or by which file."""


@explain_damage()
def capacity(trace: Trace | str | Path, source: str | Path = "listed") -> Capacity:
    """Return the GPUs of the cluster that a trace comes from.

    Parameters
    ----------
    trace : Trace, str or Path
        What to read: a Trace, or its folder.
    source : str or Path
        'listed': the node list where the source has one, or else the capacity table, of which the largest total over
        time counts, summed over the clusters. 'observed': for each node the largest of what the list, the placements
        and the telemetry show. Otherwise the path of a CSV file with the columns node_id and gpu_count.

    Raises
    ------
    UsageError
        The trace does not have this source, or the file cannot be used.
    """
    trace = Trace.of(trace)
    with connect_with_views(trace, also=_TABLES) as con:
        derived = trace.manifest.format in FROM_JOBS
        found = {c.source: c for c in (_listed(con, derived=derived), _observed(con, derived=derived)) if c is not None}
    chosen = found.get(str(source))
    if chosen is None:
        if source in ("listed", "observed"):
            other = f"use '{next(iter(found))}'" if found else "give a CSV file with the columns node_id,gpu_count"
            raise UsageError(f"the trace has no {source} capacity", where=trace.path, hint=other)
        chosen = _from_file(Path(source))
    others = {name: c.gpus for name, c in found.items() if name != chosen.source}
    return replace(chosen, alternatives=others)


def _listed(con: duckdb.DuckDBPyConnection, *, derived: bool) -> Capacity | None:
    nodes = _by_node(con, "listed").clear() if derived else _by_node(con, "listed")
    if nodes.height:
        rows = con.execute("SELECT count(*) FROM nodes WHERE gpu_count IS NULL").fetchall()
        unknown = f"; {rows[0][0]} listed nodes state no GPUs" if rows[0][0] else ""
        note = f"the node list, {nodes.height} nodes{unknown}"
        return Capacity("listed", int(nodes["gpu_count"].sum()), nodes, note=note, word="listed")
    rows = con.execute("SELECT cluster, gpus FROM cluster_gpus WHERE gpus IS NOT NULL ORDER BY cluster").fetchall()
    if not rows:
        return None
    parts = ", ".join(f"{cluster or 'unnamed cluster'} {gpus:g}" for cluster, gpus in rows)
    note = f"the capacity table, largest total over time of each cluster: {parts}"
    return Capacity("listed", round(sum(gpus for _, gpus in rows)), nodes, note=note, word="stated")


def _observed(con: duckdb.DuckDBPyConnection, *, derived: bool) -> Capacity | None:
    # A list alone shows nothing.
    seen = con.execute("SELECT (SELECT count(*) FROM placements) + (SELECT count(*) FROM gpu_utilization)").fetchall()
    nodes = _by_node(con, "observed")
    if not nodes.height or not seen[0][0]:
        return None
    query = "SELECT count(*) FROM node_gpus WHERE observed > coalesce(listed, 0)"
    raised = con.execute(query).fetchall()[0][0]
    note = (
        f"the largest of node list, placements and telemetry, {nodes.height} nodes; {raised} show more than is listed"
    )
    if derived:
        note = (
            f"the {nodes.filter(pl.col('gpu_count') > 0).height} machines on which jobs held GPUs, each with the most"
            " that they held there at one time;"
            " the source has no list of machines"
        )
    return Capacity("observed", int(nodes["gpu_count"].sum()), nodes, note=note, word="observed")


def _by_node(con: duckdb.DuckDBPyConnection, column: str) -> pl.DataFrame:
    query = f"SELECT node_id, {column} AS gpu_count FROM node_gpus WHERE {column} IS NOT NULL ORDER BY node_id"
    frame: pl.DataFrame = con.sql(query).pl()
    return frame


def _from_file(path: Path) -> Capacity:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            counts = _read_counts(csv.DictReader(file), path)
    except FileNotFoundError as error:
        raise UsageError("no such capacity source", where=path, hint=_SOURCES) from error
    except OSError as error:
        raise UsageError(f"cannot read the capacity: {error.strerror}", where=path, hint=_SOURCES) from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise UsageError("is not a CSV file", where=path, hint=_SOURCES) from error
    frame = pl.DataFrame(sorted(counts.items()), schema={"node_id": pl.String, "gpu_count": pl.Int64}, orient="row")
    return Capacity(
        str(path),
        sum(counts.values()),
        frame,
        note=f"the file {path.name}, {len(counts)} nodes",
        word=f"by {path.name}",
    )


def _read_counts(rows: csv.DictReader[str], path: Path) -> dict[str, int]:
    if not {"node_id", "gpu_count"}.issubset(rows.fieldnames or ()):
        raise UsageError("lacks the columns node_id,gpu_count", where=path, line=1, hint=_SOURCES)
    counts: dict[str, int] = {}
    for row in rows:
        node, text = (row["node_id"] or "").strip(), (row["gpu_count"] or "").strip()
        if not node or node in counts:
            what = f"the node '{node}' stands twice" if node else "the node has no name"
            raise UsageError(what, where=path, line=rows.line_num, column="node_id")
        if not (text.isascii() and text.isdecimal()):
            what, hint = f"'{text}' is not a number of GPUs", "write a whole number"
            raise UsageError(what, where=path, line=rows.line_num, column="gpu_count", hint=hint)
        counts[node] = int(text)
    if not counts:
        raise UsageError("names no node", where=path, hint=_SOURCES)
    return counts
