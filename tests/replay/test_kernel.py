"""The extension module: what it computes, and that it is of these sources."""

from __future__ import annotations

from pathlib import Path

import numpy as np

import hatch_build
from tracekit.replay.native import kernel

ROOT = Path(__file__).parent.parent.parent


def test_the_extension_was_built_from_these_sources() -> None:
    assert hatch_build.digest(ROOT) == kernel().SOURCES, "run 'just build'"


def test_the_longest_span_is_found_in_an_array_of_records() -> None:
    spans = np.array([(0, 5), (7, 19), (20, 21)], dtype=[("start", np.int64), ("end", np.int64)])
    assert [kernel().longest(kernel().Spans(spans), count) for count in (0, 1, 3)] == [0, 5, 12]
