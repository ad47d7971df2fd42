"""The job columns that can break down GPU-hours."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.errors import UsageError, nearest

if TYPE_CHECKING:
    from tracekit.trace import Trace

DIMENSIONS = ("user", "account", "partition", "qos", "gpu_model", "vc", "cluster")
"""Job columns that can break down GPU-hours."""


def known_dimensions(trace: Trace) -> tuple[str, ...]:
    """Return the dimensions that the Trace records for at least one job."""
    import polars as pl

    if not trace.has("jobs"):
        return ()
    known = {name for name, share in trace.known_dimensions().items() if share}
    known |= {"cluster"} if trace.clusters else set()
    if trace.has("nodes") and trace.has("placements"):
        # A job's GPU model can come from its nodes.
        models = trace.scan("nodes").select(pl.col("gpu_model").is_not_null().any()).collect(engine="streaming")
        known |= {"gpu_model"} if models.item() else set()
    return tuple(name for name in DIMENSIONS if name in known)


def check_dimension(trace: Trace, by: str) -> None:
    """Reject a dimension that does not exist or that no job has.

    Raises
    ------
    UsageError
        The dimension does not exist or is not recorded.
    """
    if by not in DIMENSIONS:
        raise UsageError(f"'{by[:80]}' is not a dimension of GPU-hours", where="by", hint=nearest(by[:80], DIMENSIONS))
    known = known_dimensions(trace)
    if by not in known:
        hint = f"it records {', '.join(known)}" if known else "it records none of the dimensions"
        raise UsageError(f"the Trace does not record the {by.replace('_', ' ')} of any job", where="by", hint=hint)


def first_known(trace: Trace, *wanted: str) -> str:
    """Return the first dimension that the Trace records, or the last dimension if it records none."""
    known = known_dimensions(trace)
    return next((name for name in wanted if name in known), wanted[-1])
