"""The questions answered with the twins of a log, and the columns of the answers."""

from __future__ import annotations

from tracekit.answer import AnswerColumn, Question

_C = AnswerColumn
_CLUSTER = _C("cluster", "text", "the cluster; 'all' if the log names no clusters")

TWINS = Question(
    name="replay/twins",
    kind="replay",
    title="The twin of the log",
    question="Which scheduler does the log behave like, and can a replay of it be trusted?",
    rule=(
        "The twin of a cluster is the replay that best reproduces its log. Order, backfilling, quotas, limits,"
        " placement, capacity and start-up delays are tried on the first part of the log. The best is scored on the"
        " last part, which was held out. The grade is close if the ratio of the mean waits is within 1.1, three"
        " quarters of the waits agree (within 5 min or 25 %) and at most 15 % of the waiting hours are unexplained."
        " The limits are 1.25, half and 35 % for fair, and 1.6, a quarter and 60 % for rough. Otherwise, the grade is"
        " poor. Effects of changes are reported only for twins graded close or fair."
    ),
    columns=(
        _CLUSTER,
        _C("waiting_share", "share", "the cluster's share of the waiting hours in all clusters"),
        _C("rules", "sentence", "the rules that the log's scheduler seems to follow"),
        _C("grade", "class", "how well the twin reproduces the log: close, fair, rough or poor"),
        _C("effects_told", "true or false", "whether effects of changes are reported for this twin"),
        _C("scored_jobs", "jobs", "jobs of the held-out last part, which are scored"),
        _C("recorded_mean_s", "s", "mean wait of these jobs in the log: first start minus submission"),
        _C("twin_mean_s", "s", "mean wait of these jobs in the twin"),
        _C("ratio_low", "ratio", "lower end of the 95 % interval of the twin's mean over the log's"),
        _C("ratio_high", "ratio", "upper end"),
        _C("agreeing_share", "share", "share of these jobs whose waits agree"),
        _C("unexplained_share", "share", "share of the waiting hours in excess of the jobs' waits in the twin"),
        _C("rank_correlation", "ratio", "Spearman's correlation of the two waits"),
        _C("queue_correlation", "ratio", "correlation of the GPUs that waiting jobs request, hour by hour"),
        _C("jobs", "jobs", "jobs replayed"),
        _C("gpus", "GPUs", "GPUs of the twin"),
        _C("gpus_from", "sentence", "where the number of GPUs comes from"),
        _C("why_not", "sentence", "why there is no twin, or why it supports no effects"),
        _C("since", "time", "time from which jobs are used, because the rules changed; unknown if all jobs are used"),
        _C("rules_before", "sentence", "the rules before that time"),
        _C("missing_reasons", "sentence", "largest reasons for waits in the log that the twin does not include"),
        _C("missing_share", "share", "share of the waiting hours for all such reasons; unknown if the log has none"),
    ),
)
QUEUE = Question(
    name="replay/twin_queue",
    kind="replay",
    title="The queue, recorded and in the twin",
    question="Does the queue in the twin grow and shrink as it did in the log?",
    rule="GPUs that waiting jobs request at evenly spaced instants in the last part of the log.",
    columns=(
        _CLUSTER,
        _C("time", "time", "instant"),
        _C("recorded_gpus", "GPUs", "GPUs that waiting jobs requested in the log"),
        _C("twin_gpus", "GPUs", "GPUs that waiting jobs request in the twin"),
    ),
)
_OF = "over jobs that start (end) in the log, in the twin and with the policy"
EFFECTS = Question(
    name="replay/effects",
    kind="replay",
    title="How other policies would change the recorded waits",
    question="How would waits and completion times with other policies compare with the recorded ones?",
    rule=(
        "The effect of a policy is measured in the twin (mean with the policy instead of the twin's order / mean in the"
        " twin) and applied to the recorded mean. Its 95 % interval combines resampled submission days"
        " with the twin's error on jobs held out from the calibration. There is no row for a cluster whose"
        " twin supports no effects, or if the policy would also lift a limit that applies in the log. If jobs are"
        " preempted, compare completion times: waits after a preemption are not part of the wait until the first start."
    ),
    columns=(
        _CLUSTER,
        _C("policy", "text", "policy and parameters, as 'tracekit replay -p' accepts them"),
        _C("what", "sentence", "description of the policy"),
        _C("run_times", "text", "given: the policy knows the true run times in advance; not given: it does not"),
        _C("verdict", "class", "change of the completion time: shorter, longer, none, or undecided"),
        _C("recorded_queue_s", "s", f"recorded mean wait until the first start, {_OF}"),
        _C("expected_queue_s", "s", "expected mean wait with the policy"),
        _C("expected_queue_low_s", "s", "lower end of its 95 % interval"),
        _C("expected_queue_high_s", "s", "upper end"),
        _C("recorded_jct_s", "s", "recorded mean completion time: end minus submission"),
        _C("expected_jct_s", "s", "expected mean completion time with the policy"),
        _C("expected_jct_low_s", "s", "lower end of its 95 % interval"),
        _C("expected_jct_high_s", "s", "upper end"),
        _C("jobs", "jobs", "number of jobs in the mean completion times"),
        _C("preemptions", "preemptions", "number of times the policy stops a running job in the twin"),
    ),
)
TWIN_QUESTIONS = (TWINS, QUEUE, EFFECTS)
"""The questions in reading order."""
