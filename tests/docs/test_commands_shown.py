"""Every tracekit command that a page shows exists, with every option that it is given."""

from __future__ import annotations

import re
import shlex
from typing import TYPE_CHECKING

import pytest

from tests.docs.examples import DOCS, ROOT, pages
from tools.manual.commands import commands

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

FILES = [ROOT / "README.md", *pages()]
KNOWN = {tuple(name.split()[1:]): {o for p in command.params for o in p.opts} for name, command in commands()}
KNOWN[()] = {"--version", "--debug", "--help"}


def shown(text: str) -> Iterator[list[str]]:
    """Yield the words of every tracekit command in blocks and in indented lines of a page."""
    fenced = re.findall(r"^```(?:sh|text)\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
    indented = re.findall(r"^ {4}(tracekit .*)$", text, re.MULTILINE)
    for line in "\n".join([*fenced, *indented]).replace("\\\n", " ").splitlines():
        if "tracekit " not in line or re.search(r"tracekit: |'tracekit |^(note|\*\*)", line):
            continue
        words = list(shlex.shlex(line, posix=True, punctuation_chars=True))
        for at, word in enumerate(words):
            if word == "tracekit" or word.endswith("/tracekit"):
                end = next((k for k, w in enumerate(words) if k > at and set(w) <= set("|&;<>()")), len(words))
                yield words[at + 1 : end]


def wrong(words: list[str]) -> str | None:
    """Return what is wrong with a command."""
    name: tuple[str, ...] = ()
    while words and (*name, words[0]) in KNOWN:
        name, words = (*name, words[0]), words[1:]
    if not name and words and not words[0].startswith("-"):
        return f"there is no command {words[0]}"
    options = [word.partition("=")[0] for word in words if re.fullmatch(r"--?[a-z][a-z-]*(=.*)?", word)]
    unknown = [option for option in options if option not in KNOWN[name]]
    return f"tracekit {' '.join(name)} has no option {unknown[0]}" if unknown else None


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.relative_to(ROOT).as_posix())
def test_it_exists(file: Path) -> None:
    assert [fault for words in shown(file.read_text(encoding="utf-8")) if (fault := wrong(words))] == []


def test_many_are_shown_and_a_wrong_one_would_be_found() -> None:
    assert sum(len(list(shown(file.read_text(encoding="utf-8")))) for file in FILES) > 150
    assert {words[0] for words in shown((DOCS / "replay.md").read_text("utf-8"))} >= {"replay", "calibrate", "sweep"}
    lines = (
        "cat x | tracekit fit t --bootsrap 3 > y",
        "tracekit repaly t # -o out",
        "tracekit datasets fetch --mirror u",
    )
    found = [wrong(words) for words in shown("\n".join(["```sh", *lines, "```", ""]))]
    assert found == ["tracekit fit has no option --bootsrap", "there is no command repaly", None]
