"""Predict how long a job will wait, as an interval based on recent similar jobs.

likeness: the waits of all jobs, and the earlier jobs similar to each job. backtest: the waits of similar jobs, the
predicted intervals, the correction after each miss, and a prediction for every job in turn. ask: a single prediction.
"""

from __future__ import annotations
