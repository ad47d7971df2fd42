"""How busy each job kept its GPUs, by the rule of the query utilization/idle_jobs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from tracekit import resources
from tracekit.errors import TraceError

if TYPE_CHECKING:
    import duckdb
    import polars as pl
    from numpy.typing import NDArray

    from tracekit.trace import Trace

__all__ = ["mean_utilization"]

_NO_PLACEMENTS = """
CREATE TEMP TABLE placements (
    job_id VARCHAR, attempt BIGINT, task VARCHAR, instance VARCHAR, gpu_count DOUBLE
)"""

_USAGE = """
CREATE TEMP VIEW usage AS
WITH instances AS (
    SELECT job_id, task, instance, max(gpu_count) AS gpus
    FROM placements
    WHERE instance IS NOT NULL
    GROUP BY job_id, task, instance
),

tasks AS (
    SELECT job_id, task, max(gpus) AS gpus
    FROM (
        SELECT
            job_id,
            task,
            CASE WHEN count(instance) = 0 THEN sum(gpu_count) ELSE max(gpu_count) END AS gpus
        FROM placements
        GROUP BY job_id, attempt, task
    ) AS parts
    GROUP BY job_id, task
),

measured AS (
    SELECT u.job_id, u.gpu_util_pct, coalesce(i.gpus, t.gpus, j.gpu_count) AS gpus
    FROM job_usage AS u
    INNER JOIN jobs AS j ON u.job_id = j.job_id
    LEFT JOIN instances AS i
        ON u.job_id = i.job_id AND u.task IS NOT DISTINCT FROM i.task AND u.instance = i.instance
    LEFT JOIN tasks AS t ON u.job_id = t.job_id AND u.task IS NOT DISTINCT FROM t.task
    WHERE u.gpu_util_pct IS NOT NULL
)

SELECT
    job_id,
    CAST(sum(CAST(gpu_util_pct AS DECIMAL(38, 6))) AS DOUBLE)
    / CAST(sum(CAST(gpus AS DECIMAL(38, 6))) AS DOUBLE) AS mean_pct
FROM measured
WHERE gpus > 0
GROUP BY job_id
"""

_SAMPLED = """
SELECT job_id, CAST(sum(CAST(utilization_pct AS DECIMAL(38, 6))) AS DOUBLE) / count(*) AS mean_pct
FROM attempt_samples
GROUP BY job_id
"""


def mean_utilization(trace: Trace, job_id: pl.Series, *, samples: bool = False) -> NDArray[np.float64]:
    """Return the mean utilization of a GPU while the job held it [0..1], NaN where the Trace does not tell.

    The mean of the job's samples of gpu_utilization, matched to all its attempts, where `samples` asks for them and
    there are any; else the utilization in job_usage divided by the GPUs of what was measured. Values above 1 (a
    source that counts more than the job asked for) are cut to 1.

    Parameters
    ----------
    trace : Trace
        Where the measurements are.
    job_id : Series of String, shape (n,)
        The jobs, none twice.
    samples : bool
        Match the samples too, which costs minutes on months of telemetry.

    Raises
    ------
    TraceError
        A table is damaged.
    """
    import duckdb

    found = np.full(len(job_id), np.nan)
    tables = {"attempts", "placements", "gpu_utilization"}
    with_samples = samples and tables <= set(trace.tables)
    if not (trace.has("job_usage") or with_samples):
        return found
    with trace.connect() as con:
        try:
            if trace.has("job_usage"):
                if not trace.has("placements"):
                    con.execute(_NO_PLACEMENTS)
                con.execute(_USAGE)
                _fill(found, job_id, con, "SELECT job_id, mean_pct FROM usage")
            if with_samples:
                rule = resources.folder("queries") / "views" / "attempt_samples.sql"
                con.execute(f"CREATE TEMP VIEW attempt_samples AS {rule.read_text(encoding='utf-8')}")
                _fill(found, job_id, con, _SAMPLED)
        except duckdb.Error as error:
            raise TraceError(
                f"the utilization of jobs cannot be read: {str(error).splitlines()[0]}",
                where=trace.path,
                hint="'tracekit validate TRACE' tells more",
            ) from error
    return found


def _fill(found: NDArray[np.float64], job_id: pl.Series, con: duckdb.DuckDBPyConnection, query: str) -> None:
    """Write the means of `query` over `found`, job by job."""
    means = con.sql(query).pl()
    ids = job_id.alias("job_id").to_frame()
    share = ids.join(means, on="job_id", how="left", maintain_order="left")["mean_pct"] / 100
    known = share.is_not_null().to_numpy()
    found[known] = share.drop_nulls().clip(0, 1).to_numpy()
