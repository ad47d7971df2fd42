"""What the tutorial on outages says in words, computed again from the files of the sample with csv alone."""

from __future__ import annotations

import csv
import datetime as dt
import math
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.command import run
from tests.docs.examples import DOCS

if TYPE_CHECKING:
    from collections.abc import Callable

SAMPLE = Path(__file__).resolve().parents[2] / "sample_traces" / "slurm-outages"
TEXT = (DOCS / "tutorials" / "reliability.md").read_text(encoding="utf-8")
PROSE = " ".join(TEXT.split())
HOUR = dt.timedelta(hours=1)


def rows(name: str) -> list[dict[str, str]]:
    with (SAMPLE / name).open(newline="", encoding="ascii") as handle:
        return list(csv.DictReader(handle, delimiter="|"))


def span(row: dict[str, str], first: str, last: str) -> float:
    """Return how long something took [h]."""
    return (dt.datetime.fromisoformat(row[last]) - dt.datetime.fromisoformat(row[first])) / HOUR


def test_what_the_log_held_and_lost() -> None:
    held, lost = 0.0, {"NODE_FAIL": 0.0, "FAILED": 0.0}
    for row in rows("sacct.txt"):
        gpus, hours = int(row["AllocTRES"].partition("gres/gpu=")[2].partition(",")[0]), span(row, "Start", "End")
        held += gpus * hours
        if row["State"] in lost:
            lost[row["State"]] += gpus * math.fmod(hours, 4)
    assert f"Of {held:,.0f} allocated GPU-hours, {sum(lost.values()):,.0f} were lost" in PROSE
    assert f"failed nodes cost {lost['NODE_FAIL']:,.0f} GPU-hours" in PROSE
    assert f"{1 - sum(lost.values()) / held:.1%}".replace("%", " % were useful") in PROSE


def test_the_arithmetic_of_the_interval() -> None:
    events, jobs = rows("sacctmgr-event.psv"), rows("sacct.txt")
    times = sorted(dt.datetime.fromisoformat(row[name]) for row in jobs for name in ("Submit", "End"))
    seen = [dt.datetime.fromisoformat(row[name]) for row in events for name in ("TimeStart", "TimeEnd")]
    # The log covers the time from its first to its last word, of a job or of a node.
    observed = (max(*seen, times[-1]) - min(*seen, times[0])) / HOUR
    away = sum(span(row, "TimeStart", "TimeEnd") for row in events)
    up = 24 * observed - away
    assert f"24 x {observed:,.1f} h - {away:.1f} h = {up:,.0f} h, and failed {len(events)} times" in PROSE
    hit = up / len(events) / 16
    assert f"/ 16 = {hit:.1f} h" in PROSE
    assert f"√(2 x 300 s x 29.2 h) = {math.sqrt(2 * 300 * hit * 3600) / 3600:.1f} h" in PROSE


@pytest.mark.parametrize(("interval", "place"), [("4 h", 0), ("1 h", 1), ("2 h", 2), ("Daly's", 3)])
def test_the_table_repeats_what_the_commands_print(interval: str, place: int) -> None:
    printed = [line.split() for line in TEXT.splitlines() if line.startswith(" fifo ")][place]
    mean, goodput, lost = printed[2], printed[9], printed[10]
    cells = f"| {interval} | {goodput} % | {float(lost.replace(',', '')):,.0f} | {float(mean):.2f} h |"
    assert cells in TEXT


@pytest.mark.thorough
def test_the_sentences_about_the_real_servers(real_data: Callable[[str], Path], tmp_path: Path) -> None:
    trace = tmp_path / "servers"
    done = run("ingest", real_data("infinitehbd"), "-o", trace, "--option", "gpus_per_server=8")
    assert done.returncode == 0
    saving = "interval=3600,cost=60,restart=300"
    done = run("plan", trace, "--gang", "256", "--ettr", "0.95", "--checkpoint", saving, "-o", tmp_path / "plan")
    told = TEXT.partition("-o servers-plan\n```\n\n```text\n...\n")[2].partition("\n...\n```")[0]
    assert (told.count("\n"), told in done.stdout) == (3, True)
