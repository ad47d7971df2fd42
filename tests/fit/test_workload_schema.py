"""The schema of workload.json tells every property, and the unit of every number."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

SCHEMA = Path(__file__).parents[2] / "schemas" / "workload-1.json"
UNIT = re.compile(r"\[[^\[\]]+\]|pure number")
"""A unit in brackets, such as [s] or [0..1], or that there is none."""


def properties(schema: Any, place: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each property at any depth, with where it is."""
    if isinstance(schema, list):
        for part in schema:
            yield from properties(part, place)
    elif isinstance(schema, dict):
        for key, value in schema.items():
            if key in ("properties", "$defs"):
                for name, one in value.items():
                    if key == "properties":
                        yield f"{place}/{name}", one
                    yield from properties(one, f"{place}/{name}")
            elif key != "if":  # which tells alternatives apart, and defines nothing
                yield from properties(value, place)


def holds_numbers(schema: dict[str, Any]) -> bool:
    """Return whether the values, or those of its list or its mapping, are numbers."""
    kinds = schema.get("type", [])
    known = {kinds} if isinstance(kinds, str) else set(kinds)
    inner = [schema[key] for key in ("items", "additionalProperties") if isinstance(schema.get(key), dict)]
    return (
        bool(known & {"number", "integer"})
        or (isinstance(schema.get("const"), int | float) and not isinstance(schema["const"], bool))
        or any(map(holds_numbers, [*inner, *schema.get("oneOf", [])]))
    )


def lacking(schema: dict[str, Any]) -> list[str]:
    """Return the properties without a description, and those whose numbers have no unit."""
    found = []
    for place, one in properties(schema):
        text = one.get("description", "")
        if not text:
            found.append(f"{place}: no description")
        elif holds_numbers(one) and not UNIT.search(text):
            found.append(f"{place}: no unit")
    return found


def test_every_property_has_a_description_and_every_number_a_unit() -> None:
    schema = orjson.loads(SCHEMA.read_bytes())
    assert len(list(properties(schema))) > 250
    assert lacking(schema) == []


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        ({"type": "string"}, ["/a: no description"]),
        ({"type": "number", "description": "How long."}, ["/a: no unit"]),
        ({"type": ["integer", "null"], "description": "How many."}, ["/a: no unit"]),
        ({"type": "array", "items": {"type": "number"}, "description": "How long each is."}, ["/a: no unit"]),
        ({"type": "number", "description": "How long [s]."}, []),
        ({"type": "number", "description": "A pure number."}, []),
        ({"type": "object", "description": "x", "properties": {"b": {"const": 1}}}, ["/a/b: no description"]),
        ({"description": "x", "oneOf": [{"properties": {"b": {"type": "null"}}}]}, ["/a/b: no description"]),
    ],
)
def test_what_lacks_is_found(one: dict[str, Any], expected: list[str]) -> None:
    assert lacking({"properties": {"a": one}}) == expected
