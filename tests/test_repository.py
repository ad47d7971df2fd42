"""What the files at the top of the repository promise."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import tracekit

ROOT = Path(__file__).parent.parent


def project() -> dict[str, object]:
    with (ROOT / "pyproject.toml").open("rb") as file:
        found: dict[str, object] = tomllib.load(file)["project"]
    return found


def package_name(requirement: str) -> str:
    match = re.match(r"[A-Za-z0-9_.-]+", requirement)
    assert match is not None
    return match[0]


def test_the_version_is_the_same_everywhere() -> None:
    assert project()["version"] == tracekit.__version__


def test_the_readme_gives_two_set_up_commands_that_need_only_python() -> None:
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    commands = [line for line in text.splitlines() if line.startswith("python3 -m venv .venv && ")]
    assert len(commands) == 2
    assert commands[0].endswith(".venv/bin/tracekit analyze sample_traces/philly -o out")
    assert commands[1].endswith(".venv/bin/python -m pytest -n auto")
    assert len(text.split()) <= 700


def test_extras_are_installed_by_the_name_of_the_distribution() -> None:
    """Another distribution is called tracekit."""
    files = [*(ROOT / "tracekit").rglob("*.py"), *(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md")]
    found = [
        name for path in files for name in re.findall(r"pip install '([^'\[]+)\[", path.read_text(encoding="utf-8"))
    ]
    assert len(found) >= 4
    assert set(found) == {project()["name"]} == {"gpu-tracekit"}


def test_contributing_says_why_each_dependency_is_there() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    dependencies = project()["dependencies"]
    assert isinstance(dependencies, list)
    names = [package_name(d) for d in dependencies]
    assert len(names) > 10
    assert [n for n in names if not re.search(rf"^\|.*\b{re.escape(n)}\b.*\|", text, re.MULTILINE)] == []


def test_the_lock_pins_every_dependency_and_holds_no_address() -> None:
    text = (ROOT / "uv.lock").read_text(encoding="utf-8")
    assert "://" not in text
    pinned = {package["name"] for package in tomllib.loads(text)["package"]}
    dependencies = project()["dependencies"]
    assert isinstance(dependencies, list)
    assert {package_name(d).replace(".", "-") for d in dependencies} <= pinned
