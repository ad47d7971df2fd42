"""The how-tos on comparing periods, on sharing work, and on writing plug-ins: all that they show is carried out."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.docs.examples import DOCS, Reader, blocks

if TYPE_CHECKING:
    from pathlib import Path

HOWTOS = sorted(path.relative_to(DOCS).as_posix() for path in (DOCS / "howto").glob("*.md"))


SHORT: dict[str, dict[str, str | None]] = {
    "howto/policy.md": {"python -m pytest": None},
    "howto/query.md": {},
}
"""Pages that the first tier follows too, and what makes each short."""


@pytest.mark.parametrize("page", SHORT)
def test_its_example_works_but_for_what_takes_long(page: str, tmp_path: Path) -> None:
    assert Reader(tmp_path).follow(page, SHORT[page]) >= 1


@pytest.mark.thorough
@pytest.mark.parametrize("page", HOWTOS)
def test_its_example_works(page: str, tmp_path: Path) -> None:
    assert Reader(tmp_path).follow(page) >= 3


@pytest.mark.parametrize("page", HOWTOS)
def test_all_of_its_code_is_used(page: str) -> None:
    unused = [b.line for b in blocks(page) if b.language in {"python", "sql", "toml"} and b.file is None]
    assert unused == []
    assert all(block.run for block in blocks(page) if block.language == "sh")


def test_there_is_one_for_changes_one_for_shards_and_one_for_each_kind_of_plug_in() -> None:
    assert {*SHORT} <= {*HOWTOS}
    assert HOWTOS == [
        "howto/compare.md",
        "howto/format.md",
        "howto/guideline.md",
        "howto/policy.md",
        "howto/query.md",
        "howto/shards.md",
    ]
