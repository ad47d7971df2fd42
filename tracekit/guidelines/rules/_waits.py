"""Waits and their causes, for the guidelines about the queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.guidelines.interface import LackingError
from tracekit.guidelines.rules._sql import day_of

if TYPE_CHECKING:
    from tracekit.answer import Answer
    from tracekit.guidelines.evidence import Evidence


_WAITS = f"""
SELECT
    CAST(wait_us AS DOUBLE) / 1e6 AS wait_s,
    CAST(fair_share_us AS DOUBLE) / 1e6 AS fair_share_s,
    CAST(fragmentation_us AS DOUBLE) / 1e6 AS fragmentation_s,
    CAST(other_us AS DOUBLE) / 1e6 AS other_s,
    {day_of("j.submit_time")} AS day
FROM wait_causes AS w
INNER JOIN jobs AS j ON w.job_id = j.job_id
WHERE w.wait_us > 0 AND w.gpu_count > 0 AND j.submit_time IS NOT NULL
"""


def waits(evidence: Evidence) -> Answer:
    """Return one row a wait of more than 0 s: its length, the part of each cause [s], and the day of submission.

    The causes are those of queuing/delay_causes; fragmentation_s is NULL if no nodes are known.

    Raises
    ------
    LackingError
        No wait exists.
    """
    answer = evidence.answer(_WAITS)
    if answer.frame.is_empty():
        raise LackingError("No job with GPUs has a recorded wait.")
    return answer
