"""What a plan says: its rows, its answers, and both in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tracekit.capacity_plan.search import interval_share
from tracekit.text import counted, duration, shorten

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tracekit.capacity_plan.growth import LoadGrowth
    from tracekit.capacity_plan.question import PlanQuestion
    from tracekit.capacity_plan.search import NodesAnswer

__all__ = ["TWIN", "CapacityPlan"]

TWIN = "twin"
"""What the policy of the twin is called."""


@dataclass(frozen=True)
class CapacityPlan:
    """How long jobs wait with how many nodes."""

    cluster: str
    question: PlanQuestion
    recorded: dict[str, Any]
    """Nodes and GPUs of the cluster, and the waits of the group by the log and by the twin."""
    capacity: list[dict[str, Any]]
    """One row a policy, growth and number of nodes (see `capacity_row`)."""
    more: list[dict[str, Any]]
    """What more nodes give, at the load of the log under the twin's policy."""
    answers: tuple[NodesAnswer, ...]
    """One a policy and growth, those of the twin at the first growth first; none without a target."""
    growth: LoadGrowth | None
    """How the load of the log grows; None where it does not significantly."""
    assumptions: dict[str, dict[str, Any]]
    caveats: tuple[str, ...]

    @property
    def sentences(self) -> list[str]:
        """The plan in words."""
        lines = [self._answer(one) for one in self.answers]
        lines += _more_in_words(self.more)
        if (cheapest := self.cheapest) is not None:
            lines.append(
                f"owning and waiting together cost least with {counted(cheapest['nodes'], 'nodes')}: "
                f"{cheapest['cost_per_day']:,.0f} a day"
            )
        if self.growth is not None:
            lines.append(self.growth.sentence)
        return [*lines, *self.caveats]

    def _answer(self, one: NodesAnswer) -> str:
        target, model = self.question.target, self.question.model
        assert target is not None  # noqa: S101 -- there are answers only to a target
        what = "nodes" if model is None else f"{shorten(model, 30)} nodes"
        parts = [] if one.policy == TWIN else [f"under {one.policy}"]
        parts += [] if one.growth == 1 else [f"with {one.growth:g} times the jobs"]
        head = f"{', '.join(parts)}: " if parts else ""
        answer = one.sentence(target, self.question.group.words, what)
        return f"{head}{answer}; the cluster has {self.recorded['varied']:,}"

    @property
    def cheapest(self) -> dict[str, Any] | None:
        """The row of the twin's policy, at the first growth, of least cost; None without costs."""
        rows = [
            r
            for r in self.capacity
            if r["policy"] == TWIN and r["growth"] == self.question.growths[0] and r["cost_per_day"] is not None
        ]
        return min(rows, key=lambda r: (r["cost_per_day"], r["nodes"]), default=None)

    def to_dict(self) -> dict[str, Any]:
        """Return what plan.json holds."""
        target = self.question.target
        answers = [
            {
                "policy": one.policy,
                "growth": one.growth,
                "reached": one.nodes is not None,
                "nodes": one.nodes,
                "nodes_low": one.low,
                "nodes_high": one.high,
                "or_fewer": one.or_fewer,
                "full": one.full,
                "best_s": one.best_s,
                "best_nodes": one.best_nodes,
                "most_nodes": one.most_nodes,
                "sentence": self._answer(one),
            }
            for one in self.answers
        ]
        return {
            "cluster": self.cluster,
            "target": None
            if target is None
            else {"text": target.text, "metric": target.metric, "limit_s": target.limit_s}
            | {"for": self.question.group.words},
            "recorded": self.recorded,
            "capacity": self.capacity,
            "more": self.more,
            "answer": answers[0] if answers else None,
            "answers": answers,
            "growth_of_log": None
            if self.growth is None
            else self.growth.to_dict() | {"sentence": self.growth.sentence},
            "sentences": self.sentences,
            "assumptions": self.assumptions,
            "resamples": self.question.resamples,
            "interval_share": interval_share(self.question.resamples),
            "seed": self.question.seed,
        }


def _more_in_words(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return what more nodes give; of a single GPU model only the most that were tried."""
    known = [row for row in rows if row["mean_wait_change_s"] is not None]
    shown = [row for row in known if row["mean_wait_change_s"]]
    if known and not shown:
        return ["more nodes change no wait"]
    last = {row["model"]: row for row in shown}
    lines = []
    for row in shown:
        if row["model"] is not None and row is not last[row["model"]]:
            continue
        what = "nodes" if row["model"] is None else f"{shorten(row['model'], 30)} nodes"
        change, low, high = (row[f"mean_wait_change_{part}"] for part in ("s", "low_s", "high_s"))
        ends = f"{_signed(low)} to {_signed(high)}"
        lines.append(f"{counted(row['more_nodes'], what)} more: mean wait {_signed(change)} ({ends})")
    return lines


def _signed(seconds: float) -> str:
    return f"{'-' if seconds < 0 else '+'}{duration(abs(seconds))}"
