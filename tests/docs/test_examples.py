"""Reading pages and comparing what they show."""

from __future__ import annotations

import tempfile
from typing import TYPE_CHECKING

import pytest

from tests.docs.examples import ROOT, Reader, blocks, differences, pages

if TYPE_CHECKING:
    from pathlib import Path

PRINTED = "note: a\n\n head   \n row 1\n row 2\nlast 5 of 6\n"


def test_equal_text_does_not_differ_whatever_its_blank_lines_and_trailing_blanks() -> None:
    assert differences(PRINTED, "note: a\n head\n row 1\n\n row 2\nlast 5 of 6\n") == []


def test_three_dots_match_any_lines_and_any_text() -> None:
    assert differences(PRINTED, "...\n row 1\n...\nlast ...\n") == []
    assert differences(PRINTED, "note...\n...\n... of 6\n") == []
    assert differences(PRINTED, "...\nlast ... of 7\n")[0] == "the page shows: last ... of 7"
    assert differences(PRINTED, "...\n") == []


def test_a_line_that_is_not_printed_is_reported() -> None:
    wrong = differences(PRINTED, "note: a\n head\n row 2\n")
    assert wrong == ["the page shows:  row 2", "printed there:   row 1"]
    assert differences(PRINTED, "...\n row 3\n...\n")[0] == "the page shows:  row 3"


def test_a_line_that_is_not_shown_is_reported() -> None:
    assert differences(PRINTED, "note: a\n head\n row 1\n row 2\n") == ["not on the page: last 5 of 6"]
    assert differences(PRINTED, "note: a\n head\n row 1\n row 2\nlast 5 of 6\nmore\n")[0] == "the page shows: more"


def test_output_belongs_to_the_command_right_above_it() -> None:
    found = blocks("index.md")
    assert [(block.run, block.prints) for block in found] == [(False, None)]
    (head, *_) = [block for block in blocks("tutorials/operator.md") if block.run]
    assert head.prints is not None
    assert head.prints.startswith("JobID|")


def test_no_fence_is_indented_since_such_a_block_would_not_be_run() -> None:
    assert [page.name for page in pages() if "\n    ```" in page.read_text(encoding="utf-8")] == []


def test_no_page_tells_where_it_was_written() -> None:
    names = (str(ROOT), tempfile.gettempdir())
    assert [page.name for page in pages() for name in names if name in page.read_text(encoding="utf-8")] == []
    assert len(list(pages())) > 20


SAY = "import sys\nprint('out', *sys.argv[1:])\nprint('err', file=sys.stderr)\nsys.exit(sys.argv[1:] == ['fail'])\n"
LINES = (
    "python say.py 'a b' c",
    "python say.py x > told; cat told",
    "python say.py x > told",
    "python say.py x 2>/dev/null",
    "python say.py x 2> /dev/null | tr o O",
    "python say.py x 2>&1 | sort | head -n 1",
    "python say.py x | tr o O",
    "python say.py 'a | b' \\\n  c | tr o O",
    "for k in 1 two; do\n  python say.py $k \\\n    2>&1 | grep out\ndone\npython say.py end",
)


@pytest.mark.parametrize("commands", LINES)
def test_what_runs_in_this_process_prints_what_it_prints_in_a_shell(tmp_path: Path, commands: str) -> None:
    (tmp_path / "say.py").write_text(SAY)
    reader = Reader(tmp_path)
    printed = reader.sh(commands)
    told = (tmp_path / "told").read_text() if "told" in commands else None
    reader.alone = True
    assert printed.splitlines() == reader.sh(commands).splitlines()
    assert told in (None, "out x\n")


def test_a_command_that_fails_is_reported(tmp_path: Path) -> None:
    (tmp_path / "say.py").write_text(SAY)
    reader = Reader(tmp_path)
    for commands in ("python say.py fail", "python say.py fail | cat", "tracekit info nowhere"):
        with pytest.raises(AssertionError, match=f"here\n{commands[:12]}"):
            reader.sh(commands, "here")


def test_a_short_way_names_commands_of_the_page(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="does not show these commands"):
        Reader(tmp_path).follow("howto/query.md", dict.fromkeys(("tracekit", "python", "tracekti")))
