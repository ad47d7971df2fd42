"""Power down unused nodes."""

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
)
from tracekit.guidelines.intervals import over_days, ratio

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
"""Every hour, the default step of free_gpus, up to the last submission: after it the log has no new jobs, and nodes
that run empty then do not count as idle. Nodes of jobs that still run when the log ends count as used."""


def _find(evidence: Evidence) -> Finding:
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
        text=_text(unused=unused, used=used, idle=gpu_hours > 0),
    )


def _text(*, unused: int, used: int, idle: bool) -> str:
    """Return the sentences of the finding, without those that have nothing to report."""
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


GUIDELINE = Guideline(
    id="power-down",
    title="Power down idle nodes",
    question="How many nodes are entirely idle, and how much energy does that use?",
    measures=(
        Measure("idle_share", "share of node-hours in which no GPU of the node is allocated", "share", "hours"),
        Measure("used_idle_share", "the same for the nodes that ran a job of the log", "share", "hours"),
        Measure("always_idle_nodes", "nodes idle at the busiest hour", "nodes", "hours"),
        Measure("unused_nodes", "nodes that ran no job of the log", "nodes", "nodes"),
        Measure("nodes", "nodes with GPUs", "nodes", "nodes"),
        Measure("idle_kwh_per_day", "energy of the GPUs of idle nodes", "kWh a day", "hours"),
        Measure("used_kwh_per_day", "of this, energy on nodes that ran a job of the log", "kWh a day", "hours"),
        Measure("idle_w", "power of an idle GPU, assumed (model M7)", "W", "published configurations"),
        Measure("least_kwh_per_day", "the same energy with the lowest assumed idle power", "kWh a day", "hours"),
        Measure("most_kwh_per_day", "the same energy with the highest assumed idle power", "kWh a day", "hours"),
    ),
    thresholds=(Threshold("idle_share", "at least", 0.1, "ours; Helios (SC'21) powers nodes down by forecast"),),
    finding=f"{_IDLE}. {_ENERGY}.",
    find=_find,
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
