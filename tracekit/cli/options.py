"""Turn every `Flag` of `tracekit.settings` into a Typer option or argument."""

from __future__ import annotations

import datetime as dt
import inspect
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, TypeVar, get_args

import typer

from tracekit.errors import UsageError
from tracekit.options import REPEATED
from tracekit.settings import Flag, flags_of
from tracekit.tables.window import SIZES, WHERE

if TYPE_CHECKING:
    from tracekit.runs.ledger import Ledger
    from tracekit.settings import IngestSettings
    from tracekit.trace import Trace

S = TypeVar("S", bound="IngestSettings")
Command = Callable[..., None]

_TRACE = typer.Argument(metavar="TRACE", help="Folder made by 'tracekit ingest', also in a bucket (docs/buckets.md).")
# This is a string, because Path would change a store address.
TraceFolder = Annotated[str, _TRACE]
OptionalTrace = Annotated[str | None, _TRACE]

Where = Annotated[
    Mapping[str, str] | None,
    Flag(
        "--where COLUMN=VALUE",
        f"Use only jobs with this value; may be repeated. Columns: {', '.join(WHERE)}; sizes in GPUs: "
        f"{', '.join(SIZES)}. A partition comes with its own nodes.",
    ),
]

_EPOCH = dt.datetime(1970, 1, 1)


def _moment(text: str | None, option: str) -> dt.datetime | None:
    """Return a time in UTC, given as ISO 8601 or, for logs with relative times, as seconds since 1970.

    Raises
    ------
    UsageError
        The string is neither.
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


def pairs(given: list[str] | None, option: str) -> dict[str, str]:
    """Return NAME=VALUE words as a dictionary.

    Raises
    ------
    UsageError
        A word has no '=' or no name, or a name that may not repeat is given twice.
    """
    found: dict[str, str] = {}
    for word in given or []:
        name, equals, value = word.partition("=")
        if not equals or not name:
            raise UsageError(f"'{word}' is not NAME=VALUE", where=option)
        if name in found and name not in REPEATED:
            raise UsageError(f"'{name}' is given twice", where=option)
        found[name] = f"{found[name]},{value}" if name in found else value
    return found


def part_of(
    trace: str, where: Mapping[str, str] | None, *, anonymize: bool = False, quiet: bool = False
) -> Trace | str:
    """Return the part of a Trace that `--where` selects, or the folder if nothing is selected.

    Notes say what is selected and which capacity counts, unless the command prints the notes of the Trace (`quiet`).

    Raises
    ------
    TracekitError
        The Trace cannot be read, or no job has one of the values.
    """
    if not where:
        return trace
    from tracekit.damage import hidden_names
    from tracekit.trace import Trace

    with hidden_names(hide=anonymize):
        found = Trace.open(trace).window(where=where)
    for note in () if quiet else found.notes:
        typer.echo(f"note: {note}", err=True)
    return found


_FORMS: dict[Any, tuple[Any, Callable[[Any, str], Any]]] = {
    Mapping[str, str] | None: (list[str] | None, pairs),
    tuple[str, ...]: (list[str] | None, lambda texts, _: tuple(texts or ())),
    tuple[Path, ...]: (list[Path] | None, lambda paths, _: tuple(paths or ())),
    dt.datetime | None: (str | None, _moment),
    bool | None: (Literal["on", "off"] | None, lambda word, _: None if word is None else word == "on"),
    str | Path | None: (Path | None, lambda path, _: path),
    Any: (str | None, lambda text, _: text),
}
"""Setting types with another type on the command line, each with that type and a function that converts it.
"""


class _Option(NamedTuple):
    """A setting or command parameter that has an option."""

    name: str
    hint: Any
    flag: Flag
    default: Any

    @property
    def form(self) -> tuple[Any, Callable[[Any, str], Any]] | None:
        return None if "/" in self.flag.name else _FORMS.get(self.hint)

    @property
    def turns_off(self) -> bool:
        return self.default is True and "/" not in self.flag.name

    def parameter(self) -> inspect.Parameter:
        """Return the parameter for Typer."""
        flag = self.flag
        option = typer.Option(
            *flag.names, metavar=flag.metavar, help=flag.meaning, min=flag.least, max=flag.most, envvar=flag.variable
        )
        hint = self.hint if self.form is None else self.form[0]
        default = False if self.turns_off else None if self.default == () else self.default
        return inspect.Parameter(
            self.name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=Annotated[hint, option]
        )

    def read(self, word: Any) -> Any:
        """Return the setting's value for a command-line value."""
        if self.form is not None:
            return self.form[1](word, self.flag.name)
        return not word if self.turns_off else word


def with_options(command: Command) -> Command:
    """Return the command with an option for each parameter that has a `Flag` and for each setting in `settings`.

    A parameter with an option is annotated as `Annotated[type, Flag(...)]`, and `settings` as a class from
    `tracekit.settings`.
    """
    parameters: list[inspect.Parameter] = []
    options: dict[str, _Option] = {}
    kind: type[Any] | None = None
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        if parameter.name == "settings":
            kind = parameter.annotation
            # A field's default is an attribute of its class.
            found = [_Option(name, *hint, getattr(kind, name)) for name, hint in flags_of(kind).items()]
        elif isinstance(flag := (get_args(parameter.annotation) or [None])[-1], Flag):
            found = [_Option(parameter.name, get_args(parameter.annotation)[0], flag, parameter.default)]
        else:
            parameters.append(parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY))
            continue
        parameters += [option.parameter() for option in found]
        options |= {option.name: option for option in found}

    def run(**words: Any) -> None:
        values = {name: options[name].read(word) if name in options else word for name, word in words.items()}
        if kind is not None:
            values["settings"] = kind(**{name: values.pop(name) for name in flags_of(kind)})
        command(**values)

    run.__name__, run.__doc__ = command.__name__, command.__doc__
    run.__annotations__ = {p.name: p.annotation for p in parameters}
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # Typer reads it
    return run


def with_map(map_file: Path | None, settings: S) -> S:
    """Return settings that read the log with a mapping file, alone or together with the given format."""
    if map_file is None:
        return settings
    options = {**(settings.options or {}), "map": str(map_file)}
    return replace(settings, format_name=settings.format_name or "csv", options=options)


def shared_work(out: Path, shard: str | None, *, collect: bool) -> Ledger | None:
    """Return the ledger that shards share in OUT.runs, or None if neither --shard nor --collect is given.

    Raises
    ------
    TracekitError
        The options contradict each other, or the folder cannot be used.
    """
    from tracekit.runs.ledger import Ledger

    runs = out.with_name(f"{out.name}.runs") if shard is not None or collect else None
    return Ledger.opened(runs, shard, collect=collect)
