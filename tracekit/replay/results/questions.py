"""The questions that replays of several policies answer, and the columns of the answers."""

from __future__ import annotations

from tracekit.answer import AnswerColumn, Question

_RULE = (
    "The same jobs, with their submissions, sizes and run times, are scheduled again on the same cluster, once under"
    " each policy; all policies are compared with the first policy of the table. Completion time is end minus"
    " submission, queue time is first start minus submission. The change is the mean over the jobs that both policies"
    " completed, divided by the mean under the first; its 95 % interval resamples whole submission days. Run times that"
    " a policy gets in advance are the actual ones, so such a policy shows the most that prediction can achieve. An"
    " effect is reported only if the mean wait under the first policy is within a factor of 1.25 of the same jobs' mean"
    " wait in the log, or within a minute of it, and jobs wait no longer under the policy than in the log."
)
_ORDER = (
    " The first policy comes first, then the policies with a mean that differs from the first policy's by at least"
    " 0.1 % in some row, then the others."
)
_C = AnswerColumn
_TOLD = "whether the log supports the change against the first policy; for the first, whether its waits match the log"
_TOLD_OF_KIND = "the same, against the first of the policies that also keep, or also ignore, the quotas"
_POLICY = _C("policy", "text", "policy and parameters, as 'tracekit replay -p' takes them")
_QUOTAS = _C(
    "quotas",
    "text",
    "kept: quotas of virtual clusters decide which jobs may run; ignored: any of them may take any free GPU",
)
_JOBS = _C("jobs", "jobs", "jobs replayed")
_MEANS = (
    _C("avg_jct_s", "s", "mean completion time"),
    _C("avg_queue_s", "s", "mean queue time: from submission to the first start"),
)

POLICIES = Question(
    name="replay/policies",
    kind="replay",
    title="Policies compared by replay",
    question="What would other policies have done to the same jobs?",
    rule=_RULE,
    columns=(
        _POLICY,
        _C("what", "sentence", "what the policy is; 'tracekit policies NAME' shows more"),
        _C("run_times", "text", "given: the policy gets the actual run times in advance; not given: it does not"),
        _MEANS[0],
        _C("jct_diff_share", "share", "change of the mean completion time against the first policy; below 0 is faster"),
        _C("jct_diff_share_low", "share", "lower end of its 95 % interval"),
        _C("jct_diff_share_high", "share", "upper end"),
        _MEANS[1],
        _C("p99_queue_s", "s", "99th percentile of queue times"),
        _C("worse_share", "share", "jobs that complete later than under the first policy"),
        _C("better_share", "share", "jobs that complete earlier than under the first policy"),
        _QUOTAS,
        _JOBS,
        _C("completed", "jobs", "jobs that ran to their end"),
        _C("median_jct_s", "s", "median completion time"),
        _C("p99_jct_s", "s", "99th percentile of completion times"),
        _C("median_queue_s", "s", "median of queue times"),
        _C("gpu_utilization_share", "share", "allocated GPU time, of all GPU time until the last end"),
        _C("fragmentation_share", "share", "free GPU time on partly used nodes, of all free GPU time"),
        _C("jain_fairness_vc", "share", "Jain's index of what virtual clusters got of their demand; 1 is equal"),
        _C("preemptions", "preemptions", "how often running jobs were stopped"),
        _C(
            "beyond_share",
            "share",
            "for the recorded schedule: allocated GPU time beyond the GPUs of the cluster, of all allocated GPU time",
        ),
        _C("effect_told", "true or false", _TOLD),
        _C("effect_reason", "sentence", "why the log does not support the change"),
        _C("recorded_jobs", "jobs", "jobs that both this and the first policy completed and whose wait is recorded"),
        _C("recorded_queue_s", "s", "mean queue time of these jobs in the log"),
        _C("baseline_queue_s", "s", "mean queue time of these jobs under the first policy"),
        _C("policy_queue_s", "s", "mean queue time of these jobs under this policy"),
        _C("recorded_jct_s", "s", "mean completion time in the log of those of these jobs whose end is recorded"),
    ),
    paper="Helios Table 3 and Fig 9 (SC'21)",
)
CLASSES = Question(
    name="replay/by_gpu_class",
    kind="replay",
    title="Policies by size of job",
    question="Which job sizes would gain under another policy, and which would lose?",
    rule=_RULE + _ORDER,
    columns=(
        _POLICY,
        _C("gpu_class", "class", "size class of the job"),
        _JOBS,
        *_MEANS,
        _C("p95_queue_s", "s", "95th percentile of queue times"),
        _C("effect_told", "true or false", _TOLD),
    ),
)
TENANTS = Question(
    name="replay/by_vc",
    kind="replay",
    title="Policies by virtual cluster",
    question="Would some virtual clusters lose so that others gain?",
    rule=_RULE + _ORDER,
    columns=(
        _C("vc", "text", "virtual cluster; empty for jobs without one"),
        _POLICY,
        _QUOTAS,
        _JOBS,
        *_MEANS,
        _C("effect_told", "true or false", _TOLD_OF_KIND),
    ),
)
ASSUMED = Question(
    name="replay/assumptions",
    kind="replay",
    title="Assumptions of the replays",
    question="What do the replays assume that the log does not record?",
    rule="Each assumption that a replayed policy used, with its value and source; '--models FILE' of 'tracekit replay'"
    " changes them.",
    columns=(
        _C("what", "sentence", "what is assumed"),
        _C("value", "sentence", "the value used"),
        _C("source", "sentence", "where it comes from"),
        _C("policies", "sentence", "the policies that use this value"),
        _C("id", "text", "name of the assumption, as 'tracekit policies' lists it"),
    ),
)
REPLAYED = (POLICIES, CLASSES, TENANTS, ASSUMED)
"""The questions, in reading order."""
