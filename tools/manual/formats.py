"""The reference page of all source formats, generated from their modules."""

from __future__ import annotations

import inspect
import sys
from typing import TYPE_CHECKING

from tools.manual.markdown import code, codes, head, plain, sentence, table
from tracekit.ingest import all_formats
from tracekit.ingest.companion import all_companions

if TYPE_CHECKING:
    from tracekit.ingest.interface import Format

__all__ = ["page"]

_INTRO = """\
`tracekit ingest SRC -o TRACE` detects which of these formats a source has. `--format NAME` overrides the detection, and
`--option NAME=VALUE` sets an option. The columns of the raw files are described in `schemas/sources/`. In every format,
an impossible time (an end before its start, a start before the submission, the epoch, a date far from the log) becomes
unknown, and its record is kept (see [How tracekit handles doubtful data](../quality.md)). [Your own
log](../mapping.md) shows how to read any other table, and [Write a format](../howto/format.md) shows how to add a
format."""


_BESIDE = """\
Files of these kinds in the same folder or archive add to a log's Trace. tracekit recognizes them by their first bytes,
regardless of their names. [Machine lists and node events](../machines.md) describes how they are used."""


def page() -> str:
    """Return the page as Markdown."""
    own = [f for f in all_formats().values() if type(f).__module__.startswith("tracekit.")]
    lines = head("Formats", "tracekit/ingest/formats/", _INTRO)
    lines += table(("format", "source"), [(f"[{f.name}](#{f.name})", plain(f.title)) for f in own])
    for member in own:
        lines += _format(member)
    lines += ["", "## Files next to the log", "", _BESIDE, ""]
    lines += table(("kind", "what it is"), [(code(kind.name), plain(kind.title)) for kind in all_companions()])
    return "\n".join(lines) + "\n"


def _format(member: Format) -> list[str]:
    lines = ["", f"## {member.name}", "", f"**{plain(member.title)}**"]
    for paragraph in (inspect.getdoc(sys.modules[type(member).__module__]) or "").split("\n\n"):
        lines += ["", plain(paragraph.strip())]
    # In a table, a pipe in a pattern would need a backslash, which would be visible in inline code.
    files = [f"- {plain(kind.title)}: {code(kind.pattern)}" for kind in member.raw_files]
    lines += ["", "Raw files, with their name patterns:", "", *files]
    rows = [
        (code(name), code(o.default) if o.default else "(empty)", codes(o.choices) or "any", plain(o.meaning))
        for name, o in member.options.items()
    ]
    lines += table(("option", "default", "values", "meaning"), rows)
    can = f"no, {member.no_append}" if member.no_append else "yes"
    return [*lines, "", f"Later exports can be added with `--append`: {plain(sentence(can))}"]
