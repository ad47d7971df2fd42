"""What digests cover: facts in any order, contents of files, and all code that decides a result."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.check_imports import imported_modules
from tracekit.replay import facts
from tracekit.runs.ledger import code_of, content_of, digest_of_facts, forget_files

PACKAGE = Path(__file__).parents[2] / "tracekit"
CARRY_ONLY = {
    "array_types", "callable_package", "damage", "errors", "exchange", "interruption", "notebook", "options", "outputs",
    "places", "progress", "resources", "runs", "streams", "text", "version",
}  # fmt: skip
"""Rooms that carry, word or place results, and decide none."""


def rooms_below(*modules: str) -> set[str]:
    """Return the rooms of all that modules import, and of what these import."""
    files = {
        ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__"): path
        for path in PACKAGE.rglob("*.py")
    }
    seen: set[str] = set()
    ahead = list(modules)
    while ahead:
        name = ahead.pop()
        if name in files and name not in seen:
            seen.add(name)
            ahead += [one if one in files else one.rpartition(".")[0] for one in imported_modules(files[name])]
    return {name.split(".")[1] for name in seen if "." in name}


@pytest.mark.parametrize(
    ("modules", "more"),
    [
        (("tracekit.replay.api",), ("sweeps",)),
        (("tracekit.sweeps.run",), ("calibration", "sweeps")),
        (("tracekit.calibration.api",), ("calibration",)),
        (("tracekit.capacity_plan.plan", "tracekit.capacity_plan.spare_plan"), ("calibration", "capacity_plan")),
        (("tracekit.fit.scores.table",), ("fit", "trace_writer")),
    ],
)
def test_digests_cover_all_code_that_decides_a_result(modules: tuple[str, ...], more: tuple[str, ...]) -> None:
    # Policies are found by their entry points.
    assert rooms_below(*modules, "tracekit.policies") - CARRY_ONLY <= {*facts._ROOMS, *more}


def test_each_room_that_is_covered_is_there_and_changes_the_digest() -> None:
    rooms = (*facts._ROOMS, "calibration", "capacity_plan", "fit", "sweeps", "trace_writer")
    assert all((PACKAGE / room).is_dir() != (PACKAGE / f"{room}.py").is_file() for room in rooms)
    assert len({code_of(room) for room in (*rooms, "none")}) == len(rooms) + 1
    assert code_of("trace", compiled="a") != code_of("trace", compiled="b")


def test_facts_have_one_digest_in_any_order() -> None:
    assert digest_of_facts({"a": 1, "b": {"c": 2, "d": [3]}}) == digest_of_facts({"b": {"d": [3], "c": 2}, "a": 1})
    assert digest_of_facts({"a": 1}) != digest_of_facts({"a": 2})


def test_a_file_is_read_once_until_it_is_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "file"
    missing = content_of(str(path))
    path.write_text("x")
    assert content_of(str(path)) == missing
    forget_files()
    assert content_of(str(path)) != missing
