"""Files appear when they are complete, and nothing is replaced unasked."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest

from tracekit.errors import OutputError
from tracekit.export.api import export
from tracekit.export.output import Output
from tracekit.export.targets import tiresias

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.trace import Trace


def test_nothing_stands_there_until_all_is_written(tmp_path: Path) -> None:
    with Output(tmp_path / "a.csv", folder=False, companions=[".b.csv"]) as out:
        out.main.write_text("main")
        out.companion(".b.csv").write_text("beside")
        assert [p.name for p in tmp_path.iterdir()] == [f".a.csv.partial-{os.getpid()}"]
        assert out.commit({}) == [tmp_path / "a.b.csv", tmp_path / "a.csv"]
    assert sorted(p.name for p in tmp_path.iterdir()) == ["a.b.csv", "a.csv"]


@pytest.mark.parametrize("target", ["tiresias", "helios"])
def test_a_failure_leaves_nothing_and_the_earlier_files_stay(
    small: Trace, tmp_path: Path, target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out.csv"
    export(small, target, out)
    before = {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()}

    def fail(*_: Any, **__: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tiresias, "cluster_size", fail)
    monkeypatch.setattr("tracekit.export.targets.helios.quota_table", fail)
    with pytest.raises(OutputError, match=r"out\.csv: cannot write: No space left on device"):
        export(small, target, out, force=True)
    assert {p: p.read_bytes() for p in tmp_path.rglob("*") if p.is_file()} == before


def test_what_a_killed_export_left_is_removed_by_the_next(small: Trace, tmp_path: Path) -> None:
    left = tmp_path / ".out.csv.partial-999999999"
    left.mkdir()
    (left / "out.csv").touch()
    export(small, "blox", tmp_path / "out.csv")
    assert [p.name for p in tmp_path.iterdir()] == ["out.csv"]


def test_an_interruption_leaves_nothing(small: Trace, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stop(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(tiresias, "cluster_size", stop)
    with pytest.raises(KeyboardInterrupt):
        export(small, "tiresias", tmp_path / "out.csv")
    assert list(tmp_path.iterdir()) == []


def test_files_that_stand_there_are_replaced_with_force_only(small: Trace, tmp_path: Path) -> None:
    for name in ("out.csv", "out.cluster.csv"):
        (tmp_path / name).write_text("mine")
        with pytest.raises(OutputError, match=f"{name}: exists already; choose another -o, or add --force"):
            export(small, "tiresias", tmp_path / "out.csv")
        (tmp_path / name).unlink()
    (tmp_path / "out.csv").write_text("mine")
    (tmp_path / "out.cluster.csv").write_text("mine")
    export(small, "tiresias", tmp_path / "out.csv", force=True)
    assert (tmp_path / "out.csv").read_text().startswith("job_id,num_gpu")
    assert (tmp_path / "out.cluster.csv").read_text().startswith("num_switch")


def test_a_folder_is_not_replaced_by_a_file(small: Trace, tmp_path: Path) -> None:
    (tmp_path / "out.csv").mkdir()
    with pytest.raises(OutputError, match="is a folder"):
        export(small, "tiresias", tmp_path / "out.csv", force=True)


def test_a_place_that_cannot_be_written_is_one_line(small: Trace, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(OutputError, match=r"file/out\.swf: cannot write"):
        export(small, "swf", tmp_path / "file" / "out.swf")


def test_the_same_trace_gives_the_same_bytes(small: Trace, tmp_path: Path) -> None:
    for target in ("swf", "accasim", "batsim", "blox", "csv", "gavel", "helios", "opendc", "tiresias", "alibaba-sim"):
        first, second = (export(small, target, tmp_path / n / "out.csv").files for n in (f"{target}1", f"{target}2"))
        assert [p.read_bytes() for p in first] == [p.read_bytes() for p in second], target
