"""The reference page of all commands, generated from the Typer application."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from types import UnionType
from typing import TYPE_CHECKING, Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

import typer

from tools.manual.markdown import code, codes, head, plain, table
from tracekit.cli import app

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ["commands", "page"]

_INTRO = """\
Data goes to stdout, and notes and progress go to stderr. The exit code is 0 on success and 130 after an interruption.
It is 1 if `tracekit validate` found problems, or if some parts of `tracekit analyze` or `tracekit guidelines` failed
([report.md](../report.md#parts-that-fail)). It is 2 if the input, an option or the output location is invalid.
`tracekit --version` prints the version. `tracekit --debug` before a command shows the traceback of an error."""

_WORDS = {Path: "PATH", float: "NUMBER", int: "INTEGER", str: "TEXT"}
_EXAMPLE = re.compile(r"Example: (tracekit .*)")


def page() -> str:
    """Return the page as Markdown."""
    lines = head("Commands", "tracekit/cli/", _INTRO)
    for name, command in commands():
        lines += _command(name, command)
    return "\n".join(lines) + "\n"


def commands() -> Iterator[tuple[str, Any]]:
    """Yield every command with its full name, with each group before its members.

    The commands come from the library on which Typer is based, which has no public types.
    """
    yield from _below("tracekit", typer.main.get_command(app))


def _below(name: str, group: Any) -> Iterator[tuple[str, Any]]:
    for word, command in group.commands.items():
        yield f"{name} {word}", command
        if hasattr(command, "commands"):
            yield from _below(f"{name} {word}", command)


def _command(name: str, command: Any) -> list[str]:
    parameters = [p for p in command.params if not getattr(p, "hidden", False)]
    arguments = [p for p in parameters if p.param_type_name == "argument"]
    options = [p for p in parameters if p.param_type_name == "option" and p.name != "help"]
    hints = get_type_hints(inspect.unwrap(command.callback), include_extras=True)
    lines = ["", f"## {name}", "", "```text", " ".join([name, *_usage(arguments, options)]), "```"]
    for paragraph in inspect.cleandoc(command.help or "").split("\n\n"):
        example = _EXAMPLE.fullmatch(paragraph)
        # Help strings are already Markdown.
        lines += ["", "```sh", example[1], "```"] if example else ["", paragraph]
    lines += table(("argument", "meaning"), [(code(_metavar(p, hints)), plain(p.help or "")) for p in arguments])
    return lines + table(("option", "value", "default", "meaning"), [_option(p, hints) for p in options])


def _usage(arguments: list[Any], options: list[Any]) -> list[str]:
    needed = [f"{option.opts[0]} {option.metavar or option.name.upper()}" for option in options if option.required]
    return [*(_argument(argument) for argument in arguments), *needed, "[OPTIONS]"]


def _argument(argument: Any) -> str:
    text = str(argument.metavar or argument.name.upper())
    return text if argument.required or text.startswith("[") else f"[{text}]"


def _option(parameter: Any, hints: dict[str, Any]) -> tuple[str, str, str, str]:
    needed = "required" if parameter.required else _default(parameter.default)
    value = "" if parameter.is_flag else _value(parameter, hints)
    return codes(parameter.opts), value, needed, plain(parameter.help or "")


def _default(value: object) -> str:
    if value is None or value is False or value == []:
        return ""
    return code(f"{value:g}" if isinstance(value, float) else value)


def _value(parameter: Any, hints: dict[str, Any]) -> str:
    kind = _kind(hints.get(parameter.name))
    if parameter.metavar is None and get_origin(kind) is Literal:
        return codes(get_args(kind))
    # A table cell cannot contain the bar in 'auto|FILE.toml'.
    return " or ".join(code(word) for word in _metavar(parameter, hints).split("|"))


def _metavar(parameter: Any, hints: dict[str, Any]) -> str:
    if parameter.metavar or parameter.param_type_name == "argument":
        return str(parameter.metavar or parameter.name.upper())
    return _WORDS.get(_kind(hints.get(parameter.name)), "VALUE")


def _kind(hint: Any) -> Any:
    """Return the type of a single value, such as Path for Annotated[Path | None, ...] or str for list[str]."""
    origin = get_origin(hint)
    if origin is Annotated:
        return _kind(get_args(hint)[0])
    if origin in (Union, UnionType, list):
        return _kind(next(a for a in get_args(hint) if a is not type(None)))
    return hint
