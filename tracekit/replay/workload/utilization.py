"""How busy each job kept its GPUs, by the views that the query utilization/idle_jobs reads too."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tracekit import resources
from tracekit.errors import TraceError
from tracekit.gpu_parts import create_shares

if TYPE_CHECKING:
    import duckdb
    from numpy.typing import NDArray

    from tracekit.trace import Trace

__all__ = ["mean_utilization"]

_NO_PLACEMENTS = """
CREATE TEMP TABLE placements (
    job_id VARCHAR, attempt BIGINT, task VARCHAR, instance VARCHAR, gpu_count DOUBLE
)"""


def mean_utilization(trace: Trace, job_id: pl.Series, *, samples: bool = False) -> NDArray[np.float64]:
    """Return the mean utilization of a GPU while the job held it [0..1], NaN unknown.

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
                _fill(found, job_id, con, "job_reported_use")
            if with_samples:
                create_shares(con)
                _make_view(con, "attempt_samples")
                _fill(found, job_id, con, "job_sampled_use")
        except duckdb.Error as error:
            raise TraceError(
                f"the utilization of jobs cannot be read: {str(error).splitlines()[0]}",
                where=trace.path,
                hint="'tracekit validate TRACE' shows more",
            ) from error
    return found


def _fill(found: NDArray[np.float64], job_id: pl.Series, con: duckdb.DuckDBPyConnection, view: str) -> None:
    """Write the means of a view over `found`, job by job."""
    _make_view(con, view)
    means = pl.DataFrame(con.sql(f"SELECT job_id, mean_pct FROM {view}"))
    ids = job_id.alias("job_id").to_frame()
    share = ids.join(means, on="job_id", how="left", maintain_order="left")["mean_pct"] / 100
    known = share.is_not_null().to_numpy()
    found[known] = share.drop_nulls().clip(0, 1).to_numpy()


def _make_view(con: duckdb.DuckDBPyConnection, name: str) -> None:
    text = (resources.folder("queries") / "views" / f"{name}.sql").read_text(encoding="utf-8")
    con.execute(f"CREATE TEMP VIEW {name} AS {text}")
