"""The rules that find the reason of a failure, from rules.toml and the user's own files.

A rules file is a list of `[[rule]]` tables in the order in which the rules are tried, root causes first. The keys are
those of `LogRule`; `docs/classify-logs.md` explains them with examples. Expressions are matched by RE2, which comes
with pyarrow and never backtracks, so no rule and no log can make it slow.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tracekit.errors import UsageError, nearest
from tracekit.toml_text import TomlText

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from tracekit.array_types import Bools


def matches(lines: Sequence[bytes] | pa.Array, patterns: tuple[str, ...]) -> Bools:
    """Return, for each line, whether it matches at least one of the RE2 expressions.

    Raises
    ------
    pyarrow.ArrowInvalid
        A pattern is not a valid expression, or is too large.
    """
    array = lines if isinstance(lines, pa.Array) else pa.array(lines, pa.large_binary())
    found = np.zeros(len(array), dtype=np.bool_)
    for joined in _joined(patterns) if len(array) else ():
        found |= pc.match_substring_regex(array, joined).to_numpy(zero_copy_only=False)
    return found


@lru_cache(maxsize=1000)
def _joined(patterns: tuple[str, ...]) -> tuple[str, ...]:
    """Join the expressions into as few as RE2 accepts."""
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
"""Categories of reasons: the cluster (IF), the deep-learning framework and CUDA (AE), code and configuration (U)."""

_BUILT_IN = Path(__file__).with_name("rules.toml")
_NAME = re.compile(r"[a-z][a-z0-9_]*")
_SIGNS = ("ignore", "ends_well", "parting", "failure_signs")
_TOP_KEYS = {"place", "rule", *_SIGNS}
_TEXTS = ("reason", "title", "category", "advice", "source")
_LISTS = ("signatures", "unless", "status")
_RULE_KEYS = {*_TEXTS, *_LISTS, "within_last_kib"}


@dataclass(frozen=True)
class Reason:
    """A reason why a trial failed."""

    name: str
    title: str
    category: str | None
    """One of CATEGORIES; None for `NO_SIGNATURE`."""
    advice: str = ""
    """What to do about it, and whether to try again."""
    source: str = ""
    """Origin of the reason: 'philly' for the published taxonomy, 'tracekit' for ours."""


NO_SIGNATURE = Reason("no_signature", "No signature", None, "read the log; add a rule for its message", "philly")


@dataclass(frozen=True)
class LogRule:
    """Signatures of one reason, which are tried together."""

    reason: Reason
    signatures: tuple[str, ...]
    """Regular expressions in RE2 syntax for one line, without its line break."""
    unless: tuple[str, ...] = ()
    """A line that also matches one of these is not a hit."""
    within_last_kib: int | None = None
    """The line must begin within this many KiB of the end of its file; such a rule uses the last hit."""
    status: tuple[str, ...] = ()
    """Statuses of an attempt that imply the reason if no line matches."""


@dataclass(frozen=True)
class RuleBook:
    """All rules in the order in which they are tried, and the lines that show how a job ended."""

    rules: tuple[LogRule, ...]
    ignore: tuple[str, ...] = ()
    """A line that matches one of these is never a hit."""
    ends_well: tuple[str, ...] = ()
    """Expressions for a line near the end of a log that shows that the job succeeded despite earlier hits."""
    parting: tuple[str, ...] = ()
    """Expressions for a line that, after one of `ends_well`, is neither a hit nor a sign of failure."""
    failure_signs: tuple[str, ...] = ()
    """Expressions for a line near the end of a log that shows that something went wrong, but not what."""

    @property
    def reasons(self) -> tuple[Reason, ...]:
        """Every reason once, in the order of its first rule; `NO_SIGNATURE` is the last."""
        return (*dict.fromkeys(rule.reason for rule in self.rules), NO_SIGNATURE)


def load_rules(files: Iterable[str | Path] = (), *, built_in: bool = True) -> RuleBook:
    """Return the built-in rules together with the user's rules.

    Parameters
    ----------
    files : iterable of path
        Rules files. Files with `place = "after"` follow the built-in rules, the others precede them; within each
        group the given order is kept.
    built_in : bool
        Whether to also use tracekit's own rules and expressions.

    Raises
    ------
    UsageError
        A file cannot be read or is not TOML, or a rule in it cannot be used; the error names the line of the rule.
    """
    known: dict[str, Reason] = {NO_SIGNATURE.name: NO_SIGNATURE}
    own = _RulesFile(_BUILT_IN, known) if built_in else None
    given = [_RulesFile(Path(file), known) for file in files]
    before = [f for f in given if not f.after]
    books = [*before, *([own] if own else []), *(f for f in given if f.after)]
    return RuleBook(
        tuple(rule for f in books for rule in f.rules),
        **{key: tuple(text for f in books for text in f.signs[key]) for key in _SIGNS},
    )


class _RulesFile:
    """One rules file, checked."""

    def __init__(self, path: Path, known: dict[str, Reason]) -> None:
        self._text = TomlText(path, "rules")
        raw = self._text.data
        self._line: int | None = None
        self._only_known(raw, _TOP_KEYS)
        place = raw.get("place", "before")
        if place not in ("before", "after"):
            raise self._wrong("place", f"'{place}' is not a place", "choose one of: before, after")
        self.after = place == "after"
        self.signs = {key: self._patterns(raw, key) for key in _SIGNS}
        entries = raw.get("rule", [])
        if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
            raise self._wrong("rule", "must be a list of tables", "begin each with [[rule]]")
        self.rules = [self._rule(number, entry, known) for number, entry in enumerate(entries)]

    def _rule(self, number: int, entry: dict[str, Any], known: dict[str, Reason]) -> LogRule:
        self._line = self._text.line(("rule", number))
        self._only_known(entry, _RULE_KEYS)
        for key in _TEXTS:
            if not isinstance(entry.get(key, ""), str):
                raise self._wrong(key, "must be a string")
        reason = self._reason(entry, known)
        signatures = self._patterns(entry, "signatures")
        status = self._list(entry, "status")
        if not signatures and not status:
            raise self._wrong("signatures", "is missing or empty", "give a list of regular expressions")
        near = entry.get("within_last_kib")
        if near is not None and (type(near) is not int or near < 1):
            raise self._wrong("within_last_kib", f"{near!r} is not a whole number from 1")
        return LogRule(reason, signatures, self._patterns(entry, "unless"), near, status)

    def _reason(self, entry: dict[str, Any], known: dict[str, Reason]) -> Reason:
        name = entry.get("reason", "")
        if not _NAME.fullmatch(name):
            raise self._wrong("reason", f"{name!r} is not a name", "use lower-case letters, digits and _")
        if name == NO_SIGNATURE.name:
            raise self._wrong("reason", f"'{name}' is the reason if no rule matches", "choose another name")
        earlier = known.get(name)
        if earlier is not None:
            for key in ("title", "category"):
                if key in entry and entry[key] != getattr(earlier, key):
                    raise self._wrong(
                        key, f"'{name}' already has the {key} '{getattr(earlier, key)}'", f"leave out {key}"
                    )
            return earlier
        category = entry.get("category")
        if category not in CATEGORIES:
            what = "is missing" if category is None else f"'{category}' is not a category"
            raise self._wrong("category", what, nearest(category or "", CATEGORIES))
        title = entry.get("title") or name.replace("_", " ").capitalize()
        known[name] = Reason(name, title, category, entry.get("advice", ""), entry.get("source", ""))
        return known[name]

    def _list(self, entry: dict[str, Any], key: str) -> tuple[str, ...]:
        texts = entry.get(key, [])
        if not isinstance(texts, list) or not all(isinstance(t, str) for t in texts):
            raise self._wrong(key, "must be a list of strings")
        return tuple(texts)

    def _patterns(self, entry: dict[str, Any], key: str) -> tuple[str, ...]:
        patterns = self._list(entry, key)
        fault = _first_fault(patterns)
        if fault is not None:
            raise self._wrong(key, f"'{fault[0]}' cannot be used: {fault[1]}")
        return patterns

    def _only_known(self, entry: dict[str, Any], keys: set[str]) -> None:
        for key in entry:
            if key not in keys:
                raise self._wrong(key, "is not a key of a rules file", nearest(key, keys))

    def _wrong(self, key: str, what: str, hint: str | None = None) -> UsageError:
        line = self._text.line((key,)) if self._line is None else self._line
        return UsageError(f"{key}: {what}", where=self._text.path, line=line, hint=hint)


def _first_fault(patterns: Sequence[str]) -> tuple[str, str] | None:
    """Return the first pattern that cannot be used, and why."""
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
