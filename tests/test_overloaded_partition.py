"""A log of two partitions, one full for weeks and one idle: the first screen says what an operator should do."""

from __future__ import annotations

import datetime as dt
import json
from typing import TYPE_CHECKING

import pytest

from tests.command import run

if TYPE_CHECKING:
    from pathlib import Path

_HEAD = "JobID|Submit|Start|End|State|Timelimit|AllocTRES|NNodes|NodeList|Account|Partition|User"
_BEGIN = dt.datetime(2026, 9, 7)


def sacct() -> str:
    """Return 200 jobs of h100, whose only node runs one of them at a time, and 60 of a100, which do not wait.

    Each h100 job runs for 2 h, and one is submitted every 90 min, so the last one waits for 99.5 h.
    """
    hours = [dt.timedelta(hours=hour) for hour in range(400)]
    full = [_row(n, "h100", _BEGIN + 1.5 * hours[n], _BEGIN + hours[2 * n], 2) for n in range(200)]
    idle = [_row(200 + n, "a100", _BEGIN + hours[5 * n], _BEGIN + hours[5 * n], 1) for n in range(60)]
    lines = [_HEAD, *full, *idle]
    return "\n".join(lines) + "\n"


def _row(number: int, partition: str, submit: dt.datetime, start: dt.datetime, hours: int) -> str:
    times = "|".join(f"{time:%Y-%m-%dT%H:%M:%S}" for time in (submit, start, start + dt.timedelta(hours=hours)))
    tres = f"cpu=8,gres/gpu:{partition}=8,gres/gpu=8,mem=64G,node=1"
    return f"{number}|{times}|COMPLETED|10:00:00|{tres}|1|{partition}-1|lab|{partition}|u{number % 7}"


@pytest.mark.thorough
def test_the_first_screen_names_the_overloaded_partition_and_what_a_node_would_change(tmp_path: Path) -> None:
    (tmp_path / "sacct.txt").write_text(sacct())
    done = run("analyze", tmp_path / "sacct.txt", "--no-fit", "-o", tmp_path / "out")
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "out" / "report.json").read_text())
    first = report["opening"]["changes"][0]
    assert first["title"] == "Relieve the overloaded partition"
    text = (tmp_path / "out" / "report.md").read_text()
    assert "Partition h100 has 100 % of all waiting hours: 2.07 d on average." in text
    assert "Yes: 1 more node, mean wait 49.8 h" in text
    assert "2 partitions: " in (tmp_path / "out" / "report.html").read_text()
    rows = (tmp_path / "out" / "tables" / "queuing" / "delay_causes.csv").read_text().splitlines()
    (row,) = (dict(zip(rows[0].split(","), line.split(","), strict=True)) for line in rows[1:])
    # No GPU of h100 is ever free, so no wait has another reason.
    assert (row["waits"], row["other_waits"]) == ("199", "0")
