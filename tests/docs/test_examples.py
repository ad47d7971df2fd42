"""Reading pages and comparing what they show."""

from __future__ import annotations

import tempfile

from tests.docs.examples import ROOT, blocks, differences, pages

PRINTED = "note: a\n\n head   \n row 1\n row 2\nlast 5 of 6\n"


def test_equal_text_does_not_differ_whatever_its_blank_lines_and_trailing_blanks() -> None:
    assert differences(PRINTED, "note: a\n head\n row 1\n\n row 2\nlast 5 of 6\n") == []


def test_three_dots_stand_for_any_lines_and_for_any_text() -> None:
    assert differences(PRINTED, "...\n row 1\n...\nlast ...\n") == []
    assert differences(PRINTED, "note...\n...\n... of 6\n") == []
    assert differences(PRINTED, "...\nlast ... of 7\n")[0] == "the page shows: last ... of 7"
    assert differences(PRINTED, "...\n") == []


def test_a_line_that_is_not_printed_is_told() -> None:
    wrong = differences(PRINTED, "note: a\n head\n row 2\n")
    assert wrong == ["the page shows:  row 2", "printed there:   row 1"]
    assert differences(PRINTED, "...\n row 3\n...\n")[0] == "the page shows:  row 3"


def test_a_line_that_is_not_shown_is_told() -> None:
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
