"""Rules for Philly: the ATC'19 paper, the release and its notebook, and later studies of the release."""

from __future__ import annotations

from tools.publishing.rules import GPU_JOBS, Rule, Skip

NOTES = {
    r"Table [356]|Sec .*|later comparison": (
        "The paper looks at 96,260 jobs of 75 days; the release holds 117,325 jobs submitted over 137 days."
    ),
    r"Table 7": (
        "Failed attempts of the paper's 75 days, by its own classifier; the release has no job logs, so only a "
        "Trace with logs of its own is measured."
    ),
    r"Weng2022.*": "Quoted by another study; it does not say which jobs of the release.",
    r"Helios Fig 1b": "The release cut to the paper's period (dates not given); run time, gaps included, times GPUs.",
    r"table2|text": "Submissions of October to December 2017 (103,467 jobs), as the Helios study chose them.",
    r"Acme summary": "112,956 rows of the release; whether a row is a job or an attempt is not documented.",
    r"fig3[ab]": "The release as the Acme study prepared it, 112,956 rows.",
    r".*\(Fig 2\)": "Whole release, jobs with a known first start and last end.",
    r".*\(Fig 3\)": "Whole release, times as they stand (times=naive): across the clock change waits are an hour off.",
    r".*\(Fig 4\)": "Whole release, first attempts.",
    r".*\(Fig [56]\)": "Telemetry of October to December 2017 only; samples pooled over attempts with start and end.",
    r".*\(Fig 7\)": "All servers and minutes, whether or not a job runs there.",
}
"""Known population mismatches, by artefact."""

_GAPS = "gpu_time=with_gaps"
_UTILIZATION = "utilization/gpu_by_size_status"

RULES = (
    Rule("README", "jobs in released trace", "overview/summary", "value", "metric=jobs"),
    Rule("Table 6", "jobs", "overview/summary", "value", "metric=jobs", only="status=all"),
    Rule("Table 6", "jobs", "overview/status", "jobs", "status={status}"),
    Rule("Table 6", "jobs share", "overview/status", "jobs_share", "status={status}"),
    Rule(
        "Table 6",
        "GPU time share",
        "overview/status",
        "gpu_hours_share",
        "status={status}",
        note="Whether gaps between attempts count is not stated.",
    ),
    Rule(
        "Table 3",
        "mean GPU utilization",
        _UTILIZATION,
        "mean_pct",
        aggregate="mean",
        weight="samples",
        only="size=all",
        note="Whether sizes other than 1, 4, 8 and 16 GPUs count is not known; here every size does.",
    ),
    Rule("Table 3", "mean GPU utilization", _UTILIZATION, "mean_pct", "gpu_count={count}", "mean", weight="samples"),
    Rule(
        "Table 5",
        "GPU utilization mean",
        "locality/utilization_by_spread",
        "mean_pct",
        "gpu_count=16;node_count={servers}",
    ),
    Rule(
        "Table 5",
        "GPU utilization p50",
        "locality/utilization_by_spread",
        "p50_pct",
        "gpu_count=16;node_count={servers}",
    ),
    Rule("Weng2022.*", "job run time median", "overview/summary", "value", "metric=median_run_s"),
    Rule("later comparison", "share of jobs using one GPU", "overview/job_size", "jobs_share", "gpu_class=1"),
    Rule("released trace", "virtual clusters", "overview/summary", "value", "metric=vcs"),
    Rule("released trace", "servers in machine list", "overview/summary", "value", "metric=nodes", only="^$"),
    Rule(
        "released trace",
        "GPUs",
        "overview/summary",
        "value",
        "metric=gpus_listed",
        only="machine list",
    ),
    Rule(
        "released trace",
        "GPUs",
        "overview/summary",
        "value",
        "metric=gpus_observed",
        only="utilization columns",
        note="Telemetry alone; gpus_observed takes the most that list, jobs and telemetry show.",
    ),
    Rule("Helios Fig 1b", "GPU time share", "overview/status", "gpu_hours_share", "status={status}", params=_GAPS),
    Rule("Acme summary", r"jobs \(rows\)", "overview/summary", "value", "metric=jobs"),
    Rule("Acme summary", "mean run time", "overview/summary", "value", "metric=mean_run_s"),
    Rule("Acme summary", "median run time", "overview/summary", "value", "metric=median_run_s"),
    Rule("Acme summary", "mean queueing delay", "overview/summary", "value", "metric=mean_queue_s"),
    Rule("Acme summary", "median queueing delay", "overview/summary", "value", "metric=median_queue_s"),
    Rule("Acme summary", "max run time", "queuing/run_time", "max_s", GPU_JOBS, "max"),
    Rule(
        "Acme summary", "mean GPUs per job", "workload/gpu_request", "gpu_count", "gpu_count>0", "mean", weight="jobs"
    ),
    Rule("Acme summary", "max GPUs per job", "workload/gpu_request", "gpu_count", "gpu_count>0", "max"),
    Rule("Acme summary", "row share", "overview/status", "jobs_share", "status={status}"),
    Rule("Acme summary", "GPU time share", "overview/status", "gpu_hours_share", "status={status}"),
    Rule(
        r".*\(Fig 2\)", r"run time percentile (25|50|75|90)", "queuing/run_time", "p{percentile}_s", "gpu_class={class}"
    ),
    Rule(
        r".*\(Fig 3\)",
        r"queueing delay percentile (50|90)",
        "queuing/queue_delay",
        "p{percentile}_s",
        "vc={vc};gpu_class={class}",
        params="rule=notebook",
    ),
    Rule(
        r".*\(Fig 4\)",
        "largest number of servers in first attempt",
        "locality/delay_by_spread",
        "node_count",
        "gpu_class={class}",
        "max",
    ),
    Rule(r".*\(Fig 5\)", "GPU utilization median", _UTILIZATION, "p50_pct", "gpu_count={count};status={status}"),
    Rule(r".*\(Fig 5\)", "GPU utilization mean", _UTILIZATION, "mean_pct", "gpu_count={count};status={status}"),
    Rule(
        r".*\(Fig 6\)",
        "GPU utilization median on dedicated servers",
        "utilization/dedicated",
        "p50_pct",
        "gpu_count={count}",
        params="rule=notebook",
    ),
    Rule(
        r".*\(Fig 6\)",
        "GPU utilization mean on dedicated servers",
        "utilization/dedicated",
        "mean_pct",
        "gpu_count={count}",
        params="rule=notebook",
    ),
    Rule(
        r".*\(Fig 7\)",
        r"host CPU utilization percentile (50|90)",
        "utilization/host",
        "p{percentile}_pct",
        "resource=cpu",
    ),
    Rule(
        r".*\(Fig 7\)",
        r"host memory utilization percentile 50",
        "utilization/host",
        "p{percentile}_pct",
        "resource=memory",
    ),
    Rule("Table 7", "failure trials", "failures/reasons", "trials", "trials>0", "sum", only="=all$"),
    Rule("Table 7", "failure trials", "failures/reasons", "trials", "reason={reason}"),
    Rule("Table 7", "failure trials share", "failures/reasons", "trials", "reason={reason}", "share", "trials>0"),
    Rule(
        "Table 7",
        "No signature share of failures",
        "failures/reasons",
        "trials",
        "reason=no_signature",
        "share",
        "trials>0",
    ),
    Rule("Table 7", "share of total RTF x GPU demand", "failures/reasons", "rtf_demand_share", "reason={reason}"),
    Rule("Table 7", r"RTF percentile (95)", "failures/reasons", "rtf_p{percentile}_s", "reason={reason}"),
    # From the Helios and Acme studies.
    Rule("table2", "virtual_clusters", "overview/summary", "value", "metric=vcs"),
    Rule("table2", "jobs", "overview/summary", "value", "metric=jobs", only="^all$"),
    Rule(
        "table2",
        "avg_gpus_per_job",
        "workload/gpu_request",
        "gpu_count",
        "gpu_count>0",
        "mean",
        weight="jobs",
        only="^all$",
    ),
    Rule("table2", "avg_gpu_job_duration", "queuing/run_time", "mean_s", GPU_JOBS, "mean", weight="jobs"),
    Rule("table2", "max_gpus", "workload/gpu_request", "gpu_count", "gpu_count>0", "max"),
    Rule("table2", "max_duration", "queuing/run_time", "max_s", GPU_JOBS, "max"),
    Rule(
        "fig3a",
        "gpu_count_cdf_jobs",
        "workload/gpu_request",
        "jobs",
        "gpu_count>0;gpu_count<={gpus_upto}",
        "share",
        "gpu_count>0",
    ),
    Rule(
        "fig3b",
        "gpu_count_cdf_gpu_time",
        "workload/gpu_request",
        "gpu_hours_share",
        "gpu_count>0;gpu_count<={gpus_upto}",
        "share",
        "gpu_count>0",
    ),
)

SKIPS = (
    Skip("Table 7|Sec 4.2", ".*", "not a column of the query about reasons"),
    Skip("Table 4", ".*", "a controlled experiment, not the log"),
    Skip(
        "Sec [12]|Acme summary|table2",
        ".*rounded.*|jobs analysed|cpu_jobs|gpu_jobs|jobs|avg_gpus_per_job|total_gpus|median GPUs per job",
        "another number, rounded or repeated",
    ),
    Skip("summary_csv|fig1b|philly_compare", ".*", "another number, rounded or repeated"),
    Skip("table[345]|qssf_notebook|text|ces_data", ".*", "the outcome of a replay or of a simulator's set-up"),
    Skip(".*", "(CDF|.*_cdf).*", "a share below a limit, where the query gives percentiles"),
    Skip(
        "README|released trace",
        ".*(file|size|lines|timestamp|date|minute|interval|columns per row|compressed).*",
        "about the files",
    ),
)
