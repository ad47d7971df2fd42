"""What Princeton's Jobstats writes of a job into Slurm's AdminComment.

`JS1:` and Base64 of gzipped JSON: by node the processor time [s], the memory [bytes], and by GPU the utilization
[percent] and the memory [bytes]; `JS1:Short` and `JS1:None` hold none (github.com/PrincetonUniversity/jobstats,
setup/summaries.md of its documentation). Other comments are of no interest. Whoever may edit comments may write
anything there: the text inflates to a few MiB at most, and what cannot be read is counted.
"""

from __future__ import annotations

import base64
import binascii
import math
import zlib
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

if TYPE_CHECKING:
    from collections.abc import Iterable

    import polars as pl

    from tracekit.ingest.sink import Sink

__all__ = ["JobSummary", "count_unreadable", "job_summary"]

_MARK = "JS1:"
_EMPTY = frozenset({"Short", "None"})
_LONGEST_TEXT = 1 << 20
_LONGEST_JSON = 8 << 20
_GZIP = 16 + zlib.MAX_WBITS
_GIB = 2.0**30

_UNREADABLE = "malformed Jobstats summaries in AdminComment; ignored"


class JobSummary(NamedTuple):
    """Measured use of a job, summed over its nodes; None where some node does not tell."""

    gpu_util_pct: float | None = None
    """Summed over GPUs: 200 is two busy GPUs."""
    gpu_memory_gib: float | None = None
    memory_gib: float | None = None
    cpu_s: float | None = None
    """Processor time, summed over cores."""
    unreadable: bool = False


def job_summary(text: str) -> JobSummary | None:
    """Return what a comment says of a job, None where it is none of Jobstats."""
    if not text.startswith(_MARK):
        return None
    body = text.removeprefix(_MARK).strip()
    if body in _EMPTY:
        return None
    try:
        return _of_nodes(_nodes(body))
    except (TypeError, ValueError, binascii.Error, zlib.error, orjson.JSONDecodeError):
        return JobSummary(unreadable=True)


def _nodes(body: str) -> list[dict[str, Any]]:
    if len(body) > _LONGEST_TEXT:
        raise ValueError("too long")
    unpacked = zlib.decompressobj(_GZIP)
    found = unpacked.decompress(base64.b64decode(body, validate=True), _LONGEST_JSON)
    if not unpacked.eof:
        raise ValueError("is truncated, or too large when decompressed")
    told = orjson.loads(found)
    nodes = told.get("nodes") if isinstance(told, dict) else None
    if not isinstance(nodes, dict) or not all(isinstance(node, dict) for node in nodes.values()):
        raise ValueError("names no nodes")
    return list(nodes.values())


def _of_nodes(nodes: list[dict[str, Any]]) -> JobSummary:
    # A node of a job with GPUs that lacks them has no GPU of the job.
    with_gpus = [node for node in nodes if "gpu_utilization" in node or "gpu_used_memory" in node]
    memory = _sum(node.get("used_memory") for node in nodes)
    gpu_memory = _sum(value for node in with_gpus for value in _by_gpu(node, "gpu_used_memory"))
    return JobSummary(
        gpu_util_pct=_sum(value for node in with_gpus for value in _by_gpu(node, "gpu_utilization")),
        gpu_memory_gib=None if gpu_memory is None else gpu_memory / _GIB,
        memory_gib=None if memory is None else memory / _GIB,
        cpu_s=_sum(node.get("total_time") for node in nodes),
    )


def _by_gpu(node: dict[str, Any], name: str) -> list[Any]:
    told = node.get(name)
    if told is None:
        return [None]
    if not isinstance(told, dict):
        raise TypeError("is not by GPU")
    return list(told.values())


def _sum(values: Iterable[Any]) -> float | None:
    """Return the sum of numbers; None where there is none, or one is not known.

    Raises
    ------
    ValueError
        One is no number, or below 0.
    """
    known = list(values)
    if not known or any(value is None for value in known):
        return None
    if any(isinstance(v, bool) or not isinstance(v, int | float) or not math.isfinite(v) or v < 0 for v in known):
        raise ValueError("is not a measure")
    return float(sum(known))


def count_unreadable(comments: pl.Series, ids: pl.Series, sink: Sink) -> None:
    """Count the summaries that could not be read.

    Parameters
    ----------
    comments : Series of Struct
        Comments as `job_summary` returns them.
    ids : Series
        What to name each row by.
    """
    told = comments.struct.field("unreadable")
    if told.null_count() < len(told):
        sink.check_rows("unreadable_jobstats", told, _UNREADABLE, ids, len(told) - told.null_count())
