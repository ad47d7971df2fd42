"""Find the machine and GPU of each series, and the job that used the GPU at the time of each sample."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import polars as pl

from tracekit.ingest.checks import SqlCheck, run_checks
from tracekit.ingest.telemetry._pivot import WIDEST
from tracekit.ingest.telemetry._series import DIVIDED, METRICS, OWN, frame_of

if TYPE_CHECKING:
    import duckdb
    from numpy.typing import NDArray

    from tracekit.ingest.sink import Sink
    from tracekit.ingest.telemetry._pivot import Keys, Wide


# A host's name may include its cluster and domain. A name that fits several machines matches none.
_NODES = """
CREATE TABLE host_node AS
WITH known AS (SELECT node_id FROM nodes UNION SELECT node_id FROM placements),
spelled AS (
    SELECT node_id, unnest([node_id, split_part(node_id, '/', -1), split_part(split_part(node_id, '/', -1), '.', 1)])
        AS spelling, unnest([0, 1, 2]) AS distance FROM known),
host AS (SELECT DISTINCT host FROM label WHERE host IS NOT NULL),
fits AS (
    SELECT DISTINCT h.host, s.node_id, s.distance + (h.host <> s.spelling)::INT * 3 AS distance
    FROM host h JOIN spelled s ON s.spelling IN (h.host, split_part(h.host, '.', 1)))
SELECT host, any_value(node_id) AS node_id, count(DISTINCT node_id) AS nodes FROM (
    SELECT * FROM fits QUALIFY rank() OVER (PARTITION BY host ORDER BY distance) = 1)
GROUP BY host"""

_PLACED = f"""
CREATE TABLE placed AS
WITH gpu AS (
    SELECT uuid, any_value(gpu_index) AS gpu_index, any_value(host) AS host FROM label
    WHERE uuid IS NOT NULL AND gpu_index IS NOT NULL GROUP BY uuid),
named AS (
    SELECT l.series, coalesce(h.node_id, l.host, g.host) AS node_id, h.nodes = 1 AS known,
           coalesce(l.gpu_index, g.gpu_index) AS gpu_index, l.gpu_instance, m."column", m.factor, m.rank,
           coalesce(l.job, l.namespace || '/' || l.pod) AS name
    FROM label l JOIN metric m ON l.metric = m.name
    LEFT JOIN gpu g ON l.uuid = g.uuid
    LEFT JOIN host_node h ON h.host = coalesce(l.host, g.host))
SELECT * REPLACE (
           CASE WHEN "column" = '{DIVIDED.column}' AND rank = 0
                     AND count(gpu_instance) OVER (PARTITION BY node_id, gpu_index) > 0
                THEN {DIVIDED.rank} ELSE rank END AS rank),
       dense_rank() OVER (ORDER BY node_id, gpu_index, gpu_instance)::INTEGER AS place,
       CASE WHEN name IS NOT NULL THEN dense_rank() OVER (ORDER BY name)::INTEGER END AS holder
FROM named"""

_PLACES = """
CREATE TABLE place AS
SELECT DISTINCT p.place, p.node_id, p.gpu_index, p.gpu_instance, n.cluster
FROM placed p LEFT JOIN nodes n USING (node_id)"""

_UNPLACED = "telemetry series without a GPU or machine; ignored"
_UNKNOWN = "machines in telemetry that are not in the log; their samples are kept but belong to no job"
_SHARED_NAME = (
    "machines in telemetry whose name matches several machines of the log; their samples keep the name in the telemetry"
)


def place_series(con: duckdb.DuckDBPyConnection, sink: Sink) -> None:
    """Create the `placed` table with the machine, GPU and column of each series in the `label` table."""
    rows = [(name, m.column, m.factor, m.rank) for name, m in (METRICS | OWN).items()]
    frame = pl.DataFrame(rows, schema=["name", "column", "factor", "rank"], orient="row")
    con.register("metric_rows", frame.to_arrow())
    con.execute("CREATE TABLE metric AS SELECT * FROM metric_rows")
    con.execute(_NODES)
    con.execute(_PLACED)
    lost, series, examples = con.execute(
        """SELECT count(*) FILTER (WHERE node_id IS NULL OR gpu_index IS NULL), count(*),
                  coalesce(list("column" ORDER BY series) FILTER (WHERE node_id IS NULL OR gpu_index IS NULL), [])[:5]
        FROM placed"""
    ).fetchall()[0]
    sink.check("telemetry_without_gpu", lost, series, _UNPLACED, examples)
    con.execute("DELETE FROM placed WHERE node_id IS NULL OR gpu_index IS NULL")
    con.execute(_PLACES)
    con.execute("CREATE TABLE holder AS SELECT DISTINCT holder, name FROM placed WHERE holder IS NOT NULL")
    of = "(SELECT DISTINCT node_id FROM placed)"
    for name, condition, meaning in (
        ("telemetry_of_unknown_nodes", "known IS NULL", _UNKNOWN),
        ("telemetry_of_doubtful_nodes", "NOT known", _SHARED_NAME),
    ):
        check = SqlCheck(name, meaning, f"SELECT DISTINCT node_id FROM placed WHERE {condition}", of)
        run_checks(con, sink, [check])


# A monitor identifies a job by the scheduler's number, which is the id without the cluster and the suffix of a reused
# id. It identifies a pod by namespace and name. In Slurm, the components of a heterogeneous job have the numbers after
# the job's number.
_KEYS = """
CREATE TABLE key AS
WITH own AS (
    SELECT unnest([job_id, regexp_replace(split_part(job_id, '/', -1), '#[0-9]+$', ''), vc || '/' || name]) AS key,
           job_id FROM jobs),
component AS (
    SELECT DISTINCT job_id, try_cast(regexp_replace(split_part(job_id, '/', -1), '#[0-9]+$', '') AS BIGINT)
                            + nullif(try_cast(task AS BIGINT), 0) AS number
    FROM placements WHERE length(task) < 10)
SELECT DISTINCT key, job_id FROM (
    FROM own
    UNION ALL
    SELECT number::VARCHAR AS key, job_id FROM component c ANTI JOIN own o ON o.key = c.number::VARCHAR
    UNION ALL
    SELECT j.vc || '/' || p.instance, p.job_id FROM placements p JOIN jobs j USING (job_id))
WHERE key IN (SELECT name FROM holder)"""

# If several clusters use the same job numbers, the machine's cluster decides.
_HELD = """
CREATE TABLE held AS
WITH run AS (
    SELECT h.holder, j.cluster, a.job_id, a.attempt, a.start_time AS since,
           coalesce(a.end_time, 'infinity'::TIMESTAMP) AS until
    FROM holder h JOIN key k ON k.key = h.name JOIN jobs j USING (job_id) JOIN attempts a USING (job_id)
    WHERE a.start_time IS NOT NULL),
by_cluster AS (
    SELECT * FROM run WHERE cluster IS NOT NULL
    UNION ALL
    SELECT * REPLACE (NULL AS cluster) FROM run
    WHERE holder IN (SELECT holder FROM run GROUP BY holder HAVING count(DISTINCT cluster) <= 1))
SELECT * REPLACE (least(until, coalesce(lead(since) OVER w, 'infinity'::TIMESTAMP)) AS until)
FROM by_cluster WINDOW w AS (PARTITION BY holder, cluster ORDER BY since, job_id, attempt)"""

# If the log does not record which of a machine's GPUs a job uses, the job is certain only if it uses all of them: as
# many as the machine list and the telemetry show.
_OWNED = """
CREATE TABLE owned AS
WITH part AS (
    SELECT p.node_id, p.job_id, p.attempt, sum(p.gpu_count) AS gpus, bool_and(p.gpu_count IS NOT NULL) AS counted,
           bool_and(len(p.gpu_index) > 0) AS indexed, a.start_time AS since,
           coalesce(a.end_time, 'infinity'::TIMESTAMP) AS until
    FROM placements p JOIN attempts a USING (job_id, attempt)
    WHERE a.start_time IS NOT NULL AND (p.gpu_count > 0 OR p.gpu_count IS NULL)
        AND (a.end_time > a.start_time OR a.end_time IS NULL)
        AND p.node_id IN (SELECT node_id FROM place)
    GROUP BY p.node_id, p.job_id, p.attempt, a.start_time, a.end_time),
numbered AS (SELECT *, row_number() OVER (ORDER BY node_id, since, job_id, attempt) AS number FROM part),
size AS (
    SELECT g.node_id, greatest(max(g.gpu_index) + 1, any_value(n.gpu_count)) AS gpus
    FROM place g LEFT JOIN nodes n USING (node_id) GROUP BY g.node_id),
event AS (
    SELECT node_id, since AS time, 1 AS jobs, number, (NOT coalesce(indexed, false))::INT AS unknown FROM numbered
    UNION ALL
    SELECT node_id, until, -1, -number, -(NOT coalesce(indexed, false))::INT FROM numbered WHERE isfinite(until)),
moment AS (
    SELECT node_id, time, sum(jobs) AS jobs, sum(number) AS number, sum(unknown) AS unknown
    FROM event GROUP BY node_id, time),
state AS (
    SELECT node_id, time AS since, coalesce(lead(time) OVER w, 'infinity'::TIMESTAMP) AS until,
           sum(jobs) OVER w AS jobs, sum(number) OVER w AS number, sum(unknown) OVER w AS unknown
    FROM moment WINDOW w AS (PARTITION BY node_id ORDER BY time))
SELECT s.node_id, s.since, s.until,
       CASE WHEN s.jobs = 1 AND p.counted AND p.gpus = n.gpus THEN p.job_id END AS job_id,
       s.unknown > 0 AND NOT coalesce(s.jobs = 1 AND p.counted AND p.gpus = n.gpus, false) AS doubtful
FROM state s LEFT JOIN numbered p ON s.jobs = 1 AND p.number = s.number LEFT JOIN size n ON n.node_id = s.node_id
WHERE s.jobs > 0"""

LAST = (1 << 62) - 1
"""End time of attempts that have not ended."""

_MICROSECONDS = f"epoch_us(since) AS since, CASE WHEN isfinite(until) THEN epoch_us(until) ELSE {LAST} END AS until"


class Matched(NamedTuple):
    """The jobs of a batch's rows, as indices into `Holders.jobs` and `Holders.held`, or -1 for no job."""

    named: NDArray[np.int64]
    """The row of `held` for the job in the labels."""
    job: NDArray[np.int64]
    """The job of `named`, or else the only job on the machine."""
    doubtful: NDArray[np.bool_]
    """Whether several jobs may have used the GPU."""
    free: NDArray[np.bool_]
    """Whether no job used a GPU of the machine."""


class Holders:
    """When jobs named in labels ran (`held`), and when a single job used a whole machine (`owned`).

    The times of one name in one cluster (`held`) or of one machine (`owned`) do not overlap, so each sample is in at
    most one time of each.
    """

    def __init__(self, con: duckdb.DuckDBPyConnection) -> None:
        for statement in (_KEYS, _HELD, _OWNED):
            con.execute(statement)
        self.jobs = frame_of(
            con, "SELECT job_id FROM (SELECT job_id FROM held UNION SELECT job_id FROM owned) WHERE job_id IS NOT NULL"
        )["job_id"]
        numbers = pl.DataFrame({"job_id": self.jobs, "job": np.arange(len(self.jobs))})
        self.held = (
            frame_of(con, f"SELECT holder::BIGINT AS holder, cluster, job_id, attempt, {_MICROSECONDS} FROM held")
            .join(numbers, on="job_id", how="left")
            .sort("holder", "cluster", "since")
            .with_row_index("number")
        )
        self.owned = (
            frame_of(con, f"SELECT node_id, job_id, doubtful, {_MICROSECONDS} FROM owned")
            .join(numbers, on="job_id", how="left")
            .sort("node_id", "since")
        )
        self.places = frame_of(
            con, "SELECT place::BIGINT AS place, node_id, gpu_index, gpu_instance, cluster FROM place ORDER BY place"
        )

        self._labelled = frame_of(con, "SELECT DISTINCT node_id FROM placed WHERE holder IS NOT NULL")["node_id"]

    def of_batch(self, keys: Keys) -> pl.DataFrame:
        """Return a batch's places, in the batch's order."""
        return pl.DataFrame({"place": keys.places}).join(self.places, on="place", how="left", maintain_order="left")

    def match(self, rows: Wide) -> Matched:
        """Return the job of each row."""
        nowhere = np.full(len(rows.key), -1, dtype=np.int64)
        places = self.of_batch(rows.keys).with_row_index("local")
        labelled = rows.holder >= 0
        named = self._named(rows, places, labelled) if labelled.any() else nowhere
        job = self._column(self.held["job"], named)
        if labelled.all():
            nothing = np.zeros(len(rows.key), dtype=bool)
            return Matched(named, job, nothing, nothing)
        owned = self.owned.join(places.select("local", "node_id"), on="node_id").sort("local", "since")
        at = _within(rows.keys, owned, rows.local, rows.time)
        at[labelled] = -1
        # A monitor that names jobs on a machine would name the job on this GPU too.
        silent = ~places["node_id"].is_in(self._labelled.implode()).to_numpy()[rows.local]
        doubtful = np.append(owned["doubtful"].to_numpy(), [False])[at] & silent
        return Matched(named, np.where(at >= 0, self._column(owned["job"], at), job), doubtful, ~labelled & (at < 0))

    def _named(self, rows: Wide, places: pl.DataFrame, labelled: NDArray[np.bool_]) -> NDArray[np.int64]:
        """Return the row of `held` for each row's holder in its machine's cluster."""
        width = len(places)
        # Rows of one holder and place are adjacent.
        both = rows.holder[labelled] * width + rows.local[labelled]
        begins = np.flatnonzero(np.concatenate([[True], np.diff(both) != 0]))
        found_pairs, seen, of_run = np.unique(both[begins], return_index=True, return_inverse=True)
        # Pairs are numbered in order of appearance. If each pair has one run, its rows are in the order of the numbers.
        order = np.argsort(seen)
        pairs = found_pairs[order]
        of_row = np.repeat(np.argsort(order)[of_run], np.diff(np.append(begins, len(both))))
        told = pl.DataFrame({"holder": pairs // width, "local": pairs % width, "pair": np.arange(len(pairs))})
        told = told.join(places.select(pl.col("local").cast(pl.Int64), "cluster"), on="local")
        held = self.held.filter(pl.col("holder").is_in(told["holder"].unique().implode()))
        held = told.join(held, on=["holder", "cluster"], nulls_equal=True).sort("pair", "since")
        found = np.full(len(rows.key), -1, dtype=np.int64)
        at = _within(rows.keys, held.drop("local").rename({"pair": "local"}), of_row, rows.time[labelled])
        found[labelled] = self._column(held["number"], at)
        return found

    @staticmethod
    def _column(column: pl.Series, at: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the values of a numeric column at some rows, or -1 for no value."""
        values = np.append(column.fill_null(-1).cast(pl.Int64).to_numpy(), -1)
        return values[at]


def _within(keys: Keys, spans: pl.DataFrame, local: NDArray[np.int64], time: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return, for each time of the batch, the row of `spans` that contains the time, or -1 if no row does.

    Spans are ordered by `local` and `since`. Spans with the same `local` do not overlap.
    """
    at = np.full(len(time), -1, dtype=np.int64)
    spans = spans.with_row_index("row").filter(
        (pl.col("since") < keys.origin + keys.span) & (pl.col("until") > keys.origin)
    )
    if not len(spans):
        return at
    where = spans["local"].to_numpy().astype(np.int64)
    since = np.maximum(spans["since"].to_numpy(), keys.origin) - keys.origin
    until = np.minimum(spans["until"].to_numpy() - keys.origin, keys.span)
    passed, width = time - keys.origin, keys.span
    if width * (int(max(where.max(), local.max())) + 1) >= WIDEST:
        # Place and time do not fit into one number, but with ranks of the times they do.
        moments = np.unique(passed)
        passed, since, until = (np.searchsorted(moments, t) for t in (passed, since, until))
        width = len(moments)
    # There are few spans and many rows, so each span is looked up in the rows.
    moment = local * width + passed
    order = None if (np.diff(moment) >= 0).all() else np.argsort(moment, kind="stable")
    first, end = (np.searchsorted(moment, where * width + t, sorter=order) for t in (since, until))
    count = np.maximum(end - first, 0)
    inside = np.repeat(first - (count.cumsum() - count), count) + np.arange(count.sum())
    at[inside if order is None else order[inside]] = np.repeat(spans["row"].to_numpy().astype(np.int64), count)
    return at
