"""How much of the GPU time that attempts held was used: the definition of utilization/efficiency, as shares."""

from __future__ import annotations

USE_TABLES = ("attempts", "placements", "nodes", "gpu_utilization", "job_usage")
"""Tables that are read where the Trace has them."""


def use_sql() -> str:
    """Return SQL of each attempt's covered_share and used_share of the GPU time that it held: job_id, attempt, [0..1].

    Both are of the view attempt_use, which utilization/efficiency sums up: weeks that hold all of an attempt add up to
    its figures there. A week that holds a part of it has that part of both, as if the use were even. An attempt of
    which nothing is known has no row: unknown is not idle.
    """
    return """
        SELECT job_id, attempt, covered_gpu_s / gpu_s AS covered_share, used_gpu_s / gpu_s AS used_share
        FROM attempt_use
        WHERE used_gpu_s IS NOT NULL AND gpu_s > 0"""
