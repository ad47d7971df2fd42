"""The script for cron of docs/nightly.sh, over three days with a stand-in for sacct."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
COLUMNS = (
    "JobID|JobIDRaw|Cluster|Submit|Eligible|Start|End|State|Elapsed|Timelimit|AllocTRES|ReqTRES|NNodes|NodeList"
    "|Account|Partition|QOS|User|Priority"
)


def row(job: str, submit: str, start: str, end: str, state: str, user: str) -> str:
    """Return a row of sacct; times are day and hour of November 2026, like '20T08', '' when unknown."""
    times = [f"2026-11-{t}:00:00" if t else "Unknown" for t in (submit, submit, start, end)]
    tres = "billing=2,cpu=8,gres/gpu=2,node=1"
    return "|".join(
        [job, job, "c", *times, state, "", "1-00:00:00", tres, tres, "1", "n1", "lab", "gpu", "normal", user, "1"]
    )


DAYS = {
    "2026-11-20": [
        row("1", "20T08", "20T09", "20T12", "COMPLETED", "ann"),  # 6 GPU-hours
        row("2", "20T20", "20T21", "", "RUNNING", "bob"),
    ],
    "2026-11-21": [],  # nothing ran, and nobody submitted
    "2026-11-22": [
        row("2", "20T20", "20T21", "22T01", "FAILED", "bob"),  # 28 h * 2 = 56 GPU-hours
        row("3", "22T02", "22T03", "22T05", "COMPLETED", "ann"),  # 4 GPU-hours
    ],
}


@pytest.fixture
def night(tmp_path: Path) -> Night:
    if os.name != "posix" or not shutil.which("flock"):
        pytest.skip("the script is for systems with cron")
    if subprocess.run(["date", "-d", "2026-11-22", "+%u"], capture_output=True, check=False).returncode:
        pytest.skip("the script needs the date command of GNU")
    return Night(tmp_path)


class Night:
    """A machine with the commands that the script calls."""

    def __init__(self, place: Path) -> None:
        self.folder, self.commands, self.asked = place / "srv", place / "bin", place / "asked"
        self.commands.mkdir()
        self.dumps = place / "sacct"
        self.dumps.mkdir()
        self._command("tracekit", f'exec "{sys.executable}" -m tracekit "$@"')

    def _command(self, name: str, script: str) -> None:
        path = self.commands / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)

    def run(self, day: str, rows: list[str] | None) -> subprocess.CompletedProcess[str]:
        """Run the script for a day on which sacct prints these rows; None: it fails half-way."""
        if rows is None:
            self._command("sacct", f"echo '{COLUMNS}'; echo 'sacct: error: slurmdbd' >&2; exit 1")
        else:
            (self.dumps / day).write_text("\n".join([COLUMNS, *rows]) + "\n")
            self._command(
                "sacct",
                f'echo "$@" >> "{self.asked}"\nwhile [ "$1" != --starttime ]; do shift; done\ncat "{self.dumps}/$2"',
            )
        env = {
            **os.environ,
            "PATH": f"{self.commands}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "TRACEKIT_FOLDER": str(self.folder),
        }
        script = str(ROOT / "docs" / "nightly.sh")
        return subprocess.run(["sh", script, day], capture_output=True, text=True, env=env, check=False)


@pytest.mark.thorough
def test_a_night_on_which_sacct_fails_leaves_the_history_as_it_was_and_is_made_up_for(night: Night) -> None:
    assert night.run("2026-11-20", DAYS["2026-11-20"]).returncode == 0
    _check_asked(night)
    manifest = (night.folder / "history" / "manifest.json").read_bytes()
    done = night.run("2026-11-22", None)
    assert done.returncode == 1
    assert "slurmdbd" in done.stderr
    assert (night.folder / "history" / "manifest.json").read_bytes() == manifest
    assert not (night.folder / "dumps" / "sacct-2026-11-22.txt").exists()
    assert list((night.folder / "digests").iterdir()) == []
    done = night.run("2026-11-22", DAYS["2026-11-22"])
    assert done.returncode == 0, done.stderr
    assert "digest of 2026-W47" in done.stdout
    assert sorted(p.name for p in night.folder.iterdir()) == ["digests", "dumps", "history", "lock"]
    _check_digest(night)


@pytest.mark.thorough
def test_three_nights(night: Night) -> None:
    for day, rows in DAYS.items():
        done = night.run(day, rows)
        assert done.returncode == 0, done.stderr
    _check_asked(night)
    assert sorted(p.name for p in night.folder.iterdir()) == ["digests", "dumps", "history", "lock"]
    assert sorted(p.name for p in (night.folder / "dumps").iterdir()) == [f"sacct-{day}.txt" for day in DAYS]
    _check_digest(night)
    # A second run of the same night changes nothing.
    before = (night.folder / "digests" / "2026-W47" / "digest.json").read_bytes()
    assert night.run("2026-11-22", DAYS["2026-11-22"]).returncode == 0
    assert (night.folder / "digests" / "2026-W47" / "digest.json").read_bytes() == before


def _check_asked(night: Night) -> None:
    asked = night.asked.read_text().splitlines()[0].split()
    assert "--duplicates" in asked
    assert asked[asked.index("--starttime") :][:4] == ["--starttime", "2026-11-20", "--endtime", "2026-11-20T23:59:59"]
    assert asked[asked.index("--endtime") + 2].startswith("--format=JobID,")


def _check_digest(night: Night) -> None:
    made = json.loads((night.folder / "digests" / "2026-W47" / "digest.json").read_text())
    held = {part["name"]: part["figures"]["held_gpu_h"] for part in made["parts"]}
    assert held == {"ann": pytest.approx(6 + 4), "bob": pytest.approx(56)}
    assert made["everyone"]["figures"]["jobs"] == 3
    assert made["everyone"]["figures"]["failed_gpu_h"] == pytest.approx(56)
