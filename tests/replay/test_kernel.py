"""The extension module: what it computes, and that it is of these sources."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import hatch_build
from tests.replay.builders import make_cluster, make_jobs
from tracekit.replay import keys
from tracekit.replay.clusters.assignment import assign
from tracekit.replay.engine.run import simulate
from tracekit.replay.engine.state import struct_dtype
from tracekit.replay.mechanisms import Ordered
from tracekit.replay.native import kernel

ROOT = Path(__file__).parent.parent.parent


def test_the_extension_was_built_from_these_sources() -> None:
    assert hatch_build.digest(ROOT) == kernel().SOURCES, "run 'just build'"


def test_no_compiled_function_is_void() -> None:
    # Cython asks Python for an error after each call of one.
    void = re.compile(r"^ *cdef (inline )?void\b", re.MULTILINE)
    files = sorted((ROOT / "tracekit").rglob("*.pxi"))
    assert files
    assert [path.name for path in files if void.search(path.read_text(encoding="utf-8"))] == []


_FACTS = st.tuples(
    *[st.integers(0, 2**40)] + [st.integers(0, 2**14)] + [st.integers(0, 2**40)] * 3, *[st.integers(0, 2**18)] * 2
)


@pytest.mark.parametrize("name", sorted(kernel().KEYS))
@given(_FACTS)
def test_a_compiled_key_says_what_its_function_says(name: str, facts: tuple[int, ...]) -> None:
    function = getattr(keys, name)
    compiled = keys.engine_key(function)
    assert type(compiled) is kernel().KEYS[name]
    assert compiled(*facts) == function(*facts)


def test_every_key_has_a_compiled_twin() -> None:
    own = {name for name, value in vars(keys).items() if getattr(value, "__module__", "") == keys.__name__}
    assert sorted(kernel().KEYS) == sorted(own - {"engine_key"})


def _run(key: Any) -> list[int]:
    jobs, cluster = make_jobs([(0, 2, 10), (1, 1, 30), (1, 2, 20), (1, 1, 10)]), make_cluster((2,))
    outcome = simulate(jobs, cluster, assign(jobs, cluster), Ordered(key, drift="none"))
    return [int(start) // 1000 for start in outcome.first_start_ms]


def test_a_key_of_ones_own_is_a_plain_function() -> None:
    widths = {1: 1, 2: 0}
    # Both GPUs are job 0's until 10 s; then the gang of two, then the two of one GPU.
    assert _run(lambda _submit, gpus, *_rest: widths[gpus]) == [0, 30, 10, 30]


def test_what_a_key_raises_ends_the_run() -> None:
    def spoilt(submit_ms: int, *_rest: int) -> int:
        if submit_ms:
            raise RuntimeError("no key for late jobs")
        return 0

    with pytest.raises(RuntimeError, match="no key for late jobs"):
        _run(spoilt)
    with pytest.raises(TypeError):
        _run(lambda *_facts: "first")
    with pytest.raises(OverflowError):
        _run(lambda *_facts: 2**63)


def test_arrays_of_another_type_are_refused() -> None:
    with pytest.raises(ValueError, match="mismatch"):
        kernel().fill_jobs(np.zeros(1, struct_dtype("Node")), *[np.zeros(1, np.int64)] * 7)


@pytest.mark.skipif(not kernel().CHECKED, reason="only an engine with checks looks at indices")
def test_an_index_out_of_bounds_is_raised() -> None:
    short = np.zeros(1, np.int32)
    with pytest.raises(IndexError):
        kernel().fill_jobs(
            np.zeros(2, struct_dtype("Job")),
            *[np.zeros(2, np.int64)] * 2,
            *[short] * 2,
            *[np.zeros(2, np.int64)] * 2,
            np.zeros(2, np.uint8),
        )
