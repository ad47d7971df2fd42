"""Results of sharing under the bracket of assumptions: how strongly jobs disturb each other, and whether pairs fit.

A headline that changes its sign inside the bracket depends on what no trace records, and is called undecided.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from tracekit.errors import UsageError
from tracekit.replay.results.effects import support_between

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.scenario import Scenario

__all__ = ["BRACKET", "Bracket", "bracket", "bracket_of_policies"]

BRACKET = tuple((c, m) for c in (0.367, 0.5, 0.63) for m in (0.45, 0.55))
"""Strength c of interference (M1) and memory of a job as a share of a GPU's (M2): all pairs that are tried."""

_LEVEL = "bracket"


@dataclass(frozen=True)
class Bracket:
    """One headline, a signed difference such as the mean completion time minus that without sharing."""

    headline: str
    """What the numbers are."""
    values: Mapping[tuple[float, float], float]
    """The headline by (c, m)."""
    reason: str | None = None
    """Why the log does not support the difference under one of the pairs; None where it does under all."""

    @property
    def verdict(self) -> str:
        """'lower', 'higher' or 'equal' where all agree, equal ones left aside; else 'undecided', or the reason."""
        if self.reason is not None:
            return self.reason
        signs = {(value > 0) - (value < 0) for value in self.values.values()} - {0}
        if len(signs) > 1:
            return "undecided"
        return {1: "higher", -1: "lower", 0: "equal"}[signs.pop() if signs else 0]

    def lines(self) -> list[str]:
        """Return one line a pair and the verdict last; where there is a reason, that line alone."""
        if self.reason is not None:
            return [f"{self.headline}: {self.reason}"]
        rows = [f"c={c:g} m={m:g}: {self.headline} {value:+,.6g}" for (c, m), value in self.values.items()]
        return [*rows, f"{self.headline}: {self.verdict}"]


def bracket(models: Models, headlines: Callable[[Models], Mapping[str, float]]) -> list[Bracket]:
    """Return each headline under every pair of the bracket.

    Parameters
    ----------
    models : Models
        Assumptions; of these only c and the memory of whole-GPU jobs are replaced.
    headlines : callable
        Replays under the models given and returns signed differences by name, the same names each time.
    """
    found: dict[str, dict[tuple[float, float], float]] = {}
    for c, m in BRACKET:
        tried = replace(
            models,
            interference=replace(models.interference, rule="product", level=_LEVEL, levels={_LEVEL: c}),
            memory=replace(models.memory, level=_LEVEL, levels={_LEVEL: m}),
        )
        for name, value in headlines(tried).items():
            found.setdefault(name, {})[c, m] = value
    return [Bracket(name, values) for name, values in found.items()]


def bracket_of_policies(scenario: Scenario, policies: Sequence[str]) -> list[Bracket]:
    """Return the mean job completion time [s] of each policy less that of the first, under every pair of the bracket.

    Raises
    ------
    UsageError
        Fewer than two policies are named, or one ends no job.
    """
    if len(policies) < 2:
        raise UsageError("a bracket compares policies", hint="name two or more with -p, the baseline first")

    reasons: dict[str, str] = {}

    def differences(models: Models) -> dict[str, float]:
        tried = replace(scenario, models=models)
        results = [tried.run(policy) for policy in policies]
        means = [result.summary["avg_jct_s"] for result in results]
        if None in means:
            raise UsageError(f"no job ends under {policies[means.index(None)]}, so that there is nothing to compare")
        found = {}
        for policy, result, mean in zip(policies[1:], results[1:], means[1:], strict=True):
            headline = f"mean JCT of {policy} less that of {policies[0]} [s]"
            found[headline] = mean - means[0]
            support = support_between(results[0], result, scenario.measured)
            if support.reason is not None:
                reasons.setdefault(headline, support.reason)
        return found

    return [replace(one, reason=reasons.get(one.headline)) for one in bracket(scenario.models, differences)]
