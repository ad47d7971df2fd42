"""Partitions that others write: the files of one machine, byte for byte, and nothing of what fails."""

from __future__ import annotations

import datetime as dt
import itertools
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples
from tests.ingest.both_ways import Pickled, assert_same
from tests.ingest.telemetry.monitored import DAY
from tracekit.errors import OutputError, TracekitError
from tracekit.ingest import file_tasks, ingest_logs, layout
from tracekit.tables import writing
from tracekit.tables.writing import Part

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from pathlib import Path

    from tracekit.trace import Trace

MAP = """
[source]
timezone = "UTC"
[jobs]
files = "jobs.csv"
columns.job_id = "id"
columns.submit_time = "start"
[nodes]
files = "nodes.csv"
columns.node_id = "n"
columns.cluster = "c"
[telemetry.gpus]
files = "gpus-*.csv"
layout = "row"
time = "t"
node = "n"
gpu = "g"
gpu_metrics = { utilization_pct = "u" }
"""


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """Return files of three days and of machines of two clusters, and of one that is in no list; days overlap."""
    logs = tmp_path / "logs"
    logs.mkdir()
    (logs / "jobs.csv").write_text(f"id,start\na,{DAY}T10:00:00\n")
    (logs / "nodes.csv").write_text("n,c\nn1,east\nn2,west\n")
    begin = dt.datetime.fromisoformat(f"{DAY}T22:00:00")
    for number in range(3):
        lines = ["t,n,g,u"]
        for step in range(30):
            moment = begin + dt.timedelta(hours=24 * number, minutes=5 * step)
            lines += [f"{moment.isoformat()},n{node},0,{(step + node) % 100}" for node in (1, 2, 3)]
        (logs / f"gpus-{number}.csv").write_text("\n".join(lines) + "\n")
    (tmp_path / "map.toml").write_text(MAP)
    return logs


def _ingest(source: Path, name: str, workers: Any = None) -> Trace:
    options = {"map": str(source.parent / "map.toml")}
    out = source.parent / name
    return ingest_logs(source, out, format_name="csv", options=options, partition="day", workers=workers)


@pytest.mark.thorough
def test_partitions_are_the_files_of_one_machine(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = _ingest(source, "alone")
    partitions = alone.manifest.tables["gpu_utilization"].partitions or []
    assert [(p.cluster, p.day) for p in partitions] == list(
        itertools.product(("east", "west", None), ("2026-03-02", "2026-03-03", "2026-03-04", "2026-03-05"))
    )
    assert {p.rows for p in partitions} == {24, 30, 6}
    for rows, tasks in ((1, 12), (54, 6), (1000, 3)):
        monkeypatch.setattr(layout, "TASK_ROWS", rows)
        workers = Pickled()
        together = _ingest(source, f"together-{rows}", workers)
        assert_same(alone, together)
        assert [p.read_bytes() for p in together.files("gpu_utilization")] == [
            p.read_bytes() for p in alone.files("gpu_utilization")
        ]
        groups = [item for item in workers.begun if isinstance(item, list)]
        assert len(groups) == tasks + 1  # the first is begun twice


def test_one_task_is_none(source: Path) -> None:
    for name in ("nodes.csv", "gpus-1.csv", "gpus-2.csv"):
        (source / name).unlink()
    mapping = source.parent / "map.toml"
    mapping.write_text(MAP[: MAP.index("[nodes]")] + MAP[MAP.index("[telemetry") :])
    workers = Pickled()
    assert_same(_ingest(source, "alone"), _ingest(source, "together", workers))
    assert not [item for item in workers.begun if isinstance(item, list)]


KEYS = st.tuples(st.sampled_from(["a", "b", None]), st.none() | st.integers(0, 5))


@settings(max_examples=examples(50))
@given(st.dictionaries(KEYS, st.integers(1, 9)), st.integers(1, 12))
def test_groups_are_neighbours_of_one_cluster(found: dict[tuple[str | None, int | None], int], most: int) -> None:
    days = [dt.date(2026, 3, 2) + dt.timedelta(days=day) for day in range(6)]
    order = sorted(found, key=lambda key: (key[0] is None, key[0] or "", key[1] is None, key[1] or 0))
    parts = [Part(cluster, None if day is None else days[day], found[cluster, day]) for cluster, day in order]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(layout, "TASK_ROWS", most)
        groups = list(layout._groups(parts))
    assert [part for group in groups for part in group] == parts
    for group in groups:
        assert len({(part.cluster, part.day is None) for part in group}) == 1
        assert len(group) == 1 or sum(part.rows for part in group) <= most


@settings(max_examples=examples(50))
@given(st.lists(st.integers(0, 9)), st.integers(1, 7))
def test_row_groups_do_not_tell_how_rows_came(sizes: list[int], most: int) -> None:
    whole = pa.table({"x": range(sum(sizes)), "s": [str(n) for n in range(sum(sizes))]})
    ends = list(itertools.accumulate(sizes, initial=0))
    batches = [whole.slice(a, b - a).combine_chunks().to_batches() for a, b in itertools.pairwise(ends)]
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(writing, "ROW_GROUP", most)
        groups = list(writing._groups(iter(itertools.chain.from_iterable(batches))))
    assert [g.num_rows for g in groups[:-1]] == [most] * (len(groups) - 1)
    assert all(g.column("s").num_chunks == 1 for g in groups)
    assert pa.concat_tables(groups).equals(whole) if groups else whole.num_rows == 0


class _Spoilt(Pickled):
    """Workers of whose partitions something happens before they are moved."""

    def __init__(self, spoil: Callable[[Path], None]) -> None:
        super().__init__()
        self.spoil = spoil

    def in_order(self, work: Callable[[Any], Any], items: Sequence[Any]) -> Generator[Any]:
        for found in super().in_order(work, items):
            if isinstance(work, layout._CutTask):
                self.spoil(work.folder / found.name / found.result[0].path)
            yield found


@pytest.mark.parametrize("spoil", [lambda path: path.unlink(), lambda path: path.write_bytes(path.read_bytes()[:-1])])
def test_partitions_that_are_not_whole_here_are_refused(source: Path, spoil: Callable[[Path], None]) -> None:
    with pytest.raises(
        OutputError, match=r"trace: this machine cannot see the files that .* wrote; every machine must see"
    ):
        _ingest(source, "trace", _Spoilt(spoil))
    assert sorted(path.name for path in source.parent.iterdir()) == ["logs", "map.toml"]


def test_a_full_disk_or_another_version_is_one_line_and_leaves_nothing(
    source: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    class Later(Pickled):
        def in_order(self, work: Callable[[Any], Any], items: Sequence[Any]) -> Generator[Any]:
            with monkeypatch.context() as there:
                if isinstance(work, layout._CutTask):
                    there.setattr(file_tasks, "__version__", "9.9")
                found = list(super().in_order(work, items))
            yield from found

    with pytest.raises(TracekitError, match=r"the executor on .* has tracekit 9\.9, this machine has tracekit \d"):
        _ingest(source, "trace", Later())
    with monkeypatch.context() as patched:
        patched.setattr(layout, "write_parts", full)
        with pytest.raises(OutputError, match=r"trace: cannot write: No space left on device; choose another -o"):
            _ingest(source, "trace", Pickled())
    assert sorted(path.name for path in source.parent.iterdir()) == ["logs", "map.toml"]
