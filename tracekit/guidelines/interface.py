"""The interface of guidelines: wording as data, and a function that computes the finding from a Trace.

A plug-in defines its own instance of `Guideline` (see docs/guidelines.md) and can import all types that it needs from
this module.
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
    from tracekit.tenant import Tenant

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
    "NodeChange",
    "Number",
    "Practice",
    "RuleChange",
    "Threshold",
    "Trial",
    "day_of",
]

_ID = re.compile(r"[a-z][a-z0-9-]*")

LEAST_COVERED = 0.5
"""Minimum share of covered GPU-hours for a problem to count as absent [0..1] (our choice)."""


@dataclass(frozen=True)
class Number:
    """A measured number."""

    value: float | None
    """None if it is unknown."""
    n: int
    """Number of observations."""
    low: float | None = None
    """Lower end of the 95 % interval, or None if there is no interval."""
    high: float | None = None
    """Upper end."""


@dataclass(frozen=True)
class Finding:
    """The finding of a guideline, as computed by its function."""

    numbers: Mapping[str, Number]
    """One number for each measure of the guideline, by key."""
    notes: tuple[str, ...] = ()
    """One sentence for each choice and each exclusion of data."""
    rows: tuple[Mapping[str, Any], ...] = ()
    """Details, such as the nodes concerned. All rows have the same keys."""
    rows_title: str = ""
    """What the rows show."""
    covers: float | None = None
    """Share of `covers_of` that the numbers cover [0..1], or None if they cover all of it. Below `LEAST_COVERED`, the
    verdict is 'cannot tell' instead of 'does not hold', because the problem may be in the uncovered part.
    """
    covers_of: str = "the GPU-hours"
    """The total that `covers` refers to."""
    text: str = ""
    """A sentence to use if the guideline's own does not fit the numbers, such as 0 jobs. {key} works in the same way.
    """
    advice: str = ""
    """Advice to use if the guideline's own mentions something that the trace lacks, such as GPUs."""
    cost: str = ""
    """A cost to use for the same reason."""


@dataclass(frozen=True)
class Measure:
    """A number that a guideline measures."""

    key: str
    """Its name in JSON."""
    what: str
    """A description of the measure, for display."""
    unit: str
    """share, percent (also for percentage points), s, ratio, or the name of the counted objects."""
    n_of: str
    """What `Number.n` counts."""


@dataclass(frozen=True)
class Threshold:
    """The value that a measure must reach before advice is given."""

    key: str
    """Key of the measure."""
    side: Literal["at least", "at most", "more than"]
    value: float
    source: str
    """Source of the threshold, or 'ours' if it is our choice."""

    def crossed(self, value: float) -> bool:
        """Return whether a value supports the advice."""
        if self.side == "at most":
            return value <= self.value
        return value > self.value if self.side == "more than" else value >= self.value

    def settled(self, number: Number) -> bool:
        """Return whether the whole interval is on one side of the threshold, which rules out chance."""
        if number.value is None or number.low is None or number.high is None:
            return True
        return self.crossed(number.low) == self.crossed(number.high)


@dataclass(frozen=True)
class Practice:
    """How to follow the advice with each scheduler, in that scheduler's terms."""

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
    """A change of a twin's rules that cannot be expressed as a policy."""

    name: str
    """A description for display, such as 'quotas lent while they are idle'."""
    change: Callable[[Rules], Rules]
    """Function that returns the changed rules. It raises LackingError if nothing can be changed."""

    @classmethod
    def of(cls, name: str, what: str, **changes: Any) -> RuleChange:
        """Return a change of some rules. If they conflict, the error calls the change `what`, such as 'Lending'."""

        def change(rules: Rules) -> Rules:
            changed = rules.changed(**changes)
            fault = changed.fault()
            if fault is not None:
                raise LackingError(f"{what} cannot be replayed with these rules: {fault}.")
            return changed

        return cls(name, change)


@dataclass(frozen=True)
class NodeChange:
    """More nodes in the twin of an overloaded cluster."""

    share: float
    """Additional nodes as a share of the cluster's; at least one node is added."""
    least_waiting: float
    """Minimum share of all waiting hours of an overloaded cluster; other clusters do not change."""

    @property
    def name(self) -> str:
        """Describe the change for any cluster."""
        return f"{self.share:.0%} more nodes where most of the waiting is"


@dataclass(frozen=True)
class Trial:
    """How the effect is estimated: by replays in the log's twin, with and without a change."""

    changed: tuple[str | RuleChange | NodeChange, ...]
    """The changes that represent the advice, best first: policies that replace the twin's order (with parameters as on
    the command line), rule changes, or changes of the number of nodes.
    """
    headline: Literal["jct", "queue"] = "jct"
    """Whether the advice should shorten the completion time or the wait."""
    bracket: tuple[Assumption, ...] = ()
    """Assumptions to try the changes under, the intended one first. By default the twin's: a multi-GPU job keeps its
    recorded run time wherever it runs.
    """
    passes: bool = False
    """Whether a policy lets later jobs pass a job that cannot start if the twin's rules do (`scan=skip`)."""


@dataclass(frozen=True)
class LossTrial:
    """How the effect on the cost of outages is estimated: by replays of the twin with the recorded outages."""

    changes: Callable[[Finding], tuple[LossChange, ...]]
    """Function that takes the finding and returns the changes that represent the advice. Results list the largest
    saving first.
    """


@dataclass(frozen=True)
class Guideline:
    """One piece of advice and the finding behind it."""

    id: str
    """Lower-case letters, digits and hyphens."""
    title: str
    question: str
    measures: tuple[Measure, ...]
    """The first measure is the headline."""
    thresholds: tuple[Threshold, ...]
    """The guideline holds only if all thresholds are crossed."""
    finding: str
    """A sentence in which {key} is replaced by a measure with its unit."""
    find: Callable[[Evidence], Finding]
    """Function that computes the finding. It raises LackingError if the Trace lacks data that it needs."""
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
    """Minimum number of observations of the headline measure for a verdict."""
    trial: Trial | LossTrial | None = None
    no_trial: str = ""
    """Why a replay cannot try the advice. Required if there is no trial."""

    def of(self, tenant: Tenant) -> Guideline:
        """Return this guideline in the site's words."""
        fill = tenant.fill
        return replace(
            self,
            question=fill(self.question),
            measures=tuple(replace(m, what=fill(m.what), n_of=fill(m.n_of)) for m in self.measures),
            finding=fill(self.finding),
            advice=fill(self.advice),
        )

    def __post_init__(self) -> None:
        if not _ID.fullmatch(self.id):
            raise ValueError(f"'{self.id[:60]}' is not a guideline id: use lower-case letters, digits and hyphens")
        keys = [m.key for m in self.measures]
        unknown = [t.key for t in self.thresholds if t.key not in keys]
        if not keys or not self.thresholds or unknown or len(set(keys)) != len(keys):
            raise ValueError(f"'{self.id}' needs measures with different keys, and a threshold for one of them")
        if (self.trial is None) != bool(self.no_trial):
            raise ValueError(f"'{self.id}' needs either a trial or a reason why there is none")


GUIDELINES: Plugins[Guideline] = Plugins(
    Guideline,
    "tracekit.guidelines.rules",
    "tracekit.guidelines",
    noun="guideline",
    plugin="guideline",
    option="--only",
    key="id",
)
