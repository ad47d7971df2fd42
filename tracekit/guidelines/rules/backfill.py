"""Let later jobs pass one that has no place yet."""

from __future__ import annotations

import polars as pl

from tracekit.guidelines.interface import (
    Evidence,
    Finding,
    Guideline,
    Measure,
    Number,
    Practice,
    RuleChange,
    Threshold,
    Trial,
)
from tracekit.guidelines.intervals import over_days, ratio
from tracekit.guidelines.rules._evidence import waits

_LIMITS = "SELECT count(*) AS jobs, count(time_limit_s) AS limited FROM jobs WHERE gpu_count > 0"


def _find(evidence: Evidence) -> Finding:
    answer = waits(evidence)
    frame = answer.frame
    limits = evidence.sql(_LIMITS)
    jobs, limited = int(limits["jobs"][0]), int(limits["limited"][0])
    sums = frame.select("day", "wait_s", "other_s")
    return Finding(
        {
            "placeable_share": over_days(sums, ratio("other_s", "wait_s"), n=len(frame)),
            "placeable_wait_s": Number(float(frame.select(pl.col("other_s").mean()).item()), len(frame)),
            "limit_share": Number(limited / jobs if jobs else None, jobs),
        },
        notes=(
            (
                "Placeable is the part of a wait that queuing/delay_causes explains neither by quota nor by "
                "fragmentation: enough GPUs were free on the fewest nodes, and the VC was within its quota."
            ),
            *answer.notes,
        ),
    )


def _easy(estimates: str, words: str) -> RuleChange:
    rules = {"backfill": "easy", "estimates": estimates, "scan": "stop", "queues": "one"}
    return RuleChange.of(f"EASY backfilling {words}", "Backfilling", **rules)


GUIDELINE = Guideline(
    id="backfill",
    title="Backfill with estimates",
    question="Do jobs wait while enough GPUs are free for them?",
    measures=(
        Measure("placeable_share", "share of waiting time in which the job could have started", "share", "waits"),
        Measure("placeable_wait_s", "mean of that time over all waits", "s", "waits"),
        Measure("limit_share", "share of jobs with a time limit, the simplest estimate", "share", "jobs with GPUs"),
    ),
    thresholds=(
        Threshold("placeable_share", "at least", 0.2, "ours"),
        Threshold("placeable_wait_s", "at least", 60, "ours: shorter waits are the period of the scheduler"),
    ),
    finding=(
        "In {placeable_share} of the waiting time enough GPUs were free, within the quota of the job's VC; "
        "{limit_share} of jobs have a time limit."
    ),
    find=_find,
    advice=(
        "Let later jobs start on free GPUs if they do not delay the first job in the queue (EASY backfilling). "
        "Take run times from time limits or, better, predict them from earlier jobs of the same name."
    ),
    cost="Every job needs an estimate, and users must set time limits close to the real run time.",
    risk="Bad estimates delay the first job; time limits that are too short end jobs early.",
    practice=Practice(
        slurm=(
            "SchedulerType=sched/backfill, with DefaultTime of the partition and '--time' of the job as "
            "estimates; bf_window in SchedulerParameters, in minutes, at least as long as the longest time limit "
            "(43200 at most, 30 days)."
        ),
        kubernetes=(
            "Neither Kueue nor Volcano plans with run times, so neither has true backfilling. Kueue's "
            "'queueingStrategy: BestEffortFIFO' (the default) lets later workloads overtake, so a large one may "
            "wait long. Volcano's backfill action places only pods that request nothing; its 'sla' plugin "
            "('sla-waiting-time') reserves resources for a job that has waited too long."
        ),
        yarn=(
            "YARN has no backfilling by run time. In the Capacity Scheduler a node reserved for a request is "
            "closed to later requests, while other nodes are not; "
            "'yarn.scheduler.capacity.reservations-continue-look-all-nodes' (true by default) lets the owner of a "
            "reservation take another node."
        ),
    ),
    sources=("Mu'alem and Feitelson, backfilling on the SP2 (TPDS 2001)",),
    tables=("jobs", "attempts", "placements"),
    needs=("queueing", "gpu_count", "placement"),
    trial=Trial((_easy("limit", "by time limits"), _easy("oracle", "by the true run times")), headline="queue"),
)
