"""Reports of sample traces as they are read: how many words, where doubts lead, and whose numbers sentences state."""

from __future__ import annotations

import datetime as dt
import json
import re
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import pytest

from tests.report.page_words import words_by_part
from tracekit.text import alike_durations, count, duration, percent, quantity, signed_percent

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tracekit.analysis import Analysis
    from tracekit.answer import Row
    from tracekit.report.structure import AnswerInfo, Report

SAMPLES = ("philly", "slurm", pytest.param("slurm-outages", marks=pytest.mark.thorough))
"""Those whose pages are the longest: with telemetry, with a scheduler's words, and with outages."""
MOST_WORDS = 2500
_ELSEWHERE = {"part-work", "part-quality-and-method"}


@pytest.fixture(scope="module", params=SAMPLES)
def drawn(request: pytest.FixtureRequest, analyzed: Callable[[str], Analysis]) -> tuple[Report, str]:
    """Return the report of each sample trace, and its page."""
    done = analyzed(request.param)
    report: Report = json.loads(done.data.read_text(encoding="utf-8"))
    return report, done.report.read_text(encoding="utf-8")


def test_what_is_read_at_once_has_a_bound(drawn: tuple[Report, str]) -> None:
    words = words_by_part(drawn[1])
    assert sum(number for part, number in words.items() if part not in _ELSEWHERE) <= MOST_WORDS, words
    assert min(words.values()) > 10


def test_the_words_of_folds_hidden_parts_and_paper_are_not_counted() -> None:
    page = (
        "<head><title>no</title></head><div class='tab' id='a'><p>one two</p><details><summary>three</summary><p>no</p>"
        "<details open><summary>no</summary>no</details></details><details open><summary>four</summary>five</details>"
        "<p hidden>no</p><p class='notes paper'>no</p><svg><text>no</text></svg><br>six</div>"
        "<div class='tab' id='b'><script>no</script>seven</div>"
    )
    assert words_by_part(page) == {"a": 6, "b": 1}


def test_a_doubt_is_a_line_and_leads_to_a_place_of_the_page(drawn: tuple[Report, str]) -> None:
    report, page = drawn
    for doubt in report["opening"]["doubts"]:
        assert len(doubt["text"]) <= 95
        assert f'href="#{doubt["place"]}"' in page
        assert page.count(f'id="{doubt["place"]}"') == 1
        assert doubt["more"] in page.replace("\N{NO-BREAK SPACE}", " ").replace("\N{WORD JOINER}", "")


def test_no_note_stands_twice_in_a_part(drawn: tuple[Report, str]) -> None:
    (*_, page) = drawn
    for part in re.split(r'<div class="tab" id="', page)[1:]:
        notes = re.findall(r"<figcaption>(.*?)</figcaption>", part)
        assert len(notes) == len(set(notes))
        findings = re.findall(r'<p class="finding"><bdi>(.*?)</bdi>', part)
        assert len(findings) == len(set(findings))


# Numbers in sentences.

_NUMBER = re.compile(r"(?<![\w.])[+\N{MINUS SIGN}-]?\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?")
_TIME = re.compile(r"\d{4}-\d\d-\d\d|\d{1,2} [A-Z][a-z]{2,8} \d{4}|\d\d:\d\d|day \d[\d,]*")
_QUOTED = re.compile(r"'[^']*'")
_SIZE = re.compile(
    r"\d+-GPU jobs|jobs of (?:more than |less than )?[\d.]+(?:-\d+)? GPUs?|\d+ to \d+ GPUs|of \d+ GPUs?", re.IGNORECASE
)
_NAMED = re.compile(r"\d+(?:th|st|nd|rd) (?:over \d+th )?percentile|\(n = |n = |95 %")
_STATED = {
    "30": "fewest observations that a sentence compares",
    "10": "share of use, in percent, below which a GPU counts as idle",
    "0": "a wait of nothing",
    "5": "days that a comparison needs",
}
"""Thresholds that sentences state; they are of the queries' definitions, not of rows."""


def _forms(value: float) -> set[str]:
    """Return a number as a sentence may write it, by the functions of tracekit.text."""
    written = [count(value), percent(value), signed_percent(value), f"{value:,.1f}", f"{value:,.2f}", f"{value:,.0f}"]
    written += [count(round(value, n)) for n in (0, 1, 2, 3)]
    written += [quantity(value, unit) for unit in ("share", "percent", "s", "GPU-hours")]
    if value >= 0:
        written += [duration(value), duration(value * 3600), *alike_durations([value])]
        written += [f"{value / unit:,.{digits}f}" for unit in (1, 60, 3600, 86400) for digits in (0, 1, 2)]
    return {
        n.lstrip("+-\N{MINUS SIGN}") for text in written for n in re.findall(r"\d[\d,]*(?:\.\d+)?(?:e[+-]?\d+)?", text)
    }


def _numbers(value: Any) -> list[float]:
    if isinstance(value, dict):
        return [n for v in value.values() for n in _numbers(v)]
    if isinstance(value, list):
        return [n for v in value for n in _numbers(v)]
    return [float(value)] if isinstance(value, int | float) and not isinstance(value, bool) else []


def _bare(sentence: str, names: set[str]) -> str:
    """Return a sentence without what holds digits and is no number: names, times, sizes of jobs, percentiles."""
    for name in sorted(names, key=len, reverse=True):
        sentence = re.sub(rf"(?<![\w.,]){re.escape(name)}(?!\w|[.,]\d)", " ", sentence)
    for pattern in (_TIME, _QUOTED, _NAMED, _SIZE):
        sentence = pattern.sub(" ", sentence)
    return sentence


def _names(value: Any) -> set[str]:
    """Return the texts of rows that hold a digit: names of jobs, users, nodes and policies."""
    if isinstance(value, dict):
        return {n for v in value.values() for n in _names(v)}
    if isinstance(value, list):
        return {n for v in value for n in _names(v)}
    return {value} if isinstance(value, str) and re.search(r"\d", value) else set()


def _unexplained(sentence: str, values: list[float], names: set[str]) -> set[str]:
    known = {form for value in set(values) for form in _forms(value)} | set(_STATED)
    found = {n.lstrip("+-\N{MINUS SIGN}").rstrip(",") for n in _NUMBER.findall(_bare(sentence, names))}
    return found - known


def _sums(rows: list[Row]) -> list[float]:
    """Return what any sentence may make of rows: sums and means of columns, a row's share of a sum, numbers of rows."""
    columns = {
        name for row in rows for name, v in row.items() if isinstance(v, int | float) and not isinstance(v, bool)
    }
    totals = {c: _sum(rows, c) for c in columns}
    shares = [float(r[c]) / totals[c] for c in columns if totals[c] for r in rows if r.get(c) is not None]
    means = [total / len(rows) for total in totals.values()]
    return [*totals.values(), *shares, *means, *(float(n) for n in range(len(rows) + 1))]


def _sum(rows: Iterable[Row], column: str) -> float:
    return sum(float(r[column]) for r in rows if r.get(column) is not None)


def _over(rows: Iterable[Row], of: str, by: str) -> float:
    """Return the mean of a column weighted by another."""
    known = [r for r in rows if r[of] is not None and r[by]]
    return float(sum(r[of] * r[by] for r in known)) / (_sum(known, by) or 1)


def _groups(rows: list[Row], key: str) -> list[list[Row]]:
    return [[r for r in rows if r[key] == value] for value in dict.fromkeys(r[key] for r in rows)]


def _of_gpus(rows: list[Row]) -> list[Row]:
    return [r for r in rows if r["gpu_class"] not in {"0", None}]


def _ratios(tops: Iterable[float], bottom: float) -> list[float]:
    return [top / bottom for top in tops if bottom]


def _of_sizes(rows: list[Row], _: Report) -> list[float]:
    jobs = [r["jobs"] for r in _of_gpus(rows)]
    return _ratios(jobs, sum(jobs))


def _of_waits(rows: list[Row], _: Report) -> list[float]:
    known = [r for r in _of_gpus(rows) or rows if r["p50_s"] is not None and r["waits"]]
    pooled = [_over(own, "mean_s", "waits") for own in _groups(known, "gpu_class")]
    waited = [sum(r["waits"] * r["mean_s"] for r in own) for own in _groups(known, "vc")]
    waits = [_sum(own, "waits") for own in _groups(known, "vc")]
    return pooled + _ratios(waited, sum(waited)) + _ratios(waits, sum(waits))


def _of_causes(rows: list[Row], _: Report) -> list[float]:
    own = [r for r in rows if r["gpu_class"] != "0"]
    waits = [_sum(own, c) for c in ("fair_share_waits", "fragmentation_waits", "other_waits")]
    return [
        *waits,
        _sum(own, "waits"),
        *_ratios(waits, _sum(own, "waits")),
        _sum(own, "fair_share_wait_s") / _sum(own, "wait_s"),
    ]


def _of_order(rows: list[Row], _: Report) -> list[float]:
    early = [r for r in rows if r["harmless_share"] is not None]
    return [
        _over(early, "harmless_share", "out_of_order_starts"),
        _sum(rows, "out_of_order_starts") / _sum(rows, "starts"),
    ]


def _before_the_last_submission(rows: list[Row], report: Report) -> list[Row]:
    moments = sorted({r["time"] for r in rows})
    step = min(dt.datetime.fromisoformat(b) - dt.datetime.fromisoformat(a) for a, b in pairwise(moments))
    last = dt.datetime.fromisoformat(str(report["time"]["last_submission"])).replace(tzinfo=None)
    return [r for r in rows if dt.datetime.fromisoformat(r["time"]).replace(tzinfo=None) + step <= last]


def _of_free_gpus(rows: list[Row], report: Report) -> list[float]:
    own = _before_the_last_submission(rows, report)
    whole = sum(bool(r["whole_free_nodes"]) for r in own) / len(own)
    return [_sum(own, "largest_gang") / _sum(own, "free_gpus"), whole]


def _of_time(rows: list[Row], report: Report) -> list[float]:
    own = _groups(_before_the_last_submission(rows, report), "vc")
    return [_sum(part, c) / len(part) for part in own for c in ("running_gpus", "pending_gpus")]


def _of_relaxation(rows: list[Row], _: Report) -> list[float]:
    found = []
    for own in _groups(rows, "gpu_class"):
        wide, close = ([r for r in own if (r["relaxation"] > 1) == far] for far in (True, False))
        found += [_sum(wide, "jobs") / _sum(own, "jobs"), _sum(wide, "waits"), _sum(close, "waits")]
        found += [_over(part, "mean_queue_s", "waits") for part in (wide, close)]
    return found


def _of_efficiency(rows: list[Row], _: Report) -> list[float]:
    held, used, idle = (_sum(rows, f"{c}_gpu_h") for c in ("held", "used", "idle"))
    covered = used + idle
    lost = [_sum(rows, f"{c}_gpu_h") for c in ("failed", "timeout", "preempted")]
    found = [covered, *_ratios([covered, *lost], held), rows[0]["wasted_gpu_h"] / rows[0]["held_gpu_h"]]
    return found + _ratios([used, idle], covered)


def _of_use(rows: list[Row], _: Report) -> list[float]:
    return [_over(own, "mean_pct", "samples") for own in _groups(rows, "gpu_count")]


def _of_ends(rows: list[Row], _: Report) -> list[float]:
    found = []
    for own in _groups(rows, "gpu_class"):
        known = [r for r in own if r["status"] not in {None, "unknown", "running", "pending"}]
        late = _sum([r for r in known if r["status"] == "timeout"], "jobs")
        failed = _sum([r for r in known if r["status"] in {"failed", "node_fail", "out_of_memory"}], "jobs")
        found += _ratios([late, failed, late + failed], _sum(known, "jobs"))
    return found


def _of_users(rows: list[Row], _: Report) -> list[float]:
    worst = max(rows, key=lambda r: r["gpu_hours_lost"] or 0)
    late = worst["timed_out_jobs"] or 0
    of = worst["failed_jobs"] / worst["failed_share"] if worst["failed_share"] else 0
    return [worst["failed_share"], *_ratios([late, worst["failed_jobs"] - late], of)]


def _of_goodput(rows: list[Row], _: Report) -> list[float]:
    (every,) = [r for r in rows if r["gpu_class"] == "all"]
    return _ratios([v for c, v in every.items() if c.endswith("_gpu_hours") and v is not None], every["held_gpu_hours"])


def _of_failures(rows: list[Row], _: Report) -> list[float]:
    return _sums(_of_gpus(rows))


def _of_arrivals(rows: list[Row], _: Report) -> list[float]:
    fitted, seen = ({r["hour"]: r for r in rows if r["rate"] == rate} for rate in ("fitted", "observed"))
    days = [name for name in rows[0] if name.endswith("day") or name.startswith("day_")]
    known = [(fitted[hour][day], r[day]) for hour, r in seen.items() for day in days if r[day] is not None]
    return [float(len(known)), *_ratios([sum(abs(one - other) for one, other in known)], len(known))]


DERIVED: dict[str, Callable[[list[Row], Report], list[float]]] = {
    "overview/job_size": _of_sizes,
    "queuing/queue_delay": _of_waits,
    "queuing/delay_causes": _of_causes,
    "queuing/out_of_order": _of_order,
    "queuing/timeline": _of_time,
    "locality/relaxation": _of_relaxation,
    "locality/fragmentation": _of_free_gpus,
    "utilization/efficiency": _of_efficiency,
    "utilization/gpu_by_size_status": _of_use,
    "failures/status_by_size": _of_ends,
    "failures/by_user": _of_users,
    "failures/run_time_to_failure": _of_failures,
    "failures/goodput": _of_goodput,
    "fit/arrival_rate": _of_arrivals,
}
"""What single sentences make of the rows of their answers, computed here once more."""


def _values_of(answer: AnswerInfo, report: Report) -> list[float]:
    derived = DERIVED.get(answer["name"])
    found = [*_numbers(answer["rows"]), *_sums(answer["rows"])]
    if derived is not None:
        found += derived(answer["rows"], report)
    return found + _numbers([p["value"] for p in answer["params"]])


def test_every_number_of_a_sentence_is_of_the_rows_of_its_answer(drawn: tuple[Report, str]) -> None:
    report, _ = drawn
    wrong = {}
    for answer in (a for s in report["sections"] for a in s["answers"] if a["finding"] and a["rows"]):
        names = _names(answer["rows"])
        found = _unexplained(str(answer["finding"]), _values_of(answer, report), names)
        # How many attempts stand behind samples is not of the rows, but of the telemetry.
        if found and not re.search(r"samples of|of \d+ runs", str(answer["finding"])):
            wrong[answer["name"]] = (found, answer["finding"])
    assert wrong == {}


def test_every_number_of_the_first_screen_is_of_rows_too(drawn: tuple[Report, str]) -> None:
    report, _ = drawn
    by_name = {a["name"]: a["rows"] for s in report["sections"] for a in s["answers"]}
    whole = _numbers([by_name.get(n, []) for n in ("overview/through_time", "overview/summary", "overview/status")])
    whole += _numbers([by_name.get("queuing/gpu_time_held", []), by_name.get("failures/cluster_availability", [])])
    whole += [_sum(by_name.get("failures/lost_work", []), "lost_share")]
    whole += [1 - r["held_share"] for r in by_name["overview/through_time"] if r["held_share"] is not None]
    whole += _numbers([report["capacity"], report["quality"]["records"], report["quality"]["rejected"]])
    whole += [report["quality"]["rejected"] / report["quality"]["records"], (report["time"]["span_s"] or 0) / 86400]
    opening = report["opening"]
    observed, gpus = report["capacity"]["alternatives"].get("observed"), report["capacity"]["gpus"]
    held = next((r["value"] for r in by_name["queuing/gpu_time_held"] if r["metric"] == "held_share"), 0)
    whole += [held * gpus / observed] if observed and gpus else []
    entries = report["guidelines"]["guidelines"] if report["guidelines"] else []
    counts = [sum(e["verdict"] == v for e in entries) for v in ("holds", "does not hold", "cannot tell")]
    judged = [float(len(entries)), *map(float, counts)]
    for text in (opening["state"], opening["about"]):
        assert _unexplained(text, whole, set()) == set(), text
    assert _unexplained(opening["verdict"], judged, set()) == set()
    measured = _numbers([e["finding"]["numbers"] for e in entries if e["finding"]])
    for doubt in opening["doubts"]:
        for text in (doubt["text"], doubt["more"]):
            assert _unexplained(text, whole + measured, set()) == set(), text
    for entry in (e for e in entries if e["verdict"] == "holds"):
        known = _numbers([entry["finding"]["numbers"], entry["effect"], entry["losses"], entry["record"]])
        for text in (entry["finding"]["text"], (entry["effect"] or entry["losses"] or {}).get("text", "")):
            assert _unexplained(text, known, _names(entry["finding"]["rows"])) == set(), text


def test_a_number_that_no_row_holds_is_found() -> None:
    rows = [{"gpu_class": "1", "jobs": 7, "share": 0.123}]
    told = "Of 7 jobs on day 3 at 09:00, 12.3 % of the 2-4 GPU kind, by the 90th percentile, waited 1.5 h."
    assert _unexplained(told, _numbers(rows), {"2-4 GPU"}) == {"1.5"}
    assert _unexplained(told, [*_numbers(rows), 5400.0], {"2-4 GPU"}) == set()
    assert _unexplained("12.4 % of 7 jobs", _numbers(rows), set()) == {"12.4"}
