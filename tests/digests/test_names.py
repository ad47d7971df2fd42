"""File names for whatever users are called."""

from __future__ import annotations

import re

from hypothesis import example, given
from hypothesis import strategies as st

from tracekit.digests.document import file_names


@given(st.lists(st.text(), unique=True))
@example(["index", "con", "..", "/etc/passwd", "a" * 1_000_000, "Alice", "alice", "ALICE", "a b", "a-b", "", "\ud800"])
@example(["x.e3b0c44298fc1c14", ""])
def test_names_are_safe_and_differ(names: list[str]) -> None:
    found = file_names(names)
    assert set(found) == set(names)
    # On a file system that takes small and capital letters for the same, too.
    assert len({file.lower() for file in found.values()}) == len(names)
    for file in found.values():
        assert re.fullmatch(r"[a-z0-9][a-z0-9_-]{0,39}(\.[0-9a-f]{16})?", file)
        assert not re.fullmatch(r"con|prn|aux|nul|com\d|lpt\d", file)


def test_plain_names_stay() -> None:
    plain = ["alice", "u00", "007", "svc_train-2"]
    assert file_names(plain) == {name: name for name in plain}
