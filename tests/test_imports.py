"""The package's public face: what it exports, what it loads, and which way its imports go."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import tracekit

if TYPE_CHECKING:
    from types import ModuleType

ROOT = Path(__file__).parent.parent
HEAVY = ("polars", "duckdb", "altair", "scipy", "pyarrow", "numpy")


@pytest.fixture(scope="module")
def check_imports() -> ModuleType:
    spec = importlib.util.spec_from_file_location("check_imports", ROOT / "tools" / "check_imports.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_exported_name_is_there_and_sorted() -> None:
    assert list(tracekit.__all__) == sorted(tracekit.__all__)
    for name in tracekit.__all__:
        assert getattr(tracekit, name) is not None


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = tracekit.nothing


@pytest.mark.parametrize("statement", ["import tracekit", "import tracekit.cli"])
def test_importing_loads_no_heavy_library(statement: str) -> None:
    code = f"{statement}; import sys; print([m for m in {HEAVY!r} if m in sys.modules])"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


def test_showing_a_fit_loads_no_optimizer_and_intervals_load_no_distributions() -> None:
    code = (
        "import sys, numpy as np, polars as pl\n"
        "import tracekit.report.fit_answers, tracekit.analysis.answering\n"
        "from tracekit.answer import Interval\n"
        "from tracekit.characterize.changes.differences import Estimate, difference\n"
        "from tracekit.characterize.intervals import with_intervals\n"
        "frame = pl.DataFrame({'n': [40], 'share': [0.5], '_m': [[i / 100 for i in range(101)]]})\n"
        "with_intervals(frame, (Interval('share', 'proportion', 'n'), Interval('m', 'median', 'n')))\n"
        "sides = [Estimate(v, np.array([v - 1, v, v + 1]), 50, 9) for v in (2.0, 3.0)]\n"
        "assert difference(*sides)['p_value'] is not None\n"
        "print([m for m in ('scipy.optimize', 'scipy.stats') if m in sys.modules])"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"


@pytest.mark.thorough
def test_imports_inside_the_package_go_one_way(check_imports: ModuleType) -> None:
    assert check_imports.violations(ROOT / "tracekit") == []


def test_the_import_check_finds_an_import_that_goes_up(check_imports: ModuleType, tmp_path: Path) -> None:
    package = tmp_path / "tracekit"
    (package / "ingest").mkdir(parents=True)
    (package / "ingest" / "bad.py").write_text("def f():\n    from tracekit.report import page\n")
    (package / "stray.py").write_text("")
    assert check_imports.violations(package) == [
        "tracekit/ingest/bad.py: ingest imports report",
        "tracekit/stray.py: 'stray' has no place in ROOMS",
    ]


def test_policies_know_the_engine_and_the_engine_knows_no_policy(check_imports: ModuleType, tmp_path: Path) -> None:
    package = tmp_path / "tracekit"
    for room, imported in (("policies", "replay"), ("replay", "policies")):
        (package / room).mkdir(parents=True)
        (package / room / "module.py").write_text(f"from tracekit.{imported} import module\n")
    assert check_imports.violations(package) == ["tracekit/replay/module.py: replay imports policies"]


def _package(folder: Path, files: dict[str, str]) -> Path:
    package = folder / "tracekit"
    for name, text in files.items():
        path = package / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return package


def test_a_circle_of_files_is_found_even_for_types_only(check_imports: ModuleType, tmp_path: Path) -> None:
    files = {
        "a.py": "from tracekit.b import f",
        "b.py": "if TYPE_CHECKING:\n    from tracekit.c import g",
        "c.py": "def h():\n    import tracekit.a",
        "d.py": "from tracekit import a, b",
    }
    assert sorted(check_imports.circle(_package(tmp_path, files))[1:]) == ["tracekit.a", "tracekit.b", "tracekit.c"]
    files["c.py"] = ""
    assert check_imports.circle(_package(tmp_path, files)) == []


def test_packages_of_the_replay_keep_their_order(check_imports: ModuleType, tmp_path: Path) -> None:
    files = {
        "replay/engine/build.py": "from tracekit.replay.quotas.books import open_books",
        "replay/quotas/books.py": "from tracekit.replay.engine import build\nfrom tracekit.replay.cells import layout",
        "replay/scenario.py": "from tracekit.replay.planning.clocks import one",
    }
    assert check_imports.violations_inside(_package(tmp_path, files)) == [
        "tracekit/replay/engine/build.py: replay.engine imports replay.quotas",
        "tracekit/replay/quotas/books.py: replay.quotas imports replay.cells",
    ]


def test_the_layout_in_contributing_names_every_room(check_imports: ModuleType) -> None:
    layout = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("## Layout")[2].partition("\n## ")[0]
    # Names stand before the first gap of three spaces; a name that is missing or gone fails.
    heads = re.findall(r"^ {4}([a-z_]+(?:, [a-z_]+)*)(?: {3,}.*)?$", layout, re.MULTILINE)
    named = [name for head in heads for name in head.split(", ")]
    assert sorted(named) == sorted({room for line in check_imports.ROOMS for room in line} - {"__main__"})
