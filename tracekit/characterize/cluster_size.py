"""Find the number of GPUs in the cluster, and its source, because sources differ."""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass, field, replace
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from tracekit.characterize.session import Session
from tracekit.damage import explain_damage
from tracekit.errors import UsageError
from tracekit.trace import Trace

if TYPE_CHECKING:
    from collections.abc import Mapping

    import duckdb


_TABLES = ("nodes", "placements", "gpu_utilization", "capacity", "jobs", "attempts")
_READ = "cluster_gpus job_classes node_gpus open_attempts trace_capabilities trace_nodes trace_window " + " ".join(
    _TABLES
)
"""The tables and views that this module reads."""
_SOURCES = "choose 'listed', 'observed' or a CSV file with the columns node_id,gpu_count"


@dataclass(frozen=True)
class Capacity:
    """The number of GPUs according to one source."""

    source: str
    """'listed', 'observed', or the path of a file."""
    gpus: int
    """Total number of GPUs [GPUs]."""
    by_node: pl.DataFrame
    """node_id and gpu_count [GPUs], in order of node_id; empty if the source gives only totals."""
    alternatives: dict[str, int] = field(default_factory=dict)
    """GPUs according to each other source in the trace, by its `kind` [GPUs]."""
    note: str = ""
    """The source of the number in words, with a date if the number changes over time."""
    word: str = ""
    """The source in a few words: listed, stated by a list next to the log, stated, quotas, observed, or a file."""
    kind: str = ""
    """'listed' (machines), 'stated' (a total in the source), 'quotas' (their sum), 'observed', or 'file'."""


@explain_damage()
def capacity(trace: Trace | str | Path, source: str | Path = "listed") -> Capacity:
    """Return the number of GPUs of the cluster in a trace.

    Parameters
    ----------
    trace : Trace, str or Path
        The Trace, or its folder.
    source : str or Path
        'listed' uses the node list if the source has one, and otherwise the largest total over time in the capacity
        table, summed over the clusters. If there is no total and no machine is seen, it uses the largest sum of the
        VCs' quotas. 'observed' uses, for each node, the largest number in the list, the placements and the telemetry.
        If no node is known, it uses the most GPUs that the jobs of each cluster used at one time. Any other value is
        the path of a CSV file with the columns node_id and gpu_count.

    Raises
    ------
    UsageError
        The trace does not have this source, or the file cannot be used.
    """
    trace = Trace.of(trace)
    with Session(trace).connect(_TABLES, _READ) as con:
        seen, listed = _seen_nodes(con), _listed(con, trace)
        # If machines are known, quotas and the GPUs in use at one time add no information.
        most = {} if seen or listed else _most_held(con)
        stated = listed or _stated(con, trace, most, machines=seen is not None)
        found = {c.source: c for c in (stated, seen or _observed_in_use(most)) if c is not None}
    chosen = found.get(str(source))
    if chosen is None:
        if source in ("listed", "observed"):
            other = f"use '{next(iter(found))}'" if found else "give a CSV file with the columns node_id,gpu_count"
            raise UsageError(f"the trace has no {source} capacity", where=trace.path, hint=other)
        chosen = _from_file(Path(source))
    others = {c.kind: c.gpus for name, c in found.items() if name != chosen.source}
    return replace(chosen, alternatives=others)


def _listed(con: duckdb.DuckDBPyConnection, trace: Trace) -> Capacity | None:
    """Return the machines in the node lists of all exports of a Trace, or None if there is no list."""
    nodes = _by_node(con, "listed")
    if not nodes.height:
        return None
    rows = con.execute("SELECT count(*) FROM nodes WHERE gpu_count IS NULL").fetchall()
    unknown = f"; {rows[0][0]} more listed without a GPU count" if rows[0][0] else ""
    grown = trace.manifest.additions
    exports = f" listed in any of {len(grown) + 1} exports, the last added {grown[-1].created}" if grown else ""
    source = con.execute("SELECT source FROM trace_nodes").fetchall()[0][0]
    by = f" from {source}" if source else ""
    others = con.execute("SELECT count(*) FROM nodes WHERE source IS NULL").fetchall()[0][0] if source else 0
    more = f"; {others} of them only in the log" if others else ""
    note = f"the node list{by}, {nodes.height} nodes{exports}{more}{unknown}"
    word = f"stated by {source}" if source else "listed"
    return Capacity("listed", int(nodes["gpu_count"].sum()), nodes, note=note, word=word, kind="listed")


def _stated(
    con: duckdb.DuckDBPyConnection, trace: Trace, most: Mapping[str | None, float], *, machines: bool
) -> Capacity | None:
    """Return the totals of the capacity table, or the sum of its quotas if no machines are known."""
    from tracekit.characterize.occupancy import beside_use

    rows = con.execute(
        "SELECT cluster, gpus, source, since, changes FROM cluster_gpus WHERE gpus IS NOT NULL ORDER BY cluster"
    ).fetchall()
    sources = {source for _, _, source, _, _ in rows}
    if not rows or (machines and "quotas" in sources):
        return None
    parts, gpus = [], 0.0
    for cluster, number, source, since, changes in rows:
        gpus += number
        remark = beside_use(number, most.get(cluster, 0)) if source == "quotas" else ""
        when = f" from {_instant(trace, since)}" if changes else ""
        parts.append(f"{cluster or 'unnamed cluster'} {number:g}{when}{f' ({remark})' if remark else ''}")
    kind = "quotas" if "quotas" in sources else "stated"
    changing = any(changes for *_, changes in rows)
    what = {
        "stated": "the recorded total of each cluster",
        "quotas": "the sum of the quotas of each cluster's VCs, which are not machines",
    }[kind]
    if len(sources) > 1:
        what += ", or its recorded total"
    word = {"stated": "largest stated total", "quotas": "largest sum of quotas"}[kind] if changing else kind
    note = f"{what}{', at its largest' if changing else ''}: {', '.join(parts)}"
    return Capacity("listed", round(gpus), _no_nodes(), note=note, word=word, kind=kind)


def _instant(trace: Trace, time: datetime) -> str:
    """Describe a moment [UTC] in the Trace's time base."""
    if trace.manifest.time_base == "relative":
        return f"day {(time - datetime(1970, 1, 1)).days}"
    return f"{time:%Y-%m-%d %H:%M} UTC"


def _seen_nodes(con: duckdb.DuckDBPyConnection) -> Capacity | None:
    """Return the machines that placements or telemetry show, or None if they show none."""
    # A list alone does not count as an observation.
    seen = con.execute("SELECT (SELECT count(*) FROM placements) + (SELECT count(*) FROM gpu_utilization)").fetchall()
    nodes = _by_node(con, "observed")
    if not nodes.height or not seen[0][0]:
        return None
    query = "SELECT count(*) FROM node_gpus WHERE observed > coalesce(listed, 0)"
    raised = con.execute(query).fetchall()[0][0]
    note = (
        f"the largest of node list, placements and telemetry, {nodes.height} nodes; {raised} show more GPUs than listed"
    )
    if not con.execute("SELECT listed FROM trace_nodes").fetchall()[0][0]:
        note = (
            f"the {nodes.filter(pl.col('gpu_count') > 0).height} machines on which jobs used GPUs, each with the most"
            " in use there at one time; the source has no list of machines"
        )
    return Capacity("observed", int(nodes["gpu_count"].sum()), nodes, note=note, word="observed", kind="observed")


def _most_held(con: duckdb.DuckDBPyConnection) -> dict[str | None, float]:
    """Return the most GPUs that the jobs of each cluster used at one time [GPUs]."""
    from tracekit.characterize.occupancy import attempts_sql, most_held, running, tenants

    groups = tenants(con)
    ran, _ = running(con, attempts_sql(con), with_gpus=True)
    return most_held(ran, groups)


def _observed_in_use(most: Mapping[str | None, float]) -> Capacity | None:
    """Return the most GPUs in use at one time, a lower bound on the cluster's size, or None if no GPU was in use."""
    gpus = sum(math.ceil(number) for number in most.values())
    if not gpus:
        return None
    parts = ", ".join(f"{cluster} {number:g}" for cluster, number in most.items() if cluster is not None)
    each = " of each cluster" if len(most) > 1 else ""
    note = f"the most GPUs that the jobs{each} used at one time{f': {parts}' if each else ''}; no machine is known"
    return Capacity("observed", gpus, _no_nodes(), note=note, word="observed", kind="observed")


def _no_nodes() -> pl.DataFrame:
    return pl.DataFrame(schema={"node_id": pl.String, "gpu_count": pl.Int64})


def _by_node(con: duckdb.DuckDBPyConnection, column: str) -> pl.DataFrame:
    query = f"SELECT node_id, {column} AS gpu_count FROM node_gpus WHERE {column} IS NOT NULL ORDER BY node_id"
    frame: pl.DataFrame = pl.DataFrame(con.sql(query))
    return frame


def _from_file(path: Path) -> Capacity:
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            counts = _read_counts(csv.DictReader(file), path)
    except FileNotFoundError as error:
        raise UsageError("the capacity file does not exist", where=path, hint=_SOURCES) from error
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
        kind="file",
    )


def _read_counts(rows: csv.DictReader[str], path: Path) -> dict[str, int]:
    if not {"node_id", "gpu_count"}.issubset(rows.fieldnames or ()):
        raise UsageError("the columns node_id,gpu_count are missing", where=path, line=1, hint=_SOURCES)
    counts: dict[str, int] = {}
    for row in rows:
        node, text = (row["node_id"] or "").strip(), (row["gpu_count"] or "").strip()
        if not node or node in counts:
            what = f"the node '{node}' occurs twice" if node else "the node has no name"
            raise UsageError(what, where=path, line=rows.line_num, column="node_id")
        if not (text.isascii() and text.isdecimal()):
            what, hint = f"'{text}' is not a number of GPUs", "write a whole number"
            raise UsageError(what, where=path, line=rows.line_num, column="gpu_count", hint=hint)
        counts[node] = int(text)
    if not counts:
        raise UsageError("names no node", where=path, hint=_SOURCES)
    return counts
