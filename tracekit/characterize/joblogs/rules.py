"""The rules that find the reason for a failure, from rules.toml and the user's own files.

A rules file is a list of `[[rule]]` tables in the order of matching, root causes first. The keys are the fields of
`LogRule`; `docs/classify-logs.md` explains them with examples. Expressions are matched by RE2, which comes with pyarrow
and never backtracks, so no rule and no log can make it slow.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tracekit.decode import Range, abbreviated
from tracekit.errors import nearest
from tracekit.toml_text import TomlText

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tracekit.array_types import Bools
    from tracekit.decode import Place


def matches(lines: Sequence[bytes] | pa.Array, patterns: tuple[str, ...]) -> Bools:
    """Return, for each line, whether it matches at least one of the RE2 expressions.

    Raises
    ------
    pyarrow.ArrowInvalid
        A pattern is not a valid expression or is too large.
    """
    array = lines if isinstance(lines, pa.Array) else pa.array(lines, pa.large_binary())
    found = np.zeros(len(array), dtype=np.bool_)
    for joined in _joined(patterns) if len(array) else ():
        found |= pc.match_substring_regex(array, joined).to_numpy(zero_copy_only=False)
    return found


@lru_cache(maxsize=1000)
def _joined(patterns: tuple[str, ...]) -> tuple[str, ...]:
    """Join the expressions into as few expressions as RE2 accepts."""
    if not patterns:
        return ()
    joined = "|".join(f"(?:{pattern})" for pattern in patterns)
    try:
        pc.match_substring_regex(pa.array([b""], pa.large_binary()), joined)
    except pa.ArrowInvalid:
        if len(patterns) == 1:
            raise
        middle = len(patterns) // 2
        return _joined(patterns[:middle]) + _joined(patterns[middle:])
    return (joined,)


CATEGORIES = ("infrastructure", "engine", "user")
"""Categories of reasons: cluster (IF), deep-learning framework and CUDA (AE), code and configuration (U)."""

_BUILT_IN = Path(__file__).with_name("rules.toml")
_NAME = re.compile(r"[a-z][a-z0-9_]*")
_SIGNS = ("ignore", "ends_well", "parting", "failure_signs")


@dataclass(frozen=True)
class Reason:
    """A reason why a trial failed."""

    name: str
    title: str
    category: str | None
    """One of CATEGORIES, or None for `NO_SIGNATURE`."""
    advice: str = ""
    """Advice on how to fix the problem and whether to try again."""
    source: str = ""
    """Origin of the reason: 'philly' for the published taxonomy, 'tracekit' for ours."""


NO_SIGNATURE = Reason("no_signature", "No signature", None, "read the log; add a rule for its message", "philly")


@dataclass(frozen=True)
class LogRule:
    """Signatures of one reason, tried together."""

    reason: Reason
    signatures: tuple[str, ...]
    """Regular expressions in RE2 syntax for one line, without its line break."""
    unless: tuple[str, ...] = ()
    """A line that also matches one of these expressions is not a hit."""
    within_last_kib: int | None = None
    """The line must begin within this many KiB of the end of its file. Such a rule uses the last hit."""
    status: tuple[str, ...] = ()
    """Statuses of an attempt that imply the reason if no line matches."""


@dataclass(frozen=True)
class RuleBook:
    """All rules in the order in which they are tried, and the lines that show how a job ended."""

    rules: tuple[LogRule, ...]
    ignore: tuple[str, ...] = ()
    """A line that matches one of these expressions is never a hit."""
    ends_well: tuple[str, ...] = ()
    """Expressions for a line near the end of a log that shows success despite earlier hits."""
    parting: tuple[str, ...] = ()
    """Expressions for lines that, after one of `ends_well`, are neither hits nor signs of failure."""
    failure_signs: tuple[str, ...] = ()
    """Expressions for a line near the end of a log that shows a failure, but not its reason."""

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """Every reason once, in the order of its first rule, with `NO_SIGNATURE` last."""
        return (*dict.fromkeys(rule.reason for rule in self.rules), NO_SIGNATURE)


def load_rules(files: Iterable[str | Path] = (), *, built_in: bool = True) -> RuleBook:
    """Return the built-in rules together with the user's rules.

    Parameters
    ----------
    files : iterable of path
        Rules files. Files with `place = "after"` follow the built-in rules, and the others precede them. Within each
        group, the given order is kept.
    built_in : bool
        Whether to also use tracekit's own rules and expressions.

    Raises
    ------
    UsageError
        A file cannot be read or is not TOML, or a rule in it cannot be used; the error names the line of the rule.
    """
    known: dict[str, Reason] = {NO_SIGNATURE.name: NO_SIGNATURE}
    own = [_read(_BUILT_IN, known)] if built_in else []
    given = [_read(Path(file), known) for file in files]
    after = [one for one in given if one[0].place == "after"]
    books = [*(one for one in given if one[0].place == "before"), *own, *after]
    return RuleBook(
        tuple(rule for _, rules in books for rule in rules),
        **{key: tuple(text for file, _ in books for text in getattr(file, key)) for key in _SIGNS},
    )


@dataclass(frozen=True)
class _Rule:
    reason: str
    title: str = ""
    category: Literal["infrastructure", "engine", "user"] | None = None
    advice: str = ""
    source: str = ""
    signatures: tuple[str, ...] = ()
    unless: tuple[str, ...] = ()
    within_last_kib: Annotated[int, Range(1, 2**43)] | None = None
    status: tuple[str, ...] = ()


@dataclass(frozen=True)
class _RulesFile:
    place: Literal["before", "after"] = "before"
    rule: tuple[_Rule, ...] = ()
    ignore: tuple[str, ...] = ()
    ends_well: tuple[str, ...] = ()
    parting: tuple[str, ...] = ()
    failure_signs: tuple[str, ...] = ()


def _read(path: Path, known: dict[str, Reason]) -> tuple[_RulesFile, list[LogRule]]:
    """Return a rules file and its rules, and add the reasons that it introduces to `known`."""
    text = TomlText(path, "rules")
    file = text.decode(_RulesFile)
    _require_patterns(text, (), file, _SIGNS)
    return file, [_rule(text, ("rule", number), rule, known) for number, rule in enumerate(file.rule)]


def _rule(text: TomlText, place: Place, rule: _Rule, known: dict[str, Reason]) -> LogRule:
    reason = _reason(text, place, rule, known)
    _require_patterns(text, place, rule, ("signatures", "unless"))
    if not rule.signatures and not rule.status:
        raise text.error((*place, "signatures"), "is missing or empty", "give a list of regular expressions")
    return LogRule(reason, rule.signatures, rule.unless, rule.within_last_kib, rule.status)


def _reason(text: TomlText, place: Place, rule: _Rule, known: dict[str, Reason]) -> Reason:
    name = rule.reason
    if not _NAME.fullmatch(name):
        hint = "use lower-case letters, digits and _"
        raise text.error((*place, "reason"), f"{abbreviated(name)} is not a name", hint)
    if name == NO_SIGNATURE.name:
        what = f"'{name}' is the reason if no rule matches"
        raise text.error((*place, "reason"), what, "choose another name")
    if (earlier := known.get(name)) is not None:
        for key in ("title", "category"):
            if (getattr(rule, key) or getattr(earlier, key)) != getattr(earlier, key):
                what = f"'{name}' already has the {key} '{getattr(earlier, key)}'"
                raise text.error((*place, key), what, f"leave out {key}")
        return earlier
    if rule.category is None:
        raise text.error((*place, "category"), "is missing", nearest("", CATEGORIES))
    title = rule.title or name.replace("_", " ").capitalize()
    known[name] = Reason(name, title, rule.category, rule.advice, rule.source)
    return known[name]


def _require_patterns(text: TomlText, place: Place, table: _Rule | _RulesFile, keys: tuple[str, ...]) -> None:
    for key in keys:
        fault = _first_fault(getattr(table, key))
        if fault is not None:
            raise text.error((*place, key), f"{abbreviated(fault[0])} cannot be used: {fault[1]}")


def _first_fault(patterns: Sequence[str]) -> tuple[str, str] | None:
    """Return the first pattern that cannot be used, and the reason."""
    empty = pa.array([b""], pa.large_binary())
    for pattern in patterns:
        if "\n" in pattern or "\\A" in pattern or "\\z" in pattern:
            return pattern, "it is matched against one line; use ^ and $"
        try:
            matches_nothing = pc.match_substring_regex(empty, pattern)[0].as_py()
        except pa.ArrowInvalid as error:
            return pattern, str(error).removeprefix("Invalid regular expression: ")
        if matches_nothing:
            return pattern, "it matches an empty line"
    return None
