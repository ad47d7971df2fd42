"""Rules for Helios (SC'21) and Acme (NSDI'24), which are similar studies of Slurm clusters by related authors."""

from __future__ import annotations

from tools.publishing.rules import GPU_JOBS, UNSUCCESSFUL, Rule, Skip

_FAILED = "TIMEOUT and NODE_FAIL count as failed."
_ENDS = {"complete": "completed", "cancel": "cancelled", "fail": UNSUCCESSFUL}
_REPLAYS = "the outcome of a replay, of another query's kind or of a forecast"
_SPREAD = "The spread between clusters; here all clusters together."
_BELOW = "a share below a limit, where the query gives percentiles"
_ROUNDED = "another number, rounded or repeated"


def _rates() -> tuple[Rule, ...]:
    """Return the rules for rates and GPU times by job outcome in the summary files."""
    rules: list[Rule] = []
    for word, status in _ENDS.items():
        ends = f"status={status}"
        note = _FAILED if word == "fail" else ""
        rules += [
            Rule("summary_csv", f"{word}_rate", "overview/status", "jobs_share", ends, "sum", note=note),
            Rule("summary_csv", f"{word}_gpu_time", "overview/status", "gpu_hours", ends, "sum", note=note),
            Rule("summary_csv", f"{word}_rate_gpu_time", "overview/status", "gpu_hours_share", ends, "sum", note=note),
            *(
                Rule(
                    "summary_csv",
                    f"{word}_rate_{kind}",
                    "failures/status_by_size",
                    "jobs",
                    f"{of};{ends}",
                    "share",
                    of,
                    note=note,
                )
                for kind, of in (("gpu", GPU_JOBS), ("cpu", "gpu_class=0"))
            ),
        ]
    return tuple(rules)


def _top_users(artefact: str, metric: str, column: str) -> tuple[Rule, ...]:
    """Return the rules for the shares of each cluster's heaviest users, and of its single heaviest user."""
    query, cluster = "users/concentration", "cluster={cluster}"
    share = "user_share<={user_share}"
    return (
        Rule(artefact, metric, query, column, share, "max", params=cluster, cluster="*", only="top_users_pct="),
        Rule(artefact, metric, query, column, "user_share>0", "min", params=cluster, cluster="*", only="top_user="),
    )


_BOTH = (
    *_rates(),
    Rule("summary_csv", "job_num", "overview/summary", "value", "metric=jobs"),
    Rule("summary_csv", "gpu_job_num", "overview/summary", "value", "metric=gpu_jobs"),
    Rule("summary_csv", "cpu_job_num", "overview/summary", "value", "metric=cpu_jobs"),
    Rule("summary_csv", "gpu_job_share", "workload/gpu_request", "jobs", "gpu_count>0", "share", "gpu_count>=0"),
    Rule("summary_csv", "avg_run_time_gpu", "queuing/run_time", "mean_s", GPU_JOBS, "mean", weight="jobs"),
    Rule("summary_csv", "max_run_time_gpu", "queuing/run_time", "max_s", GPU_JOBS, "max"),
    Rule("summary_csv", "avg_run_time_cpu", "queuing/run_time", "mean_s", "gpu_class=0"),
    Rule("summary_csv", "med_run_time_cpu", "queuing/run_time", "p50_s", "gpu_class=0"),
    Rule("summary_csv", "avg_que_time_gpu", "queuing/queue_delay", "mean_s", GPU_JOBS, "mean", weight="waits"),
    Rule("summary_csv", "avg_que_time_cpu", "queuing/queue_delay", "mean_s", "gpu_class=0", "mean", weight="waits"),
    Rule("summary_csv", "avg_gpu_num", "workload/gpu_request", "gpu_count", "gpu_count>0", "mean", weight="jobs"),
    Rule("summary_csv", "max_gpu", "workload/gpu_request", "gpu_count", "gpu_count>0", "max"),
    Rule(
        "fig[36]a",
        "gpu_count_cdf_jobs",
        "workload/gpu_request",
        "jobs",
        "gpu_count>0;gpu_count<={gpus_upto}",
        "share",
        "gpu_count>0",
    ),
    Rule(
        "fig[36]b",
        "gpu_count_cdf_gpu_time",
        "workload/gpu_request",
        "gpu_hours_share",
        "gpu_count>0;gpu_count<={gpus_upto}",
        "share",
        "gpu_count>0",
    ),
    Rule(
        "fig(7a|17a)", "status_share.*", "failures/status_by_size", "jobs", "{jobs};status={status}", "share", "{jobs}"
    ),
    Rule("fig1b|fig17b", ".*gpu_time.*", "overview/status", "gpu_hours_share", "status={status}", "sum"),
)

HELIOS_NOTES = {
    "table1": "State of 1 September 2020; gpus_listed is the largest quota total of any day.",
    "fig1b": _FAILED,
    "fig7a": _FAILED,
    "fig7b": "All four clusters; " + _FAILED,
    "fig6[ab]": "GPU jobs only.",
    "fig8[ab]": "Users of one cluster; read off a curve, here the largest whole number of users within the share.",
    "fig2a": "GPUs held by jobs / quota of the day, minute by minute, whole six months.",
    "fig2b": "GPU jobs, over the 181 days from 1 April to 28 September; the last submissions are of the 27th.",
}

HELIOS_RULES = (
    Rule("readme", "jobs_total", "overview/summary", "value", "metric=jobs"),
    Rule("readme", "gpu_jobs_total", "overview/summary", "value", "metric=gpu_jobs"),
    Rule("readme", "clusters", "overview/summary", "value", "metric=clusters"),
    Rule("table1", "virtual_clusters", "overview/summary", "value", "metric=vcs"),
    Rule("table1", "gpus", "overview/summary", "value", "metric=gpus_listed"),
    Rule("table2", "avg_gpus_per_job", "workload/gpu_request", "gpu_count", "gpu_count>0", "mean", weight="jobs"),
    Rule("table2", "avg_gpu_job_duration", "queuing/run_time", "mean_s", GPU_JOBS, "mean", weight="jobs"),
    Rule("table2", "max_gpus", "workload/gpu_request", "gpu_count", "gpu_count>0", "max"),
    Rule("table2", "max_duration", "queuing/run_time", "max_s", GPU_JOBS, "max"),
    Rule(
        "fig2a",
        "hourly_utilization",
        "utilization/cluster_by_hour",
        "allocated_share",
        "cluster={cluster};hour={hour}",
        cluster="*",
    ),
    Rule(
        "fig2a",
        "mean_utilization",
        "utilization/cluster_by_hour",
        "allocated_share",
        "cluster={cluster}",
        "mean",
        cluster="*",
    ),
    Rule(
        "fig2b",
        "hourly_gpu_job_submissions",
        "utilization/cluster_by_hour",
        "submitted_gpu_jobs",
        "cluster={cluster};hour={hour}",
        cluster="*",
    ),
    Rule("summary_csv", "gpu_time_share", "overview/status", "gpu_hours_share", "status={status}", "sum"),
    Rule(
        "fig7b",
        "status_share_by_gpus",
        "failures/status_by_size",
        "jobs",
        "gpu_class=1;status={status}",
        "share",
        "gpu_class=1",
        only="^gpus=1;",
    ),
    *_top_users("fig8a", "top_user_share_gpu_time", "gpu_time_share"),
    *_top_users("fig8b", "top_user_share_cpu_time", "cpu_time_share"),
    Rule("text", "single_gpu_gpu_time_share", "overview/job_size", "gpu_hours_share", "gpu_class=1", note=_SPREAD),
    Rule(
        "text",
        "jobs_ge_8_gpus_share",
        "workload/gpu_request",
        "jobs",
        "gpu_count>0;gpu_count>=8",
        "share",
        "gpu_count>0",
        note="GPU jobs only.",
    ),
    Rule(
        "text",
        "jobs_ge_8_gpus_gpu_time_share",
        "workload/gpu_request",
        "gpu_hours_share",
        "gpu_count>0;gpu_count>=8",
        "share",
        "gpu_count>0",
    ),
    Rule(
        "text",
        "unsuccessful_share",
        "failures/status_by_size",
        "jobs",
        "{jobs};status=cancelled|" + UNSUCCESSFUL,
        "share",
        "{jobs}",
        note="Failed and cancelled together.",
    ),
    Rule(
        "text",
        "single_gpu_job_share",
        "workload/gpu_request",
        "jobs",
        "gpu_count>0;gpu_count<=1",
        "share",
        "gpu_count>0",
        note="Of each cluster; GPU jobs only.",
    ),
    Rule(
        "text",
        "top5pct_users_gpu_time",
        "users/concentration",
        "gpu_time_share",
        "user_share<=0.05",
        "max",
        note=_SPREAD,
    ),
    Rule(
        "text",
        "top5pct_users_cpu_time",
        "users/concentration",
        "cpu_time_share",
        "user_share<=0.05",
        "max",
        note=_SPREAD,
    ),
    *_BOTH,
)

HELIOS_SKIPS = (
    Skip("table[345]|replication|vc_sequence|quota", ".*", _REPLAYS),
    Skip("text", "(qssf|vanilla|ces|forecast|annual|avg_|median_gpu|monthly).*", _REPLAYS),
    Skip("table[12]", "jobs.*|gpu_jobs|cpu_jobs|total_gpus|clusters|virtual_clusters", _ROUNDED),
    Skip("summary_csv", "med_.*", "a median over several groups of the query"),
    Skip(".*", "(CDF|.*_cdf).*|.*under.*|cpu_jobs_1s", _BELOW),
    Skip(
        "fig[34]|text",
        ".*month.*|.*gpu_job.*sub.*|gpu_jobs_submitted|avg_gpus_per_job",
        "one month or one cluster at a time",
    ),
    Skip("fig7b", ".*", "the query has size classes, the figure exact numbers of GPUs"),
    Skip("readme|table[12]", ".*", "about the files or the machines"),
)

ACME_NOTES = {
    "readme": "The README and the summary file of the release disagree about the number of jobs.",
    "fig17[ab]": "GPU jobs only. " + _FAILED,
    "fig3[ab]": "GPU jobs only.",
}

ACME_RULES = (
    Rule("readme", "jobs_total", "overview/summary", "value", "metric=jobs"),
    Rule("readme", "gpu_jobs_total", "overview/summary", "value", "metric=gpu_jobs"),
    Rule("readme", "clusters", "overview/summary", "value", "metric=clusters"),
    Rule("table2", "avg_gpus_per_job", "workload/gpu_request", "gpu_count", "gpu_count>0", "mean", weight="jobs"),
    Rule("text", "jobs_over_8_gpus", "workload/gpu_request", "jobs", "gpu_count>0;gpu_count>8", "share", "gpu_count>0"),
    Rule("text", "single_gpu_gpu_time_share", "overview/job_size", "gpu_hours_share", "gpu_class=1"),
    Rule(
        "text",
        "gpu_time_share_ge_256_gpus",
        "workload/gpu_request",
        "gpu_hours_share",
        "gpu_count>0;gpu_count>=256",
        "share",
        "gpu_count>0",
    ),
    Rule(
        "text",
        "failed_job_share",
        "failures/status_by_size",
        "jobs",
        f"{GPU_JOBS};status={UNSUCCESSFUL}",
        "share",
        GPU_JOBS,
    ),
    Rule("text", "completed_gpu_time_share", "overview/status", "gpu_hours_share", "status=completed", note=_SPREAD),
    *_BOTH,
)

ACME_SKIPS = (
    Skip("table2", ".*", _ROUNDED),
    Skip("summary_csv", "med_.*", "a median over several groups of the query"),
    Skip("table3", ".*", "needs the job logs, which the release lacks"),
    Skip("fig4.*|fig6.*", ".*", "by type of workload, which no query has"),
    Skip("fig(7|8|9|18).*|fig2b", ".*", "needs telemetry that is not part of the job trace"),
    Skip(".*", "(CDF|.*_cdf).*", _BELOW),
    Skip("readme|table1", ".*", "about the files or the machines"),
)
