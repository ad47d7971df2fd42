"""Check that imports inside tracekit go one way.

    python tools/check_imports.py

A module may import from the rooms below its own and from its own room, never from one beside or above it.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

ROOMS = (
    ("errors", "resources", "progress", "text", "interruption", "callable_package"),
    ("options", "settings", "decode", "outputs", "answer"),
    ("toml_text",),
    ("schema", "manifest", "datasets"),
    ("tables",),
    ("damage",),
    ("trace",),
    ("trace_writer",),
    ("ingest", "characterize", "fit", "replay", "policies", "export"),
    ("calibration",),
    ("capacity_plan",),
    ("guidelines",),
    ("report",),
    ("analysis", "comparison"),
    ("cli",),
    ("__main__",),
)
"""Rooms from the lowest to the highest; those of one line stand side by side."""

BESIDE = {("policies", "replay")}
"""Pairs (importer, imported) of one line that are allowed."""

_LEVEL = {room: level for level, line in enumerate(ROOMS) for room in line}


def imported_rooms(path: Path) -> set[str]:
    """Return the rooms of tracekit that a module imports, wherever in the file."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module == "tracekit":
            names = [f"tracekit.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = [node.module]
        found |= {n.split(".")[1] for n in names if n.startswith("tracekit.")}
    return found & _LEVEL.keys()


def violations(package: Path) -> list[str]:
    """Return every import that goes sideways or up, as 'file: room imports room'."""
    wrong = []
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package).with_suffix("").parts
        room = parts[0]
        if room == "__init__":
            continue
        if room not in _LEVEL:
            wrong.append(f"{path.relative_to(package.parent)}: '{room}' has no place in ROOMS")
            continue
        wrong += [
            f"{path.relative_to(package.parent)}: {room} imports {other}"
            for other in sorted(imported_rooms(path) - {room})
            if _LEVEL[other] >= _LEVEL[room] and (room, other) not in BESIDE
        ]
    return wrong


def main() -> int:
    """Print the violations; return 1 when there are any."""
    wrong = violations(Path(__file__).parent.parent / "tracekit")
    for line in wrong:
        print(line)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
