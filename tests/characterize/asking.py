"""Seeds of random worlds for two tiers, and queries on one Trace that share its setup."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from tracekit.characterize import answer_query, find_query, lacks
from tracekit.characterize.session import Session
from tracekit.errors import QueryError

if TYPE_CHECKING:
    import polars as pl
    from _pytest.mark import ParameterSet

    from tracekit.answer import Answer
    from tracekit.characterize.query import Query
    from tracekit.trace import Trace

__all__ = ["Asking", "samples", "seeds"]

SAMPLES = (
    *("acme", "alibaba-dlrm", "alibaba-openb", "alibaba-pai", "alibaba-spot", "helios", "kubernetes", "lsf", "pbs"),
    *("philly", "slurm", "swf"),
)


def seeds(first: int, every: int) -> list[ParameterSet]:
    """Return the seeds of random worlds: the first seeds for the first tier, and half of the others for the second."""
    last = (first + every) // 2
    later = {seed: pytest.mark.thorough if seed < last else pytest.mark.slow for seed in range(first, every)}
    return [pytest.param(seed, marks=later.get(seed, ())) for seed in range(every)]


def samples(*first: str) -> list[ParameterSet]:
    """Return the names of the sample traces. Those that are not in `first` are for the second tier."""
    assert set(first) <= set(SAMPLES)
    return [pytest.param(name, marks=() if name in first else pytest.mark.thorough) for name in SAMPLES]


class Asking:
    """Runs queries on one Trace, whose views are set up once."""

    def __init__(self, trace: Trace) -> None:
        self.trace = trace
        self.session = Session(trace)

    def __call__(self, question: Query | str, **params: object) -> pl.DataFrame:
        """Return the result of a query."""
        return self.answer(question, **params).frame

    def answer(self, question: Query | str, **params: object) -> Answer:
        """Return the result of a query with its notes."""
        return answer_query(self.trace, question, params, session=self.session)

    def is_refused(self, name: str) -> bool:
        """Return whether a query needs something missing from the Trace. If so, the error must contain every reason."""
        missing = lacks(find_query(name), self.trace)
        if missing:
            with pytest.raises(QueryError, match=re.escape(" ".join(missing).rstrip("."))):
                self(name)
        return bool(missing)
