"""The reference page of all exports, generated from the targets."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tools.manual.markdown import bullets, code, codes, head, plain, sentence, table
from tracekit.export.interface import TARGETS

if TYPE_CHECKING:
    from tracekit.export.interface import Target

__all__ = ["page"]

_INTRO = """\
`tracekit export TRACE --to NAME -o OUT` writes the jobs of a Trace in the format of one of these simulators.
`--option NAME=VALUE` sets an option. [Exporting a trace](../export.md) explains which jobs are exported, and how to add
a target."""


def page() -> str:
    """Return the page as Markdown."""
    own = [t for t in TARGETS.all().values() if type(t).__module__.startswith("tracekit.")]
    lines = head("Exports", "tracekit/export/targets/", _INTRO)
    lines += table(("target", "what it is"), [(f"[{t.name}](#{t.name})", plain(t.title)) for t in own])
    for target in own:
        lines += _target(target)
    return "\n".join(lines) + "\n"


def _target(target: Target) -> list[str]:
    lines = ["", f"## {target.name}", "", f"**{plain(target.title)}**"]
    lines += ["", f"Read by: {plain(sentence(target.reads))}"]
    lines += [
        "",
        f"Writes a {'folder' if target.folder else 'file'}. Required per job: {plain(sentence(target.needs))}",
    ]
    if target.companions:
        lines += [
            "",
            "Also written:",
            *bullets(f"`*{end}`: {sentence(what)}" for end, what in target.companions.items()),
        ]
    if target.lost:
        lines += ["", f"Not exported: {plain(sentence(target.lost))}"]
    rows = [(code(f.name), plain(f.meaning), plain(f.filled_from)) for f in target.fields]
    lines += table(("field", "content", "filled from"), rows)
    options = [
        (code(name), code(o.default) if o.default else "(empty)", codes(o.choices) or "any", plain(o.meaning))
        for name, o in target.options.items()
    ]
    lines += table(("option", "default", "values", "meaning"), options)
    return [*lines, "", "Sources:", *bullets(target.sources)]
