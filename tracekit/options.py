"""Options of formats and targets, given as `--option name=value`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tracekit.errors import UsageError, nearest

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


REPEATED = frozenset({"gpu_resource"})
"""Options that may be given several times; commas join their values."""


@dataclass(frozen=True)
class Option:
    """An option, given as `--option name=value`."""

    default: str
    meaning: str
    choices: tuple[str, ...] = ()
    """Allowed values, or empty if any value is allowed."""
    file: bool = False
    """Whether the value names a user's file. Different files may have the same content."""
    check: Callable[[str], object] | None = None
    """Raises a UsageError for a value that is not allowed."""
    form: Literal["", "line", "count", "number", "positive", "share"] = ""
    """Form of value that an export accepts: any text, one printable line, a whole number from 1, a number from 0, a
    number above 0, or a number from 0 to 1. If a form is set, a value may be empty only if the default is empty.
    """


def fill_options(options: Mapping[str, Option], given: Mapping[str, str], owner: str) -> dict[str, str]:
    """Return the value of each option: the given value, or its default.

    Parameters
    ----------
    options : mapping
        Name to option.
    given : mapping
        Name to value.
    owner : str
        Owner of the options, for error messages, such as 'the format swf'.

    Raises
    ------
    UsageError
        An option or a value does not exist.

    Examples
    --------
    >>> fill_options({"jobs": Option("gpu", "which jobs"), "depth": Option("1", "how deep")}, {"depth": "2"}, "x")
    {'jobs': 'gpu', 'depth': '2'}
    """
    filled = {name: option.default for name, option in options.items()}
    for name, value in given.items():
        if name not in options:
            raise UsageError(f"{owner} has no option '{name}'", hint=nearest(name, options))
        choices, check = options[name].choices, options[name].check
        if check is not None:
            check(value)
        if choices and value not in choices:
            raise UsageError(f"'{value}' is not a valid value of the option {name}", hint=nearest(value, choices))
        filled[name] = value
    return filled
