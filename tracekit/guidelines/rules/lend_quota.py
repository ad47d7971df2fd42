"""Let VCs use what others leave idle, and give quota to VCs that use it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from tracekit.guidelines.interface import (
    Evidence,
    Finding,
    Guideline,
    LackingError,
    Measure,
    Number,
    Practice,
    RuleChange,
    Threshold,
    Trial,
)
from tracekit.guidelines.intervals import over_days, ratio
from tracekit.guidelines.rules._evidence import waits

if TYPE_CHECKING:
    from tracekit.calibration.rules import Rules


def _find(evidence: Evidence) -> Finding:
    answer = evidence.query("utilization/vc", quota="capacity", until="last_submission")
    known = answer.frame.filter(pl.col("vc").is_not_null() & (pl.col("capacity_gpus") > 0)).drop_nulls(
        "allocated_share_mean"
    )
    if len(known) < 2:
        raise LackingError("The trace has the quotas of fewer than two VCs.")
    waited = waits(evidence)
    frame = waited.frame
    owned = float(known["capacity_gpus"].sum())
    # GPUs that a VC borrows do not reduce the idle quota of another VC.
    unused = (pl.col("capacity_gpus") * (1 - pl.col("allocated_share_mean").clip(0, 1))).sum()
    sums = frame.select("day", "wait_s", "fair_share_s")
    rows = known.select("cluster", "vc", "capacity_gpus", "allocated_share_mean", "queue_p50_s")
    return Finding(
        {
            "quota_wait_share": over_days(sums, ratio("fair_share_s", "wait_s"), n=len(frame)),
            "quota_wait_s": Number(float(frame.select(pl.col("fair_share_s").mean()).item()), len(frame)),
            "unused_share": Number(float(known.select(unused).item()) / owned, len(known)),
        },
        notes=(*answer.notes, *waited.notes),
        rows=tuple(rows.sort("allocated_share_mean", "vc", descending=[True, False]).iter_rows(named=True)),
        rows_title="Use of each VC's quota, the fullest first",
    )


def _lent(quotas: str, words: str) -> RuleChange:
    lending = RuleChange.of(f"quotas {words}", "Lending", quotas=quotas, relax_s=0.0)

    def change(rules: Rules) -> Rules:
        if rules.quotas not in {"partitions", "limits"}:
            lends = "lends quotas already" if rules.quotas != "none" else "shows no quota that holds jobs back"
            raise LackingError(f"The log's scheduler {lends}.")
        return lending.change(rules)

    return RuleChange(lending.name, change)


GUIDELINE = Guideline(
    id="lend-quota",
    title="Lend idle quota, and rebalance quotas",
    question="Do jobs wait at the quota of their VC while other VCs leave theirs idle?",
    measures=(
        Measure("quota_wait_share", "share of waiting time at the VC's own quota", "share", "waits"),
        Measure("quota_wait_s", "mean of that time over all waits", "s", "waits"),
        Measure("unused_share", "share of all quotas that is unused", "share", "VCs"),
    ),
    thresholds=(
        Threshold("quota_wait_share", "at least", 0.2, "ours; fair-share delay as in Philly's Table 2 (ATC'19)"),
        Threshold("quota_wait_s", "at least", 60, "ours: shorter waits are the period of the scheduler"),
        Threshold("unused_share", "at least", 0.1, "ours: below, there is little to lend"),
    ),
    finding=(
        "Jobs wait at their VC's own quota for {quota_wait_share} of the waiting time, while {unused_share} of "
        "all quotas is unused."
    ),
    find=_find,
    advice=(
        "Let VCs borrow quota that others leave idle, and return it by preemption or as jobs end. If a VC uses "
        "little for weeks, move some of its quota to VCs that wait."
    ),
    cost="Jobs on borrowed GPUs may be preempted and must be able to start again.",
    risk="An owner waits for its own quota until borrowers leave; without preemption this may take days.",
    practice=Practice(
        slurm=(
            "GrpTRES=gres/gpu=N of a QOS as the quota (AccountingStorageEnforce=limits), and a second QOS without "
            "it for the rest. PreemptType=preempt/qos, PreemptMode=REQUEUE of the second QOS, and its name in "
            "Preempt of the first: the Priority of a QOS does not decide which jobs are preempted."
        ),
        kubernetes=(
            "Kueue ClusterQueues in one cohort with 'borrowingLimit' and 'lendingLimit', and 'reclaimWithinCohort: "
            "Any' or 'LowerPriority' (Never by default); Volcano queues with 'guarantee', 'deserved', 'capability' "
            "and 'reclaimable: true', with the capacity plugin instead of proportion, and the reclaim action."
        ),
        yarn=(
            "Capacity Scheduler: 'maximum-capacity' above 'capacity', and "
            "'yarn.resourcemanager.scheduler.monitor.enable' for preemption; GPUs count only with "
            "DominantResourceCalculator."
        ),
    ),
    sources=(
        "Jeon et al., Analysis of Large-Scale Multi-Tenant GPU Clusters (ATC'19): fair-share delay, Table 2",
        "Hu et al., Characterization and Prediction of Deep Learning Workloads (Helios, SC'21): Fig 4",
    ),
    tables=("jobs", "attempts", "capacity"),
    needs=("queueing", "gpu_count", "capacity", "tenants"),
    trial=Trial(
        (_lent("idle", "lent until the borrower ends"), _lent("reclaim", "lent and taken back by preemption")),
        headline="queue",
    ),
)
