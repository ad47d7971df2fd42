"""schemas/report-1.json is the shape of report.json."""

from __future__ import annotations

import copy
import importlib.util
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jsonschema
import pytest

from tracekit.resources import folder

if TYPE_CHECKING:
    from types import ModuleType

    from tracekit.report.structure import Report


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((folder("schemas") / "report-1.json").read_text(encoding="utf-8"))
    return loaded


def _tool() -> ModuleType:
    path = Path(__file__).parents[2] / "tools" / "report_schema.py"
    spec = importlib.util.spec_from_file_location("report_schema", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_schema_is_that_of_the_types(schema: dict[str, Any]) -> None:
    assert schema == _tool().report_schema(), "run: python tools/report_schema.py"


def test_a_report_fits_the_schema(report: Report, schema: dict[str, Any]) -> None:
    jsonschema.Draft202012Validator.check_schema(schema)
    jsonschema.Draft202012Validator(schema).validate(report)
    advice = json.loads((folder("schemas") / "guidelines-1.json").read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator(advice).validate(report["guidelines"])


@pytest.mark.parametrize("key", ["opening", "sections", "quality"])
def test_a_report_that_lacks_a_part_does_not_fit(report: Report, schema: dict[str, Any], key: str) -> None:
    less = copy.deepcopy(dict(report))
    del less[key]
    assert not jsonschema.Draft202012Validator(schema).is_valid(less)


def test_every_key_that_is_not_plain_is_described(schema: dict[str, Any]) -> None:
    assert [name for name, kind in schema["$defs"].items() if not kind["description"]] == []
