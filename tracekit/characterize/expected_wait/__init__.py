"""Predict how long a job will wait, as an interval based on recent similar jobs.

`likeness` finds the waits of all jobs, and the earlier jobs similar to each job. `backtest` estimates the waits of
similar jobs, predicts intervals, corrects them after each miss, and makes a prediction for every job in turn. `ask`
makes a single prediction.
"""

from __future__ import annotations
