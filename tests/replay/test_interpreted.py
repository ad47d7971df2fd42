"""Interpreted and compiled runs are the same; small runs are interpreted while there is no compiled code."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from hypothesis import given, settings

from tests.replay.builders import make_cluster, make_jobs
from tests.replay.strategies import clusters, job_lists
from tests.replay.strict import strictly_interpreted
from tracekit.errors import TracekitError, UsageError
from tracekit.replay.cells.binding import _ones
from tracekit.replay.engine import entrances, run
from tracekit.replay.engine.compiled import compiled, inner
from tracekit.replay.engine.interpreted import interpreted, readable
from tracekit.replay.engine.state import records
from tracekit.replay.mechanisms import Ordered, ordering_key
from tracekit.replay.registry import policies
from tracekit.replay.scenario import Scenario

if TYPE_CHECKING:
    from tracekit.replay.cluster import Cluster
    from tracekit.replay.jobs import Jobs

_ROOT = Path(__file__).parent.parent.parent


_PATIENT = """
from tracekit.replay.engine import entrances
entrances.PATIENCE_S = 600.0
from tracekit.__main__ import main
main()
"""
"""The command line on a machine that is never too slow."""


def outcome(scenario: Scenario, policy: str) -> dict[str, Any]:
    """Return every figure and array of a run, the log among them, as plain values."""
    try:
        found = scenario.run(policy, log=True).outcome
    except TracekitError as error:
        return {"error": str(error)}
    told = {f.name: getattr(found, f.name) for f in fields(found) if f.name not in ("wall_s", "timeline")}
    told |= {f"timeline.{f.name}": getattr(found.timeline, f.name) for f in fields(found.timeline)}
    told |= {f"columns.{name}": array for name, array in (told.pop("columns") or {}).items()}
    return {k: (str(v.dtype), v.tolist()) if isinstance(v, np.ndarray) else repr(v) for k, v in told.items()}


def both(jobs: Jobs, cluster: Cluster, policy: str, placement: str = "consolidate") -> dict[str, Any]:
    """Run a policy both ways, compare, and return what was found."""
    scenario = Scenario.make(jobs, cluster, placement=placement)
    if policy == "recorded":
        first = scenario.run("fifo").outcome
        known = replace(jobs, recorded_start_ms=first.first_start_ms, recorded_end_ms=first.end_ms)
        scenario = replace(scenario, jobs=known)
    with strictly_interpreted():
        slow = outcome(scenario, policy)
    assert slow == outcome(scenario, policy)
    return slow


@pytest.mark.parametrize("policy", [*policies(), "las,promote=1", "kueue,borrow_limit=1", "fair-share,half_life=1"])
def test_interpreted_and_compiled_runs_are_the_same(policy: str) -> None:
    @settings(max_examples=8)
    @given(job_lists(most=15), clusters())
    def agree(jobs: Jobs, cluster: Cluster) -> None:
        both(jobs, cluster, policy)

    agree()


@pytest.mark.parametrize("policy", ["fifo", "srtf", "las"])
def test_so_they_are_with_buddy_blocks(policy: str) -> None:
    @settings(max_examples=8)
    @given(job_lists(most=15), clusters())
    def agree(jobs: Jobs, cluster: Cluster) -> None:
        assert "error" not in both(jobs, cluster, policy, "buddy")

    agree()


@given(jobs=job_lists(most=15))
@settings(max_examples=8)
def test_cells_on_nodes_with_more_gpus_than_a_byte_has_bits(jobs: Jobs) -> None:
    assert "error" not in both(jobs, make_cluster([16, 12, 64], quota={"a": 40, "b": 20, "c": 20}), "hived")


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("bits", [0, 1, 2**63, 2**64 - 1, 0x8000_0000_8000_0001, 0x0123_4567_89AB_CDEF])
def test_ones_are_counted_without_overflow(bits: int) -> None:
    assert interpreted(_ones)(np.uint64(bits)) == bits.bit_count()


@inner
def _raise_first(rows: Any, by: Any) -> None:
    rows[0].key += by


@compiled
def _sum(rows: Any, numbers: Any, bits: Any, table: Any) -> int:
    total = 0
    for i in range(len(rows)):
        _raise_first(rows, np.int64(numbers[i]))
        total += rows[i].key + table[i, 1] + table[i][0]
    bits[0] |= np.uint64(1) << np.uint64(63)
    rows[1] = rows[0]
    return total


def arguments() -> tuple[Any, ...]:
    rows = np.zeros(2, records("HEAP"))
    rows["key"] = [5, 7]
    return rows, np.array([1, 2]), np.zeros(1, np.uint64), np.array([[1, 2], [3, 4]], np.int32)


def test_twins_read_and_write_the_same_memory() -> None:
    for way in (entrances.interpreting, strictly_interpreted):
        given = arguments()
        with way():
            assert _sum(*given) == 6 + 7 + 1 + 2 + 3 + 4
        assert given[0].tolist() == [(8, 0), (8, 0)]
        assert given[2].tolist() == [1 << 63]
    assert not signatures(_sum)


def test_rows_refuse_what_is_not_there() -> None:
    rows = readable(np.zeros(3, records("HEAP")))
    for index in (-1, 3):
        with pytest.raises(IndexError):
            rows[index]
    with pytest.raises(AttributeError):
        rows[0].kye = 1
    assert len(rows) == 3


def test_strict_interpretation_refuses_what_does_not_fit() -> None:
    _rows, numbers, bits, table = arguments()
    with strictly_interpreted():
        with pytest.raises(IndexError):
            readable(numbers)[-1]
        with pytest.raises(IndexError):
            readable(table)[0, -1]
        with pytest.raises(OverflowError):
            readable(np.zeros(1, records("NODE")))[0].free = 1 << 31
        with pytest.raises(RuntimeWarning):
            readable(bits)[0] = np.uint64(2**63) * np.uint64(2)


@compiled
def _one(rows: Any) -> int:
    return int(rows[0].key) + 1


def chosen(jobs: int) -> bool:
    """Return whether a function was compiled in a run of so many jobs."""
    before = signatures(_one)
    with entrances.choosing(jobs):
        assert _one(np.zeros(1, records("HEAP"))) == 1
    return signatures(_one) > before


def signatures(function: Any) -> int:
    """Return how many kinds of arguments a function has machine code for."""
    return len(function.overloads)


@pytest.fixture
def no_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let tracekit choose, where nothing is compiled and nothing was interpreted."""
    monkeypatch.delenv(entrances.SETTING, raising=False)
    monkeypatch.setattr(entrances, "_spent", type(entrances._spent)(float))
    monkeypatch.setattr(entrances, "_at_hand", lambda function, arguments: bool(function.overloads))
    function: Any = _one
    function._reset_overloads()
    function._cache = type("_NoCache", (), {"load_overload": lambda *_: None, "save_overload": lambda *_: None})()


@pytest.mark.usefixtures("no_code")
def test_small_runs_are_interpreted_until_there_is_code() -> None:
    assert not chosen(entrances.SMALL)
    assert chosen(entrances.SMALL + 1)
    assert entrances._spent[_one] > 0
    spent = entrances._spent[_one]
    chosen(1)
    assert entrances._spent[_one] == spent


@pytest.mark.usefixtures("no_code")
def test_what_was_interpreted_for_long_is_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not chosen(1)
    monkeypatch.setattr(entrances, "PATIENCE_S", 0.0)
    assert chosen(1)


@pytest.mark.usefixtures("no_code")
def test_the_choice_can_be_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(entrances.SETTING, "interpreted")
    assert not chosen(10**9)
    monkeypatch.setenv(entrances.SETTING, "compiled")
    assert chosen(1)
    monkeypatch.setenv(entrances.SETTING, "fast")
    with pytest.raises(UsageError, match="neither 'compiled' nor 'interpreted'"):
        chosen(1)


def test_code_on_disk_is_used(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "import numpy as np\n"
        "from tracekit.replay.engine.compiled import compiled\n"
        "from tracekit.replay.engine.entrances import choosing\n"
        "@compiled\n"
        "def first(values):\n"
        "    return values[0]\n"
        "for jobs in (1, 10**9):\n"
        "    with choosing(jobs):\n"
        "        print(first(np.arange(3)), sum(first.stats.cache_hits.values()), len(first.overloads))\n"
    )
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache"), entrances.SETTING: ""}

    def printed() -> list[str]:
        done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True, env=environment)
        return done.stdout.splitlines()

    assert printed() == ["0 0 0", "0 0 1"]
    assert printed() == ["0 1 1", "0 1 1"]


@pytest.mark.parametrize("policy", ["las", "elastic-fifo"])
def test_a_run_may_change_from_one_to_the_other(policy: str, monkeypatch: pytest.MonkeyPatch) -> None:
    jobs = make_jobs([(i * 3, 1 + i % 5, 5 + i % 11) for i in range(40)])
    scenario = Scenario.make(jobs, make_cluster([4, 4]))
    expected = outcome(scenario, policy)
    took: list[bool] = []

    def takes(_run: Any, _function: Any, _arguments: Any) -> bool:
        took.append(len(took) % 3 < 2)
        return took[-1]

    monkeypatch.delenv(entrances.SETTING, raising=False)
    monkeypatch.setattr(entrances._Interpreter, "takes", takes)
    monkeypatch.setattr(run, "_FEW_INSTANTS", 2)
    assert outcome(scenario, policy) == expected
    assert len(took) > 20


def test_keys_have_their_type_before_anything_is_compiled(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(
        "from tracekit.replay.engine.compiled import compiled\n"
        "from tracekit.replay.mechanisms import by_arrival\n"
        "@compiled\n"
        "def ask(key):\n"
        "    return key(3, 0, 0, 0, 0, 0, 0)\n"
        "print(ask(by_arrival))\n"
    )
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=True, env=environment)
    assert done.stdout == "3\n"


def test_keys_of_others_are_compiled_at_once_and_not_interpreted() -> None:
    @ordering_key
    def half(
        submit_ms: int, gpus: int, estimate_ms: int, remaining_ms: int, attained_gpu_ms: int, level: int, value: int
    ) -> int:
        return submit_ms / 2  # type: ignore[return-value]  # the fault that is tested

    # Machine code cuts it to a whole number, and so does an interpreted run.
    assert readable(half)(3, 0, 0, 0, 0, 0, 0) == 1
    jobs = make_jobs([(1, 1, 5), (2, 1, 5), (0, 1, 5)])
    scenario = Scenario.make(jobs, make_cluster([1]))
    with strictly_interpreted():
        found = run.simulate(jobs, scenario.cluster, scenario.assignment, Ordered(half, drift="none"))
    assert found.first_start_ms.tolist() == [0, 5_000, 10_000]


def test_a_first_replay_of_a_small_log_compiles_nothing(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache), entrances.SETTING: ""}

    def tracekit(*words: str) -> str:
        command = [sys.executable, "-c", _PATIENT, *words]
        return subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stderr

    tracekit("ingest", str(_ROOT / "sample_traces" / "philly"), "-o", str(tmp_path / "trace"))
    told = tracekit("replay", str(tmp_path / "trace"), "-o", str(tmp_path / "out"))
    assert "Warning" not in told
    assert (tmp_path / "out" / "comparison.parquet").exists()
    assert [path for path in cache.rglob("*") if path.is_file()] == []
