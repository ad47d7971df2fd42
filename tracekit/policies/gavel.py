"""Gavel: shares of time on the GPU types that are best for an objective, and rounds that approach them."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from tracekit.errors import UsageError
from tracekit.policies.gavel_objectives import OBJECTIVES, PACKABLE
from tracekit.policies.gavel_rounds import Aims, Rounds
from tracekit.policies.interface import Card, Parameter, Policy
from tracekit.policies.parameters import OVERHEAD, overheads
from tracekit.replay.assumptions.costs import gpu_prices
from tracekit.replay.assumptions.of_jobs import deadlines_ms
from tracekit.replay.mechanisms import Planner

if TYPE_CHECKING:
    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs

__all__ = ["Gavel"]


class Gavel(Policy):
    """Shares over GPU types for an objective, in rounds."""

    card: ClassVar[Card] = Card(
        name="gavel",
        title="shares of time on the GPU types that are best for an objective, in rounds",
        rule=(
            "When jobs came or ended, at most once in again seconds, each job's shares of time on the GPU types are "
            "found. With objective=max_min the least normalized speed is as large as can be, then the next least, and "
            "so on: GPUs times speed, relative to shares in proportion to the GPUs of each type. makespan: the last of "
            "the jobs there ends as early as can be. finish_time_fairness: the worst ratio of a job's end to its end "
            "on an equal part of the cluster is as small as can be. throughput: GPUs times speed, summed over all "
            "jobs, is as large as can be; cost: the same over the price of a GPU of the type. slo: as cost, and "
            "jobs that can still meet their deadlines have the speed that they need for it, unless that is too much "
            "for all together. hierarchical: max_min over the VCs, each with the sum of its jobs, and inside a VC "
            "max_min over its jobs, or its first jobs in order of submission. With packed=on two jobs of as many GPUs "
            "may have shares of time together on the same GPUs. In rounds jobs then run on the "
            "type where they lag most behind, by the time that their shares entitle them to over the time they ran, "
            "both begun with half a round's share; running jobs go first between equals. A job that does not fit is "
            "passed over, one runs on one type in a round, and a job whose shares are not found yet has what is left "
            "over. Gangs may be spread over nodes of a type."
        ),
        parameters=(
            Parameter("objective", "max_min", "what the shares are best for", OBJECTIVES),
            Parameter("round", 360.0, "length of a round [s]", minimum=0.001),
            Parameter("again", 1920.0, "least time between two times that shares are found [s]"),
            Parameter(
                "leftover",
                "shares",
                "for max_min: GPUs that the least normalized speed cannot use become shares by the same rule again, or "
                "are nobody's share and go, round by round, to whoever stands first then",
                ("shares", "rounds"),
            ),
            Parameter("inside", "fair", "for hierarchical: how a VC's part is divided", ("fair", "fifo")),
            Parameter("packed", False, f"two jobs may share GPUs ({', '.join(PACKABLE)})"),
            Parameter("aware", True, "shares reckon with the speeds on the types; off: as if all were alike"),
            OVERHEAD,
        ),
        assumptions=("D1", "D6", "D7", "M1", "M2", "M4", "M9", "M25"),
        equal_to=(
            "With one type and room for all: every job runs from the next round on, and none is stopped.",
            "With one type and jobs of one size, all there at once: equal times, to a round.",
            "With jobs of one size and one type: leftover=rounds is leftover=shares.",
            "With room for all: objective=makespan, finish_time_fairness, throughput and hierarchical are max_min.",
            "With one VC: objective=hierarchical is max_min.",
            "With one price: objective=cost is throughput.",
            "Where no two jobs have room in a GPU's memory: packed=on is packed=off, to ties of the program.",
            "Where all speeds are alike: aware=off is aware=on.",
        ),
        sources=(
            "Narayanan et al., Gavel (OSDI'20): objectives, rounds and their lengths as in the released code.",
            (
                "Own choices: the leftover of the max-min program is shared out by the same rule again "
                "(leftover=rounds is the released behaviour: one program, and left-over GPUs are filled in each round "
                "in the order of the priorities, a job without a share last; so it is with makespan and "
                "finish_time_fairness here too); time had counts from a job's entry and "
                "not from the last program; a type that a job does not name is used where its speed is known; types "
                "on which all jobs are equally fast count as one."
            ),
            (
                "Own choices of the other objectives: where all jobs have room where they are fastest they have that, "
                "but under cost and slo; run times and needed speeds within a quarter count as alike, as the larger; "
                "makespan is one linear program where the released code bisects to 5 %, and the search of "
                "finish_time_fairness ends at 5 %; throughput weighs a job by its GPUs, as speeds are relative to the "
                "recorded one; a deadline that cannot be met any more is dropped, and all where they are too much "
                "together; VCs weigh alike, and their GPUs are divided in two steps, where the released code reweighs "
                "jobs; run times left are known. Pairs are found among five levels of GPU utilization; jobs that lag "
                "most are paired first, and what a partner's end gains a job comes with the next round."
            ),
        ),
    )

    def mechanism(self, jobs: Jobs, cluster: Cluster, models: Models, seed: int) -> Planner:
        """Return plans in rounds."""
        p = self.parameters
        if p["packed"] and p["objective"] not in PACKABLE:
            raise UsageError(
                f"gavel: packed=on does not go with objective={p['objective']}",
                hint=f"pairs are found for {', '.join(PACKABLE)}",
            )
        round_ms = max(round(p["round"] * 1000), 1)
        prices = gpu_prices(models, cluster.models)
        aims = Aims(
            objective=p["objective"],
            round_ms=round_ms,
            again_ms=round(p["again"] * 1000),
            once=p["leftover"] == "rounds",
            inside=p["inside"],
            aware=p["aware"],
            packed=p["packed"],
            price=prices / prices.max(),
            due_ms=deadlines_ms(models, jobs.submit_ms, jobs.work_ms, seed),
        )
        return Planner(
            Rounds(jobs, cluster, models, aims).plan,
            round_ms=round_ms,
            any_model=True,
            overhead_ms=overheads(models, p["overhead"], jobs),
            share=2 if p["packed"] else 1,
        )
