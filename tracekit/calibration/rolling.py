"""Scores of a long log part by part: settings chosen on what came before each part, as if one had calibrated then.

One split says how near a twin comes to the last part of the log. Where the log is long, the same is done at other
moments, each time with settings that only the jobs before it decided, so that a reader sees whether the twin would have
done as well at another time.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import polars as pl

from tracekit.calibration.score import score
from tracekit.calibration.search import search

if TYPE_CHECKING:
    from tracekit.calibration.workbench import Workbench
    from tracekit.progress import Progress
    from tracekit.shards.items import SharedItems

__all__ = ["rolling_scores"]

_ORIGINS = (0.4, 0.6, 0.8, 1.0)
"""Each part lies between two of them [of the time of submissions]; the first is learnt from alone. Our choice."""
_LEAST_DAYS = 56
"""A log shorter than eight weeks has one split: a part of a rolling score would be less than a week or two."""
_FEWEST = 50
"""Jobs that each part needs."""
_DAY_MS = 86_400_000


def rolling_scores(
    bench: Workbench, progress: Progress | None = None, shared: SharedItems | None = None
) -> pl.DataFrame | None:
    """Return the scores of each part, with the columns of `Score.table`; None where the log is too short.

    The scope is 'rolling', and the name the days that the part holds, counted from the first submission.

    Raises
    ------
    UsageError
        Nothing can be replayed.
    """
    submit, recorded = bench.jobs.submit_ms, bench.recorded_s
    last = int(submit.max())
    if last < _LEAST_DAYS * _DAY_MS:
        return None
    known = ~np.isnan(recorded)
    rows = []
    for begin, end in pairwise(_ORIGINS):
        seen = known & (submit < begin * last)
        part = known & ~seen & ((submit < end * last) | (end == _ORIGINS[-1]))
        if min(int(seen.sum()), int(part.sum())) < _FEWEST:
            return None
        then = replace(bench, among=seen, delays=None)
        waits = then.waits_s(search(then, progress, shared).best)
        part &= ~np.isnan(waits)
        if not part.any():
            return None
        days = f"days {begin * last / _DAY_MS:.0f} to {end * last / _DAY_MS:.0f}"
        whole = score(bench.jobs, recorded, waits, part).table.head(1)
        rows.append(whole.with_columns(scope=pl.lit("rolling"), name=pl.lit(days)))
    return pl.concat(rows)
