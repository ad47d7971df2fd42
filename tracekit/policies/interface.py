"""What users see of a policy: its card, its parameters and their spelling on a command line.

    srtf,scan=skip,overhead=helios

names the policy and then its parameters. The mechanism that a policy returns decides how it schedules.
"""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
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
"""The type of a parameter; durations are seconds."""

_LARGEST = 10**15
"""No finite number may be larger: as seconds it is 30 million years."""
_WORDS = {"on": True, "true": True, "yes": True, "off": False, "false": False, "no": False}
_NAME = re.compile(r"[a-z][a-z0-9_-]*")


@dataclass(frozen=True)
class Parameter:
    """A parameter of a policy. The type of its default is the type of its values."""

    name: str
    default: Value
    meaning: str
    """One line, with the unit of a number in brackets."""
    choices: tuple[str, ...] = ()
    """Texts allowed; empty when any is."""
    minimum: float | None = None
    """Least number; None is 0."""
    maximum: float | None = None
    """Greatest number; None is 10^15, and for a float also 'inf'."""
    words: tuple[str, ...] = ()
    """What the policy does with each of the choices, for people; empty if a policy describes it itself."""

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise ValueError(f"'{self.name}' is not a parameter name: use small letters, digits, _ and -")
        if self.words and len(self.words) != len(self.choices):
            raise ValueError(f"the parameter {self.name} needs a text for each of its choices, or for none")
        self.read(self.default)

    def read(self, value: object) -> Value:
        """Return a value of the parameter, texts turned into its type.

        Raises
        ------
        UsageError
            It cannot be a value of this parameter.
        """
        if isinstance(self.default, bool):
            return self._switch(value)
        if isinstance(self.default, str):
            return self._text(value)
        return self._number(value)

    @property
    def kind(self) -> str:
        """The form of values, for the card: 'on|off', the choices, or the range of numbers."""
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
            raise self._wrong(value, "is not a text")
        if "," in value or value != value.strip():
            raise self._wrong(value, "begins or ends with a comma or a blank", "cannot be written on a command line")
        if self.choices and value not in self.choices:
            raise self._wrong(value, "is not an allowed value", nearest(value[:80], self.choices))
        return value

    def _number(self, value: object) -> int | float:
        whole = isinstance(self.default, int)
        number = _as_number(value)
        if number is None or (isinstance(number, float) and math.isnan(number)):
            raise self._wrong(value, f"is not a {'whole ' if whole else ''}number")
        # Checked before wholeness: an infinite number is not whole, and is too large.
        least = 0 if self.minimum is None else self.minimum
        most = self.maximum if self.maximum is not None else _LARGEST
        endless = number == math.inf and not whole and self.maximum in (None, math.inf)
        if not least <= number <= most and not endless:
            raise self._wrong(value, "is out of range", f"it may be from {least:,g} to {most:,g}")
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
    """Return a value as it is written on a command line: 'on', '3600', 'skip'."""
    if isinstance(value, bool):
        return "on" if value else "off"
    if isinstance(value, float):
        short = f"{value:.15g}"
        return short if float(short) == value else repr(value)
    return str(value)


@dataclass(frozen=True)
class Card:
    """The description of a policy, for users."""

    name: str
    """What -p takes."""
    title: str
    """What it is, in a few words."""
    rule: str
    """What it does, in full sentences."""
    parameters: tuple[Parameter, ...] = ()
    assumptions: tuple[str, ...] = ()
    """Ids of the assumption models that it uses, such as 'M4'."""
    quotas: bool = False
    """Whether the quotas of virtual clusters decide which jobs may start or continue."""
    equal_to: tuple[str, ...] = ()
    """The parameters or inputs with which it equals another policy, one sentence each."""
    sources: tuple[str, ...] = ()
    """Where the rule is from: paper, artifact or own choice."""

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
            A parameter does not exist, or a value cannot be used.
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


class Policy(ABC):
    """A scheduling policy.

    A new policy is a subclass in a module of `tracekit.policies`, in a package that registers the class under the
    entry-point group `tracekit.policies`, or in one file: `-p FILE.py:CLASS`.

    Parameters
    ----------
    **parameters
        Those of the card by name; texts are read as on a command line.

    Raises
    ------
    UsageError
        A parameter does not exist, or a value cannot be used.
    """

    card: ClassVar[Card]

    def __init__(self, **parameters: object) -> None:
        self.parameters: dict[str, Any] = self.card.fill(parameters)
        """All parameters, defaults filled in; each is a `Value` of its parameter's type."""

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        card = getattr(cls, "card", None)
        if card is not None and not isinstance(card, Card):
            raise TypeError(f"the policy {cls.__name__} has a card that is not a Card")

    @abstractmethod
    def mechanism(self, jobs: Jobs, cluster: Cluster, models: Models, seed: int) -> Mechanism:
        """Return what the engine runs: keys, plans and placement of this policy for these jobs and this cluster.

        Parameters
        ----------
        jobs : Jobs
            All jobs of the replay; a policy that may not know run times must not read them.
        cluster : Cluster
        models : Models
            Assumptions about what the trace does not record.
        seed : int
            Seed of every random draw.

        Raises
        ------
        UsageError
            The policy cannot run with this trace, cluster or parameters.
        """

    @property
    def lends(self) -> bool:
        """Whether VCs may use what others leave of their quotas, and so nodes that the source divides among them."""
        return False

    def borrowed(self, cluster: Cluster, jobs: Jobs, models: Models) -> Cluster:
        """Return the cluster with the nodes that the policy borrows from elsewhere, and when; unchanged without loans.

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
        """Ids of the assumption models that it uses with its parameters: those of the card, or fewer of them."""
        return self.card.assumptions

    @property
    def label(self) -> str:
        """The policy and the parameters that differ from their defaults, as on a command line."""
        other = [
            f"{p.name}={spell(self.parameters[p.name])}"
            for p in self.card.parameters
            if self.parameters[p.name] != p.read(p.default)
        ]
        return ",".join((self.card.name, *other))

    @property
    def what(self) -> str:
        """What it is, in a few words: the card's title, and the effect of parameters off their defaults."""
        other = [
            p.words[p.choices.index(str(self.parameters[p.name]))]
            for p in self.card.parameters
            if p.words and self.parameters[p.name] != p.read(p.default)
        ]
        return "; ".join((self.card.title, *other))

    def __repr__(self) -> str:
        return f"<policy {self.label}>"


def parse_policy(text: str) -> Policy:
    """Return the policy that a command line names.

    Parameters
    ----------
    text : str
        `NAME,key=value,key=value`; NAME may be `FILE.py:CLASS`.

    Raises
    ------
    UsageError
        The policy or parameter does not exist, or a value cannot be used.
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
