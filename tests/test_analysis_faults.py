"""An analysis of which one part fails: all others are made, and everything that is written says which part failed.

In many generated sites no part fails, and all that is found has its sentence.
"""

from __future__ import annotations

import importlib
import json
import re
from dataclasses import replace
from html import unescape
from typing import TYPE_CHECKING, Any

import jsonschema
import numpy as np
import pytest

import tracekit
from tests.command import run
from tests.guidelines.clean import clean_world
from tests.guidelines.failing import Cluster
from tests.guidelines.outage_world import rows_of, simulate, steady
from tests.guidelines.planted import DAY, Log, when
from tests.guidelines.test_judging import PLAIN
from tracekit.analysis import analyze, analyze_many, many
from tracekit.characterize import list_queries
from tracekit.errors import OutputError, SourceError, UsageError
from tracekit.guidelines.interface import GUIDELINES, Finding, Number, Trial
from tracekit.resources import folder
from tracekit.serve.trace import ServedTrace
from tracekit.trace import Trace

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable
    from pathlib import Path

    from tracekit.analysis import Analysis

NAME = "overview/status"
ASKED = {"overview/summary", NAME, "overview/job_size", "queuing/cluster_timeline"}
REASON = "ZeroDivisionError: by <zero> & more"
BRIEF = ("--no-fit", "--replay-jobs", "0")
HOLDING = replace(PLAIN, find=lambda evidence: Finding({"share": Number(0.9, 40), "wait_s": Number(5, 40)}))


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask few questions and judge by one guideline, which holds."""
    few = [q for q in list_queries() if q.name in ASKED]
    monkeypatch.setattr("tracekit.characterize.list_queries", lambda: few)
    monkeypatch.setattr("tracekit.report.page.vega_bundle", lambda: "/* bundle */")
    monkeypatch.delenv("TRACEKIT_DEBUG", raising=False)
    judge_by(monkeypatch, HOLDING)


@pytest.fixture(scope="module")
def trace(make_trace: Callable[..., Trace]) -> Trace:
    log = Log()
    log.nodes("ab", 8)
    for number in range(6):
        log.job(
            600.0 * number, 3600, gpus=2, queue_s=60, node="ab"[number % 2], status="failed" if number else "completed"
        )
    return make_trace(**log.tables)


def judge_by(monkeypatch: pytest.MonkeyPatch, *guidelines: Any) -> None:
    monkeypatch.setattr(GUIDELINES, "all", lambda: {one.id: one for one in guidelines})


def break_(monkeypatch: pytest.MonkeyPatch, where: str, only: str | None = None) -> None:
    """Have a function raise an error; with `only`, where that is the name of one of its first arguments."""
    module, _, name = where.rpartition(".")
    works = getattr(importlib.import_module(module), name)

    def breaks(*args: Any, **more: Any) -> Any:
        if only is None or only in {name for name in map(_name_of, args[:3]) if isinstance(name, str)}:
            raise ZeroDivisionError("by <zero> & more")
        return works(*args, **more)

    monkeypatch.setattr(where, breaks)


def _name_of(argument: Any) -> Any:
    """Return the name of an argument that has one, such as a question; else the argument."""
    return argument.get("name") if isinstance(argument, dict) else getattr(argument, "name", argument)


def asked(trace: Trace, out: Path, *more: str) -> subprocess.CompletedProcess[str]:
    return run("analyze", trace.path, "-o", out, *BRIEF, *more)


ANSWERED = "tracekit.guidelines.evidence.answer_query"
FILES = "tracekit.report.files.write_tables"
JUDGED = "tracekit.guidelines.run.judge_all"
PARTS = {
    "answer": {ANSWERED: f"the answer to {NAME}"},
    "charts and files": {"tracekit.report.page.charts": f"the charts of {NAME}", FILES: f"the files of {NAME}"},
    "page": {"tracekit.report.page._report_page": "the page"},
    "answer on the page": {"tracekit.report.data.answer_info": f"the answer to {NAME}"},
    "sentence, numbers and text": {
        "tracekit.report.answers.finding": f"the sentence of {NAME}",
        "tracekit.report.page.table_view": f"the numbers of {NAME}",
        "tracekit.report.markdown._answer": f"the text of {NAME}",
    },
    "first screen": {
        "tracekit.report.page.strip": "the charts over time",
        "tracekit.report.data.summary": "the first screen",
        "tracekit.report.data.headline": "the first numbers",
    },
    "capacity": {"tracekit.characterize.capacity": "the number of GPUs"},
    "guidelines on the page": {"tracekit.report.page.guidelines_view": "the guidelines"},
    "guidelines": {JUDGED: "the guidelines"},
    "finding": {"tracekit.guidelines.document._finding": "the text of the guideline plain"},
    "effect in the text": {"tracekit.guidelines.markdown.effect_text": "the text of the guideline plain"},
    "effect on the page": {"tracekit.report.guidelines.expected_text": "the text of the guideline plain"},
    "guidelines.md": {"tracekit.guidelines.markdown.markdown": "the file guidelines.md"},
    "report.md": {"tracekit.report.files.markdown": "the file report.md"},
}
"""What fails in one analysis: the function, and the part that is named."""


@pytest.mark.parametrize(
    "parts",
    [
        pytest.param(parts, id=name, marks=() if number < 3 else pytest.mark.thorough)
        for number, (name, parts) in enumerate(PARTS.items())
    ],
)
def test_a_part_that_fails_is_named_and_all_others_are_made(
    trace: Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, parts: dict[str, str]
) -> None:
    for where, part in parts.items():
        break_(monkeypatch, where, NAME if part.endswith(NAME) else None)
    out = tmp_path / "out"
    done = asked(trace, out)
    sentences = {f"{part[:1].upper()}{part[1:]} could not be made: {REASON}." for part in parts.values()}
    assert done.returncode == 1
    assert done.stdout == f"report: {out / 'report.html'}\n"
    noted = [line for line in done.stderr.splitlines() if "could not be made" in line]
    assert sorted(noted) == sorted(f"note: {sentence}" for sentence in sentences)
    assert "Traceback" not in done.stderr
    data = json.loads((out / "report.json").read_text(encoding="utf-8"))
    told = {fault["part"]: fault["reason"] for fault in data["faults"]}
    assert told == dict.fromkeys(parts.values(), REASON)
    assert len(data["faults"]) == len(parts)
    schema = json.loads((folder("schemas") / "report-1.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator(schema).validate(data)
    page = unescape((out / "report.html").read_text(encoding="utf-8"))
    text = (out / "report.md").read_text(encoding="utf-8").replace("\\", "")
    assert not [sentence for sentence in sentences if sentence not in page]
    assert "could not be made: ZeroDivisionError: by <zero> & more." in text
    if "the page" not in told:
        number = "1 part" if len(told) == 1 else f"{len(told)} parts"
        assert f"{number} of this report could not be made: {', '.join(told)}." in page
        assert page.rstrip().endswith("</html>")
    assert Trace.open(out / "trace").validate() == []
    tables = {path.relative_to(out).as_posix() for path in (out / "tables").rglob("*.csv")}
    assert "tables/overview/job_size.csv" in tables
    assert (f"tables/{NAME}.csv" in tables) == parts.keys().isdisjoint({ANSWERED, FILES})
    assert (out / "guidelines.md").is_file() == (JUDGED not in parts)


@pytest.mark.thorough
def test_a_run_without_faults_ends_with_0_and_says_nothing_of_them(trace: Trace, tmp_path: Path) -> None:
    done = asked(trace, tmp_path / "out")
    assert done.returncode == 0
    for name in ("report.html", "report.md", "guidelines.md"):
        assert "could not be made" not in (tmp_path / "out" / name).read_text(encoding="utf-8")
    assert json.loads((tmp_path / "out" / "report.json").read_text(encoding="utf-8"))["faults"] == []


def test_with_debug_the_traceback_is_printed(trace: Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    break_(monkeypatch, "tracekit.report.page.charts", NAME)
    debug = run("--debug", "analyze", trace.path, "-o", tmp_path / "debug", *BRIEF)
    assert "Traceback (most recent call last):" in debug.stderr
    assert "in breaks" in debug.stderr
    assert debug.returncode == 1


def test_a_template_that_lacks_a_value_fails_in_its_part_alone(
    trace: Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This is how a guideline with neither an effect nor a reason ended a whole analysis."""

    def without(works: Callable[..., dict[str, Any]], lacking: str) -> Callable[..., dict[str, Any]]:
        return lambda *args, **more: {k: v for k, v in works(*args, **more).items() if k != lacking}

    for where, lacking in (("page._answer_view", "table"), ("guidelines._holding", "expected")):
        module, _, name = f"tracekit.report.{where}".rpartition(".")
        works = getattr(importlib.import_module(module), name)
        monkeypatch.setattr(f"{module}.{name}", without(works, lacking))
    done = analyze(trace.path, tmp_path / "out", fit=False, replay_jobs=0)
    assert {fault.part for fault in done.faults} == {
        "the text of the guideline plain",
        *(f"the part of the page on {name}" for name in done.results if name in ASKED),
    }
    assert all("UndefinedError" in fault.reason for fault in done.faults)
    page = unescape(done.report.read_text(encoding="utf-8"))
    assert all(fault.sentence in page for fault in done.faults)
    assert f"{len(done.faults)} part" in page
    assert 'id="terms"' in page


def test_an_effect_that_fails_leaves_the_finding(trace: Trace, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = replace(HOLDING, trial=Trial(("srtf",)), no_trial="")
    judge_by(monkeypatch, tried)
    break_(monkeypatch, "tracekit.guidelines.run.effect_of")
    advice = tracekit.guidelines(trace, try_jobs=5)
    (judged,) = advice.judged
    assert (judged.verdict, judged.no_effect) == ("holds", f"Could not be made: {REASON}.")
    assert [fault.part for fault in advice.faults.found] == ["the effect of the guideline plain"]


def test_guidelines_that_fail_are_said_by_their_command_too(
    trace: Trace, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert run("guidelines", trace.path).returncode == 0
    judge_by(monkeypatch, replace(HOLDING, id="broken", find=lambda evidence: Finding({})), HOLDING)
    done = run("guidelines", trace.path)
    assert done.returncode == 1
    assert "note: The guideline broken could not be made: ValueError: it returns no number" in done.stderr
    assert "It is 90.0 %" in done.stdout


def test_a_replay_that_fails_leaves_the_others(
    make_trace: Callable[..., Trace], trace: Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tracekit.replay.scenario import Scenario

    works = Scenario.run

    def breaks(self: Scenario, policy: str, *args: Any, **more: Any) -> Any:
        if policy == "sjf":
            raise ZeroDivisionError("by <zero> & more")
        return works(self, policy, *args, **more)

    monkeypatch.setattr(Scenario, "run", breaks)
    done = analyze(trace.path, tmp_path / "out", fit=False, replay_jobs=50)
    assert [fault.part for fault in done.faults] == ["the replay of sjf"]
    data = json.loads(done.data.read_text(encoding="utf-8"))
    assert data["replay"]["skipped"] == {"sjf": f"The replay of sjf could not be made: {REASON}."}
    assert "replay/policies" in done.results


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("where", "part", "settings"),
    [
        ("tracekit.report.replay_answers.replayed_answers", "the replays", {"replay_jobs": 50}),
        ("tracekit.report.replay_answers.plan_answer", "the plan of nodes", {"replay_jobs": 50}),
        ("tracekit.fit.scored.fit", "the fit", {"fit": True}),
        ("tracekit.analysis.billing.make_bill", "the bill", {"prices": "prices.toml"}),
        ("tracekit.report.pdf.print_pdf", "the file report.pdf", {"pdf": True}),
    ],
    ids=["replays", "plan", "fit", "bill", "pdf"],
)
def test_steps_beside_the_queries_may_fail(
    trace: Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str, part: str, settings: dict[str, Any]
) -> None:
    prices = tmp_path / "prices.toml"
    prices.write_text('currency = "EUR"\n[[price]]\nper_gpu_hour = "1.50"\n', encoding="utf-8")
    monkeypatch.setattr("tracekit.report.pdf.find_browser", lambda: tmp_path)
    break_(monkeypatch, where)
    given = {"fit": False, "replay_jobs": 0, **settings}
    if "prices" in given:
        given["prices"] = prices
    done = analyze(trace.path, tmp_path / "out", **given)
    assert [(fault.part, fault.reason) for fault in done.faults] == [(part, REASON)]
    data = json.loads(done.data.read_text(encoding="utf-8"))
    assert data["faults"] == [{"part": part, "reason": REASON}]
    assert f"could not be made: {REASON}." in unescape(done.report.read_text(encoding="utf-8"))
    failing = {u["name"].partition("/")[0] for u in data["unanswered"] if u["failed"]}
    expected = {
        "the replays": {"replay", "plan"},
        "the plan of nodes": {"plan"},
        "the fit": {"fit"},
        "the bill": {"money"},
    }
    assert failing == expected.get(part, set())
    assert NAME in done.results


@pytest.mark.thorough
def test_one_of_several_sources_with_a_fault_is_marked_and_the_exit_code_says_it(
    trace: Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    break_(monkeypatch, "tracekit.report.page.charts", NAME)
    out = tmp_path / "out"
    done = run("analyze", trace.path, trace.path, "-o", out, *BRIEF)
    assert (done.returncode, done.stdout) == (1, f"report: {out / 'index.html'}\n")
    entries = json.loads((out / "index.json").read_text(encoding="utf-8"))["reports"]
    assert [(entry["faults"], entry["error"]) for entry in entries] == [(1, None)] * 2
    assert (out / "index.html").read_text(encoding="utf-8").count("1 part of this report could not be made") == 2


@pytest.mark.thorough
def test_a_source_that_ends_in_a_fault_of_the_program_does_not_lose_the_others(
    trace: Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    works, calls = many.analyze_into, []  # type: ignore[attr-defined]  # what it calls

    def breaks(*args: Any, **more: Any) -> Any:
        calls.append(args)
        if len(calls) == 1:
            raise ZeroDivisionError("by zero")
        return works(*args, **more)

    monkeypatch.setattr("tracekit.analysis.many.analyze_into", breaks)
    with pytest.raises(SourceError, match=r"1 of 2 sources failed, starting with .*ZeroDivisionError: by zero"):
        analyze_many([trace.path, trace.path], tmp_path / "out", fit=False, replay_jobs=0)
    assert len(list((tmp_path / "out").glob("*/report.html"))) == 1


@pytest.mark.thorough
def test_a_notebook_and_a_server_show_the_same_sentence(
    trace: Trace, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for where in ("page", "in_notebook"):
        break_(monkeypatch, f"tracekit.report.{where}.charts", NAME)
    break_(monkeypatch, "tracekit.report.answers.finding", "overview/job_size")
    found = tracekit.report(trace)
    assert [fault.part for fault in found.faults] == ["the sentence of overview/job_size"]
    (sentence,) = found.findings.filter(name="overview/job_size")["finding"]
    assert sentence == f"The sentence could not be made: {REASON}."
    charts = f"The charts of {NAME} could not be made: {REASON}."
    for page in (found.html(), ServedTrace(trace, found).page.decode()):
        assert sentence in unescape(page)
        assert charts in unescape(page)
        assert "2 parts of this report could not be made" in page
    assert NAME not in found.charts
    for name in ("first", "second"):
        assert len(found.save(tmp_path / name).faults) == 2


def test_an_answer_of_a_server_says_that_its_charts_could_not_be_made(
    trace: Trace, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tracekit.characterize.limits import Stop
    from tracekit.serve.app import answer_json
    from tracekit.tables.window import EVERYTHING

    served = ServedTrace(trace, tracekit.report(trace))
    break_(monkeypatch, "tracekit.serve.app.charts")
    found = answer_json(served.answer(NAME, EVERYTHING, Stop()), EVERYTHING)
    assert f"The charts could not be made: {REASON}." in unescape(found["html"])
    assert found["charts"]["charts"] == []


@pytest.mark.thorough
def test_names_stay_hidden_in_what_failed(trace: Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    break_(monkeypatch, "tracekit.report.page.charts", NAME)
    done = analyze(trace.path, tmp_path / "out", anonymize=True, fit=False, replay_jobs=0)
    (fault,) = done.faults
    assert fault.reason.startswith("ZeroDivisionError (")
    assert "zero>" not in unescape(done.report.read_text(encoding="utf-8"))


@pytest.mark.parametrize(
    "error",
    [
        UsageError("no"),
        pytest.param(OutputError("full"), marks=pytest.mark.thorough),
        pytest.param(KeyboardInterrupt(), marks=pytest.mark.thorough),
    ],
)
def test_what_concerns_the_whole_run_still_ends_it(
    trace: Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    def breaks(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr("tracekit.report.page.charts", breaks)
    with pytest.raises(type(error)):
        analyze(trace.path, tmp_path / "out", fit=False, replay_jobs=0)
    assert list(tmp_path.iterdir()) == []


def test_a_table_that_cannot_be_written_ends_the_run(
    trace: Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("tracekit.report.files.write_tables", full)
    with pytest.raises(OutputError, match="No space left"):
        analyze(trace.path, tmp_path / "out", fit=False, replay_jobs=0)
    assert list(tmp_path.iterdir()) == []


def site(seed: int) -> dict[str, list[dict[str, Any]]]:
    """Return the tables of a generated site: one without problems, with outages, with bad nodes, or with anything."""
    rng = np.random.default_rng(seed)
    kind = seed % 4
    if kind == 0:
        return clean_world(seed).tables
    if kind == 1:
        world = steady(seed, days=12, per_node_day=float(rng.uniform(0.1, 1)), lemons=int(rng.integers(3)), times=6)
        return rows_of(world, simulate(world))
    if kind == 2:
        return Cluster(nodes=12, sessions=60, bad=(0,), bad_risk=0.7).log(seed).tables
    log = Log()
    names = "abcdef"[: int(rng.integers(2, 7))]
    if rng.random() < 0.7:
        log.nodes(names, 8)
    for number in range(int(rng.integers(40, 250))):
        status = str(rng.choice(["completed", "failed", "cancelled", "timeout", "node_fail", "running", "unknown"]))
        many = tuple([status] * int(rng.integers(1, 5)))
        gpus = float(rng.choice([0, 1, 2, 4, 8]))
        job = log.job(
            float(rng.uniform(0, 20 * DAY)),
            float(rng.lognormal(8, 2)),
            gpus=gpus,
            queue_s=float(rng.choice([0, 30, 5000, 90000])),
            attempts=many,
            node=str(rng.choice(list(names))) if gpus and rng.random() < 0.8 else None,
            user=f"u{rng.integers(6)}",
            vc=str(rng.choice(["v", "w"])),
            time_limit_s=float(rng.choice([3600, 86400, 864000])),
        )
        if rng.random() < 0.5:
            log.used(job, gpus, float(rng.uniform(0, 100)))
        if number % 9 == 0:
            down = float(rng.uniform(0, 20 * DAY))
            log.add("node_events", node_id=names[0], start_time=when(down), end_time=when(down + 7200), state="down")
    return log.tables


@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=pytest.mark.thorough if seed < 4 else pytest.mark.slow) for seed in range(20)]
)
def test_all_that_is_found_on_a_generated_site_has_its_sentence(
    make_trace: Callable[..., Trace], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.undo()  # all questions and guidelines
    monkeypatch.setattr("tracekit.report.page.vega_bundle", lambda: "/* bundle */")
    made = make_trace(**site(seed))
    check_sentences(analyze(made.path, tmp_path / "out", fit=seed % 5 == 0, replay_jobs=150))


@pytest.fixture(scope="module")
def whole(analyzed: Callable[[str], Analysis]) -> Analysis:
    """Return an analysis that asks everything: it is made before `small` takes questions away."""
    return analyzed("slurm")


def test_all_that_is_found_in_a_sample_has_its_sentence(whole: Analysis) -> None:
    check_sentences(whole)


def check_sentences(done: Analysis) -> None:
    """Check that no part failed, and that page and text hold the sentence of everything that was found."""
    assert done.faults == ()
    data = json.loads(done.data.read_text(encoding="utf-8"))
    html = done.report.read_text(encoding="utf-8")
    page = _words(unescape(re.sub(r"<(script|style)\b.*?</\1>|<[^<>]*>", "", html, flags=re.DOTALL)))
    text, advice = (
        _words((done.folder / f"{name}.md").read_text(encoding="utf-8")) for name in ("report", "guidelines")
    )
    answers = [answer for section in data["sections"] for answer in section["answers"]]
    assert {a["name"] for a in answers} | {u["name"] for u in data["unanswered"]} == {*done.results, *done.unanswered}
    for answer in answers:
        for said in filter(None, [answer["question"], answer["finding"]]):
            assert _words(said) in page
            assert _words(said) in text
    for one in data["guidelines"]["guidelines"]:
        holds = one["verdict"] == "holds"
        assert bool(one["why"]) != holds
        sentences = [one["title"], *one["why"]]
        if holds:
            (expected,) = [(one["effect"] or one["losses"] or {}).get("text") or one["no_effect"]]
            assert expected
            sentences += [one["finding"]["text"], expected, one["advice"], one["cost"], one["risk"]]
        for said in sentences:
            assert _words(said) in page, one["id"]
            assert _words(said) in advice, one["id"]
        for said in [one["title"], *([one["finding"]["text"], expected, one["advice"]] if holds else [])]:
            assert _words(said) in text, one["id"]


def _words(text: str) -> str:
    """Return the letters and digits of a text, whatever marks and spaces a page or Markdown adds."""
    return "".join(c for c in text if c.isalnum() or c in "%.")
