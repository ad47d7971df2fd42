"""How long jobs like one waited lately, as an interval that holds a stated share of the waits to come.

likeness: who waited how long, and which earlier jobs are like one. backtest: what waits these had, the ends told, what
is learned from each miss, and every job asked in turn. ask: one question.
"""

from __future__ import annotations
