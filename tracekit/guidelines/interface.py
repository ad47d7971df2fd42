"""The interface of guidelines: texts as data, and a function that computes the finding from a Trace.

A plug-in defines its own instance of `Guideline`, see docs/guidelines.md; all types that it needs can be imported from
here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

from tracekit.guidelines.evidence import Evidence, LackingError, day_of
from tracekit.plugins import Plugins

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tracekit.calibration.losses import LossChange
    from tracekit.calibration.rules import Rules
    from tracekit.replay.assumptions.models import Models

__all__ = [
    "GUIDELINES",
    "LEAST_COVERED",
    "Assumption",
    "Evidence",
    "Finding",
    "Guideline",
    "LackingError",
    "LossTrial",
    "Measure",
    "Number",
    "Practice",
    "RuleChange",
    "Threshold",
    "Trial",
    "day_of",
]

_ID = re.compile(r"[a-z][a-z0-9-]*")

LEAST_COVERED = 0.5
"""Share of the GPU-hours that must be covered before a problem counts as absent [0..1]; our choice."""


@dataclass(frozen=True)
class Number:
    """A measured number."""

    value: float | None
    """None when it is unknown."""
    n: int
    """Number of observations."""
    low: float | None = None
    """Lower end of the 95 % interval; None if there is no interval."""
    high: float | None = None
    """Upper end."""


@dataclass(frozen=True)
class Finding:
    """The finding of a guideline: what its function computed."""

    numbers: Mapping[str, Number]
    """One for each measure of the guideline, by key."""
    notes: tuple[str, ...] = ()
    """Choices made and things left out, one sentence each."""
    rows: tuple[Mapping[str, Any], ...] = ()
    """Details, such as the nodes concerned; all rows have the same keys."""
    rows_title: str = ""
    """Content of the rows."""
    covers: float | None = None
    """Share of `covers_of` that the numbers cover [0..1]; None if they cover all. Below `LEAST_COVERED` the problem may
    lie outside, and the verdict is 'cannot tell' instead of 'does not hold'."""
    covers_of: str = "the GPU-hours"
    """What `covers` is a share of."""
    text: str = ""
    """Replaces the guideline's sentence if that does not fit the numbers, such as 0 jobs; {key} works the same way."""
    advice: str = ""
    """Replaces the guideline's advice if that names things that this trace does not have."""
    cost: str = ""
    """Replaces the guideline's cost, likewise."""


@dataclass(frozen=True)
class Measure:
    """A number that a guideline measures."""

    key: str
    """Its name in JSON."""
    what: str
    """Its meaning, for people."""
    unit: str
    """share, percent (points too), s, ratio, or the counted thing."""
    n_of: str
    """What `Number.n` counts."""


@dataclass(frozen=True)
class Threshold:
    """The value that a measure must reach before the advice is given."""

    key: str
    """Key of the measure."""
    side: Literal["at least", "at most", "more than"]
    value: float
    source: str
    """Source of the threshold; 'ours' if it is our choice."""

    def crossed(self, value: float) -> bool:
        """Return whether a value supports the advice."""
        if self.side == "at most":
            return value <= self.value
        return value > self.value if self.side == "more than" else value >= self.value

    def settled(self, number: Number) -> bool:
        """Return whether the whole interval is on one side of the threshold, so chance does not decide."""
        if number.value is None or number.low is None or number.high is None:
            return True
        return self.crossed(number.low) == self.crossed(number.high)


@dataclass(frozen=True)
class Practice:
    """How to do it, in the words of each scheduler."""

    slurm: str
    kubernetes: str
    """Kueue and Volcano."""
    yarn: str


@dataclass(frozen=True)
class Assumption:
    """One point of a bracket: an assumption other than the default."""

    name: str
    change: Callable[[Models], Models]


@dataclass(frozen=True)
class RuleChange:
    """A change of a twin's rules that a policy for its order cannot express."""

    name: str
    """Its effect, for people, such as 'quotas lent while they are idle'."""
    change: Callable[[Rules], Rules]
    """Returns the changed rules; raises LackingError if there is nothing to change."""

    @classmethod
    def of(cls, name: str, what: str, **changes: Any) -> RuleChange:
        """Return the change of some rules; `what` is a noun for it, such as 'Lending', for the case that they clash."""

        def change(rules: Rules) -> Rules:
            changed = replace(rules, **changes)
            fault = changed.fault()
            if fault is not None:
                raise LackingError(f"{what} cannot be replayed with these rules: {fault}.")
            return changed

        return cls(name, change)


@dataclass(frozen=True)
class Trial:
    """How the effect is tried: by replays in the twin of the log, with a change and without it."""

    changed: tuple[str | RuleChange, ...]
    """The changes that represent the advice, the best one first: a policy that replaces the twin's order, with its
    parameters as on the command line, or a change of rules."""
    headline: Literal["jct", "queue"] = "jct"
    """Whether the advice should change the completion time or the wait."""
    bracket: tuple[Assumption, ...] = ()
    """Assumptions under which it is tried, the intended one first. Empty means those of the twin, whose run times are
    the recorded ones wherever a gang runs."""


@dataclass(frozen=True)
class LossTrial:
    """How the effect on the cost of outages is tried: by replays of the twin with the recorded outages."""

    changes: Callable[[Finding], tuple[LossChange, ...]]
    """The changes that represent the advice, from the finding; of several, the one that saves most comes first."""


@dataclass(frozen=True)
class Guideline:
    """One piece of advice, and the finding that it requires."""

    id: str
    """Small letters, digits and hyphens."""
    title: str
    question: str
    measures: tuple[Measure, ...]
    """The first is the headline."""
    thresholds: tuple[Threshold, ...]
    """All must be crossed."""
    finding: str
    """A sentence; {key} is replaced by a measure with its unit."""
    find: Callable[[Evidence], Finding]
    """Computes the finding; raises LackingError when the Trace lacks what it needs."""
    advice: str
    cost: str
    risk: str
    practice: Practice
    sources: tuple[str, ...]
    tables: tuple[str, ...] = ()
    """Tables that the Trace must have."""
    needs: tuple[str, ...] = ()
    """Capabilities that the Trace must have."""
    least_n: int = 30
    """Fewest observations of the headline for which the guideline says anything."""
    trial: Trial | LossTrial | None = None
    no_trial: str = ""
    """Why the replay cannot try it; required without a trial."""

    def __post_init__(self) -> None:
        if not _ID.fullmatch(self.id):
            raise ValueError(f"'{self.id[:60]}' is not a guideline id: use small letters, digits and hyphens")
        keys = [m.key for m in self.measures]
        unknown = [t.key for t in self.thresholds if t.key not in keys]
        if not keys or not self.thresholds or unknown or len(set(keys)) != len(keys):
            raise ValueError(f"'{self.id}' needs measures with different keys, and a threshold on one of them")
        if (self.trial is None) != bool(self.no_trial):
            raise ValueError(f"'{self.id}' needs either a trial or the reason for having none")


GUIDELINES: Plugins[Guideline] = Plugins(
    Guideline,
    "tracekit.guidelines.rules",
    "tracekit.guidelines",
    noun="guideline",
    plugin="guideline",
    option="--only",
    key="id",
)
