"""Compiled functions: the two settings of reference counting, the cache folder, and counting zero bits."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracekit.replay.engine import compiled as module
from tracekit.replay.engine.compiled import compiled, count_trailing_zeros, inner

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from numpy.typing import NDArray

_ROW = np.dtype([("number", np.int64), ("half", np.int32)])


def _mix(values: NDArray[np.int64], rows: NDArray[np.void], pair: tuple[NDArray[np.int64], int]) -> int:
    total = 0
    for index in range(len(values)):
        row = rows[index % len(rows)]
        row["number"] += values[index]
        total += row["number"] * pair[1] + pair[0][index % len(pair[0])]
        part = values[: index + 1]
        total += part[-1] // 3
    return total


_counted = compiled(counted=True)(_mix)
_uncounted = compiled(_mix)


@given(st.lists(st.integers(-(10**6), 10**6), min_size=1, max_size=50), st.integers(0, 9))
def test_leaving_out_reference_counts_changes_no_result(values: list[int], factor: int) -> None:
    results = []
    for function in (_counted, _uncounted, _mix):
        rows = np.zeros(3, dtype=_ROW)
        array = np.array(values, dtype=np.int64)
        results.append((function(array, rows, (array, factor)), rows.tolist(), array.tolist()))
    assert results[0] == results[1] == results[2]


def test_arrays_survive_calls_without_reference_counts() -> None:
    array, rows = np.arange(1000), np.zeros(3, dtype=_ROW)
    before = sys.getrefcount(array)
    for _ in range(100):
        _uncounted(array, rows, (array, 1))
    assert sys.getrefcount(array) == before
    assert array.tolist() == list(range(1000))


class _Arrays(NamedTuple):
    rows: NDArray[np.void]
    numbers: NDArray[np.int64]
    table: NDArray[np.int64]
    few: NDArray[np.int64]
    empty: NDArray[np.int32]


@inner
def _add_row(arrays: _Arrays, rows: NDArray[np.void], index: int) -> int:
    rows[index]["number"] += arrays.numbers[index] + arrays.few[index]
    return int(len(arrays.empty) + len(arrays.table[0]))


@compiled
def _add_rows(arrays: _Arrays, times: int) -> int:
    total = 0
    for _ in range(times):
        for index in range(len(arrays.numbers)):
            arrays.table[1, index] += index
            total += _add_row(arrays, arrays.rows, index) + arrays.numbers[1:].size
    return total


def test_arrays_of_every_layout_are_read_and_written_through_a_record_of_arrays() -> None:
    arrays = _Arrays(
        rows=np.zeros(3, dtype=_ROW),
        numbers=np.array([1, 2, 3]),
        table=np.zeros((2, 5), np.int64),
        few=np.arange(60)[::20],
        empty=np.zeros(0, np.int32),
    )
    # Each of 2 * 3 times: no item of `empty`, 5 columns of the table, 2 numbers behind the first.
    assert _add_rows(arrays, 2) == 2 * 3 * (0 + 5 + 2)
    assert arrays.rows["number"].tolist() == [2 * (1 + 0), 2 * (2 + 20), 2 * (3 + 40)]
    assert arrays.table.tolist() == [[0, 0, 0, 0, 0], [0, 2, 4, 0, 0]]


def test_a_record_of_arrays_may_be_followed_by_another_of_other_arrays() -> None:
    for size in (1, 2):
        numbers = np.arange(size)
        arrays = _Arrays(
            np.zeros(size, dtype=_ROW), numbers, np.zeros((2, size), np.int64), numbers[::1], np.zeros(0, np.int32)
        )
        assert _add_rows(arrays, 1) == size * (size + size - 1)


@given(st.integers(0, 2**64 - 1))
def test_trailing_zeros_are_those_of_the_binary_number(value: int) -> None:
    digits = f"{value:064b}"
    expected = len(digits) - len(digits.rstrip("0"))
    assert count_trailing_zeros(np.uint64(value)) == expected
    assert module._count_in_python(value) == expected


def test_no_bit_set_has_64_trailing_zeros() -> None:
    assert count_trailing_zeros(np.uint64(0)) == 64
    assert count_trailing_zeros(np.uint64(1 << 63)) == 63


@pytest.fixture
def fresh_folder() -> Iterator[None]:
    module.cache_folder.cache_clear()
    yield
    module.cache_folder.cache_clear()


@pytest.mark.usefixtures("fresh_folder")
def test_the_cache_folder_lies_in_numbas_own_where_that_is_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module._config, "CACHE_DIR", str(tmp_path))
    folder = module.cache_folder()
    assert folder is not None
    assert folder.parent == tmp_path / "tracekit" / "compiled"
    assert folder.is_dir()


@pytest.mark.usefixtures("fresh_folder")
@pytest.mark.parametrize(
    ("platform", "variable", "below"),
    [("linux", "XDG_CACHE_HOME", "."), ("darwin", "HOME", "Library/Caches"), ("win32", "LOCALAPPDATA", ".")],
)
def test_the_cache_folder_is_the_users_where_nothing_is_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, platform: str, variable: str, below: str
) -> None:
    monkeypatch.setattr(module._config, "CACHE_DIR", "")
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setenv(variable, str(tmp_path))
    assert module._base() == tmp_path / below


@pytest.mark.usefixtures("fresh_folder")
def test_without_a_writable_folder_functions_are_compiled_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(module._config, "CACHE_DIR", str(tmp_path / "file"))
    assert module.cache_folder() is None
    function = compiled(_mix)
    array = np.arange(5)
    assert function(array, np.zeros(3, dtype=_ROW), (array, 2)) == _mix(array, np.zeros(3, dtype=_ROW), (array, 2))
    assert list(tmp_path.iterdir()) == [tmp_path / "file"]


@pytest.mark.usefixtures("fresh_folder")
def test_decorating_leaves_numbas_own_setting_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module._config, "CACHE_DIR", str(tmp_path))
    compiled(_mix)
    assert str(tmp_path) == module._config.CACHE_DIR


@pytest.mark.usefixtures("fresh_folder")
def test_a_change_in_any_source_file_of_the_replay_changes_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "replay").mkdir()
    (tmp_path / "policies").mkdir()
    (tmp_path / "replay" / "a.py").write_text("x = 1\n")
    monkeypatch.setattr(module, "_PACKAGE", tmp_path)
    digests = [module._digest()]
    (tmp_path / "replay" / "a.py").write_text("x = 2\n")
    digests.append(module._digest())
    (tmp_path / "policies" / "b.py").write_text("")
    digests.append(module._digest())
    (tmp_path / "policies" / "b.py").rename(tmp_path / "policies" / "c.py")
    digests.append(module._digest())
    assert len(set(digests)) == 4


@pytest.mark.usefixtures("fresh_folder")
def test_folders_that_nobody_used_for_a_month_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module._config, "CACHE_DIR", str(tmp_path))
    old, recent = (tmp_path / "tracekit" / "compiled" / name for name in ("old", "recent"))
    old.mkdir(parents=True)
    recent.mkdir()
    month_ago = time.time() - 31 * 86_400
    os.utime(old, (month_ago, month_ago))
    folder = module.cache_folder()
    assert folder is not None
    assert sorted(path.name for path in folder.parent.iterdir()) == sorted([folder.name, "recent"])


def test_the_code_is_kept_for_the_next_process_and_python_runs_where_compilation_is_off(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import numpy as np\n"
        "from tracekit.replay.engine.compiled import compiled, count_trailing_zeros\n"
        "@compiled\n"
        "def zeros(values):\n"
        "    total = 0\n"
        "    for value in values:\n"
        "        total += count_trailing_zeros(value)\n"
        "    return total\n"
        "print(zeros(np.array([8, 0, 1], dtype=np.uint64)))\n"
        "print(sum(zeros.stats.cache_hits.values()) if hasattr(zeros, 'stats') else 'python')\n"
    )

    def run(**extra: str) -> list[str]:
        environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache"), **extra}
        done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True, env=environment)
        return done.stdout.split()

    assert run() == ["67", "0"]
    assert run() == ["67", "1"]
    assert run(NUMBA_DISABLE_JIT="1") == ["67", "python"]
