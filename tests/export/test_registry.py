"""One file adds a target; each says what it reads, needs and fills in."""

from __future__ import annotations

from importlib import metadata
from typing import TYPE_CHECKING, ClassVar

import pytest

import tracekit
from tracekit.errors import UsageError
from tracekit.export.interface import TARGETS, Field, Option, Options, Target

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from tracekit.export.interface import ExportLog
    from tracekit.export.output import Output
    from tracekit.export.selection import JobSelection
    from tracekit.trace import Trace

NAMES = ["accasim", "alibaba-sim", "batsim", "blox", "csv", "gavel", "helios", "opendc", "swf", "tiresias"]


class Plain(Target):
    """A target of somebody else's."""

    name = "plain"
    title = "ids of jobs"
    reads = "cat"
    fields = (Field("id", "id", "job_id"),)
    options: ClassVar[Mapping[str, Option]] = {"end": Option("\n", "what stands after an id")}
    sources = ("none",)

    def write(self, jobs: JobSelection, out: Output, log: ExportLog, options: Options) -> None:
        with out.main.open("w") as file:
            for block in jobs.blocks("job_id"):
                file.writelines(name + options.values["end"] for name in block["job_id"])


PLAIN = Plain()


@pytest.fixture
def plugins(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Install three plug-ins: one good, one that is no target, one that cannot be imported."""
    entries = [
        metadata.EntryPoint("plain", f"{__name__}:PLAIN", TARGETS.group),
        metadata.EntryPoint("nothing", f"{__name__}:NAMES", TARGETS.group),
        metadata.EntryPoint("gone", "no_such_module_at_all:X", TARGETS.group),
    ]
    monkeypatch.setattr(metadata, "entry_points", lambda group: entries if group == TARGETS.group else [])
    monkeypatch.setattr(metadata.EntryPoint, "load", _load)
    vars(TARGETS).pop("_known", None)
    yield
    vars(TARGETS).pop("_known", None)


def _load(entry: metadata.EntryPoint) -> object:
    if entry.module == __name__:
        return {"PLAIN": PLAIN, "NAMES": NAMES}[entry.attr]
    raise ModuleNotFoundError(f"No module named '{entry.module}'")


def test_the_targets_are_these() -> None:
    assert list(TARGETS.all()) == NAMES
    assert TARGETS.broken() == {}


@pytest.mark.parametrize("name", NAMES)
def test_every_target_describes_itself(name: str) -> None:
    target = TARGETS.find(name)
    assert target.name == name
    assert len(target.fields) >= 5
    assert all(f.name and f.meaning and f.filled_from for f in target.fields)
    assert all(o.meaning and (not o.choices or o.default in o.choices) for o in target.options.values())
    assert target.sources
    assert target.fill_options({}).values == {n: o.default for n, o in target.options.items()}


def test_an_unknown_target_names_the_likely_one() -> None:
    with pytest.raises(UsageError, match="unknown target 'gavle'; did you mean 'gavel'"):
        TARGETS.find("gavle")


@pytest.mark.usefixtures("plugins")
def test_a_target_of_another_package_is_used(small: Trace, tmp_path: Path) -> None:
    done = tracekit.export(small, "plain", tmp_path / "ids.txt", options={"end": ";"})
    assert (tmp_path / "ids.txt").read_text() == "a;b;f;"
    assert done.jobs == 3


@pytest.mark.usefixtures("plugins")
def test_plug_ins_that_cannot_be_used_are_reported() -> None:
    assert list(TARGETS.all()) == sorted([*NAMES, "plain"])
    assert sorted(TARGETS.broken()) == ["gone", "nothing"]
    assert "is not an instance of" in TARGETS.broken()["nothing"]
    assert "ModuleNotFoundError: No module named" in TARGETS.broken()["gone"]


def test_an_export_from_python_tells_what_it_did(small: Trace, tmp_path: Path) -> None:
    done = tracekit.export(str(small.path), "gavel", str(tmp_path / "o.trace"))
    assert (done.target, done.jobs, done.log.jobs) == ("gavel", 3, 7)
    assert [p.name for p in done.files] == ["o.throughputs.json", "o.trace"]
