"""Rules for Alibaba PAI (NSDI'22) and the GPU-sharing cluster openb (ATC'23)."""

from __future__ import annotations

from tools.publishing.rules import GPU_JOBS, Rule, Skip

_TASKS = "unit=task"
_JOBS = "unit!=task"
_TASK_TIMES = (
    "Run time is the mean over a task's instances, the wait runs to its first instance; "
    "here a run lasts from the first start to the last end."
)
_INSTANCES = "Of instances; here of jobs."
_INSTANCE = "rule=instance"

PAI_NOTES = {
    "tables|status|machine_spec": "",
    "summary_csv": "Tasks with GPUs, as the Acme study joined them.",
    "fig3a": "Tasks with GPUs, as the Acme study joined them: the GPUs of one instance of a task.",
}

PAI_RULES = (
    Rule("scale", "users", "overview/summary", "value", "metric=users"),
    Rule("tables", "rows", "overview/summary", "value", "metric=jobs", only="pai_job_table", options=_JOBS),
    Rule("tables", "rows", "overview/summary", "value", "metric=jobs", only="pai_task_table", options=_TASKS),
    Rule("tables", "rows", "overview/summary", "value", "metric=nodes", only="pai_machine_spec"),
    Rule("tables", "gpu_tasks", "overview/summary", "value", "metric=gpu_jobs", options=_TASKS),
    Rule("machine_spec", "nodes", "overview/summary", "value", "metric=nodes", only="=all$"),
    Rule("machine_spec", "gpus", "overview/summary", "value", "metric=gpus_listed", only="=all$"),
    Rule("status", "status_share_jobs", "overview/status", "jobs_share", "status={status}", options=_JOBS),
    Rule("status", "jobs", "overview/status", "jobs", "status={status}", options=_JOBS, only="^status=[A-Z][a-z]+$"),
    Rule("status", "tasks", "overview/status", "jobs", "status={status}", options=_TASKS),
    Rule(
        "status",
        "failed_share_tasks",
        "failures/status_by_size",
        "jobs",
        "{jobs};status=failed",
        "share",
        "{jobs}",
        options=_TASKS,
    ),
    Rule(
        "summary_csv",
        "avg_task_runtime",
        "queuing/run_time",
        "mean_s",
        GPU_JOBS,
        "mean",
        weight="jobs",
        options=_TASKS,
        note=_TASK_TIMES,
    ),
    Rule(
        "summary_csv",
        "max_task_runtime",
        "queuing/run_time",
        "max_s",
        GPU_JOBS,
        "max",
        options=_TASKS,
        note=_TASK_TIMES,
    ),
    Rule(
        "summary_csv",
        "avg_task_wait",
        "queuing/queue_delay",
        "mean_s",
        GPU_JOBS,
        "mean",
        weight="waits",
        options=_TASKS,
        note=_TASK_TIMES,
    ),
    Rule(
        "summary_csv",
        "avg_gpus_per_task|avg_gpu_num",
        "workload/gpu_request",
        "gpu_count",
        "gpu_count>0",
        "mean",
        weight="jobs",
        params=_INSTANCE,
        options=_TASKS,
    ),
    Rule(
        "summary_csv",
        "max_gpus_per_task_row|max_gpu",
        "workload/gpu_request",
        "gpu_count",
        "gpu_count>0",
        "max",
        params=_INSTANCE,
        options=_TASKS,
    ),
    Rule(
        "fig3a",
        "gpu_count_cdf_jobs",
        "workload/gpu_request",
        "jobs",
        "gpu_count>0;gpu_count<={gpus_upto}",
        "share",
        "gpu_count>0",
        params=_INSTANCE,
        options=_TASKS,
    ),
    Rule("paper", "median_runtime", "overview/summary", "value", "metric=median_run_s", note=_INSTANCES),
    Rule(
        "paper",
        "gang_scheduled_instances",
        "workload/gangs",
        "instance_count",
        "instance_count>1",
        "share",
        "instance_count>0",
        weight="jobs",
        options=_TASKS,
        note="Planned instances of tasks.",
    ),
    Rule(
        "fig2b",
        "instances_in_tasks_with_at_least",
        "workload/gangs",
        "instance_count",
        "instance_count>={inst_num_from}",
        "share",
        "instance_count>0",
        weight="jobs",
        options=_TASKS,
    ),
    Rule(
        "paper",
        "recurrent_tasks",
        "workload/recurrence",
        "jobs",
        "jobs>=5",
        "share",
        "jobs>=1",
        note="Of tasks; here of jobs whose group is known.",
    ),
)

PAI_SKIPS = (
    Skip("scale|table2", "nodes|gpus|tasks|instances|period|jobs|total_gpus", "another number, rounded or repeated"),
    Skip("paper", ".*(sjf|reserve|saved|prediction|slowdown).*", "the outcome of a replay or of a model"),
    Skip("simulator", ".*", "the outcome of a replay or of a model"),
    Skip("fig3b", ".*", "GPU time of one instance, where the query sums that of all"),
    Skip("summary_csv|table2", ".*", "a median over several groups, or another number, rounded or repeated"),
    Skip("machine_spec|paper|fig5", ".*gpu_type.*|nodes|gpus|cpu_cores|node_shape|gpus_per_node", "by GPU model"),
    Skip(".*", "(CDF|.*cdf).*", "a share below a limit, where the query gives percentiles"),
)

_RUNNING = "Running means that a pod ran until its deletion: unknown here, or running where the trace ends."

OPENB_NOTES = {
    "pods|table1|times": "The default pod list.",
    "nodes|readme": "",
}

OPENB_RULES = (
    Rule("readme", "pods", "overview/summary", "value", "metric=jobs"),
    Rule("nodes", "nodes", "overview/summary", "value", "metric=nodes", only="=all$"),
    Rule("nodes", "gpus", "overview/summary", "value", "metric=gpus_listed", only="=all$"),
    Rule("readme", "nodes", "overview/summary", "value", "metric=nodes"),
    Rule("readme", "gpus", "overview/summary", "value", "metric=gpus_listed"),
    Rule("table1", "pods", "overview/job_size", "jobs", "gpu_class={gpu_class}"),
    Rule("table1", "pods", "workload/gpu_request", "jobs", "gpu_count={gpu_request}", only=r"gpu_request=[248]$"),
    Rule("table1", "pod_share", "overview/job_size", "jobs_share", "gpu_class={gpu_class}"),
    Rule(
        "table1",
        "pod_share",
        "workload/gpu_request",
        "jobs_share",
        "gpu_count={gpu_request}",
        only=r"gpu_request=[248]$",
    ),
    Rule(
        "table1",
        "gpu_request_share",
        "workload/gpu_request",
        "gpu_count",
        "{gpu_counts}",
        "share",
        "gpu_count>=0",
        weight="jobs",
        note="Share of the GPUs asked for.",
    ),
    Rule("pods", "pods", "overview/status", "jobs", "status={status}", only=r"^pod_phase=\w+$", note=_RUNNING),
    Rule(
        "pods", "pod_share", "overview/status", "jobs_share", "status={status}", only=r"^pod_phase=\w+$", note=_RUNNING
    ),
    Rule("pods", "scheduling_wait", "overview/summary", "value", "metric=mean_queue_s", only="stat=mean"),
    Rule("pods", "scheduling_wait", "overview/summary", "value", "metric=median_queue_s", only="stat=median"),
    Rule(
        "pods",
        "lifetime",
        "overview/summary",
        "value",
        "metric=mean_run_s",
        only="stat=mean",
        note="Pods cut by the end of the trace count with their time so far; here they have no run time.",
    ),
    Rule(
        "pods",
        "lifetime",
        "overview/summary",
        "value",
        "metric=median_run_s",
        only="stat=median",
        note="Pods cut by the end of the trace count with their time so far; here they have no run time.",
    ),
    Rule(
        "times",
        "gpu_hours_in_default_list",
        "overview/summary",
        "value",
        "metric=gpu_hours",
        note="Pods cut by the end of the trace count with their time so far; here they add nothing.",
    ),
)

OPENB_SKIPS = (
    Skip("fgd_.*", ".*", "the outcome of a replay or of a model"),
    Skip("pod_list_variants", ".*", "of a pod list that is not read by default"),
    Skip("nodes|pods|fig10", ".*", "by GPU model, by quality of service, or a share that no query has"),
)
