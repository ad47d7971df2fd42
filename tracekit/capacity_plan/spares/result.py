"""What a plan of spares says: its rows, its answers, and both in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tracekit.capacity_plan.search import interval_share
from tracekit.text import counted, duration, percent

if TYPE_CHECKING:
    from tracekit.capacity_plan.spares.question import SpareQuestion
    from tracekit.capacity_plan.spares.search import SparesAnswer

__all__ = ["BestCheckpoint", "SparePlan"]

_WORDS = {"recorded": "under the outages of the log", "model": "under outages drawn from the log"}
_WORTH = 0.005
"""Another interval between checkpoints is worth a sentence where it gives so much more useful time [1]; our choice."""


@dataclass(frozen=True)
class BestCheckpoint:
    """The interval that loses least time where failures are exponential, and what it gives."""

    interval_s: float
    """Work between two checkpoints, by renewal theory (see `best_interval`) [s]."""
    spares: int
    """With how many spares it was replayed, under the outages of the log."""
    ettr: float
    """What the replay gives."""
    instead_of: float
    """What the interval that was asked about gives with as many spares."""


@dataclass(frozen=True)
class SparePlan:
    """How much of its time a gang does useful work with how many spares."""

    question: SpareQuestion
    gang_nodes: int
    recorded: dict[str, Any]
    """What the log tells of the nodes (see docs/plan.md)."""
    interval_s: float | None
    """Work between two checkpoints [s]; None where none are made."""
    rows: list[dict[str, Any]]
    """One row a kind of outages and number of spares."""
    answers: tuple[SparesAnswer, ...]
    """That under the outages of the log first, then that under drawn ones."""
    best: BestCheckpoint | None
    """None where a checkpoint costs nothing, or nothing ever fails."""
    assumptions: dict[str, dict[str, Any]]

    @property
    def sentences(self) -> list[str]:
        """The plan in words."""
        lines = [self._answer(one) for one in self.answers]
        none = next(row for row in self.rows if row["spares"] == 0)
        if none["ettr"] < self.question.ettr:
            lines.append(
                f"without spares {percent(none['ettr'])} of the time is useful work, and for "
                f"{percent(none['waiting_share'])} the gang waits for nodes"
            )
        if self.best is not None and self.best.ettr - self.best.instead_of >= _WORTH:
            lines.append(
                f"a checkpoint every {duration(self.best.interval_s)} of work would give {percent(self.best.ettr)} "
                f"instead of {percent(self.best.instead_of)}, with {counted(self.best.spares, 'spares')}"
            )
        return lines

    @property
    def gang_words(self) -> str:
        """The gang, such as 'a gang of 256 GPUs on 32 nodes'."""
        if self.question.gang.in_nodes:
            return f"a gang on {counted(self.gang_nodes, 'nodes')}"
        return f"a gang of {counted(self.question.gang.number, 'GPUs')} on {counted(self.gang_nodes, 'nodes')}"

    def _answer(self, one: SparesAnswer) -> str:
        kept = f"{percent(self.question.ettr)} of the time of {self.gang_words} useful"
        under = _WORDS[one.outages]
        if one.spares is None:
            row = next(r for r in self.rows if (r["outages"], r["spares"]) == (one.outages, one.best_spares))
            lost = {
                "saving checkpoints": row["saving_share"],
                "lost work": row["lost_share"],
                "restarts": row["restarting_share"],
                "waiting for nodes": row["waiting_share"],
            }
            rest = ", ".join(f"{percent(share)} {what}" for what, share in lost.items() if share >= 0.0005)
            return (
                f"no number up to {counted(one.most_spares, 'spares')} keeps {kept} {under}: at most "
                f"{percent(one.best_ettr)}, with {counted(one.best_spares, 'spares')}; the rest is {rest}"
            )
        high = f"more than {one.most_spares:,}" if one.high is None else f"{one.high:,}"
        ends = "" if one.low == one.spares == one.high else f" ({one.low or 0:,} to {high})"
        verb = "keeps" if one.spares == 1 else "keep"
        return f"{counted(one.spares, 'spares')}{ends} {verb} {kept} {under}"

    def to_dict(self) -> dict[str, Any]:
        """Return what plan.json holds."""
        answers = [
            {
                "outages": one.outages,
                "reached": one.spares is not None,
                "spares": one.spares,
                "spares_low": one.low,
                "spares_high": one.high,
                "best_ettr": one.best_ettr,
                "best_spares": one.best_spares,
                "most_spares": one.most_spares,
                "sentence": self._answer(one),
            }
            for one in self.answers
        ]
        asked = self.question.checkpoint
        gang = self.question.gang
        return {
            "gang": {"gpus": None if gang.in_nodes else gang.number, "nodes": self.gang_nodes},
            "target": {"ettr": self.question.ettr},
            "checkpoint": {"interval_s": self.interval_s, "cost_s": asked.cost_s, "restart_s": asked.restart_s},
            "recorded": self.recorded,
            "spares": self.rows,
            "answer": answers[0],
            "answers": answers,
            "best_checkpoint": None
            if self.best is None
            else {
                "interval_s": self.best.interval_s,
                "spares": self.best.spares,
                "ettr": self.best.ettr,
                "ettr_as_asked": self.best.instead_of,
            },
            "sentences": self.sentences,
            "assumptions": self.assumptions,
            "resamples": self.question.resamples,
            "interval_share": interval_share(self.question.resamples),
            "seed": self.question.seed,
        }

    def table(self) -> tuple[list[str], list[list[object]]]:
        """Return headers and rows of the table that a terminal shows: parts of the time in percent."""
        headers = [
            "outages",
            "spares",
            "useful [%]",
            "interval",
            "waiting [%]",
            "lost [%]",
            "restarting [%]",
            "saving [%]",
        ]
        rows: list[list[object]] = []
        for row in self.rows:
            ends = f"{100 * row['ettr_low']:.1f} to {100 * row['ettr_high']:.1f}"
            parts = (row[f"{name}_share"] for name in ("waiting", "lost", "restarting", "saving"))
            kind = "of the log" if row["outages"] == "recorded" else "drawn"
            rows.append([kind, row["spares"], _percent(row["ettr"]), ends, *map(_percent, parts)])
        return [*headers, "target"], [
            [*cells, "kept" if row["meets_target"] else "missed"] for cells, row in zip(rows, self.rows, strict=True)
        ]


def _percent(share: float) -> float:
    return round(100 * share, 2)
