"""Guidelines about allocated GPUs that are hardly used, and about idle nodes."""

from __future__ import annotations

import polars as pl

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
from tracekit.guidelines.intervals import over_days, ratio

IDLE_PCT = 10.0
"""Mean utilization up to which a job counts as idle, as in utilization/idle_jobs [percent]."""

LOW_PCT = 50.0
"""Mean utilization up to which a job's utilization counts as low, as in Gao et al. (ICSE'24) [percent]."""

NOTE = (
    "A job's utilization is the mean of its samples, or the value in job_usage, as in utilization/idle_jobs; jobs "
    "without either are not counted."
)

_JOBS = f"""
SELECT job_id, gpu_hours, gpu_count AS gpus, {day_of("coalesce(submit_time, start_time)")} AS day
FROM job_gpu_hours
WHERE gpu_hours > 0 AND coalesce(submit_time, start_time) IS NOT NULL
"""


def measured_jobs(evidence: Evidence, more_than: float = 0) -> tuple[pl.DataFrame, float | None]:
    """Return one row per job: job_id, user, the tenant, gpu_count, run_s, mean_pct, wasted_gpu_h, gpu_hours and day.

    The rows are those of utilization/idle_jobs without its limits. Jobs with an unknown date or at most `more_than`
    GPUs are excluded. The second value is the share that the returned jobs have in the GPU-hours of all jobs with a
    known date and more than `more_than` GPUs [1]; None if no GPU-hours are known.

    Raises
    ------
    LackingError
        The Trace has no utilization.
    """
    jobs = evidence.query("utilization/idle_jobs", threshold_pct=1_000_000, min_run_s=0).frame
    hours = evidence.answer(_JOBS, also=("attempts",)).frame.filter(pl.col("gpus") > more_than).drop("gpus")
    measured, held = jobs.join(hours, on="job_id"), float(hours["gpu_hours"].sum())
    return measured, float(measured["gpu_hours"].sum()) / held if held else None


# Let jobs that use little of their GPU share one.


def _find_share_gpus(evidence: Evidence) -> Finding:
    low = (pl.col("gpu_count") <= 1) & (pl.col("mean_pct") > IDLE_PCT) & (pl.col("mean_pct") <= LOW_PCT)
    measured, covers = measured_jobs(evidence)
    jobs = measured.with_columns(low=low)
    sums = jobs.select("day", "gpu_hours", low=pl.when("low").then("gpu_hours").otherwise(0.0))
    held, few = float(sums["low"].sum()), int(jobs["low"].sum())
    return Finding(
        {
            "low_share": over_days(sums, ratio("low", "gpu_hours"), n=len(jobs)),
            "low_jobs": Number(float(few), len(jobs)),
            "freed_gpu_hours": Number(held / 2, few),
        },
        notes=(NOTE, "GPU memory is not considered: two jobs can share a GPU only if both fit in its memory."),
        text="" if few else "No measured job of at most one GPU kept it busy 10 to 50 % of the time.",
        covers=covers,
    )


SHARE_GPUS = Guideline(
    id="share-gpus",
    title="Share GPUs among jobs that use little of them",
    question="How many GPU-hours go to jobs of at most one GPU that are busy half of the time or less?",
    measures=(
        Measure(
            "low_share",
            "share of the measured GPU-hours in jobs of at most one GPU at 10 to 50 % utilization",
            "share",
            "measured jobs",
        ),
        Measure("low_jobs", "such jobs", "jobs", "measured jobs"),
        Measure("freed_gpu_hours", "GPU-hours that pairing all of them would free", "GPU-hours", "such jobs"),
    ),
    thresholds=(Threshold("low_share", "at least", 0.2, "ours; 50 % counts as low in Gao et al. (ICSE'24)"),),
    finding=(
        "{low_jobs} of at most one GPU kept it busy 10 to 50 % of the time, with {low_share} of the measured "
        "GPU-hours; pairing such jobs would free up to {freed_gpu_hours}."
    ),
    find=_find_share_gpus,
    advice=(
        "Let two such jobs share a GPU. Pair only jobs whose memory fits together and whose utilizations sum to "
        "100 % or less, start with jobs of one user or team, and separate them when one slows down."
    ),
    cost="Sharing must be set up on the nodes (MPS, time slicing or MIG), and jobs must declare their GPU memory.",
    risk="Jobs disturb each other, a fault of one can end both under MPS, and one may fill the memory of the other.",
    practice=Practice(
        slurm=(
            "GRES 'shard' with '--gres=shard:1' for small jobs, which counts jobs but does not isolate them, or "
            "'mps' with a prolog that starts its server; both need select/cons_tres. MIG slices, made beforehand, "
            "as types of GRES gpu (AutoDetect=nvml)."
        ),
        kubernetes=(
            "Time slicing or MPS in the NVIDIA device plugin, or MIG profiles, on separate nodes with a Kueue "
            "ResourceFlavor; in Volcano the deviceshare plugin ('deviceshare.VGPUEnable') and the vGPU device "
            "plugin, with 'volcano.sh/vgpu-number' and 'volcano.sh/vgpu-memory'."
        ),
        yarn=(
            "YARN does not share GPUs: a GPU belongs to one container. Run pairs inside one container; MIG slices "
            "need your own device plugin (pluggable device framework)."
        ),
    ),
    sources=(
        "Gao et al., An Empirical Study on Low GPU Utilization of Deep Learning Jobs (ICSE'24)",
        "Weng et al., MLaaS in the Wild (NSDI'22): GPU sharing in PAI",
        "Luo et al., arXiv 2407.13088: shortest first, sharing a GPU if the pair gains",
    ),
    tables=("jobs", "attempts"),
    needs=("gpu_count",),
    no_trial=("We cannot estimate the gain: the policy that shares GPUs (sjf-bsbf) also lets short jobs go first."),
)


# Request fewer GPUs for multi-GPU jobs that leave them half idle.

_GANGS_SHOWN = 20


def _find_right_size_gangs(evidence: Evidence) -> Finding:
    gangs, covers = measured_jobs(evidence, more_than=1)
    if gangs.is_empty():
        raise LackingError("No job with several GPUs has a known utilization.")
    low = (pl.col("mean_pct") > IDLE_PCT) & (pl.col("mean_pct") <= LOW_PCT)
    gangs = gangs.with_columns(low=low)
    sums = gangs.select("day", "gpu_hours", low=pl.when("low").then("gpu_hours").otherwise(0.0))
    users = gangs.filter("low").group_by("user").agg(pl.len().alias("jobs"), pl.col("gpu_hours").sum())
    few = int(gangs["low"].sum())
    return Finding(
        {
            "low_share": over_days(sums, ratio("low", "gpu_hours"), n=len(gangs)),
            "low_gangs": Number(float(few), len(gangs)),
            "spare_gpu_hours": Number(float(sums["low"].sum()) / 2, few),
        },
        notes=(NOTE,),
        rows=tuple(users.sort("gpu_hours", "user", descending=[True, False]).head(_GANGS_SHOWN).iter_rows(named=True)),
        rows_title="Users whose multi-GPU jobs are half idle",
        text="" if few else "No measured multi-GPU job had GPUs that were busy 10 to 50 % of the time.",
        covers=covers,
        covers_of="the GPU-hours of multi-GPU jobs",
    )


RIGHT_SIZE_GANGS = Guideline(
    id="right-size-gangs",
    title="Right-size multi-GPU jobs",
    question="How many GPU-hours of multi-GPU jobs go to jobs that may need only half their GPUs?",
    measures=(
        Measure(
            "low_share", "share of the GPU-hours of multi-GPU jobs at 10 to 50 % utilization", "share", "measured gangs"
        ),
        Measure("low_gangs", "such gangs", "gangs", "measured gangs"),
        Measure("spare_gpu_hours", "GPU-hours that half the GPUs would save", "GPU-hours", "such gangs"),
    ),
    thresholds=(Threshold("low_share", "at least", 0.3, "ours; 50 % counts as low in Gao et al. (ICSE'24)"),),
    finding=(
        "{low_gangs} had GPUs that were busy 10 to 50 % of the time, with {low_share} of the GPU-hours of "
        "multi-GPU jobs; half the GPUs would save up to {spare_gpu_hours}."
    ),
    find=_find_right_size_gangs,
    advice=(
        "Show users of such jobs their utilization next to what they requested, and let them try half the GPUs. "
        "First check for a slow input pipeline or slow links, because then fewer GPUs do the same work in the "
        "same time."
    ),
    cost="A report to each user, and one short trial run for each kind of job.",
    risk=(
        "Utilization shows that a GPU is busy, not that the work scales: with half the GPUs a job may take "
        "longer, and memory per GPU grows."
    ),
    practice=Practice(
        slurm=(
            "Mail from EpilogSlurmctld with DCGM's mean next to ReqTRES of 'sacct'; if it repeats, 'sacctmgr "
            "modify qos NAME set MaxTRESPerJob=gres/gpu=N' limits each job (GrpTRES limits all together)."
        ),
        kubernetes=(
            "A report by namespace from dcgm-exporter; elastic jobs with 'minAvailable' below the replicas in "
            "Volcano, or partial admission in Kueue (annotation 'kueue.x-k8s.io/job-min-parallelism' of a Job, "
            "'minCount' of the Workload's pod set)."
        ),
        yarn=(
            "A report by queue from the NodeManagers' GPU utilization. "
            "'yarn.resource-types.yarn.io/gpu.maximum-allocation' limits one container and 'maximum-capacity' the "
            "queue; YARN has no limit for the GPUs of one application."
        ),
    ),
    sources=(
        "Gao et al., An Empirical Study on Low GPU Utilization of Deep Learning Jobs (ICSE'24)",
        "Jeon et al., Analysis of Large-Scale Multi-Tenant GPU Clusters (ATC'19): utilization by size",
    ),
    tables=("jobs", "attempts"),
    needs=("gpu_count",),
    no_trial="We cannot estimate the gain: the log does not show how a job's speed changes with its GPUs.",
)


# Reclaim GPUs from jobs that leave them idle.

_LEAST_RUN_S = 3600
_IDLE_SHOWN = 20


def _find_reclaim_idle(evidence: Evidence) -> Finding:
    measured, covers = measured_jobs(evidence)
    jobs = measured.with_columns(idle=(pl.col("mean_pct") <= IDLE_PCT) & (pl.col("run_s") >= _LEAST_RUN_S))
    sums = jobs.select("day", "gpu_hours", wasted=pl.when("idle").then("wasted_gpu_h").otherwise(0.0))
    idle = jobs.filter("idle").sort("wasted_gpu_h", "job_id", descending=[True, False])
    owners = dict.fromkeys(("user", evidence.trace.tenant.column))
    rows = idle.head(_IDLE_SHOWN).select("job_id", *owners, "gpu_count", "run_s", "mean_pct", "wasted_gpu_h")
    return Finding(
        {
            "idle_share": over_days(sums, ratio("wasted", "gpu_hours"), n=len(jobs)),
            "idle_jobs": Number(float(len(idle)), len(jobs)),
            "wasted_gpu_hours": Number(float(sums["wasted"].sum()), len(idle)),
        },
        notes=(NOTE,),
        rows=tuple(rows.iter_rows(named=True)),
        rows_title="Idle jobs that cost the most",
        text="" if len(idle) else "No measured job used its GPUs at 10 % utilization or less for an hour or more.",
        covers=covers,
    )


RECLAIM_IDLE = Guideline(
    id="reclaim-idle",
    title="Reclaim GPUs from idle jobs",
    question="How many GPU-hours go to jobs that keep GPUs for long and leave them idle?",
    measures=(
        Measure("idle_share", "share of the measured GPU-hours wasted by idle jobs", "share", "measured jobs"),
        Measure("idle_jobs", "idle jobs", "jobs", "measured jobs"),
        Measure("wasted_gpu_hours", "GPU-hours wasted by idle jobs", "GPU-hours", "idle jobs"),
    ),
    thresholds=(
        Threshold("idle_share", "at least", 0.05, "ours: below 5 %, reclaiming costs more effort than it saves"),
    ),
    finding=(
        "{idle_jobs} had GPUs for an hour or more at 10 % utilization or less; they wasted {wasted_gpu_hours}, "
        "{idle_share} of all measured GPU-hours."
    ),
    find=_find_reclaim_idle,
    advice=(
        "Monitor the GPU utilization of running jobs. Warn the owner after half an hour at 10 % or less, and take "
        "the GPUs back after another hour unless the owner objects. Give interactive jobs their own pool and time "
        "limit."
    ),
    cost="An exporter of GPU telemetry on every node, and a rule that warns and ends jobs.",
    risk="Jobs that load data or evaluate on the CPU for long look idle; let owners mark them, and warn before "
    "ending them.",
    practice=Practice(
        slurm=(
            "The prolog writes the job's GPUs (SLURM_JOB_GPUS) to the directory of dcgm-exporter's "
            "'--hpc-job-mapping-dir'; warn by mail, end with 'scancel'; a separate partition with a short MaxTime "
            "for interactive jobs. Slurm itself does not end idle jobs."
        ),
        kubernetes=(
            "dcgm-exporter and an alert on the mean of DCGM_FI_DEV_GPU_UTIL by pod; a controller deletes or stops the "
            "job: with Kueue by '.spec.active: false' of the Workload ('kueuectl stop workload') and not by "
            "'.spec.suspend' of the job, which Kueue sets itself; with Volcano by 'vcctl job suspend' (AbortJob)."
        ),
        yarn=(
            "Each NodeManager lists its GPUs, their utilization and their containers at "
            "'/ws/v1/node/resources/yarn.io%2Fgpu'; a script collects this and ends jobs with 'yarn application "
            "-kill'. Preemption ignores utilization."
        ),
    ),
    sources=(
        "Gao et al., An Empirical Study on Low GPU Utilization of Deep Learning Jobs (ICSE'24)",
        "Weng et al., MLaaS in the Wild (NSDI'22): GPUs that are requested but hardly used",
    ),
    tables=("jobs", "attempts"),
    needs=("gpu_count",),
    no_trial=(
        "A replay keeps each job's run time and ends no idle job early, so it cannot show the gain. At most the "
        "wasted GPU-hours are saved."
    ),
)


# Power down unused nodes.

_NODES = "SELECT count(*) AS nodes FROM node_gpus WHERE observed > 0"
_UNUSED = """
SELECT count(*) AS nodes, coalesce(sum(observed), 0) AS gpus
FROM node_gpus
WHERE observed > 0 AND node_id NOT IN (SELECT node_id FROM placements WHERE node_id IS NOT NULL)
"""
_HOURS = """
SELECT time, sum(whole_free_nodes) AS idle, sum(whole_free_gpus) AS gpus
FROM free_gpus
WHERE time <= (SELECT max(submit_time) FROM jobs)
GROUP BY time
ORDER BY time
"""
"""One row per hour, the default step of free_gpus, up to the last submission. After that no new jobs arrive, so nodes
that become empty then do not count as idle. Nodes of jobs that still run when the log ends count as used.
"""


def _find_power_down(evidence: Evidence) -> Finding:
    from tracekit.replay.assumptions.models import load_models

    tables = ("nodes", "placements", "gpu_utilization")
    free = evidence.answer(_HOURS)
    hours = free.frame
    number = int(evidence.sql(_NODES, also=tables)["nodes"][0])
    idle_always = evidence.sql(_UNUSED, also=tables)
    unused, unused_gpus = int(idle_always["nodes"][0]), float(idle_always["gpus"][0])
    if not number or hours.is_empty():
        raise LackingError("No node has a known number of GPUs.")
    used = number - unused
    sums = hours.select(
        day=pl.col("time").dt.epoch("d").cast(pl.Int64),
        idle="idle",
        nodes=pl.lit(number),
        used_idle=pl.col("idle") - unused,
        used=pl.lit(used),
    )
    gpu_hours = float(hours["gpus"].sum())
    power = load_models(None).power
    watts = [config.idle_w for config in power.configs.values()]
    kwh_per_watt = gpu_hours / len(hours) * 24 / 1000
    return Finding(
        {
            "idle_share": over_days(sums, ratio("idle", "nodes"), n=len(hours)),
            "used_idle_share": over_days(sums, ratio("used_idle", "used"), n=len(hours))
            if used
            else Number(None, len(hours)),
            "always_idle_nodes": Number(float(int(hours.select(pl.col("idle").min()).item())), len(hours)),
            "unused_nodes": Number(float(unused), number),
            "nodes": Number(float(number), number),
            "idle_kwh_per_day": Number(kwh_per_watt * power.idle_w, len(hours)),
            "used_kwh_per_day": Number(max(0.0, kwh_per_watt - unused_gpus * 24 / 1000) * power.idle_w, len(hours)),
            "idle_w": Number(float(power.idle_w), len(power.configs)),
            "least_kwh_per_day": Number(kwh_per_watt * min(watts), len(hours)),
            "most_kwh_per_day": Number(kwh_per_watt * max(watts), len(hours)),
        },
        notes=(
            *free.notes,
            (
                f"Checked every hour up to the last submission, {number:,} nodes. The energy counts only the GPUs "
                f"of entirely idle nodes, {power.idle_w:g} W each, within the range of {min(watts):g} to "
                f"{max(watts):g} W in published configurations (model M7)."
            ),
        ),
        text=_idle_text(unused=unused, used=used, idle=gpu_hours > 0),
    )


def _idle_text(*, unused: int, used: int, idle: bool) -> str:
    """Return the sentences of the finding that have something to report."""
    if not idle:
        return "No node is ever entirely idle."
    if not unused:
        return f"{_IDLE}. {_ENERGY}."
    if not used:
        return f"{_IDLE}, and no node ran a job of this log ({_WHOLE}). {_ENERGY}."
    return (
        f"{_IDLE}. Of {{nodes}}, {{unused_nodes}} ran no job of this log ({_WHOLE}), and the others are entirely "
        f"idle in {{used_idle_share}} of their hours. {_ENERGY}, {{used_kwh_per_day}} of it on nodes that ran a "
        "job."
    )


_IDLE = "Nodes are entirely idle in {idle_share} of their hours"
_WHOLE = "is the log complete?"
_ENERGY = "At {idle_w} per idle GPU, they use {idle_kwh_per_day}"


POWER_DOWN = Guideline(
    id="power-down",
    title="Power down idle nodes",
    question="How many nodes are entirely idle, and how much energy does that use?",
    measures=(
        Measure("idle_share", "share of node-hours in which no GPU of the node is allocated", "share", "hours"),
        Measure("used_idle_share", "idle share of the node-hours of nodes that ran a job of the log", "share", "hours"),
        Measure("always_idle_nodes", "nodes idle even in the busiest hour", "nodes", "hours"),
        Measure("unused_nodes", "nodes that ran no job of the log", "nodes", "nodes"),
        Measure("nodes", "nodes with GPUs", "nodes", "nodes"),
        Measure("idle_kwh_per_day", "energy of the GPUs of idle nodes", "kWh a day", "hours"),
        Measure("used_kwh_per_day", "energy of the GPUs of idle nodes that ran a job of the log", "kWh a day", "hours"),
        Measure("idle_w", "power of an idle GPU, assumed (model M7)", "W", "published configurations"),
        Measure(
            "least_kwh_per_day",
            "energy of the GPUs of idle nodes at the lowest assumed idle power",
            "kWh a day",
            "hours",
        ),
        Measure(
            "most_kwh_per_day",
            "energy of the GPUs of idle nodes at the highest assumed idle power",
            "kWh a day",
            "hours",
        ),
    ),
    thresholds=(Threshold("idle_share", "at least", 0.1, "ours; Helios (SC'21) powers nodes down by forecast"),),
    finding=f"{_IDLE}. {_ENERGY}.",
    find=_find_power_down,
    advice=(
        "Power down nodes that have been idle for some time, keep a reserve for the usual arrivals of the next "
        "hours, and wake nodes as the queue grows. Pack small jobs, so more nodes are entirely idle."
    ),
    cost="A job that needs a sleeping node waits some minutes for it to boot.",
    risk="Frequent power cycles wear the hardware, and a node may not come back; keep a minimum time in each state.",
    practice=Practice(
        slurm=(
            "Power saving: SuspendProgram, ResumeProgram, SuspendTime, SuspendTimeout, ResumeTimeout; SuspendExcNodes "
            "with a count, such as n[01-40]:4, as the reserve."
        ),
        kubernetes=(
            "Cluster Autoscaler with node groups that can shrink and a minimum size as the reserve, or Karpenter with "
            "'consolidationPolicy: WhenEmpty' and 'consolidateAfter'; both act through a cloud or machine provider. "
            "With Cluster Autoscaler Kueue's ProvisioningRequest admission check asks for the nodes of a gang at "
            "once; Volcano's binpack plugin gathers jobs."
        ),
        yarn=(
            "YARN has no power saving: a script decommissions idle NodeManagers ('yarn rmadmin -refreshNodes -g') "
            "and switches them off, and brings them back when the pending GPUs grow."
        ),
    ),
    sources=(
        "Hu et al., Characterization and Prediction of Deep Learning Workloads (Helios, SC'21): cluster energy saving",
    ),
    tables=("jobs", "attempts", "placements"),
    needs=("placement",),
    least_n=24,
    no_trial=("The simulation compares waits, not energy. 'tracekit replay -p fifo -p power-down' shows both."),
)


MEMBERS = (SHARE_GPUS, RIGHT_SIZE_GANGS, RECLAIM_IDLE, POWER_DOWN)
