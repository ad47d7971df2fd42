"""Check that imports inside tracekit go one way, between rooms and inside them.

    python tools/check_imports.py

A module may import from the rooms below its own and from its own room, never from one beside or above it. Inside a room
no files import each other in a circle, be it for types only, and packages that have an order of their own keep to it.
"""

from __future__ import annotations

import ast
import sys
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOMS = (
    ("version", "array_types", "errors", "resources", "progress", "text", "interruption", "callable_package"),
    ("tenant", "gpu_parts", "exchange", "plugins"),
    ("notebook", "places", "timezones"),
    ("options", "settings", "decode", "spreadsheets", "outputs", "answer", "streams", "workers"),
    ("toml_text", "runs", "databases"),
    ("schema", "manifest", "datasets"),
    ("tables", "estimate"),
    ("damage",),
    ("faults",),
    ("trace",),
    ("trace_writer",),
    ("anonymous",),
    ("ingest", "characterize", "fit", "replay", "policies", "export"),
    ("gpu_hours",),
    ("calibration",),
    ("capacity_plan", "sweeps"),
    ("guidelines",),
    ("report",),
    ("analysis", "comparison", "digests"),
    ("serve",),
    ("cli",),
    ("__main__",),
)
"""Rooms from the lowest to the highest; those of one line stand side by side."""

BESIDE = {("policies", "replay"), ("fit", "replay")}
"""Pairs (importer, imported) of one line that are allowed."""

INSIDE = {
    "replay": (
        ("keys", "jobs", "outcome", "native"),
        ("clusters", "workload"),
        ("assumptions", "outages"),
        ("engine",),
        ("results",),
        ("backfilling", "capping", "cells", "fractions", "planning", "quotas", "recording", "sharing"),
    ),
    "policies": (
        ("interface", "places", "pools"),
        ("parameters",),
        ("tenants",),
        ("arrival", "gangs", "power_down", "service"),
        ("literature",),
    ),
}
"""Packages and modules of a room from the lowest to the highest; those of one line know nothing of each other. What is
not named may import, and be imported by, any: files that tie the packages together."""

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


def violations_inside(package: Path) -> list[str]:
    """Return every import inside a room that goes sideways or up between its packages."""
    wrong = []
    for room, lines in INSIDE.items():
        level = {name: number for number, line in enumerate(lines) for name in line}
        for path in sorted((package / room).rglob("*.py")):
            own = path.relative_to(package / room).with_suffix("").parts[0]
            if own not in level:
                continue
            for name in sorted(imported_modules(path)):
                parts = name.split(".")
                other = parts[2] if parts[:2] == ["tracekit", room] and len(parts) > 2 else own
                if other != own and other in level and level[other] >= level[own]:
                    wrong.append(f"{path.relative_to(package.parent)}: {room}.{own} imports {room}.{other}")
    return wrong


def imported_modules(path: Path) -> set[str]:
    """Return the modules and names that a file imports from tracekit, wherever in the file, with dots."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {name for name in found if name.split(".")[0] == "tracekit"}


def circle(package: Path) -> list[str]:
    """Return the files of a circle of imports, the first again at the end; none where there is none."""
    files = {}
    for path in package.rglob("*.py"):
        parts = path.relative_to(package.parent).with_suffix("").parts
        files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    graph: dict[str, set[str]] = {}
    for name, path in files.items():
        # A name may be a module or stand in one.
        found = {other if other in files else other.rpartition(".")[0] for other in imported_modules(path)}
        graph[name] = (found & files.keys()) - {name}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return [str(name) for name in error.args[1]]
    return []


def main() -> int:
    """Print the violations; return 1 when there are any."""
    package = Path(__file__).parent.parent / "tracekit"
    wrong = violations(package) + violations_inside(package)
    around = circle(package)
    if around:
        wrong.append("a circle of imports: " + " <- ".join(around))
    for line in wrong:
        print(line)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
