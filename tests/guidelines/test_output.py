"""The guidelines as JSON, Markdown and HTML: stable keys, no advice without a finding, and every name escaped."""

from __future__ import annotations

import json
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest
from typer.testing import CliRunner

import tracekit
from tests.guidelines.planted import DAY, Log
from tracekit.cli import app
from tracekit.errors import TracekitError
from tracekit.resources import folder

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.reviewed import Golden
    from tracekit.guidelines.run import Advice
    from tracekit.trace import Trace

    MakeTrace = Callable[..., Trace]

HOSTILE = "<script>alert(1)</script>|`x`\n## |\u202e" + "k" * 1000


def assert_valid(document: dict[str, Any]) -> None:
    schema = json.loads((folder("schemas") / "guidelines-1.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator(schema).validate(json.loads(json.dumps(document, allow_nan=False)))


@pytest.fixture(scope="module")
def trace(make_trace: MakeTrace) -> Trace:
    """Ten days of idle jobs by a user with a hostile name, and of busy ones."""
    log = Log()
    for day in range(10):
        for k in range(4):
            log.used(log.job(day * DAY + k * 7200, 7200, gpus=2, user=HOSTILE, vc=HOSTILE), 2, 5)
            log.used(log.job(day * DAY + k * 7200, 3600, gpus=2, user="b"), 2, 90)
    return make_trace(**log.tables)


@pytest.fixture(scope="module")
def advice(trace: Trace) -> Advice:
    return tracekit.guidelines(trace)


@pytest.fixture(scope="module")
def of_two(trace: Trace) -> Advice:
    return tracekit.guidelines(trace, only=["reclaim-idle", "share-gpus"])


@pytest.fixture(scope="module")
def document(of_two: Advice) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(of_two.json())
    return found


def test_the_document_fits_its_schema(advice: Advice) -> None:
    assert_valid(advice.document())


def test_the_keys_are_those_that_scripts_rely_on(document: dict[str, Any]) -> None:
    assert list(document) == [
        "format",
        "version",
        "tracekit_version",
        "trace",
        "source_format",
        "holds",
        "guidelines",
    ]
    entry = [
        "id",
        "title",
        "question",
        "verdict",
        "why",
        "thresholds",
        "finding",
        "advice",
        "effect",
        "losses",
        "no_effect",
        "record",
        "cost",
        "risk",
        "practice",
        "sources",
    ]
    assert [list(found) for found in document["guidelines"]] == [entry, entry]
    first = document["guidelines"][0]
    assert list(first["thresholds"][0]) == ["key", "what", "side", "value", "unit", "limit", "source", "crossed"]
    assert list(first["finding"]) == ["text", "numbers", "rows_title", "rows", "rows_left_out", "notes"]
    assert list(first["finding"]["numbers"][0]) == ["key", "what", "unit", "value", "n", "low", "high", "n_of", "text"]
    assert list(first["practice"]) == ["slurm", "kubernetes", "yarn"]


def test_advice_stands_only_where_a_finding_crossed_its_threshold(document: dict[str, Any], golden: Golden) -> None:
    idle, share = document["guidelines"]
    assert (idle["verdict"], share["verdict"]) == ("holds", "does not hold")
    assert idle["advice"]
    assert idle["cost"]
    assert idle["risk"]
    assert idle["practice"]
    golden(idle["finding"]["text"])
    assert [share[key] for key in ("advice", "effect", "no_effect", "cost", "risk", "practice")] == [None] * 6


def test_rows_are_cut_and_what_is_left_out_is_counted(document: dict[str, Any]) -> None:
    finding = document["guidelines"][0]["finding"]
    assert (len(finding["rows"]), finding["rows_left_out"]) == (20, 0)
    assert all(len(row["user"]) <= 200 for row in finding["rows"])


class Tags(HTMLParser):
    """Collects the names of the elements of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: set[str] = set()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.add(tag)


def test_a_hostile_name_is_text_on_the_page(advice: Advice) -> None:
    page = advice.html()
    tags = Tags()
    tags.feed(page)
    assert "script" not in tags.found
    assert {"main", "section", "table", "h1", "h2", "h3"} <= tags.found
    assert "&lt;script&gt;" in page
    assert "\u202e" not in page
    assert "://" not in page


def test_a_hostile_name_is_text_in_markdown(advice: Advice, golden: Golden) -> None:
    text = advice.markdown()
    assert "\\<script\\>alert(1)\\</script\\>\\|\\`x\\`\\\\n\\#\\# \\|\\\\u202e" in text
    heads = [line for line in text.splitlines() if line.startswith("## ")]
    golden(heads)
    table = [line for line in text.splitlines() if line.startswith("| j") and "script" in line]
    assert len(table) == 20


def test_the_same_trace_gives_the_same_bytes(trace: Trace, advice: Advice) -> None:
    assert tracekit.guidelines(trace).json() == advice.json()


def test_the_advice_shows_itself_in_short(of_two: Advice) -> None:
    assert repr(of_two) == "<2 guidelines, 1 hold: reclaim-idle>"


@pytest.mark.parametrize(("form", "begins"), [("md", "# Guidelines for "), ("json", "{"), ("html", "<!doctype html>")])
def test_the_command_writes_each_form(trace: Trace, tmp_path: Path, form: str, begins: str) -> None:
    out = tmp_path / "out"
    command = ["guidelines", str(trace.path), "--only", "reclaim-idle", "-f", form]
    shown = CliRunner().invoke(app, command)
    assert shown.exit_code == 0, shown.output
    written = CliRunner().invoke(app, [*command, "-o", str(out)])
    assert written.stdout == f"guidelines: {out} (1 of 1 hold)\n"
    assert out.read_text(encoding="utf-8") == shown.stdout
    assert shown.stdout.startswith(begins)
    assert sorted(tmp_path.iterdir()) == [out]


def test_a_file_that_is_there_is_not_replaced(trace: Trace, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.write_text("mine")
    command = ["guidelines", str(trace.path), "--only", "reclaim-idle", "-o", str(out)]
    assert isinstance(CliRunner().invoke(app, command).exception, TracekitError)
    assert out.read_text() == "mine"
    assert CliRunner().invoke(app, [*command, "--force"]).exit_code == 0


@pytest.mark.parametrize(
    "sample", ["philly", *(pytest.param(name, marks=pytest.mark.thorough) for name in ("alibaba-pai", "acme"))]
)
def test_a_sample_trace_gets_no_advice_without_its_number(sample: str, sample_trace: Callable[[str], Trace]) -> None:
    trace = sample_trace(sample)
    document = tracekit.guidelines(trace).document()
    assert_valid(document)
    for entry in document["guidelines"]:
        crossed = [threshold["crossed"] for threshold in entry["thresholds"]]
        assert (entry["verdict"] == "holds") == (entry["advice"] is not None)
        assert entry["verdict"] != "holds" or all(crossed)
        assert entry["verdict"] == "holds" or entry["why"]
