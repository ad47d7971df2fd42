"""The user's view of a policy: its card, its parameters, and how to write them on a command line.

    srtf,scan=skip,overhead=helios

gives the policy's name, then its parameters. The mechanism that a policy returns determines how it schedules.
"""

from __future__ import annotations

import ast
import contextlib
import inspect
import math
import re
import sys
import textwrap
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from tracekit.errors import UsageError, nearest
from tracekit.replay.registry import find_policy

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs
    from tracekit.replay.mechanisms import Mechanism


__all__ = ["Card", "Parameter", "Policy", "Value", "parse_policy"]

Value: TypeAlias = bool | int | float | str
"""Type of a parameter value. Durations are in seconds."""

_LARGEST = 10**15
"""Largest finite number allowed (in seconds, about 30 million years)."""
_WORDS = {"on": True, "true": True, "yes": True, "off": False, "false": False, "no": False}
_NAME = re.compile(r"[a-z][a-z0-9_-]*")


@dataclass(frozen=True)
class Parameter:
    """A parameter of a policy. Its values have the type of its default."""

    name: str
    default: Value
    meaning: str
    """One line, with a number's unit in brackets."""
    choices: tuple[str, ...] = ()
    """Allowed strings, or empty if any string is allowed."""
    minimum: float | None = None
    """Smallest number allowed, or None for 0."""
    maximum: float | None = None
    """Largest number allowed. None means 10^15, and also allows 'inf' for a float."""
    words: tuple[str, ...] = ()
    """Plain description of each choice, or empty if the policy describes the choices elsewhere."""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"'{self.name}' is not a parameter name: use small letters, digits, _ and -")
        if self.words and len(self.words) != len(self.choices):
            raise ValueError(f"the parameter {self.name} needs a description for every choice, or none at all")
        self.read(self.default)

    def read(self, value: object) -> Value:
        """Convert a value to the parameter's type, parsing strings.

        Raises
        ------
        UsageError
            The parameter does not allow this value.
        """
        if isinstance(self.default, bool):
            return self._switch(value)
        if isinstance(self.default, str):
            return self._text(value)
        return self._number(value)

    @property
    def kind(self) -> str:
        """Allowed values as shown on the card: 'on|off', the choices, or the number range."""
        if isinstance(self.default, bool):
            return "on|off"
        if isinstance(self.default, str):
            return "|".join(self.choices) or "text"
        name = "whole number" if isinstance(self.default, int) else "number"
        limit = "" if self.maximum is None else f" to {self.maximum:g}"
        return f"{name} from {self.minimum or 0:g}{limit}"

    def _switch(self, value: object) -> bool:
        if isinstance(value, bool):
            return value
        if isinstance(value, str) and value.lower() in _WORDS:
            return _WORDS[value.lower()]
        raise self._wrong(value, "is neither on nor off")

    def _text(self, value: object) -> str:
        if not isinstance(value, str) or not value.strip():
            raise self._wrong(value, "is not text")
        if "," in value or value != value.strip():
            raise self._wrong(
                value, "contains a comma, or begins or ends with a space", "cannot be written on a command line"
            )
        if self.choices and value not in self.choices:
            raise self._wrong(value, "is not an allowed value", nearest(value[:80], self.choices))
        return value

    def _number(self, value: object) -> int | float:
        whole = isinstance(self.default, int)
        number = _as_number(value)
        if number is None or (isinstance(number, float) and math.isnan(number)):
            raise self._wrong(value, f"is not a {'whole ' if whole else ''}number")
        # Check the range first: int() fails on an infinite number.
        least = 0 if self.minimum is None else self.minimum
        most = self.maximum if self.maximum is not None else _LARGEST
        endless = number == math.inf and not whole and self.maximum in (None, math.inf)
        if not least <= number <= most and not endless:
            raise self._wrong(value, "is out of range", f"use a number from {least:,g} to {most:,g}")
        if not whole:
            return float(number)
        if number != int(number):
            raise self._wrong(value, "is not a whole number")
        return int(number)

    def _wrong(self, value: object, what: str, hint: str | None = None) -> UsageError:
        return UsageError(f"{self.name}={_shown(value)} {what}", hint=hint or f"{self.name}: {self.meaning}")


def _as_number(value: object) -> int | float | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, (int, float)):
        return value
    if not isinstance(value, str) or len(value) > 400:
        return None
    if re.fullmatch(r"[+-]?\d+", value, re.ASCII):
        return int(value)
    try:
        return float(value) if "_" not in value else None
    except ValueError:
        return None


def _shown(value: object) -> str:
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > 10**30:
        return "(a number with too many digits)"
    text = spell(value) if isinstance(value, (bool, int, float, str)) else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def spell(value: Value) -> str:
    """Return a value as written on a command line: 'on', '3600', 'skip'."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, float):
        short = f"{value:.15g}"
        return short if float(short) == value else repr(value)
    return str(value)


@dataclass(frozen=True)
class Card:
    """The description of a policy, for users.

    Fields that the card omits come from the policy's docstring: the title from the first line, the rule from the
    following paragraphs, and two lists from the sections 'Equal to' and 'Sources'.
    """

    name: str
    """The name to give with -p."""
    title: str = ""
    """Short description of the policy."""
    rule: str = ""
    """The rule of the policy, in full sentences."""
    parameters: tuple[Parameter, ...] = ()
    assumptions: tuple[str, ...] = ()
    """IDs of the assumption models that the policy uses, such as 'M4'."""
    quotas: bool = False
    """Whether the quotas of virtual clusters decide which jobs may start or continue."""
    equal_to: tuple[str, ...] = ()
    """Cases in which the policy equals another policy, one sentence each."""
    sources: tuple[str, ...] = ()
    """Sources of the rule: papers, released code or our own choices."""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"'{self.name}' is not a policy name: use small letters, digits, _ and -")
        names = [p.name for p in self.parameters]
        twice = sorted({n for n in names if names.count(n) > 1})
        if twice:
            raise ValueError(f"the policy {self.name} has the parameter {twice[0]} twice")

    def fill(self, given: Mapping[str, object]) -> dict[str, Value]:
        """Check all parameters and return them with defaults, in the card's order.

        Raises
        ------
        UsageError
            A parameter does not exist, or its value is not allowed.
        """
        known = {p.name: p for p in self.parameters}
        for name in given:
            if name not in known:
                raise UsageError(
                    f"the policy {self.name} has no parameter '{_shown(name)}'",
                    hint=nearest(name[:80], known) if known else "it has no parameters",
                )
        filled = {}
        for name, parameter in known.items():
            try:
                filled[name] = parameter.read(given.get(name, parameter.default))
            except UsageError as error:
                raise UsageError(f"the policy {self.name}: {error.what}", hint=error.hint) from None
        return filled


_SECTIONS = {"Equal to": "equal_to", "Sources": "sources"}
"""Sections of a policy's docstring, and the fields of its card."""


def _documented(doc: str) -> dict[str, Any]:
    """Return the fields of a card that a policy's docstring contains."""
    head, *sections = re.split(r"\n\n(\S[^\n]*)\n-{3,}\n", inspect.cleandoc(doc))
    title, _, rule = head.partition("\n\n")
    if not title[1:2].isupper():
        title = title[:1].lower() + title[1:]
    texts: dict[str, Any] = {"title": " ".join(title.split()).removesuffix("."), "rule": " ".join(rule.split())}
    for name, listed in zip(sections[::2], sections[1::2], strict=True):
        if name in _SECTIONS:
            first, *items = f"\n{listed}".split("\n- ")
            if first.strip() or not items:
                raise ValueError(f"each item of the section '{name}' must begin with '- '")
            texts[_SECTIONS[name]] = tuple(" ".join(item.split()) for item in items)
    return texts


def _docstring(policy: type) -> str:
    """Return a class's docstring, from the source if Python runs without docstrings (-OO)."""
    if policy.__doc__ is None and sys.flags.optimize > 1:
        with contextlib.suppress(OSError, TypeError, SyntaxError):
            tree = ast.parse(textwrap.dedent(inspect.getsource(policy)))
            return ast.get_docstring(tree.body[0]) or ""  # type: ignore[arg-type]  # the source of a class is one class
    return policy.__doc__ or ""


class Policy(ABC):
    """A scheduling policy.

    A new policy is a subclass in a module of `tracekit.policies`, in a package that registers the class under the
    entry-point group `tracekit.policies`, or in one file: `-p FILE.py:CLASS`.

    Parameters
    ----------
    **parameters
        Parameters of the card by name; strings are parsed as on a command line.

    Raises
    ------
    UsageError
        A parameter does not exist, or its value is not allowed.
    """

    card: ClassVar[Card]
    keeps_partitions: ClassVar[bool] = True
    """Whether jobs run only on nodes of their partition. If not, every node accepts every job of the domain."""

    def __init__(self, **parameters: object) -> None:
        self.parameters: dict[str, Any] = self.card.fill(parameters)
        """All parameters, including defaults. Each value has its parameter's type (`Value`)."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        card = getattr(cls, "card", None)
        if card is not None and not isinstance(card, Card):
            raise TypeError(f"the policy {cls.__name__} has a card that is not a Card")
        if "card" in vars(cls):
            texts = _documented(_docstring(cls))
            cls.card = replace(cls.card, **{name: text for name, text in texts.items() if not getattr(card, name)})
            if not cls.card.title:
                raise TypeError(f"the policy {cls.__name__} needs a title, in its card or its docstring")

    @abstractmethod
    def mechanism(self, jobs: Jobs, cluster: Cluster, models: Models, seed: int) -> Mechanism:
        """Return the mechanism that runs this policy on these jobs and this cluster.

        Parameters
        ----------
        jobs : Jobs
            All jobs of the replay. A policy that should not know run times must not read them.
        cluster : Cluster
        models : Models
            Assumptions about what the trace does not record.
        seed : int
            Seed for all random draws.

        Raises
        ------
        UsageError
            The policy cannot run with this trace, cluster or parameters.
        """

    @property
    def lends(self) -> bool:
        """Whether VCs may use each other's unused quota, and therefore each other's nodes."""
        return False

    def borrowed(self, cluster: Cluster, jobs: Jobs, models: Models) -> Cluster:
        """Return the cluster with the nodes that the policy borrows temporarily, or unchanged if it borrows none.

        Parameters
        ----------
        cluster : Cluster
        jobs : Jobs
            All jobs of the replay.
        models : Models
            Assumptions about what the trace does not record.
        """
        return cluster

    @property
    def assumptions(self) -> tuple[str, ...]:
        """IDs of the assumption models that the policy uses with these parameters, all or some of the card's."""
        return self.card.assumptions

    @property
    def label(self) -> str:
        """The policy and its non-default parameters, as written on a command line."""
        other = [
            f"{p.name}={spell(self.parameters[p.name])}"
            for p in self.card.parameters
            if self.parameters[p.name] != p.read(p.default)
        ]
        return ",".join((self.card.name, *other))

    @property
    def what(self) -> str:
        """Short description of the policy: the card's title, and the effect of the non-default parameters."""
        other = [
            p.words[p.choices.index(str(self.parameters[p.name]))]
            for p in self.card.parameters
            if p.words and self.parameters[p.name] != p.read(p.default)
        ]
        return "; ".join((self.card.title, *other))

    def __repr__(self) -> str:
        return f"<policy {self.label}>"


def parse_policy(text: str) -> Policy:
    """Return the policy given on a command line.

    Parameters
    ----------
    text : str
        `NAME,key=value,key=value`; NAME may be `FILE.py:CLASS`.

    Raises
    ------
    UsageError
        The policy or a parameter does not exist, or a value is not allowed.
    """
    name, *pairs = (part.strip() for part in text.split(","))
    if not name:
        raise UsageError("no policy named", hint="write NAME,key=value; 'tracekit policies' lists the names")
    kind: type[Policy] = find_policy(name)
    given: dict[str, object] = {}
    for pair in pairs:
        key, equals, value = (part.strip() for part in pair.partition("="))
        if not key or not equals:
            raise UsageError(
                f"the policy {kind.card.name}: '{_shown(pair)}' is not a parameter",
                hint="write NAME,key=value,key=value",
            )
        if key in given:
            raise UsageError(f"the policy {kind.card.name}: {_shown(key)} is given twice", hint="leave one out")
        given[key] = value
    return kind(**given)
