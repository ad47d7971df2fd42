"""Names in backticks exist: docstrings and pages go stale when what they name is renamed."""

from __future__ import annotations

import ast
import json
import re
from functools import cache
from pathlib import Path

import pytest

pytestmark = pytest.mark.thorough

ROOT = Path(__file__).parent.parent
SOURCES = sorted((ROOT / "tracekit").rglob("*.py"))
COMPILED = sorted((ROOT / "tracekit").rglob("*.pxi"))
PAGES = sorted(
    path
    for path in [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "benchmarks").glob("*.md")]
    if path.name != "CHANGELOG.md"  # what was renamed since is history
)

QUOTED = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(?:\.[A-Za-z_][A-Za-z0-9_]*)*(?:\(\))?")
WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")

FOREIGN = {
    # Other people's names: what a user types, finds in a raw file or a folder, or knows from another library.
    "JOB_1",
    "SPARK_CONF_DIR",
    "_local",
    "loc",
    "oJOB",
    "out",
    "percentile_cont",
}


@cache
def known() -> frozenset[str]:
    """Return every word that the code, its data and its tools define or use as a name."""
    words: set[str] = set()
    for path in [*SOURCES, *(ROOT / "tests").rglob("*.py"), *(ROOT / "tools").rglob("*.py"), *ROOT.glob("*.py")]:
        if path == Path(__file__):
            continue
        words |= {path.stem, path.parent.name}
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            words |= set(_names_of(node))
    for path in (ROOT / "tracekit").rglob("*.pxi"):
        code = "\n".join(line.partition("#")[0] for line in path.read_text(encoding="utf-8").splitlines())
        words |= {path.stem, *WORD.findall(code)}
    for folder, pattern in (("queries", "*.sql"), ("sample_traces", "*"), ("benchmarks", "*"), ("reports", "*")):
        words |= {w for path in (ROOT / folder).rglob(pattern) for w in WORD.findall(path.stem)}
    for path in (ROOT / "queries").rglob("*.sql"):
        words |= set(WORD.findall(path.read_text(encoding="utf-8")))
    for path in (ROOT / "schemas").rglob("*.json"):
        words |= set(_texts(json.loads(path.read_text(encoding="utf-8"))))
    for path in (ROOT / "justfile", ROOT / "pyproject.toml", *(ROOT / "tracekit").rglob("*.toml")):
        words |= set(WORD.findall(path.read_text(encoding="utf-8")))
    return frozenset(words | FOREIGN)


def _names_of(node: ast.AST) -> list[str]:
    match node:
        case ast.FunctionDef(name=name) | ast.ClassDef(name=name) | ast.AsyncFunctionDef(name=name):
            return [name]
        case ast.Name(id=name) | ast.Attribute(attr=name) | ast.arg(arg=name):
            return [name]
        case ast.keyword(arg=str(name)):
            return [name]
        case ast.alias(name=name, asname=other):
            return [*name.split("."), other or ""]
        case ast.Constant(value=str(text)) if len(text) < 80:
            return WORD.findall(text)  # columns, keys, options; a docstring is longer or says less
    return []


def _texts(value: object) -> list[str]:
    if isinstance(value, dict):
        return [w for key, item in value.items() for w in (key, *_texts(item))]
    if isinstance(value, list):
        return [w for item in value for w in _texts(item)]
    return [value] if isinstance(value, str) else []


def stale(text: str) -> list[str]:
    """Return the names in backticks that nothing is called."""
    found = []
    for quoted in QUOTED.findall(text):
        if not NAME.fullmatch(quoted):
            continue
        if any(part not in known() for part in quoted.removesuffix("()").split(".")):
            found.append(quoted)
    return found


def docstrings(path: Path) -> list[tuple[int, str]]:
    """Return the docstrings of a module with their lines, those after a field or a constant too."""
    return [
        (node.lineno, node.value.value)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    ]


@pytest.mark.thorough  # a thousand modules are parsed
def test_names_in_docstrings_exist() -> None:
    found = [
        f"{path.relative_to(ROOT)}, line {line}: {name}"
        for path in SOURCES
        for line, text in docstrings(path)
        for name in stale(text)
    ]
    assert found == []


def test_names_in_compiled_code_exist() -> None:
    found = [
        f"{path.relative_to(ROOT)}: {name}" for path in COMPILED for name in stale(path.read_text(encoding="utf-8"))
    ]
    assert found == []


def test_names_in_pages_exist() -> None:
    blocks = re.compile(r"^```.*?^```", flags=re.DOTALL | re.MULTILINE)
    found = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in PAGES
        for name in stale(blocks.sub("", path.read_text(encoding="utf-8")))
    ]
    assert found == []


def test_there_is_something_to_look_at() -> None:
    assert len(SOURCES) > 100
    assert len(COMPILED) > 1
    assert len(PAGES) > 10


def test_a_stale_name_is_found() -> None:
    assert stale("see `known`, `no_such_name_anywhere` and `ast.walk`") == ["no_such_" + "name_anywhere"]
