"""What is asked of the twins of a log, and what the columns of the answers are."""

from __future__ import annotations

from tracekit.answer import AnswerColumn, Question

_C = AnswerColumn
_CLUSTER = _C("cluster", "text", "the cluster; all where the log names none")

TWINS = Question(
    name="replay/twins",
    kind="replay",
    title="The twin of the log",
    question="Which scheduler does the log behave like, and can a replay of it be trusted?",
    rule=(
        "The twin of a cluster is the replay that comes nearest to its log: order, backfilling, quotas, limits,"
        " placement, capacity and start-up delays are tried on the first part of the log, and the best is scored on the"
        " last part, which it has not seen. The grade is close where the ratio of the mean waits is within 1.1, three"
        " quarters of the jobs wait alike (within 5 min or 25 %) and at most 15 % of the waiting hours are unexplained;"
        " fair within 1.25, half of the jobs and 35 %; rough within 1.6, a quarter and 60 %; else poor. Effects of"
        " changes are told from close and fair twins only."
    ),
    columns=(
        _CLUSTER,
        _C("waiting_share", "share", "its part of the hours waited in all clusters"),
        _C("rules", "sentence", "what the log's scheduler behaves like"),
        _C("grade", "class", "how near the twin comes to the log: close, fair, rough or poor"),
        _C("effects_told", "true or false", "whether effects of changes are told from it"),
        _C("scored_jobs", "jobs", "jobs of the last part, by which it is graded"),
        _C("recorded_mean_s", "s", "their mean wait by the log: first start minus submission"),
        _C("twin_mean_s", "s", "the same in the twin"),
        _C("ratio_low", "ratio", "lower end of the 95 % interval of the twin's mean over the log's"),
        _C("ratio_high", "ratio", "upper end"),
        _C("agreeing_share", "share", "of these jobs, those that wait alike"),
        _C("unexplained_share", "share", "of the hours waited, what jobs waited beyond their wait in the twin"),
        _C("rank_correlation", "ratio", "Spearman's correlation of the two waits"),
        _C("queue_correlation", "ratio", "correlation of the GPUs that waiting jobs ask for, hour by hour"),
        _C("jobs", "jobs", "jobs replayed"),
        _C("gpus", "GPUs", "GPUs of the twin"),
        _C("gpus_from", "sentence", "where that number comes from"),
        _C("why_not", "sentence", "why there is no twin, or why it tells no effects"),
    ),
)
QUEUE = Question(
    name="replay/twin_queue",
    kind="replay",
    title="The queue, recorded and in the twin",
    question="Does the queue of the twin grow and shrink as the log's did?",
    rule="GPUs that waiting jobs ask for at evenly spaced instants of the last part of the log.",
    columns=(
        _CLUSTER,
        _C("time", "time", "instant"),
        _C("recorded_gpus", "GPUs", "GPUs that waiting jobs asked for by the log"),
        _C("twin_gpus", "GPUs", "the same in the twin"),
    ),
)
_OF = "over jobs that start (end) in the log, in the twin and with the policy"
EFFECTS = Question(
    name="replay/effects",
    kind="replay",
    title="What other policies would do to the recorded waits",
    question="What would other policies have given, against what the log recorded?",
    rule=(
        "The effect of a policy is that in the twin (the mean with the policy in place of the twin's order, over the"
        " mean in the twin), applied to the recorded mean. Its 95 % interval joins whole submission days, resampled,"
        " and how far the twin is from the log on jobs that it was not chosen by. There is no row for a cluster whose"
        " twin carries no effects, nor where the policy would also lift a limit that holds in the log. Where jobs are"
        " stopped, compare completion times: what a job waits after a stop is not in its wait until the first start."
    ),
    columns=(
        _CLUSTER,
        _C("policy", "text", "policy and parameters, as 'tracekit replay -p' takes them"),
        _C("what", "sentence", "what the policy is"),
        _C("run_times", "text", "given: it is given the true run times in advance; not given: it is not"),
        _C("verdict", "class", "of the completion time: shorter, longer, none, or undecided"),
        _C("recorded_queue_s", "s", f"mean wait until the first start by the log, {_OF}"),
        _C("expected_queue_s", "s", "the same with the policy"),
        _C("expected_queue_low_s", "s", "lower end of its 95 % interval"),
        _C("expected_queue_high_s", "s", "upper end"),
        _C("recorded_jct_s", "s", "mean completion time by the log: end minus submission"),
        _C("expected_jct_s", "s", "the same with the policy"),
        _C("expected_jct_low_s", "s", "lower end of its 95 % interval"),
        _C("expected_jct_high_s", "s", "upper end"),
        _C("jobs", "jobs", "jobs that the completion times are over"),
        _C("preemptions", "preemptions", "times that a running job is stopped with the policy, in the twin"),
    ),
)
TWIN_QUESTIONS = (TWINS, QUEUE, EFFECTS)
"""What is asked, in reading order."""
