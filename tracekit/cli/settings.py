"""Options of the command line, made from the settings of a stage."""

from __future__ import annotations

import datetime as dt
import inspect
import math
from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from tracekit.cli.options import pairs
from tracekit.errors import UsageError
from tracekit.settings import flags_of

if TYPE_CHECKING:
    from collections.abc import Collection

    from tracekit.settings import Flag

__all__ = ["takes"]

Command = Callable[..., None]


_EPOCH = dt.datetime(1970, 1, 1)


class _Switch(StrEnum):
    """On or off."""

    on = "on"
    off = "off"


def _moment(text: str | None, option: str) -> dt.datetime | None:
    """Return a time given as ISO 8601, or as seconds after 1970, for logs whose times are relative; UTC.

    Raises
    ------
    UsageError
        It is neither.
    """
    if text is None:
        return None
    try:
        found = dt.datetime.fromisoformat(text)
    except ValueError:
        try:
            seconds = float(text)
            if not math.isfinite(seconds):
                raise ValueError(text)
            found = _EPOCH + dt.timedelta(seconds=seconds)
        except (ValueError, OverflowError):
            raise UsageError(
                f"'{text[:60]}' is not a time", where=option, hint="write it like 2017-10-03 or 2017-10-03T12:00"
            ) from None
    return found if found.tzinfo is None else found.astimezone(dt.UTC).replace(tzinfo=None)


def _switched(value: _Switch | None, _: str) -> bool | None:
    return None if value is None else value is _Switch.on


def _several(texts: list[str] | None, _: str) -> tuple[str, ...]:
    return tuple(texts or ())


def _same(value: Any, _: str) -> Any:
    return value


_FORMS: dict[Any, tuple[Any, Callable[[Any, str], Any]]] = {
    Mapping[str, str] | None: (list[str] | None, pairs),
    tuple[str, ...]: (list[str] | None, _several),
    dt.datetime | None: (str | None, _moment),
    bool | None: (_Switch | None, _switched),
    str | Path | None: (Path | None, _same),
    Any: (str | None, _same),
}
"""Types of settings that a command line gives in another form: that, and what reads it for the option named."""


def takes(kind: type[Any], *, without: Collection[str] = ()) -> Callable[[Command], Command]:
    """Return a decorator that gives a command an option for each setting, in place of its parameter `settings`.

    Parameters
    ----------
    kind : type
        A class of `tracekit.settings`.
    without : collection of str
        Settings that the command does not offer.
    """
    listed = {name: found for name, found in flags_of(kind).items() if name not in without}
    defaults = kind()

    def decorate(command: Command) -> Command:
        own = inspect.signature(command, eval_str=True)
        parameters: list[inspect.Parameter] = []
        for parameter in own.parameters.values():
            if parameter.name == "settings":
                parameters += [
                    _option(name, *listed[name], getattr(defaults, name)).replace(kind=parameter.kind)
                    for name in listed
                ]
            else:
                parameters.append(parameter)

        def run(**words: Any) -> None:
            found = {name: _read(words.pop(name), *listed[name], getattr(defaults, name)) for name in listed}
            command(**words, settings=kind(**found))

        run.__name__, run.__doc__ = command.__name__, command.__doc__
        run.__annotations__ = {p.name: p.annotation for p in parameters}
        run.__signature__ = own.replace(parameters=parameters)  # type: ignore[attr-defined]  # Typer reads it
        return run

    return decorate


def _option(name: str, hint: Any, flag: Flag, default: Any) -> inspect.Parameter:
    option = typer.Option(flag.name, metavar=flag.metavar, help=flag.meaning, min=flag.least, max=flag.most)
    form = Annotated[_FORMS.get(hint, (hint,))[0], option]  # type: ignore[valid-type]  # made at run time
    # An option for a setting that is on by default turns it off.
    usual = False if default is True else default
    return inspect.Parameter(name, inspect.Parameter.POSITIONAL_OR_KEYWORD, default=usual, annotation=form)


def _read(word: Any, hint: Any, flag: Flag, default: Any) -> Any:
    if hint in _FORMS:
        return _FORMS[hint][1](word, flag.name)
    return not word if default is True else word
