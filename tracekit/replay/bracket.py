"""Compare policies over the bracket of assumptions: plausible values of facts that no trace records.

If a headline changes sign inside the bracket, it depends on unrecorded facts and is called undecided.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any, NamedTuple

from tracekit.errors import UsageError
from tracekit.replay.registry import named_policy
from tracekit.replay.results.effects import support_between

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.scenario import Scenario


_LEVEL = "bracket"


class Point(NamedTuple):
    """One choice of assumptions inside the bracket."""

    label: str
    """The difference from the given models, such as 'c=0.5 m=0.45'."""
    models: Models


def points(models: Models, ids: Collection[str]) -> list[Point]:
    """Return the points of the bracket, from the ranges in models.toml.

    Interference and memory of shared GPUs vary together, because one decides whether the other matters. Every other
    assumption varies alone, with the rest as in `models`, and `models` itself is then also a point.

    Parameters
    ----------
    models : Models
        The assumptions. Each point replaces some of them.
    ids : collection of str
        Assumptions that the policies use, such as 'M4'. Only these are varied.
    """
    sections = {models.ids[id_] for id_ in ids}
    shared = list(_shared(models)) if {"interference", "memory"} & sections else []
    tried = [
        Point(f"{word}={text}", replace(models, **{name: replace(section, **{key: value})}))
        for name, (key, word, values) in _ALONE.items()
        if name in sections
        for section in [getattr(models, name)]
        for text, value in values(section).items()
    ]
    alone = [point for point in tried if point.models != models]
    return [*shared, *([Point("as assumed", models), *alone] if alone else [])]


def _shared(models: Models) -> Iterator[Point]:
    """Yield points that combine interference strengths c with job memory m, as a share of a GPU's memory."""
    strengths, memories = sorted(models.interference.levels.values()), sorted(models.memory.levels.values())
    for c, m in product(strengths, memories):
        interference = replace(models.interference, rule="product", level=_LEVEL, levels={_LEVEL: c})
        memory = replace(models.memory, level=_LEVEL, levels={_LEVEL: m})
        yield Point(f"c={c:g} m={m:g}", replace(models, interference=interference, memory=memory))


def _numbers(values: Iterable[float]) -> dict[str, Any]:
    return {f"{value:g}": value for value in values}


_ALONE: dict[str, tuple[str, str, Callable[[Any], Mapping[str, Any]]]] = {
    "interference": ("utilization", "u", lambda section: _numbers(section.utilization_sweep)),
    "spread": ("level", "spread", lambda section: {f"{number:g}": name for name, number in section.levels.items()}),
    "elastic": ("sigma", "sigma", lambda section: _numbers(section.sigma_sweep)),
    "overhead": ("lost_work_s", "lost_work_s", lambda section: _numbers(section.lost_work_sweep_s)),
    "links": ("level", "links", lambda section: {name: name for name in section.levels}),
    "contention": ("sharing", "sharing", lambda _: {name: name for name in ("always", "duty")}),
    "switching": ("wake_s", "wake_s", lambda section: _numbers(section.wake_sweep_s)),
}
"""The assumptions that are varied alone, by section in models.toml. Each has a key, the key's name in labels, and the
values to try by their names in labels."""


@dataclass(frozen=True)
class Bracket:
    """One headline: a signed difference, such as the mean completion time with shared GPUs minus that without."""

    headline: str
    """Name of the headline."""
    values: Mapping[str, float]
    """Value of the headline at each point, by the point's label."""
    reason: str | None = None
    """Why the log does not support the difference at some point, or None."""

    @property
    def verdict(self) -> str:
        """'lower', 'higher' or 'equal' if all points agree (except equal ones), else 'undecided', or the reason."""
        if self.reason is not None:
            return self.reason
        signs = {(value > 0) - (value < 0) for value in self.values.values()} - {0}
        if len(signs) > 1:
            return "undecided"
        return {1: "higher", -1: "lower", 0: "equal"}[signs.pop() if signs else 0]

    def lines(self) -> list[str]:
        """Return one line per point and then the verdict, or only the reason if there is one."""
        if self.reason is not None:
            return [f"{self.headline}: {self.reason}"]
        rows = [f"{label}: {self.headline} {value:+,.6g}" for label, value in self.values.items()]
        return [*rows, f"{self.headline}: {self.verdict}"]


def bracket(tried: Sequence[Point], headlines: Callable[[Models], Mapping[str, float]]) -> list[Bracket]:
    """Return every headline at every point.

    Parameters
    ----------
    tried : sequence of Point
        The points to try.
    headlines : callable
        Replays under the given models and returns signed differences by name. The names must be the same each time.
    """
    found: dict[str, dict[str, float]] = {}
    for point in tried:
        for name, value in headlines(point.models).items():
            found.setdefault(name, {})[point.label] = value
    return [Bracket(name, values) for name, values in found.items()]


def bracket_of_policies(scenario: Scenario, policies: Sequence[str]) -> list[Bracket]:
    """At every point of the bracket, return each policy's mean job completion time minus the first policy's [s].

    Raises
    ------
    UsageError
        Fewer than two policies are named, no job ends under one of them, or none of their assumptions has a range.
    """
    if len(policies) < 2:
        raise UsageError("--bracket compares policies", hint="name at least two with -p, the baseline first")

    used = {id_ for text in policies for id_ in named_policy(text).card.assumptions}
    tried = points(scenario.models, used)
    if not tried:
        raise UsageError("no assumption of these policies has a range to try")
    reasons: dict[str, str] = {}

    def differences(models: Models) -> dict[str, float]:
        assumed = replace(scenario, models=models)
        results = [assumed.run(policy) for policy in policies]
        means = [result.summary["avg_jct_s"] for result in results]
        if None in means:
            raise UsageError(f"no job ends under {policies[means.index(None)]}, so there is nothing to compare")
        found = {}
        for policy, result, mean in zip(policies[1:], results[1:], means[1:], strict=True):
            headline = f"mean JCT of {policy} minus that of {policies[0]} [s]"
            found[headline] = mean - means[0]
            support = support_between(results[0], result, scenario.measured)
            if support.reason is not None:
                reasons.setdefault(headline, support.reason)
        return found

    return [replace(one, reason=reasons.get(one.headline)) for one in bracket(tried, differences)]
