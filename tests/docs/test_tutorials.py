"""Every command of the tutorials runs, in the order of the page, and prints what the page shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.docs.examples import DOCS, Reader, blocks
from tests.places.conftest import _server, store  # noqa: F401 -- fixtures

if TYPE_CHECKING:
    from pathlib import Path

TUTORIALS = sorted(path.relative_to(DOCS).as_posix() for path in (DOCS / "tutorials").glob("*.md"))


SHORT: dict[str, dict[str, str | None]] = {
    "tutorials/operator.md": {
        "tracekit analyze sample_traces/slurm -o out ": "tracekit ingest sample_traces/slurm -o out/trace ",
        "two-clusters": None,
        "tracekit analyze house": None,
        "house-report": None,
    },
}
"""Pages that the first tier follows too, and what makes each short: all but the reports and the plans."""


@pytest.mark.parametrize("page", SHORT)
@pytest.mark.usefixtures("store")  # which one of them reads
def test_a_reader_can_follow_it_but_for_what_takes_long(page: str, tmp_path: Path) -> None:
    commands = Reader(tmp_path).follow(page, SHORT[page])
    assert commands >= 7


BRIEF: dict[str, dict[str, str | None]] = {
    "tutorials/large_site.md": {"tracekit analyze": None},
    "tutorials/operator.md": {"slurm -o out ": "slurm -o out --no-fit ", "house -o ": "house --no-fit -o "},
    "tutorials/reliability.md": {"-outages -o out ": "-outages -o out --no-fit --replay-jobs 0 "},
}
"""Pages whose analyses the second tier shortens or leaves out; the nightly run follows these pages as written."""


@pytest.mark.thorough
@pytest.mark.parametrize("page", TUTORIALS)
@pytest.mark.usefixtures("store")
def test_a_reader_can_follow_it(page: str, tmp_path: Path) -> None:
    commands = Reader(tmp_path).follow(page, BRIEF.get(page))
    assert commands >= 9


@pytest.mark.slow
@pytest.mark.parametrize("page", BRIEF)
@pytest.mark.usefixtures("store")
def test_a_reader_can_follow_it_with_all_that_an_analysis_makes(page: str, tmp_path: Path) -> None:
    Reader(tmp_path).follow(page)


@pytest.mark.parametrize("page", TUTORIALS)
def test_it_shows_what_most_commands_print(page: str) -> None:
    run = [block for block in blocks(page) if block.run]
    assert sum(block.prints is not None for block in run) >= 0.8 * len(run)


def test_there_is_one_for_each_kind_of_user() -> None:
    names = ("large_site", "operator", "reliability", "researcher", "simulator")
    assert [f"tutorials/{name}.md" for name in names] == TUTORIALS
    assert {*SHORT} <= {*TUTORIALS}
