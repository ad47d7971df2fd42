"""Write schemas/report-1.json, the JSON Schema of report.json, from the types in tracekit/report/structure.py.

    python tools/report_schema.py

A test checks that the file matches the types.
"""

from __future__ import annotations

import ast
import json
import types
import typing
from pathlib import Path
from typing import Any

from tracekit.report import structure

__all__ = ["report_schema"]

_ROOT = Path(__file__).parents[1]
_PLAIN: dict[Any, dict[str, Any]] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    type(None): {"type": "null"},
    Any: {},
}


def report_schema() -> dict[str, Any]:
    """Return the schema, whose descriptions are the docstrings of the types and their keys."""
    notes = _notes(Path(structure.__file__))
    defined: dict[str, Any] = {}
    _define(structure.Report, notes, defined)
    whole = defined.pop("Report")
    whole["properties"]["schema_version"]["const"] = structure.REPORT_SCHEMA_VERSION
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"report-{structure.REPORT_SCHEMA_VERSION}.json",
        "title": "tracekit report",
        **whole,
        "$defs": dict(sorted(defined.items())),
    }


def _define(kind: Any, notes: dict[str, dict[str, str]], defined: dict[str, Any]) -> None:
    label = _label(kind)
    if label in defined:
        return
    defined[label] = {}
    told = notes[kind.__name__]
    keys = {}
    for name, of in typing.get_type_hints(kind).items():
        keys[name] = _schema(of, notes, defined) | ({"description": told[name]} if name in told else {})
    defined[label] = {
        "description": told[""],
        "type": "object",
        "properties": keys,
        "required": list(keys),
        "additionalProperties": False,
    }


def _label(kind: Any) -> str:
    """Return the schema's name for a type. An answer in report.json is the JSON form of an answer."""
    return {"AnswerInfo": "Answer", "UnansweredInfo": "Unanswered"}.get(kind.__name__, str(kind.__name__))


def _schema(kind: Any, notes: dict[str, dict[str, str]], defined: dict[str, Any]) -> dict[str, Any]:
    if kind in _PLAIN:
        return dict(_PLAIN[kind])
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Literal:
        return {"enum": list(parts)}
    if origin is list:
        return {"type": "array", "items": _schema(parts[0], notes, defined)}
    if origin is dict:
        return {"type": "object", "additionalProperties": _schema(parts[1], notes, defined)}
    if origin in {typing.Union, types.UnionType}:
        return {"anyOf": [_schema(part, notes, defined) for part in parts]}
    _define(kind, notes, defined)
    return {"$ref": f"#/$defs/{_label(kind)}"}


def _notes(path: Path) -> dict[str, dict[str, str]]:
    """Return the docstrings of each class and its keys by name, with '' for the class itself."""
    found: dict[str, dict[str, str]] = {}
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        if not isinstance(node, ast.ClassDef):
            continue
        found[node.name] = {"": _words(ast.get_docstring(node) or "")}
        for key, note in zip(node.body, node.body[1:], strict=False):
            if isinstance(key, ast.AnnAssign) and isinstance(key.target, ast.Name) and isinstance(note, ast.Expr):
                found[node.name][key.target.id] = _words(ast.literal_eval(note.value))
    return found


def _words(text: str) -> str:
    return " ".join(text.split())


if __name__ == "__main__":
    target = _ROOT / "schemas" / "report-1.json"
    target.write_text(json.dumps(report_schema(), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
