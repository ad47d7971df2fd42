"""How long jobs like one waited lately, as an interval that holds a stated share of the waits to come.

jobs: who waited how long. likeness: which earlier jobs are like one. distribution: what waits they had, those that
still wait included. adaptive: the ends told, and what is learned from each miss. backtest: every job asked in turn.
ask: one question.
"""

from __future__ import annotations
