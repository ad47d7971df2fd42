"""Replays: which scheduling rules explain the log, and what other policies would have done with the same jobs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from tracekit.calibration.workbench import UNNAMED
from tracekit.replay.jobs import RECORDED, TWIN
from tracekit.replay.results.answers import LEAST
from tracekit.report.axes import axis_values, durations, names, position, share
from tracekit.report.charts import Chart, Hues, Mark, Tip, dot, reference, series, whisker
from tracekit.report.replay_rows import axis_name, differ, fold, fold_note, label, policy_name
from tracekit.report.sections.interface import Presentation
from tracekit.report.theme import colour
from tracekit.report.through_time import gpu_lines
from tracekit.report.times import start_of_day
from tracekit.text import alike_durations, count, counted, duration, percent, shorten, signed_percent

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tracekit.answer import Row
    from tracekit.report.sections.interface import TraceFacts


_NAMED = 3
"""Maximum number of clusters or policies that a sentence names."""
_MEANS = {"queue": "mean wait", "jct": "mean completion time"}


def twins_finding(rows: list[Row], facts: TraceFacts) -> str | None:
    """Say which scheduling rules best explain each cluster's log, and which clusters have effects."""
    parts = [_twin(row, "The log" if len(rows) == 1 else shorten(row["cluster"], 40), facts) for row in rows[:_NAMED]]
    if len(rows) > _NAMED:
        told = sum(bool(row["effects_told"]) for row in rows)
        parts.append(f"Effects of changes are reported for {told} of the {len(rows)} clusters.")
    return " ".join(parts)


def _twin(row: Row, name: str, facts: TraceFacts) -> str:
    if row["grade"] is None:
        return f"{name}: cannot tell, because the cluster could not be simulated: {row['why_not']}."
    if not row["waiting_share"]:
        return f"{name}: cannot tell, because no job waits."
    share = "" if row["waiting_share"] in {None, 1} else f", with {percent(row['waiting_share'])} of the hours waited,"
    log, twin = alike_durations((row["recorded_mean_s"], row["twin_mean_s"]))
    trust = _TRUST.get(row["grade"], "cannot tell") if row["effects_told"] else "no"
    missing = "" if row["effects_told"] else row.get("missing_reasons") or ""
    return (
        f"{name}{share} fits these rules best: {row['rules']}. Can it be trusted?"
        f" {trust.capitalize()}: its mean wait in the log's last part is {twin}, the recorded one {log} (grade"
        f" {row['grade']})."
        + _change(row, facts)
        + (missing and f" The log gives reasons for waiting that this simulation does not include: {missing}.")
    )


def _change(row: Row, facts: TraceFacts) -> str:
    """Say when the rules changed, if they did."""
    if row.get("since") is None:
        return ""
    before = f" Until then, they were: {row['rules_before']}." if row["rules_before"] else ""
    when = start_of_day(row["since"], facts)
    return f" The rules changed on about {when}, and only the jobs submitted since then are simulated.{before}"


_TRUST = {"close": "yes", "fair": "likely"}
"""Whether a twin's effects can be trusted, by grade. For other grades, none are reported."""


def queue_finding(rows: list[Row], _: TraceFacts) -> str | None:
    """Say that no job waits for GPUs, if the chart would be empty."""
    if any(row["recorded_gpus"] or row["twin_gpus"] for row in rows):
        return None
    return "In the last part of the log, no job waits for GPUs in the log or in the simulation."


def queue_chart(rows: list[Row], facts: TraceFacts) -> Chart:
    """Draw the queue in the log and in the twin, for the cluster with the most waiting hours."""
    first = rows[0]["cluster"]
    return gpu_lines(
        [row for row in rows if row["cluster"] == first],
        {"recorded_gpus": "waited for in the log", "twin_gpus": "waited for in the simulation"},
        facts,
        title="" if first == UNNAMED else shorten(first, 40),
        note="Only the last part of the log, which was not used to calibrate the simulation.",
    )


def effects_finding(rows: list[Row], _: TraceFacts) -> str | None:
    """Name the policies that would shorten the recorded times most, with known run times and without."""
    whole = _whole(rows)
    found: list[str] = []
    for given, which in (("not given", "policies that need no run times"), ("given", "those that know run times")):
        better = [r for r in whole if r["run_times"] == given and r["verdict"] == "shorter"]
        if better:
            best = min(better, key=lambda r: r["expected_jct_s"])
            where = "" if found else _where(whole)
            found.append(f"Of {which}, {policy_name(best)} would help most{where}: {_words(best)}.")
    if not found:
        return f"No other policy is expected to shorten the recorded times{_where(whole)}."
    longer = [policy_name(r) for r in whole if r["verdict"] == "longer"]
    if longer:
        found.append(f"Jobs would take longer under {' and '.join(longer[:_NAMED])}.")
    return " ".join(found)


def _whole(rows: list[Row]) -> list[Row]:
    """Return the rows for all clusters together, or for the only cluster."""
    last = {row["policy"]: row for row in rows}  # a policy's last row is the sum over clusters
    most = max(row["jobs"] for row in last.values())
    return [row for row in last.values() if row["jobs"] > most / 2]


def _where(rows: list[Row]) -> str:
    name = rows[0]["cluster"]
    return "" if name == UNNAMED else f" in {shorten(name, 40)}"


def _words(row: Row) -> str:
    """Return the means before and after the change, without the wait until the first start if jobs are preempted."""
    parts = []
    for what, words in _MEANS.items():
        if what == "queue" and row["preemptions"] > 0:
            continue
        values = [row[f"{key}_s"] for key in (f"recorded_{what}", f"expected_{what}")]
        ends = [row[f"expected_{what}_{end}_s"] for end in ("low", "high")]
        if None not in values and None not in ends:
            before, after, low, high = alike_durations([*values, *ends])
            parts.append(f"{words} {before} -> {after} ({low} to {high})")
    return " and ".join(parts)


def effects_chart(rows: list[Row], _: TraceFacts) -> list[Chart]:
    """Draw the expected means with their intervals next to the recorded means."""
    whole = [{**row, "policy": axis_name(row)} for row in _whole(rows)]
    note = "Dot: expected. Line: its 95 % interval."
    if any(row["run_times"] == "given" for row in whole):
        note += " Orange triangle: the policy knows the run times."
    charts: list[Chart] = []
    for what, words in _MEANS.items():
        known = sorted((row for row in whole if row[f"expected_{what}_s"] is not None), key=_first)
        if known:
            charts.append(_intervals(known, what, words, "" if charts else note))
    return charts


def _first(row: Row) -> tuple[float, float]:
    """Return the sort key of a policy, which is the same for all charts."""
    waits = [row[f"expected_{what}_s"] for what in ("queue", "jct")]
    first, second = (float("inf") if wait is None else wait for wait in waits)
    return first, second


def _intervals(rows: list[Row], what: str, words: str, note: str) -> Chart:
    low, mean, high = (f"expected_{what}{end}_s" for end in ("_low", "", "_high"))
    recorded = f"recorded_{what}_s"
    at, values = rows[0][recorded], axis_values(rows, (low, mean, high, recorded))
    x = durations(mean, f"{words[:1].upper()}{words[1:]} (log scale)", values)
    log: list[Mark] = []
    if at is not None:
        left = position(at, values) > 0.5
        log = reference(x.of(recorded), f"in the log {duration(at)}", left=left, rows=rows[:1])
    shape = {"domain": ["not given", "given"], "range": ["circle", "triangle-up"]}
    shapes = {"shape": {"field": "run_times", "type": "nominal", "scale": shape}}
    return Chart(
        rows,
        x=x,
        y=names("policy", [row["policy"] for row in rows], step=19),
        marks=[*log, whisker(x.of(low), high), replace(dot(), channels=shapes)],
        by=replace(series("run_times", ("not given", "given")), told=False),
        title=f"{words[:1].upper()}{words[1:]}",
        note=note,
    )


_MUCH = 0.05
"""A sentence mentions GPU time on GPUs that the replayed cluster lacks, if its share is above this."""
_SEEN = 0.03
"""Width of a dot in a chart from 0 to 100 %. Shares that differ by less look the same."""
_TIMES = {
    "jct": ("Completion time", "completion time"),
    "queue": ("Waiting", "wait until the first start"),
}
_SHARES = {"jain_fairness_vc": "fairness between {tenant.many}", "gpu_utilization_share": "GPUs allocated"}
_SHARE_NOTES = {
    "jain_fairness_vc": "Jain's index: at 100 %, every {tenant.one} received an equal share.",
    "gpu_utilization_share": "GPUs allocated: the share of all GPU time until the last job ended.",
}


def policies_finding(rows: list[Row], facts: TraceFacts) -> str | None:
    """Name the fastest policies with and without known run times, if the log supports a comparison.

    For a twin, 'replay/effects' reports effects relative to the log. This sentence gives the numbers of
    the twin and of the log.
    """
    known = [r for r in rows if r["avg_jct_s"] is not None and r["policy"] != RECORDED]
    base = rows[0]
    if len(known) < 2 or base["avg_jct_s"] is None:
        return None
    never = base["jobs"] - base["completed"] if base.get("completed") is not None and base.get("jobs") else 0
    if base["policy"] == TWIN:
        sentences = _twin_and_log(rows)
    elif not any(r["avg_queue_s"] for r in known):
        sentences = [
            f"{_never(never)}. Comparing policies shows nothing here.",
            f"On average, {_these(base)} take {duration(base['avg_jct_s'])} from submission to end.",
            _recorded(rows, base),
            _unreported(rows),
        ]
    else:
        sentences = _compared(rows, known)
    return " ".join(filter(None, [*sentences, _beyond(rows, facts)]))


def _never(jobs: int) -> str:
    if not jobs:
        return "No job waits under any policy, because the replays never run short of GPUs"
    return f"No job that ends waits under any policy, but {counted(jobs, 'replayed jobs')} never end"


def _twin_and_log(rows: list[Row]) -> list[str]:
    """Describe the twin and its log."""
    twin, *others = rows
    log = next((r for r in others if r["policy"] == RECORDED and r["avg_jct_s"] is not None), None)
    text = _under(twin, "In")
    if log is None:
        return [f"{text}."]
    who = "they" if log.get("completed") == twin.get("completed") else _these(log)
    return [f"{text}. In the log, {who} took {duration(log['avg_jct_s'])}{_waiting(log, 'waited')}."]


def _under(row: Row, preposition: str) -> str:
    """Describe the completion time and the wait of jobs under a policy or in the twin."""
    return (
        f"{preposition} {policy_name(row)}, {_these(row)} take {duration(row['avg_jct_s'])} on average from submission"
        f" to end{_waiting(row, 'wait')}"
    )


def _waiting(row: Row, verb: str) -> str:
    """End a sentence on completion times with the time spent waiting."""
    if row["avg_queue_s"] is None:
        return ""
    if not row["avg_queue_s"]:
        return f", and none {'waits' if verb == 'wait' else verb}"
    tail = row.get("p99_queue_s")
    longest = f" (one in a hundred over {duration(tail)})" if tail is not None and verb == "wait" else ""
    return f", {duration(row['avg_queue_s'])} of it waiting{longest}"


def _compared(rows: list[Row], known: list[Row]) -> list[str]:
    """Compare the policies if some jobs wait."""
    base = known[0]
    comparable = [base, *(r for r in known[1:] if r.get("effect_told"))]
    parts = []
    for given, which in (("not given", "need no run times"), ("given", "know the true run times")):
        group = [r for r in comparable if r["run_times"] == given]
        best = min(group, key=lambda r: r["avg_jct_s"], default=base)
        if best is not base and (best["jct_diff_share"] or 0) < -LEAST:
            parts.append(f"Of the policies that {which}, {_gain(best)}.")
    start = _under(base, "Under")
    if parts:
        return [f"{start}.", *parts, _log_beside(comparable[-1]), _unreported(rows)]
    if len(comparable) == 1:
        return [f"{start}.", _recorded(rows, base), _unreported(rows)]
    little = "" if base["avg_queue_s"] else "Comparing policies shows little here."
    other = "No other policy" if len(comparable) == len(known) else "None of the others that can be compared"
    return [f"{start}. {other} is faster{_longest(comparable)}.", little, _recorded(rows, base), _unreported(rows)]


def _log_beside(row: Row) -> str:
    """Describe the recorded wait of the jobs of an effect, or return '' if it is unknown."""
    if row.get("recorded_queue_s") is None:
        return ""
    return f"In the log, they waited {duration(row['recorded_queue_s'])} on average."


def _unreported(rows: list[Row]) -> str:
    """Say which effects are not reported and why, or return '' if all are reported."""
    base, *others = [r for r in rows if r["policy"] != RECORDED]
    unreported = [r for r in others if not r.get("effect_told")]
    if not unreported:
        return ""
    if len(unreported) == len(others) and base.get("effect_reason"):
        return _sentence(base["effect_reason"])
    if len(unreported) == 1:
        return _sentence(unreported[0].get("effect_reason") or "")
    names = [policy_name(r) for r in unreported[:_NAMED]]
    more = f" and {len(unreported) - _NAMED} more" if len(unreported) > _NAMED else ""
    why = "jobs wait longer under them than in the log, or the replays do not reproduce the log's waits"
    return f"The effect of {', '.join(names)}{more} cannot be estimated, because {why}."


def _sentence(words: str) -> str:
    return f"{words[:1].upper()}{words[1:]}." if words else ""


def _these(row: Row) -> str:
    """Describe the jobs that a policy's times cover."""
    done, jobs = row.get("completed"), row.get("jobs")
    if done is None:
        return "these jobs"
    if jobs in {None, done}:
        return f"these {counted(done, 'jobs')}"
    which = "with a recorded start and end" if row["policy"] == RECORDED else "that end"
    return f"the {count(done)} of these {counted(jobs, 'jobs')} {which}"


def _longest(known: list[Row]) -> str:
    worst = max(known, key=lambda r: r["avg_jct_s"])
    if (worst.get("jct_diff_share") or 0) <= LEAST:
        return ""
    return (
        f". Under {policy_name(worst)} they take longest, {duration(worst['avg_jct_s'])}"
        f" ({', '.join(filter(None, [signed_percent(worst['jct_diff_share']), _interval(worst)]))})"
    )


def _interval(row: Row) -> str:
    """Describe the interval of a change, or return '' if it is unknown."""
    low, high = row["jct_diff_share_low"], row["jct_diff_share_high"]
    if low is None or high is None:
        return ""
    return f"95 % interval {signed_percent(low)} to {signed_percent(high)}"


def _recorded(rows: list[Row], base: Row) -> str:
    """Describe the recorded wait of the jobs, if it is known."""
    row = next((r for r in rows if r["policy"] == RECORDED and r["avg_queue_s"]), None)
    if row is None:
        return ""
    who = "they" if row.get("completed") == base.get("completed") else _these(row)
    text = f"In the log, {who} waited {duration(row['avg_queue_s'])} on average"
    if row["avg_queue_s"] > (base["avg_queue_s"] or 0):
        text += ", for reasons that the replays do not model, such as quotas or reserved nodes"
    return f"{text}."


def _beyond(rows: list[Row], facts: TraceFacts) -> str:
    """Warn if the log and the cluster of the replays differ by much."""
    share = next((r.get("beyond_share") for r in rows if r["policy"] == RECORDED), None)
    if share is None or share <= _MUCH:
        return ""
    return (
        f"In the log, {percent(share)} of these jobs' GPU-hours were on GPUs that the source does not list for some"
        f" nodes or {facts.ingested.many}. Compare the policies with each other, not with the log."
    )


def _gain(row: Row) -> str:
    interval = _interval(row)
    ends = f" ({interval})" if interval else ""
    worse = f", but {percent(row['worse_share'])} of the jobs end later" if row["worse_share"] else ""
    return (
        f"{policy_name(row)} gives the shortest times: {duration(row['avg_jct_s'])} on average,"
        f" {signed_percent(row['jct_diff_share'])}{ends}{worse}"
    )


def policies_chart(rows: list[Row], facts: TraceFacts) -> list[Chart]:
    """Draw the completion time, the wait and the fairness by policy."""
    known = [{**r, "policy": axis_name(r)} for r in rows if r["avg_jct_s"] is not None]
    times = [what for what in _TIMES if any(differ(known, f"{of}_{what}_s") for of in ("median", "avg", "p99"))]
    shown = {key: facts.ingested.fill(words) for key, words in _SHARES.items() if differ(known, key, _SEEN)}
    columns = [f"{of}_{what}_s" for what in times for of in ("median", "avg", "p99")] + list(shown)
    if not columns:
        return []
    folded = fold({r["policy"]: [r[c] for c in columns] for r in known})
    kinds = {r["policy"]: r["run_times"] for r in known}
    drawn = [_as_one(r, folded[r["policy"]], kinds) for r in known if r["policy"] in folded]
    drawn = sorted(drawn, key=lambda r: (r["avg_queue_s"] is None, r["avg_queue_s"] or 0.0, r["avg_jct_s"]))
    have = {r["mark"] for r in drawn}
    note = "Dot: mean. Line: median to 99th percentile."
    note += "".join(f" {words}." for mark, words in _MARKS.items() if mark in have)
    charts = [_spans(drawn, what, note if k == 0 else "") for k, what in enumerate(times)]
    if shown:
        charts.append(_dots(drawn, shown, facts))
    first, *others = charts
    return [replace(first, note=f"{first.note} {fold_note(folded)}".strip()), *others]


_BOTH = "given to some"
_LOG = "by the log"
_SHAPES = {"not given": "circle", "given": "triangle-up", _BOTH: "cross", TWIN: "square"}
_MARKS = {
    "given": "Orange triangle: the policy knows the run times",
    _BOTH: "Grey cross: some of the policies know the run times",
    TWIN: "Square: the simulation",
}
"""Meanings of the marks other than a dot."""


def _as_one(row: Row, others: Sequence[str], kinds: Mapping[str, str]) -> Row:
    """Return a row that also represents other policies, with its label, the policies' knowledge, and its mark.

    The twin keeps its mark even if it is combined with other policies. The log is not a policy and has its own line.
    """
    name = row["policy"]
    if name == RECORDED:
        return {**row, "run_times": _LOG, "mark": _LOG}
    known = {kinds[policy] for policy in (name, *others)}
    run_times = known.pop() if len(known) == 1 else _BOTH
    mark = TWIN if axis_name({"policy": TWIN}) in (name, *others) else run_times
    return {**row, "policy": label(name, others), "run_times": run_times, "mark": mark}


def _spans(rows: list[Row], what: str, note: str) -> Chart:
    named = {f"median_{what}_s": "median", f"avg_{what}_s": "mean", f"p99_{what}_s": "99th percentile"}
    low, mean, high = named
    heading, title = _TIMES[what]
    rows = [{**r, **{f"{e}_words": duration(r[e]) for e in named if r[e] is not None}} for r in rows]
    values, policies = axis_values(rows, list(named)), [r["policy"] for r in rows if r["mark"] != _LOG]
    x = durations(mean, f"{title} (log scale)", values)
    shapes = {
        "shape": {"field": "mark", "type": "nominal", "scale": {"domain": list(_SHAPES), "range": [*_SHAPES.values()]}}
    }
    marks = [
        replace(whisker(x.of(low), high), transform=_POLICIES),
        replace(dot(), transform=_POLICIES, channels=shapes),
    ]
    log = next((r[mean] for r in rows if r["mark"] == _LOG and r[mean] is not None), None)
    if log is not None:
        left = position(log, values) > _LEFT
        marks = [*reference(x, f"in the log {duration(log)}", left=left, kept=_RECORDED), *marks]
    colours = {"not given": colour("series-1"), "given": colour("series-2"), _BOTH: colour("muted")}
    return Chart(
        rows,
        x=x,
        y=names("policy", policies, step=19),
        marks=marks,
        by=Hues("run_times", colours, told=False),
        tips=[
            Tip("policy"),
            Tip("run_times", "run times"),
            *(Tip(f"{key}_words", words) for key, words in named.items()),
        ],
        title=heading,
        note=note,
    )


_LEFT = 0.5
"""Position of the log's line from which its label is on its left [0..1]."""
_POLICIES, _RECORDED = ([{"filter": f"datum.mark {sign} '{_LOG}'"}] for sign in ("!==", "==="))
"""Transforms that keep only the rows of policies, and only the row of the log."""


def _dots(rows: list[Row], columns: dict[str, str], facts: TraceFacts) -> Chart:
    title = " and ".join(columns.values())
    long = [
        {"policy": r["policy"], "what": words, "share": r[key]}
        for r in rows
        for key, words in columns.items()
        if r[key] is not None
    ]
    return Chart(
        long,
        x=share("share", "share", whole=True),
        y=names("policy", [r["policy"] for r in rows], step=19),
        marks=[dot()],
        by=series("what", columns.values(), 3),
        tips=[Tip("policy"), Tip("what"), Tip("share", "", ".1%")],
        title=f"{title[:1].upper()}{title[1:]}",
        note=" ".join(facts.ingested.fill(_SHARE_NOTES[key]) for key in columns),
    )


PRESENTATIONS = (
    Presentation("replay/twins", finding=twins_finding),
    Presentation("replay/twin_queue", finding=queue_finding, chart=queue_chart),
    Presentation("replay/effects", finding=effects_finding, chart=effects_chart),
    Presentation("replay/policies", finding=policies_finding, chart=policies_chart),
)
