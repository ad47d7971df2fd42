"""Start jobs again by themselves after a node fails."""

from __future__ import annotations

import polars as pl

from tracekit.guidelines.interface import Evidence, Finding, Guideline, Measure, Number, Practice, Threshold
from tracekit.guidelines.intervals import over_days, ratio
from tracekit.guidelines.rules._evidence import NEEDED_STOPS, attempts_with_stops

_LATE_S = 3600
_GOES_ON = ("running", "pending", "completed", "cancelled")


def _find(evidence: Evidence) -> Finding:
    attempts = attempts_with_stops(evidence).with_columns(job_gpu_s=pl.col("gpu_s").sum().over("job_id"))
    late = pl.col("stopped") & (pl.col("next_wait_s") > _LATE_S)
    never = pl.col("stopped") & pl.col("next_attempt").is_null() & ~pl.col("job_status").is_in(_GOES_ON)
    found = attempts.select(
        "day",
        "stopped",
        held="gpu_s",
        late=late.fill_null(value=False),
        never=never.fill_null(value=False),
        waited=pl.when(late).then(pl.col("next_wait_s") * pl.col("gpus")).otherwise(0.0),
        dropped=pl.when(never).then("job_gpu_s").otherwise(0.0),
    )
    sums = found.select("day", "held", cost=pl.col("waited") + pl.col("dropped"))
    stops, lates, nevers = (int(found[name].sum()) for name in ("stopped", "late", "never"))
    return Finding(
        {
            "cost_share": over_days(sums, ratio("cost", "held"), n=len(found)),
            "left": Number(float(lates + nevers), stops),
            "stopped": Number(float(stops), len(found)),
            "late": Number(float(lates), stops),
            "never": Number(float(nevers), stops),
            "late_gpu_hours": Number(float(found["waited"].sum()) / 3600, lates),
            "dropped_gpu_hours": Number(float(found["dropped"].sum()) / 3600, nevers),
        },
        notes=(
            (
                "A stop is an attempt with the status node_fail, or one that ended badly as one of its nodes "
                "failed. A job that was resubmitted as a new job counts as never started again, because no log "
                "links the two; jobs that their users cancelled do not count."
            ),
            "A late start may also mean a full cluster: the hours are the most that an automatic restart can save.",
        ),
        text="" if stops else "No attempt was stopped by an outage.",
    )


GUIDELINE = Guideline(
    id="restart-automatically",
    title="Restart jobs automatically after a node fails",
    question="How many jobs stopped by a node failure are restarted late, or never?",
    measures=(
        Measure("cost_share", "GPU-hours of these waits and jobs, as a share of all GPU-hours", "share", "attempts"),
        Measure("left", "stopped attempts that were restarted late or never", "attempts", "stopped attempts"),
        Measure("stopped", "attempts that outages stopped", "attempts", "attempts"),
        Measure(
            "late", "of these, attempts followed by another after more than an hour", "attempts", "stopped attempts"
        ),
        Measure(
            "never",
            "of these, attempts followed by none, of jobs that did not complete",
            "attempts",
            "stopped attempts",
        ),
        Measure("late_gpu_hours", "GPU-hours that the late ones waited", "GPU-hours", "late attempts"),
        Measure("dropped_gpu_hours", "GPU-hours of jobs that were not restarted", "GPU-hours", "such jobs"),
    ),
    thresholds=(
        Threshold("cost_share", "at least", 0.01, "ours"),
        Threshold("left", "at least", NEEDED_STOPS, "ours: a few may be one user's accident"),
    ),
    finding=(
        "Of {stopped} that outages stopped, {late} continued after more than an hour and waited {late_gpu_hours}. "
        "{never} were never restarted, and their jobs had used {dropped_gpu_hours}. Together this is {cost_share} "
        "of all GPU-hours."
    ),
    find=_find,
    advice=(
        "Let the scheduler put jobs back into the queue, ahead of new jobs, when one of their nodes fails, and "
        "let programs restart from their last checkpoint automatically."
    ),
    cost="Programs must find their last checkpoint by themselves; jobs that cannot run twice must say so.",
    risk="A job that breaks its nodes does so again: limit the number of restarts, and exclude bad nodes.",
    practice=Practice(
        slurm=(
            "'JobRequeue=1' puts batch jobs back when a node fails, unless they ask for '--no-requeue'; "
            "'SLURM_RESTART_COUNT' shows the script that it is a restart. 'srun --no-kill' keeps the allocation."
        ),
        kubernetes=(
            "A Job's 'podFailurePolicy' that ignores the condition DisruptionTarget does not count such failures "
            "against 'backoffLimit'; JobSet's failure policy, or Volcano's RestartJob on PodFailed, restarts "
            "multi-pod jobs."
        ),
        yarn=(
            "'yarn.resourcemanager.am.max-attempts' above 1, 'keep-containers-across-application-attempts', and "
            "'am-failures-validity-interval', after which old failures no longer count."
        ),
    ),
    sources=(
        "Kokolis et al., Revisiting Reliability in Large-Scale Machine Learning Research Clusters (HPCA'25)",
        (
            "Hu et al., Characterization of Large Language Model Development in the Datacenter (NSDI'24): automatic "
            "recovery"
        ),
    ),
    tables=("jobs", "attempts"),
    needs=("statuses", "gpu_count", "run_time"),
    no_trial=(
        "A replay restarts each stopped job at once, so it cannot show the gain; the saving is computed attempt "
        "by attempt."
    ),
)
