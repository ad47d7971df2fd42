"""Guidelines about jobs that fail."""

from __future__ import annotations

import numpy as np
import polars as pl

from tracekit.characterize.timelines.node_failures import LEVEL
from tracekit.guidelines.interface import (
    Evidence,
    Finding,
    Guideline,
    LackingError,
    Measure,
    Number,
    Practice,
    Threshold,
    day_of,
)
from tracekit.guidelines.intervals import over_days, ratio, share_of
from tracekit.text import counted

# Stop retrying jobs that fail in the same way.

_MEMORY = "'gpu_out_of_memory', 'cpu_out_of_memory'"
"""Reasons other than user errors that recur unless something is changed."""

_TRIALS = f"""
SELECT DISTINCT
    f.job_id,
    f.attempt,
    f.reason,
    a.gpu_hours,
    coalesce(f.category = 'user' OR f.reason IN ({_MEMORY}), FALSE)
        AND f.reason NOT IN ('job_timeout', 'job_cancelled') AS stays,
    {day_of("coalesce(a.start_time, f.time)")} AS day
FROM failures AS f
INNER JOIN attempt_gpu_time AS a ON f.job_id = a.job_id AND f.attempt = a.attempt
WHERE f.reason IS NOT NULL AND coalesce(a.start_time, f.time) IS NOT NULL
"""


def _find_stop_retries(evidence: Evidence) -> Finding:
    trials = evidence.sql(_TRIALS)
    if trials.is_empty():
        raise LackingError("No failure has a known reason and date.")
    later = pl.col("attempt") > pl.col("attempt").min().over("job_id", "reason")
    trials = trials.with_columns(repeat=pl.col("stays") & later)
    whole = {name: pl.col(name).cast(pl.Int64) for name in ("stays", "repeat")}
    sums = trials.select("day", one=pl.lit(1), **whole, pair=whole["stays"] - whole["repeat"])
    repeats = trials.filter("repeat")
    pairs = int(sums["pair"].sum())
    by_reason = (
        trials.filter("stays")
        .group_by("reason")
        .agg(
            pl.len().alias("trials"),
            pl.col("job_id").n_unique().alias("jobs"),
            pl.col("repeat").sum().alias("retries_saved"),
            pl.col("gpu_hours").filter("repeat").sum().alias("gpu_hours_saved"),
        )
        .sort("gpu_hours_saved", "reason", descending=[True, False])
    )
    return Finding(
        {
            "repeat_share": over_days(sums, ratio("repeat", "one"), n=len(trials)),
            "factor": over_days(sums, ratio("stays", "pair"), n=pairs),
            "repeats": Number(float(len(repeats)), len(trials)),
            "repeat_gpu_hours": Number(float(repeats["gpu_hours"].sum()), len(repeats)),
        },
        notes=(
            "Deterministic reasons are user errors and out-of-memory errors, as the log classifier identifies them.",
        ),
        rows=tuple(by_reason.iter_rows(named=True)),
        rows_title="Retries saved by reason",
        text="" if len(repeats) else "No job was retried after it failed for a deterministic reason.",
    )


STOP_RETRIES = Guideline(
    id="stop-retries",
    title="Stop retrying deterministic failures",
    question="How often is a job retried although it fails for the same reason each time?",
    measures=(
        Measure("repeat_share", "share of failed trials that repeat a deterministic reason", "share", "failed trials"),
        Measure("factor", "trials of a job with one deterministic reason", "ratio", "jobs with such a reason"),
        Measure("repeats", "trials after the first with the same reason", "trials", "failed trials"),
        Measure("repeat_gpu_hours", "GPU-hours of these trials", "GPU-hours", "repeated trials"),
    ),
    thresholds=(
        Threshold("repeat_share", "at least", 0.1, "ours"),
        Threshold("factor", "at least", 2, "ours, after Philly's repetition factors (ATC'19, Table 7)"),
    ),
    finding=(
        "A job that fails for a deterministic reason is tried {factor} times; {repeats} after the first took "
        "{repeat_gpu_hours}, {repeat_share} of all failed trials."
    ),
    find=_find_stop_retries,
    advice=(
        "Classify failures as they happen, and do not retry jobs that fail for these reasons: bad input, syntax, "
        "imports, permissions, memory. Keep retrying after faults of nodes, network and storage, on other nodes."
    ),
    cost="A classifier that runs on each job's log when the job ends, and rules that are kept up to date.",
    risk="A wrong rule stops a job that would have succeeded; let users request a retry.",
    practice=Practice(
        slurm=(
            "Slurm automatically requeues jobs after a node failure or preemption (JobRequeue, '--requeue') and for "
            "the exit codes in RequeueExit: keep only codes of temporary faults there, and put codes that "
            "somebody should check first in RequeueExitHold. '--no-requeue' also prevents the restart after a "
            "node failure. Users and scripts resubmit the other repeats: let an epilog classify the failure and "
            "inform them."
        ),
        kubernetes=(
            "Job 'podFailurePolicy' (with 'restartPolicy: Never'): FailJob on the exit codes of such reasons, Ignore "
            "on the condition DisruptionTarget, and a low 'backoffLimit'; in Volcano 'policies' with 'exitCode' and "
            "the action AbortJob or TerminateJob, and a low 'maxRetry'."
        ),
        yarn=(
            "'yarn.resourcemanager.am.max-attempts', or the application's own value, ignores exit codes: set it "
            "to 1 if the launcher decides. The retry policy of containers uses them: "
            "RETRY_ON_SPECIFIC_ERROR_CODES with the codes of temporary faults."
        ),
    ),
    sources=("Jeon et al., Analysis of Large-Scale Multi-Tenant GPU Clusters (ATC'19): guideline 3, Table 7",),
    tables=("failures", "jobs", "attempts"),
    needs=("failures",),
    no_trial="A replay runs a job's attempts as one, so it cannot show the gain; the GPU-hours of the repeats are "
    "saved.",
)


# Run the first minutes of a gang on a small pool.

_FIRST_ATTEMPTS = f"""
SELECT gpu_count, run_s, coalesce(failed_or_retried, FALSE) AS failed, {day_of("start_time")} AS day
FROM attempt_outcomes
WHERE gpu_count > 1 AND run_s > 0 AND start_time IS NOT NULL AND attempt = 0
"""

_EARLY_S = 600
_TIMES_S = (60, 120, 300, 600)
_POOL_SIZES = (2, 4, 8, 16)


def _find_pre_run_pool(evidence: Evidence) -> Finding:
    attempts = evidence.sql(_FIRST_ATTEMPTS)
    if attempts.is_empty():
        raise LackingError("No job with several GPUs has a known run time.")
    early = pl.col("failed") & (pl.col("run_s") <= _EARLY_S)
    counts = attempts.select("day", one=pl.lit(1), early=early.cast(pl.Int64))
    seconds, size = _best(attempts)
    tried = attempts.select("day", saved=_saved(seconds, size), held=pl.col("gpu_count") * pl.col("run_s") / 3600)
    text = ""
    if not counts["early"].sum():
        text = "No multi-GPU job fails within ten minutes of its first start."
    elif tried["saved"].sum() <= 0:
        text = (
            "{early_share} of multi-GPU jobs fail within ten minutes of their first start; running some minutes "
            "on one GPU first would cost as much as it saves."
        )
    return Finding(
        {
            "early_share": over_days(counts, ratio("early", "one"), n=len(attempts)),
            "saved_share": over_days(tried, ratio("saved", "held"), n=len(attempts)),
            "saved_gpu_hours": Number(float(tried["saved"].sum()), len(attempts)),
            "pool_s": Number(float(seconds), len(attempts)),
            "least_gpus": Number(float(size), len(attempts)),
        },
        notes=(
            (
                "First attempts of jobs with more than one GPU; an attempt of unknown end that was tried again "
                "counts as failed. A run on the pool takes one GPU, and jobs that do not fail there repeat that "
                "time."
            ),
            (
                "The time on the pool (1 to 10 minutes) and the smallest job (2 to 16 GPUs) are the values that "
                "save most, so the saving is slightly optimistic."
            ),
        ),
        text=text,
    )


def _saved(seconds: int, size: int) -> pl.Expr:
    """Return the GPU-hours saved by each attempt.

    If the attempt fails on the pool, the GPU-hours of its other GPUs are saved; otherwise the pool's GPU-hours are
    lost.
    """
    fails = pl.col("failed") & (pl.col("run_s") <= seconds)
    pool = pl.min_horizontal("run_s", pl.lit(float(seconds)))
    gain = pl.when(fails).then((pl.col("gpu_count") - 1) * pl.col("run_s")).otherwise(-pool)
    return pl.when(pl.col("gpu_count") >= size).then(gain).otherwise(0.0) / 3600


def _best(attempts: pl.DataFrame) -> tuple[int, int]:
    """Return the time on the pool [s] and the minimum job size [GPUs] that save most."""
    pairs = [(seconds, size) for seconds in _TIMES_S for size in _POOL_SIZES]
    totals = attempts.select(_saved(s, g).sum().alias(f"{s}/{g}") for s, g in pairs).row(0)
    return pairs[int(np.argmax(totals))]


PRE_RUN_POOL = Guideline(
    id="pre-run-pool",
    title="Run the first minutes on a small pool",
    question="How many multi-GPU jobs fail within ten minutes, and what would a first run on one GPU save?",
    measures=(
        Measure(
            "early_share",
            "share of multi-GPU jobs whose first attempt fails within ten minutes",
            "share",
            "first attempts",
        ),
        Measure(
            "saved_share",
            "net GPU-hours saved, as a share of those of first attempts of multi-GPU jobs",
            "share",
            "first attempts",
        ),
        Measure("saved_gpu_hours", "net GPU-hours saved", "GPU-hours", "first attempts"),
        Measure("pool_s", "time on the pool that saves most", "s", "first attempts"),
        Measure("least_gpus", "smallest job that goes through the pool", "GPUs", "first attempts"),
    ),
    thresholds=(
        Threshold("early_share", "at least", 0.05, "ours; Philly's third guideline (ATC'19) points the same way"),
        Threshold("saved_share", "at least", 0.01, "ours: below this, the pool costs nearly as much as it saves"),
    ),
    finding=(
        "{early_share} of multi-GPU jobs fail within ten minutes of their first start; {pool_s} on one GPU first, "
        "for jobs of {least_gpus} or more, would save {saved_gpu_hours} net ({saved_share})."
    ),
    find=_find_pre_run_pool,
    advice=(
        "Start every job of that size on one GPU of a small pool for that time, with the same image, data and "
        "first iterations. Give it its GPUs only if it gets through. Errors in syntax, imports, paths and the "
        "first iteration then cost one GPU and no long wait."
    ),
    cost="A few dedicated GPUs, and the extra time for each job that does not fail; the launcher must accept one "
    "worker.",
    risk="Faults that appear only with many workers pass the pool; a pool that is too small becomes a queue itself.",
    practice=Practice(
        slurm=(
            "A partition with a short MaxTime and its own QOS; the real job with '--dependency=afterok:ID' and "
            "'--kill-on-invalid-dep=yes'. The first run must end by itself, with exit code 0, before the limit."
        ),
        kubernetes=(
            "A Kueue ClusterQueue with a quota of a few GPUs and its LocalQueue; a workflow, such as Argo, "
            "submits the real job separately after the first run. A single JobSet with 'dependsOn' does not work: "
            "Kueue admits it as a whole, so the quota of the real job is taken from the start. In Volcano a "
            "JobFlow, whose 'dependsOn' puts the real job after the first run, each in its own queue."
        ),
        yarn=(
            "A queue with a small 'maximum-capacity' and 'maximum-application-lifetime'; YARN has no order "
            "between applications, so the launcher submits the real job on success."
        ),
    ),
    sources=("Jeon et al., Analysis of Large-Scale Multi-Tenant GPU Clusters (ATC'19): guideline 3, Table 7",),
    tables=("jobs", "attempts"),
    needs=("statuses", "gpu_count", "run_time"),
    no_trial=(
        "A replay gives each job its recorded run time, so it cannot show the gain; the saving is computed "
        "attempt by attempt."
    ),
)


# Checkpoint very long jobs, or limit their run time.

_LONG_S = 86400
_SAVE_EVERY_S = 3600

_LONG_ATTEMPTS = f"""
SELECT gpu_count, run_s, coalesce(interrupted_or_retried, FALSE) AS failed, status = 'timeout' AS late,
       {day_of("end_time")} AS day
FROM attempt_interruptions
WHERE gpu_count > 0 AND run_s > 0 AND end_time IS NOT NULL
ORDER BY job_id, attempt
"""


def _find_checkpoint_long(evidence: Evidence) -> Finding:
    held = pl.col("gpu_count") * pl.col("run_s") / 3600
    long = pl.col("run_s") >= _LONG_S
    # As in failures/lost_work with a checkpoint every hour: work since the last checkpoint is lost.
    kept = pl.col("gpu_count") * (pl.col("run_s") - pl.col("run_s") % _SAVE_EVERY_S) / 3600
    attempts = evidence.sql(_LONG_ATTEMPTS, also=("placements", "node_events")).select(
        "day",
        "late",
        held=held,
        long=pl.when(long).then(held).otherwise(0.0),
        lost=pl.when(long & pl.col("failed")).then(held).otherwise(0.0),
        saved=pl.when(long & pl.col("failed")).then(kept).otherwise(0.0),
    )
    failures = attempts.filter(pl.col("lost") > 0).height
    none = "No attempt was cut short after a day or more; attempts of that length took {long_share} of the GPU-hours."
    return Finding(
        {
            "lost_share": over_days(attempts, ratio("lost", "held"), n=len(attempts)),
            "long_failures": Number(float(failures), attempts.filter(pl.col("long") > 0).height),
            "lost_gpu_hours": Number(float(attempts["lost"].sum()), failures),
            "saved_gpu_hours": Number(float(attempts["saved"].sum()), failures),
            "long_share": over_days(attempts, ratio("long", "held"), n=len(attempts)),
        },
        notes=(
            *(
                [f"{counted(late, 'attempts')} of those that were cut short hit their time limit (timeout)"]
                if (late := attempts.filter((pl.col("lost") > 0) & pl.col("late")).height)
                else []
            ),
            (
                "Attempts are cut short as in failures/lost_work with rule=retried: those that failed, were "
                "preempted or lost a node, or ended in an unknown way and were retried. Checkpoints are not "
                "known, so what jobs already save today is not subtracted."
            ),
        ),
        text="" if failures else none,
    )


CHECKPOINT_LONG = Guideline(
    id="checkpoint-long",
    title="Checkpoint very long jobs, or cap them",
    question="How many GPU-hours are lost when attempts are cut short after a day or more?",
    measures=(
        Measure("lost_share", "share of GPU-hours in attempts cut short after a day or more", "share", "attempts"),
        Measure("long_failures", "attempts cut short after a day or more", "attempts", "attempts of a day or more"),
        Measure("lost_gpu_hours", "GPU-hours of attempts cut short after a day or more", "GPU-hours", "such attempts"),
        Measure(
            "saved_gpu_hours",
            "GPU-hours of these attempts that a checkpoint every hour would keep",
            "GPU-hours",
            "such attempts",
        ),
        Measure("long_share", "share of GPU-hours in all attempts of a day or more", "share", "attempts"),
    ),
    thresholds=(
        Threshold("lost_share", "at least", 0.05, "ours"),
        Threshold("long_failures", "at least", 10, "ours: a few may be one user's accident"),
    ),
    finding=(
        "{long_failures} cut short after a day or more took {lost_gpu_hours}, {lost_share} of all allocated; if "
        "nothing was saved, a checkpoint every hour would have kept {saved_gpu_hours}."
    ),
    find=_find_checkpoint_long,
    advice=(
        "Give jobs a time limit of a day. Let only jobs that save their state and can restart from it exceed it. "
        "Send a signal before the limit, and put the job back into the queue."
    ),
    cost="Storage and bandwidth for checkpoints, and work on programs that cannot save their state.",
    risk="A job that cannot start from its checkpoint loses everything at the limit; saving too often slows all jobs.",
    practice=Practice(
        slurm=(
            "MaxTime of the partition or MaxWall of the QOS; '--signal=B:USR1@300' warns the batch script, which "
            "saves and calls 'scontrol requeue' (the job needs '--requeue', or JobRequeue=1 for all). Slurm does "
            "not requeue a job that just hits its limit."
        ),
        kubernetes=(
            "'activeDeadlineSeconds' of the pod ends the pod, and its Job starts another within 'backoffLimit'; "
            "on the Job it fails the Job for good. After the seconds in the label "
            "'kueue.x-k8s.io/max-exec-time-seconds' Kueue deactivates the workload until it is activated again. "
            "In Volcano a policy with RestartJob on PodFailed or PodEvicted starts the job again. Save while the "
            "job runs: SIGTERM leaves at most 'terminationGracePeriodSeconds'."
        ),
        yarn=(
            "The queue's 'maximum-application-lifetime', in seconds, kills the application and does not start it "
            "again. The application must save while it runs, and the launcher submits it again from its "
            "checkpoint."
        ),
    ),
    sources=(
        "Jeon et al., Analysis of Large-Scale Multi-Tenant GPU Clusters (ATC'19): late failures, Table 7",
        (
            "Hu et al., Characterization of Large Language Model Development in the Datacenter (NSDI'24): checkpoints "
            "against lost work"
        ),
    ),
    tables=("jobs", "attempts"),
    needs=("statuses", "gpu_count", "run_time"),
    no_trial=(
        "A replay takes the recorded work as given, so it cannot show the gain; the saving is computed attempt by "
        "attempt."
    ),
)


# Drain nodes that fail more often than chance explains.

_SUSPECT_COLUMNS = (
    "node_id",
    "attempts",
    "failed_attempts",
    "trials",
    "failed_trials",
    "expected_failed_trials",
    "adjusted_p_value",
    "adjusted_p_value_without_one_user",
)

_WITH_GPUS = """
SELECT DISTINCT p.node_id
FROM placements AS p
INNER JOIN attempt_outcomes AS o ON p.job_id = o.job_id AND p.attempt = o.attempt
INNER JOIN jobs AS j ON p.job_id = j.job_id
INNER JOIN node_gpus AS g ON p.node_id = g.node_id
WHERE o.failed AND g.observed > 0 AND j.gpu_count IS DISTINCT FROM 0
"""
"""GPU nodes with failed jobs that may have used GPUs."""


def _find_drain_nodes(evidence: Evidence) -> Finding:
    answer = evidence.query("failures/by_node")
    excess = answer.frame.filter(pl.col("adjusted_p_value") <= LEVEL)
    suspects = excess.filter("suspect")
    if suspects["adjusted_p_value_without_one_user"].null_count():
        raise LackingError(
            "The log names no users, so a bad node cannot be distinguished from a user whose jobs fail there."
        )
    trials, failed = int(suspects["trials"].sum()), int(suspects["failed_trials"].sum())
    expected = float(suspects["expected_failed_trials"].sum())
    share = share_of(failed, trials)
    ends = [None if end is None else end * trials - expected for end in (share.low, share.high)]
    left = len(excess) - len(suspects)
    none = "No node fails more often than chance explains"
    none += ", if the failures of its most frequent user are left out." if left else "."
    advice, cost = _texts(evidence, suspects)
    return Finding(
        {
            "suspect_nodes": Number(float(len(suspects)), len(answer.frame)),
            "excess_failures": Number(failed - expected, trials, *ends),
            "failed_share": share,
            "one_user_nodes": Number(float(left), len(answer.frame)),
        },
        notes=(
            *answer.notes,
            *_lemons(evidence, suspects),
            (
                "A user's attempts on one node, each begun within an hour of the previous one, count once, by the "
                "first attempt. A job that is retried there also counts once. So one broken script causes one "
                "failure, not many."
            ),
            (
                "Failures are compared, within the same user, job group, tenant and size class, with failures on "
                "nodes that are not suspect."
            ),
            (
                "A node is named only if chance does not explain its failures, even without the user with the "
                "most failures there, on this node and on all others; jobs of unknown users count as jobs of one "
                "user."
            ),
        ),
        rows=tuple(suspects.select(_SUSPECT_COLUMNS).iter_rows(named=True)) if len(suspects) else (),
        rows_title="Suspect nodes",
        text="" if len(suspects) else none,
        advice=advice,
        cost=cost,
    )


def _lemons(evidence: Evidence, suspects: pl.DataFrame) -> list[str]:
    """Return a note on how many suspect nodes also go out of service too often, if the log has outages."""
    if suspects.is_empty() or not evidence.trace.has("node_events"):
        return []
    lemons = evidence.query("failures/lemon_nodes").frame.filter("lemon")
    both = len(suspects.join(lemons, on="node_id", how="semi"))
    return [f"{both:,} of these {len(suspects):,} nodes also go out of service too often (repair-lemons)."]


def _texts(evidence: Evidence, suspects: pl.DataFrame) -> tuple[str, str]:
    """Return the advice and the cost for these nodes; empty if the guideline's own texts fit them all."""
    if suspects.is_empty():
        return "", ""
    with_gpus = evidence.sql(_WITH_GPUS, also=("nodes", "gpu_utilization"))
    number = len(suspects.join(with_gpus, on="node_id", how="semi"))
    if number == len(suspects):
        return "", ""
    return (_ADVICE_WITH_SOME, _COST_WITHOUT_GPUS) if number else (_ADVICE_WITHOUT_GPUS, _COST_WITHOUT_GPUS)


_ADVICE_WITHOUT_GPUS = (
    "Drain these nodes, run the vendor's hardware diagnostics, and check the kernel messages about memory, disks "
    "and network. Bring back the nodes that pass, and count failures by node from then on."
)
_ADVICE_WITH_SOME = (
    "Drain these nodes, run the vendor's hardware diagnostics (with GPU diagnostics and a bandwidth test if the "
    "nodes have GPUs), and check the kernel messages. Bring back the nodes that pass, and count failures by node "
    "from then on."
)
_COST_WITHOUT_GPUS = "These nodes are unavailable while they are tested."


DRAIN_NODES = Guideline(
    id="drain-nodes",
    title="Drain suspect nodes",
    question="Which nodes fail more often than they would if all nodes were equal?",
    measures=(
        Measure("suspect_nodes", "nodes that fail more often than chance explains", "nodes", "nodes"),
        Measure(
            "excess_failures",
            "failed attempts there beyond the expected number, counting a user's session once",
            "attempts",
            "attempts there, counted the same way",
        ),
        Measure(
            "failed_share",
            "share of the attempts there that failed, counted the same way",
            "share",
            "attempts there, counted the same way",
        ),
        Measure(
            "one_user_nodes", "further nodes that fail too often only because of one user's failures", "nodes", "nodes"
        ),
    ),
    thresholds=(
        Threshold("suspect_nodes", "at least", 1, "adjusted p-value of at most 0.05 (Holm, 1979)"),
        Threshold("excess_failures", "at least", 3, "ours: fewer are not worth checking"),
    ),
    finding=(
        "{suspect_nodes} failed too often: {failed_share} of the attempts there failed, {excess_failures} more "
        "than expected."
    ),
    find=_find_drain_nodes,
    advice=(
        "Drain these nodes, run the vendor's GPU diagnostics and a bandwidth test, and check for Xid and ECC "
        "messages. Bring back the nodes that pass, and count failures by node from then on."
    ),
    cost="The GPUs of these nodes are unavailable while they are tested.",
    risk=(
        "A good node still looks suspect if jobs of several users fail for one reason and always land there. A "
        "bad node that only one user uses is not found."
    ),
    practice=Practice(
        slurm="'scontrol update nodename=N state=drain reason=...'; a HealthCheckProgram that does this automatically.",
        kubernetes=(
            "'kubectl cordon', and 'kubectl drain' if the pods may be stopped; node-problem-detector taints a "
            "node only if 'taintEnabled' is set for the problem. New pods then avoid the node, but Kueue still "
            "counts it in its quotas (topology-aware scheduling leaves cordoned nodes out): lower 'nominalQuota' "
            "for that time."
        ),
        yarn=(
            "'yarn rmadmin -refreshNodes -g' after you add the node to the file of "
            "'yarn.resourcemanager.nodes.exclude-path'; a script in 'yarn.nodemanager.health-checker.script.path' "
            "reports the node as unhealthy automatically."
        ),
    ),
    sources=(
        "Mantel and Haenszel (1959), Holm (1979), and the notes in failures/by_node",
        "Jeon et al., Analysis of Large-Scale Multi-Tenant GPU Clusters (ATC'19): infrastructure failures",
    ),
    tables=("jobs", "attempts", "placements"),
    needs=("placement", "statuses"),
    least_n=2,
    no_trial=(
        "A simulation cannot show the gain, because these failures did not take the node down. The failures "
        "beyond the expected number are the most that can be avoided. repair-lemons tests what outages cost."
    ),
)


MEMBERS = (STOP_RETRIES, PRE_RUN_POOL, CHECKPOINT_LONG, DRAIN_NODES)
