"""Extract the examples on the pages of docs/, run them and check their output.

A block in the language `sh` is run. A block in the language `text` right below it shows its output, where a line `...`
stands for any lines and `...` inside a line for any text. A comment right above a block changes this:

    <!-- not run: why -->     the block is not run
    <!-- file: NAME -->       the block is written to NAME

A shell line that is one tracekit command, or a script from the page, runs inside this process, which saves the imports.
The shell runs all other lines, and the part of a line after a pipe.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import runpy
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

import tracekit.cli

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"

_BLOCK = re.compile(
    r"^(?:<!-- (?P<mark>file|not run): *(?P<told>[^\n]*?) -->\n)?"
    r"^```(?P<language>\w*)[^\n]*\n(?P<text>.*?)^```$(?P<between>\n\s*(?=```text)|)",
    re.MULTILINE | re.DOTALL,
)


@dataclass
class Block:
    """A fenced block on a page."""

    language: str
    text: str
    line: int
    """Line at which the block begins on the page, from 1."""
    file: str | None
    """File to which the block is written."""
    run: bool
    """Whether the block is a command to run."""
    prints: str | None = None
    """Output that the page shows."""


_COMMAND = re.compile(
    r"(?P<words>(?:tracekit|python [\w/]+\.py)(?: (?:[^|&;<>$`*'\"]|'[^']*')+)?)"
    r"(?P<err> 2>&1| 2> ?/dev/null)?(?: > (?P<file>\S+))?(?: \| (?P<pipe>.*))?"
)
"""A line that runs in this process."""
_LOOP = re.compile(r"^for (?P<name>\w+) in (?P<values>[\w ]+); do\n(?P<body>.*?)^done$", re.MULTILINE | re.DOTALL)


def _lines(commands: str) -> list[str]:
    """Return the lines of shell commands, with separate lines for each iteration of a loop."""

    def unrolled(loop: re.Match[str]) -> str:
        return "".join(loop["body"].replace(f"${loop['name']}", value) for value in loop["values"].split())

    return [line.strip() for line in _LOOP.sub(unrolled, commands.replace("\\\n", " ")).splitlines() if line.strip()]


def blocks(page: str) -> list[Block]:
    """Return the fenced blocks on a page below docs/, each with the output that the page shows for it."""
    text = (DOCS / page).read_text(encoding="utf-8")
    found: list[Block] = []
    shown = False
    for match in _BLOCK.finditer(text):
        if shown and match["language"] == "text":
            found[-1].prints = match["text"]
            shown = False
            continue
        found.append(
            Block(
                language=match["language"],
                text=match["text"],
                line=text.count("\n", 0, match.start()) + 1,
                file=match["told"] if match["mark"] == "file" else None,
                run=match["language"] == "sh" and match["mark"] is None,
            )
        )
        shown = bool(match["between"])
    return found


def differences(printed: str, shown: str) -> list[str]:
    """Return the first line of `shown` that is missing at its place in `printed`, or [] if none is missing."""
    lines = [line.rstrip() for line in printed.splitlines() if line.strip()]
    rest = 0
    anywhere = False
    for line in (line.rstrip() for line in shown.splitlines() if line.strip()):
        if line.strip() == "...":
            anywhere = True
            continue
        places = range(rest, len(lines)) if anywhere else range(rest, min(rest + 1, len(lines)))
        at = next((place for place in places if _same(lines[place], line)), None)
        if at is None:
            met = lines[rest] if rest < len(lines) else "(the end)"
            return [f"the page shows: {line}", f"printed there:  {met}"]
        rest, anywhere = at + 1, False
    return [] if anywhere or rest == len(lines) else [f"not on the page: {lines[rest]}"]


def _same(printed: str, shown: str) -> bool:
    pattern = r"\s*.*".join(re.escape(part.rstrip()) for part in shown.split("..."))
    return re.fullmatch(pattern, printed) is not None


class Reader:
    """A reader who follows a page, in a folder that looks like a checkout.

    Parameters
    ----------
    folder : Path
        An empty folder.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for name in ("sample_traces", "docs", "schemas", "queries"):
            (folder / name).symlink_to(ROOT / name)
        tools = folder / ".tools"
        tools.mkdir()
        (tools / "pip").write_text(
            f"#!/bin/sh\nexec '{sys.executable}' '{Path(__file__).parent}/stand_in_pip.py' \"$@\"\n"
        )
        (tools / "pip").chmod(0o755)
        self.environment = {
            **os.environ,
            "PATH": f"{tools}:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": os.pathsep.join(filter(None, (str(tools), str(ROOT), os.environ.get("PYTHONPATH")))),
            "TOOLS": str(tools),
            "PYTHONUNBUFFERED": "1",  # the order of a terminal
        }
        self.alone = False
        """Whether every command runs as a separate process."""

    def follow(self, page: str, instead: Mapping[str, str | None] | None = None) -> int:
        """Do what the page says, and return the number of commands. Fail if the page is wrong.

        `instead` shortens this. If a block of commands contains one of its keys, the block is left out if the value is
        None. If not, the value replaces the key, and any output is accepted. Each key must occur in a block.
        """
        run = 0
        unmet = dict(instead or {})
        for block in blocks(page):
            for text in [text for text in instead or () if block.run and text in block.text]:
                unmet.pop(text, None)
                block.prints = None
                words = (instead or {})[text]
                block.run, block.text = words is not None, block.text.replace(text, words or "")
            if block.file is not None:
                target = self.folder / block.file
                target.parent.mkdir(parents=True, exist_ok=True)
                target.write_text(block.text, encoding="utf-8")
            if block.run:
                run += 1
                printed = self.sh(block.text, f"docs/{page}:{block.line}")
                if block.prints is not None:
                    wrong = differences(printed, block.prints)
                    assert not wrong, "\n".join([f"docs/{page}:{block.line}", *wrong, "all that was printed:", printed])
        assert not unmet, f"docs/{page} does not show these commands"
        return run

    def sh(self, commands: str, where: str = "") -> str:
        """Run shell commands, and return what they print on both streams."""
        return "".join(self._line(line, where) for line in _lines(commands))

    def _line(self, line: str, where: str) -> str:
        found = _COMMAND.fullmatch(line)
        if found is None or self.alone:
            self.alone |= line.startswith("pip ")  # only processes that begin later find installed packages
            return self._shell(line, where)
        out, err = io.BytesIO(), io.BytesIO()
        dropped = found["err"] in {" 2>/dev/null", " 2> /dev/null"}
        taken = found["pipe"] or found["file"] or dropped
        apart = err if taken and found["err"] != " 2>&1" else out
        code = self._inside(shlex.split(found["words"]), out, apart)
        assert code == 0, f"{where}\n{line}\n{out.getvalue().decode()}{err.getvalue().decode()}"
        printed = "" if dropped else err.getvalue().decode()
        if found["pipe"]:
            return printed + self._shell(found["pipe"], where, out.getvalue())
        if found["file"]:
            (self.folder / found["file"]).write_bytes(out.getvalue())
            return printed
        return out.getvalue().decode() + printed

    def _inside(self, words: list[str], out: io.BytesIO, err: io.BytesIO) -> int:
        """Run a command with these streams, which may be the same, in a terminal's order. Return its exit code."""
        streams = [io.TextIOWrapper(to, encoding="utf-8", line_buffering=True) for to in (out, err)]
        with contextlib.ExitStack() as stack:
            stack.enter_context(mock.patch.object(sys, "argv", words if words[0] == "tracekit" else words[1:]))
            stack.enter_context(mock.patch.object(sys, "path", [str(self.folder), *sys.path]))
            # An interruption must stop the tests and not only the command.
            stack.enter_context(mock.patch.object(tracekit.cli, "handle_signals", contextlib.nullcontext))
            stack.enter_context(contextlib.redirect_stdout(streams[0]))
            stack.enter_context(contextlib.redirect_stderr(streams[1]))
            stack.enter_context(contextlib.chdir(self.folder))
            code = 0
            try:
                tracekit.cli.main() if words[0] == "tracekit" else runpy.run_path(words[1], run_name="__main__")
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else int(end.code is not None)
        for stream in streams:
            stream.flush()
        for stream in streams:
            stream.detach()  # closing it would close the target of the other stream
        return code

    def _shell(self, commands: str, where: str, given: bytes = b"") -> str:
        done = subprocess.run(
            ["bash", "-eu", "-o", "pipefail", "-c", commands],
            cwd=self.folder,
            env=self.environment,
            input=given,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
        printed = done.stdout.decode()
        assert done.returncode == 0, f"{where}\n{commands}\n{printed}"
        return printed


def pages() -> Iterator[Path]:
    """Yield every Markdown page in docs/."""
    yield from sorted(DOCS.rglob("*.md"))
