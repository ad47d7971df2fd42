"""Node lists of Slurm: which names they hold, and which texts are refused."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracekit.ingest.node_lists import expand_nodes

if TYPE_CHECKING:
    from collections.abc import Iterable


@pytest.mark.parametrize(
    ("text", "nodes"),
    [
        ("login", ["login"]),
        ("gpu[01-03,07]", ["gpu01", "gpu02", "gpu03", "gpu07"]),
        ("a[1-2]b[3-4]", ["a1b3", "a1b4", "a2b3", "a2b4"]),
        ("n[8-11],x[098-100]-ib", ["n8", "n9", "n10", "n11", "x098-ib", "x099-ib", "x100-ib"]),
        ("a1,a[1-2]", ["a1", "a2"]),
    ],
)
def test_node_lists(text: str, nodes: list[str]) -> None:
    assert expand_nodes(text) == nodes


@pytest.mark.parametrize("text", ["", "a[", "a]", "a[1-2", "a[b]", "a[3-1]", "a[[1]]", "a,,b", "a b", "a[]"])
def test_what_is_not_a_node_list(text: str) -> None:
    with pytest.raises(ValueError, match="is not a node list"):
        expand_nodes(text)


def test_an_absurd_node_list_is_never_expanded() -> None:
    for text in ("a[1-999999999999]", "a[1-9999]b[1-9999]c[1-9999]"):
        with pytest.raises(ValueError, match="names more than 65536 nodes"):
            expand_nodes(text)


def compressed(names: Iterable[str]) -> str:
    """Return names like rack2n07 as a node list, one bracket group for each prefix and width."""
    groups: dict[tuple[str, int], list[int]] = {}
    for name in names:
        match = re.fullmatch(r"(.*?)(\d+)", name)
        assert match
        groups.setdefault((match[1], len(match[2])), []).append(int(match[2]))
    parts = []
    for (prefix, width), numbers in groups.items():
        items = []
        rest = sorted(numbers)
        while rest:
            end = 1
            while end < len(rest) and rest[end] == rest[0] + end:
                end += 1
            first, last = f"{rest[0]:0{width}d}", f"{rest[end - 1]:0{width}d}"
            items.append(first if end == 1 else f"{first}-{last}")
            rest = rest[end:]
        parts.append(f"{prefix}[{','.join(items)}]")
    return ",".join(parts)


@given(
    st.lists(st.tuples(st.sampled_from(["gpu", "r1-n", "c"]), st.integers(1, 4), st.integers(0, 9999)), min_size=1).map(
        lambda parts: {f"{prefix}{number % 10**width:0{width}d}" for prefix, width, number in parts}
    )
)
def test_node_lists_survive_the_round_trip(names: set[str]) -> None:
    expanded = expand_nodes(compressed(names))
    assert sorted(expanded) == sorted(names)
    assert len(set(expanded)) == len(expanded)
