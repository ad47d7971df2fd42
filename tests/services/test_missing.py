"""Where the services cannot run, that is said; the plain test command runs this too."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.services import daemons

if TYPE_CHECKING:
    import pytest

ROOT = Path(__file__).parents[2]


def test_a_machine_without_the_programs_says_which(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(daemons, "_PROGRAMS", ("sh", "slurmctld-of-nobody", "sacct-of-nobody"))
    assert "lacks slurmctld-of-nobody, sacct-of-nobody" in daemons.what_is_missing()


def test_tests_that_could_not_run_say_why_in_the_words_that_the_gate_prints(tmp_path: Path) -> None:
    plugin = "from tests.services import daemons\ndaemons._PROGRAMS = ('slurmctld-of-nobody',)\n"
    (tmp_path / "nobody.py").write_text(plugin, encoding="ascii")
    command = [sys.executable, "-m", "pytest", "-p", "nobody", "-m", "services", "-p", "no:cacheprovider"]
    env = {"PYTHONPATH": f"{ROOT}:{tmp_path}", "PATH": "/usr/bin:/bin"}
    done = subprocess.run(
        [*command, str(ROOT / "tests" / "services" / "test_live.py")],
        cwd=ROOT, env=env, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout
    assert "services: NOT RUN, because this machine lacks slurmctld-of-nobody" in done.stdout
