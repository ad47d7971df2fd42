"""The source `slurm:` runs sacct, day by day, and keeps what it prints."""

from __future__ import annotations

import datetime as dt
import tracemalloc
from typing import TYPE_CHECKING, Any

import pytest

from tracekit.errors import OutputError, SourceError, UsageError
from tracekit.ingest import ingest_logs, pull_slurm
from tracekit.progress import Progress

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.reviewed import Golden
    from tracekit.trace import Trace

    Rows = Callable[[Trace, str], list[dict[str, Any]]]

FIELDS = ["JobID", "Submit", "Start", "End", "State", "AllocTRES", "NodeList", "JobName"]
DAY = 86_400
MONDAY = 1709510400
"""2024-03-04 00:00:00 UTC."""


def row(job: int, submit: int, end: int | str, state: str = "COMPLETED", name: str = "a|b") -> list[str]:
    started = str(submit + 10)
    return [str(job), str(submit), started, str(end), state, "cpu=4,gres/gpu=2,node=1", "n1", name]


class FakeSlurm:
    """A folder with the programs of Slurm: sacct prints a file for each day, and notes how it was called."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self.program("scontrol", "echo NodeName=n1 Gres=gpu:8")
        self.program("sacctmgr", "echo 'Cluster|NodeName|'")
        self.program(
            "sacct",
            f"""if [ "$1" = --helpformat ]; then echo 'AssocID {" ".join(FIELDS)}'; exit 0; fi
            echo "$TZ $SLURM_TIME_FORMAT $*" >> {folder}/calls
            for word in "$@"; do case "$word" in --starttime=*) day=${{word#--starttime=}};; esac; done
            day=${{day%T*}}
            cat {folder}/header; [ ! -f {folder}/$day ] || cat {folder}/$day""",
        )
        (folder / "header").write_text("\x1f".join(FIELDS) + "\n")

    def program(self, name: str, script: str) -> None:
        path = self.folder / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def day(self, day: str, *rows: list[str]) -> None:
        (self.folder / day).write_text("".join("\x1f".join(cells) + "\n" for cells in rows))

    def calls(self) -> list[str]:
        return (self.folder / "calls").read_text().splitlines()


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeSlurm:
    fake = FakeSlurm(tmp_path / "bin")
    monkeypatch.setenv("PATH", f"{fake.folder}:/usr/bin:/bin")
    return fake


class Heard(Progress):
    """Keeps what was noted."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


@pytest.fixture
def heard() -> Heard:
    return Heard()


def pulled(out: Path, first: str, last: str, **arguments: Any) -> Trace:
    start, end = (None if not text else dt.datetime.fromisoformat(text) for text in (first, last))
    return ingest_logs("slurm:", out, start=start, end=end, **arguments)


def test_each_day_is_one_call_and_what_it_printed_is_kept(slurm: FakeSlurm, rows: Rows, tmp_path: Path) -> None:
    slurm.day("2024-03-04", row(7, MONDAY + 100, MONDAY + 3710), row(8, MONDAY + 200, "Unknown", "RUNNING"))
    slurm.day("2024-03-05", row(8, MONDAY + 200, MONDAY + DAY + 210))
    trace = pulled(tmp_path / "trace", "2024-03-04", "2024-03-05T12:00:00")
    found = [(j["job_id"], j["status"], j.get("run_s"), j["name"], j["submit_time"]) for j in rows(trace, "jobs")]
    assert found == [
        ("slurm/7", "completed", 3600.0, "a|b", "2024-03-04 00:01:40"),
        ("slurm/8", "completed", 86_400.0, "a|b", "2024-03-04 00:03:20"),
    ]
    words = (
        "--parsable2 --allusers --duplicates --delimiter=\x1f"
        " --format=JobID,Submit,Start,End,State,AllocTRES,NodeList,JobName"
    )
    assert slurm.calls() == [
        f"UTC %s {words} --starttime=2024-03-04T00:00:00 --endtime=2024-03-05T00:00:00",
        f"UTC %s {words} --starttime=2024-03-05T00:00:00 --endtime=2024-03-05T12:00:00",
    ]
    assert [account.path for account in trace.manifest.files] == ["sacct-2024-03-04.txt", "sacct-2024-03-05.txt"]
    (kept,) = (tmp_path / "trace.slurm").iterdir()
    assert sorted(path.name for path in kept.iterdir()) == [
        "sacct-2024-03-04.txt",
        "sacct-2024-03-05.txt",
        "sacctmgr-event.psv",
        "scontrol-nodes.txt",
    ]
    assert (kept / "scontrol-nodes.txt").read_text() == "NodeName=n1 Gres=gpu:8\n"
    assert not any("zone" in note for note in trace.manifest.notes)


def test_an_append_goes_on_from_the_last_day(slurm: FakeSlurm, rows: Rows, tmp_path: Path) -> None:
    slurm.day("2024-03-04", row(7, MONDAY + 100, MONDAY + 3710))
    slurm.day("2024-03-05", row(8, MONDAY + DAY, "Unknown", "RUNNING"))
    pulled(tmp_path / "trace", "2024-03-04", "2024-03-05T01:00:00", append=True)
    slurm.day("2024-03-05", row(8, MONDAY + DAY, MONDAY + DAY + 7210))
    slurm.day("2024-03-06", row(9, MONDAY + 2 * DAY, MONDAY + 2 * DAY + 20))
    trace = pulled(tmp_path / "trace", "", "2024-03-07", append=True)
    assert [call.split("--starttime=")[1][:10] for call in slurm.calls()] == [
        "2024-03-04",
        "2024-03-05",
        "2024-03-05",
        "2024-03-06",
    ]
    assert [(j["job_id"], j["run_s"]) for j in rows(trace, "jobs")] == [
        ("slurm/7", 3600.0),
        ("slurm/8", 7200.0),
        ("slurm/9", 10.0),
    ]
    assert len(list((tmp_path / "trace.slurm").iterdir())) == 2


def test_a_span_without_jobs_adds_nothing(slurm: FakeSlurm, rows: Rows, tmp_path: Path) -> None:
    slurm.day("2024-03-04", row(7, MONDAY + 100, MONDAY + 3710))
    before = pulled(tmp_path / "trace", "2024-03-04", "2024-03-05")
    after = pulled(tmp_path / "trace", "2024-03-06", "2024-03-07", append=True)
    assert rows(after, "jobs") == rows(before, "jobs")
    assert len(after.manifest.files) == 1


def test_a_pull_up_to_now_looks_ahead_for_jobs_that_wait_for_a_begin_time(slurm: FakeSlurm, tmp_path: Path) -> None:
    now = dt.datetime.now(dt.UTC).replace(tzinfo=None)
    yesterday = now - dt.timedelta(days=1)
    slurm.day(f"{yesterday:%Y-%m-%d}", row(7, MONDAY + 100, MONDAY + 3710))
    pulled(tmp_path / "trace", f"{yesterday:%Y-%m-%d}", "")
    ends = [dt.datetime.fromisoformat(call.split("--endtime=")[1]) for call in slurm.calls()]
    # Only the last call does: each job would else be in every day's answer before it begins.
    assert max(ends[:-1]) <= dt.datetime.now(dt.UTC).replace(tzinfo=None)
    assert ends[-1] > now + dt.timedelta(days=3000)


def test_a_program_that_fails_is_reported_in_one_line(slurm: FakeSlurm, tmp_path: Path) -> None:
    slurm.program("sacct", "echo 'sacct: error: slurmdbd' >&2; echo is down >&2; exit 3")
    with pytest.raises(SourceError, match=r"^slurm: 'sacct' ended with exit code 3: sacct: error: slurmdbd is down"):
        pulled(tmp_path / "trace", "2024-03-04", "2024-03-05")
    slurm.program("sacct", "kill -9 $$")
    with pytest.raises(SourceError, match=r"'sacct' was ended by signal 9: it printed no error"):
        pulled(tmp_path / "trace", "2024-03-04", "2024-03-05")
    slurm.program("sacct", "echo no such thing")
    with pytest.raises(SourceError, match="lists no columns"):
        pulled(tmp_path / "trace", "2024-03-04", "2024-03-05")
    assert not (tmp_path / "trace").exists()


def test_what_sacct_says_while_it_succeeds_is_shown_and_counted(
    slurm: FakeSlurm, heard: Heard, tmp_path: Path, golden: Golden
) -> None:
    slurm.day("2024-03-04", row(7, MONDAY + 100, MONDAY + 3710))
    slurm.day("2024-03-06", row(9, MONDAY + 2 * DAY, MONDAY + 2 * DAY + 20))
    sacct = (slurm.folder / "sacct").read_text()
    error = "sacct: error: slurmdbd: connection lost \\033[31m password=hunter2"
    slurm.program(
        "sacct",
        f"""{sacct}
        case "$day" in *-05|*-06) printf '%b\\n' '{error}' >&2;; esac; exit 0""",
    )
    trace = pulled(tmp_path / "trace", "2024-03-04", "2024-03-07", progress=heard)
    check = trace.manifest.checks["program_errors"]
    assert (check.count, check.of, trace.manifest.records) == (2, 5, 2)
    assert not any("hunter2" in text or "\x1b" in text for text in [*check.examples, *heard.notes])
    notes = [note for note in heard.notes if "sacct" in note and "saved in" not in note]
    golden([check.meaning, *check.examples, *notes[:2]])


def test_a_day_for_which_sacct_prints_nothing_is_not_a_day_without_jobs(
    slurm: FakeSlurm, heard: Heard, tmp_path: Path
) -> None:
    slurm.day("2024-03-04", row(7, MONDAY + 100, MONDAY + 3710))
    sacct = (slurm.folder / "sacct").read_text()
    slurm.program(
        "sacct",
        f"""case "$*" in *starttime=2024-03-05*) exit 0;; esac
        {sacct}""",
    )
    with pytest.raises(SourceError, match=r"sacct-2024-03-05\.txt, line 1: is empty"):
        pulled(tmp_path / "trace", "2024-03-04", "2024-03-06", progress=heard)
    assert sum("sacct-2024-03-05.txt may be incomplete: it printed nothing" in note for note in heard.notes) == 1


def test_a_pull_without_errors_says_so(slurm: FakeSlurm, heard: Heard, tmp_path: Path) -> None:
    slurm.day("2024-03-04", row(7, MONDAY + 100, MONDAY + 3710))
    check = pulled(tmp_path / "trace", "2024-03-04", "2024-03-05", progress=heard).manifest.checks["program_errors"]
    assert (check.count, check.of, check.examples) == (0, 3, [])
    assert not any("incomplete" in note for note in heard.notes)


def test_only_the_first_errors_of_many_days_are_shown(slurm: FakeSlurm, heard: Heard, tmp_path: Path) -> None:
    slurm.day("2024-03-04", row(7, MONDAY + 100, MONDAY + 3710))
    sacct = (slurm.folder / "sacct").read_text()
    slurm.program("sacct", f"{sacct}\necho lost >&2")
    trace = pulled(tmp_path / "trace", "2024-03-04", "2024-03-14", progress=heard)
    assert sum("may be incomplete" in note for note in heard.notes) == 3
    assert any("10 of 12 calls" in note for note in heard.notes)
    assert (trace.manifest.checks["program_errors"].count, len(trace.manifest.checks["program_errors"].examples)) == (
        10,
        5,
    )


@pytest.mark.parametrize(
    ("script", "bound", "told"),
    [
        ("while :; do echo 'sacct: error: lost' >&2; done", "_MOST_ERRORS", "of errors: sacct: error: lost sacct"),
        ("while :; do echo 7; done", "_MOST_BYTES", "in one call"),
    ],
)
def test_a_program_whose_output_does_not_end_is_ended(
    script: str, bound: str, told: str, slurm: FakeSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pull_slurm, bound, 100_000)
    sacct = (slurm.folder / "sacct").read_text()
    slurm.program("sacct", f"{sacct}\n{script}")
    with pytest.raises(SourceError, match=rf"'sacct' printed more than 97\.7 KiB {told}"):
        pulled(tmp_path / "trace", "2024-03-04", "2024-03-05")
    (kept,) = (tmp_path / "trace.slurm").iterdir()
    assert list(kept.iterdir()) == []


def test_words_are_kept_in_bounded_memory(tmp_path: Path, slurm: FakeSlurm) -> None:
    slurm.program("sacct", "head -c 3000000 /dev/zero >&2; head -c 3000000 /dev/zero")
    tracemalloc.start()
    try:
        ended = pull_slurm.keep_output(["sacct"], tmp_path / "out", {})
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert (ended.code, ended.size, (tmp_path / "out").stat().st_size) == (0, 3_000_000, 3_000_000)
    assert len(ended.words) <= 300
    assert most < 1_000_000


def test_a_program_that_left_a_child_behind_has_ended(tmp_path: Path, slurm: FakeSlurm) -> None:
    """The child holds the output open; the program's end counts."""
    slurm.program("sacct", "sleep 20 & echo done")
    assert pull_slurm.keep_output(["sacct"], tmp_path / "out", {}) == (0, "", 5)


def test_a_program_that_hangs_is_ended(slurm: FakeSlurm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pull_slurm, "_PATIENCE_S", 0.05)
    slurm.program("sacct", "exec sleep 60")
    with pytest.raises(SourceError, match=r"'sacct' did not end within 0\.05 s"):
        pulled(tmp_path / "trace", "2024-03-04", "2024-03-05")


def test_a_machine_without_slurm_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SourceError, match=r"'sacct' was not found in PATH"):
        pulled(tmp_path / "trace", "2024-03-04", "2024-03-05")


def test_node_lists_are_not_needed(slurm: FakeSlurm, tmp_path: Path) -> None:
    slurm.day("2024-03-04", row(7, MONDAY + 100, MONDAY + 3710))
    slurm.program("scontrol", "echo 'Unable to contact slurm controller' >&2; exit 1")
    assert pulled(tmp_path / "trace", "2024-03-04", "2024-03-05").manifest.records == 1


def test_a_span_needs_a_live_source_and_a_direction(slurm: FakeSlurm, tmp_path: Path) -> None:
    (tmp_path / "logs").mkdir()
    with pytest.raises(UsageError, match=r"--from: --from and --to apply only to live sources"):
        ingest_logs(tmp_path / "logs", tmp_path / "trace", start=dt.datetime(2024, 3, 4))
    with pytest.raises(UsageError, match="would begin at 2024-03-05 00:00:00 and end at 2024-03-04 00:00:00"):
        pulled(tmp_path / "trace", "2024-03-05", "2024-03-04")
    assert not (slurm.folder / "calls").exists()


def test_nothing_is_asked_for_before_the_output_is_free(slurm: FakeSlurm, tmp_path: Path) -> None:
    (tmp_path / "trace").mkdir()
    (tmp_path / "trace" / "mine.txt").write_text("x")
    with pytest.raises(OutputError, match="exists already"):
        pulled(tmp_path / "trace", "2024-03-04", "2024-03-05")
    assert not (slurm.folder / "calls").exists()
