"""Check that imports in tracekit go in one direction, both between rooms and within them.

    python tools/check_imports.py

A module may import from its own room and from lower rooms, but never from another room on the same level or from a
higher room. Within a room, files must not import each other in a cycle, not even for types. If a room's packages have
an order, imports must follow it.
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
"""Rooms from lowest to highest. Rooms on one line are on the same level."""

BESIDE = {("policies", "replay"), ("fit", "replay")}
"""Pairs (importer, imported) that are allowed on the same level."""

INSIDE = {
    "replay": (
        ("native",),
        ("keys", "jobs", "outcome"),
        ("clusters", "workload"),
        ("assumptions", "outages"),
        ("engine",),
        ("results",),
        ("backfilling", "cells", "fractions", "planning", "power", "quotas", "recording", "sharing"),
    ),
    "policies": (
        ("interface", "places", "pools"),
        ("parameters",),
        ("tenants",),
        ("arrival", "gangs", "power_down", "service"),
        ("literature",),
    ),
}
"""A room's packages and modules from lowest to highest. Those on one line must not import each other. Files that are
not listed tie the packages together, so they may import and be imported freely.
"""

_LEVEL = {room: level for level, line in enumerate(ROOMS) for room in line}


def imported_rooms(path: Path) -> set[str]:
    """Return the tracekit rooms that a module imports anywhere in its file."""
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
    """Return every sideways or upward import as 'file: room imports room'."""
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
    """Return every sideways or upward import between a room's packages."""
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
    """Return the dotted modules and names that a file imports from tracekit anywhere in the file."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return {name for name in found if name.split(".")[0] == "tracekit"}


def circle(package: Path) -> list[str]:
    """Return the files of an import cycle with the first one repeated at the end, or [] if there is no cycle."""
    files = {}
    for path in package.rglob("*.py"):
        parts = path.relative_to(package.parent).with_suffix("").parts
        files[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path
    graph: dict[str, set[str]] = {}
    for name, path in files.items():
        # A name may be a module or be defined in one.
        found = {other if other in files else other.rpartition(".")[0] for other in imported_modules(path)}
        graph[name] = (found & files.keys()) - {name}
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return [str(name) for name in error.args[1]]
    return []


def main() -> int:
    """Print the violations, and return 1 if there are any."""
    package = Path(__file__).parent.parent / "tracekit"
    wrong = violations(package) + violations_inside(package)
    around = circle(package)
    if around:
        wrong.append("an import cycle: " + " <- ".join(around))
    for line in wrong:
        print(line)
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
