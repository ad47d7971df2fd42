"""What a log lacks is the first thing said, with the command that adds it; nothing reassuring is said in its place."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.command import run
from tests.report.answering import answers_of
from tests.report.test_summary import _entry
from tracekit.ingest import ingest_logs
from tracekit.ingest.formats._slurm_text import COMMAND
from tracekit.manifest import ASSUMED_ZONE, Capability, Check
from tracekit.report.caveats import lacks_of
from tracekit.report.headline import state
from tracekit.report.summary import summary

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tracekit.trace import Trace

ZONE = "tracekit analyze LOGS -o OUT --option timezone=Area/City"
TELEMETRY = "tracekit analyze LOGS -o OUT --telemetry http://PROMETHEUS:9090"
JOBS = [{"job_id": "a", "submit_time": "2025-03-14 09:00"}]


def lacking(trace: Trace, **known: float) -> list[tuple[str, str]]:
    answers = answers_of(overview__summary=[{"metric": name, "value": value} for name, value in known.items()])
    return [(lack["name"], lack["cure"]) for lack in lacks_of(trace, answers)]


def without(*names: str, **facts: Any) -> dict[str, Any]:
    return {"format": "slurm", "capabilities": {name: Capability(available=False) for name in names}, **facts}


def test_each_lack_has_its_command_and_comes_in_one_order(make_trace: Callable[..., Trace]) -> None:
    def trace(*names: str, **facts: Any) -> Trace:
        return make_trace(jobs=JOBS, manifest_overrides=without(*names, **facts))

    assert lacking(trace(), jobs=1, gpu_jobs=1) == []
    assert lacking(trace("gpu_count"), jobs=1) == [("gpus", COMMAND)]
    assert lacking(trace("utilization"), jobs=1, gpu_jobs=1) == [("telemetry", TELEMETRY)]
    assert lacking(trace(notes=[f"times have no zone and are {ASSUMED_ZONE}"]), jobs=1, gpu_jobs=1) == [("zone", ZONE)]
    every = trace("gpu_count", "utilization", notes=[f"printed times have no zone and are {ASSUMED_ZONE}"])
    assert lacking(every, jobs=1) == [("gpus", COMMAND), ("zone", ZONE), ("telemetry", TELEMETRY)]


def test_a_zone_that_the_user_names_is_not_lacking(make_trace: Callable[..., Trace]) -> None:
    notes = [
        "times have no zone and are read as Europe/Berlin, as set by the option; --option timezone=NAME changes it"
    ]
    assert lacking(make_trace(jobs=JOBS, manifest_overrides=without(notes=notes)), jobs=1, gpu_jobs=1) == []


def test_a_log_without_gpu_jobs_lacks_no_telemetry_and_says_where_gpus_would_be(
    make_trace: Callable[..., Trace],
) -> None:
    def trace(name: str) -> Trace:
        return make_trace(jobs=JOBS, manifest_overrides={**without("utilization"), "format": name})

    assert [name for name, _ in lacking(trace("slurm"), jobs=1, cpu_jobs=1)] == ["gpus"]
    assert "AccountingStorageTRES=gres/gpu" in lacking(trace("slurm"), jobs=1, cpu_jobs=1)[0][1]
    assert lacking(trace("swf"), jobs=1, cpu_jobs=1) == []
    assert lacking(trace("a-plugin-that-is-gone"), jobs=1, cpu_jobs=1) == []


def test_a_trace_of_machines_alone_lacks_nothing_of_this(make_trace: Callable[..., Trace]) -> None:
    trace = make_trace(nodes=[{"node_id": "n1"}], manifest_overrides=without("gpu_count", "utilization"))
    assert lacking(trace) == []


WAITS = [{"period": "whole", "mean_wait_s": 5.0, "p90_wait_s": 5.0, "held_share": None}]


@pytest.mark.parametrize(
    ("known", "said"),
    [
        ({"jobs": 2, "gpu_jobs": 1, "cpu_jobs": 1}, "Jobs start at once."),
        ({"jobs": 2, "gpu_jobs": 0, "cpu_jobs": 2}, "No job of this log has GPUs."),
        ({"jobs": 2, "jobs_of_unknown_size": 2}, "It is unknown which jobs have GPUs."),
        ({"jobs": 2, "cpu_jobs": 1, "jobs_of_unknown_size": 1}, "It is unknown which jobs have GPUs."),
    ],
)
def test_jobs_start_at_once_is_said_of_gpu_jobs_alone(known: dict[str, float], said: str) -> None:
    rows = [{"metric": name, "value": value} for name, value in known.items()]
    assert state(answers_of(overview__summary=rows, overview__through_time=WAITS)) == said


@pytest.mark.parametrize(
    ("decided", "undecided", "claims"), [(3, 2, True), (2, 2, True), (2, 3, False), (1, 18, False)]
)
def test_no_problem_is_claimed_where_most_checks_could_not_be_made(decided: int, undecided: int, claims: bool) -> None:
    entries = [_entry("absent", "does not hold")] * decided + [_entry("who", "cannot tell")] * undecided
    heading = summary(answers_of(overview__summary=[{"metric": "jobs", "value": 9}]), {"guidelines": entries})[
        "heading"
    ]
    assert ("No problem found" in heading) is claims
    assert claims or heading == "No advice: most checks need data that are missing from this log"


LOG = """JobID|User|Account|Partition|Submit|Start|End|State|ElapsedRaw
1|ana|physics|gpu|2025-03-14T09:00:00|2025-03-14T09:00:05|2025-03-14T10:00:05|COMPLETED|3600
2|ben|physics|gpu|2025-03-15T09:00:00|2025-03-15T09:00:05|2025-03-15T10:00:05|COMPLETED|3600
"""


def test_the_terminal_the_page_and_the_text_begin_with_what_the_log_lacks(tmp_path: Path) -> None:
    (tmp_path / "sacct.txt").write_text(LOG)
    done = run("analyze", tmp_path / "sacct.txt", "-o", tmp_path / "out", "--no-fit", "--replay-jobs", "0")
    assert done.returncode == 0, done.stderr
    last = done.stderr.splitlines()[-3:]
    assert [line.partition(" Add it: ")[2] for line in last] == [COMMAND, ZONE, TELEMETRY]
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    assert [lack["name"] for lack in report["opening"]["lacks"]] == ["gpus", "zone", "telemetry"]
    assert report["opening"]["state"] == "It is unknown which jobs have GPUs."
    page = (tmp_path / "out" / "report.html").read_text()
    first = page[page.index('id="opening-title"') :]
    assert first.index('<ul class="lacks">') < first.index('id="state"')
    assert f"<code>{COMMAND}</code>" in first
    assert "No problem found" not in page
    assert "Jobs start at once" not in first[: first.index("</section>")]
    text = (tmp_path / "out" / "report.md").read_text()
    assert text.index("**The log does not record the GPUs of jobs.**") < text.index("A cluster")


def test_the_note_of_each_format_with_wall_clocks_is_found_again(tmp_path: Path) -> None:
    (tmp_path / "sacct.txt").write_text(LOG)
    named = ingest_logs(tmp_path / "sacct.txt", tmp_path / "named", options={"timezone": "Europe/Berlin"})
    assert not any(note.endswith(ASSUMED_ZONE) for note in named.manifest.notes)
    assert any("Europe/Berlin" in note for note in named.manifest.notes)


@pytest.mark.parametrize(
    ("things", "example", "jobs", "cure"),
    [
        ("jobs", "7: npu|dcu", 100, "npu"),
        ("pods", "team/a: huawei.com/Ascend910", 100, "huawei.com/Ascend910"),
        ("jobs", "7: npu", 300, None),  # three of 300 are few
    ],
)
def test_devices_that_nobody_knows_are_named_unless_few_jobs_have_them(
    make_trace: Callable[..., Trace], things: str, example: str, jobs: int, cure: str | None
) -> None:
    check = Check(3, jobs, "", [example])
    trace = make_trace(jobs=JOBS, manifest_overrides=without(checks={f"unknown_devices_of_{things}": check}))
    expected = [("devices", f"tracekit analyze LOGS -o OUT --option gpu_resource={cure}=FACTOR")]
    assert lacking(trace, jobs=jobs, gpu_jobs=jobs - 3) == (expected if cure else [])
