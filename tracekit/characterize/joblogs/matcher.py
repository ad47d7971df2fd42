"""Match lines with regular expressions in linear time, whatever the expressions.

RE2, which comes with pyarrow, never backtracks, so that no rule and no log can make it slow. It compiles an expression
anew for each call: one call takes many lines.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

__all__ = ["AnyOf", "matches"]


def matches(lines: Sequence[bytes] | pa.Array, pattern: str) -> npt.NDArray[np.bool_]:
    """Return for each line whether it matches `pattern`.

    Raises
    ------
    pyarrow.ArrowInvalid
        The pattern is none, or too large.
    """
    array = lines if isinstance(lines, pa.Array) else pa.array(lines, pa.large_binary())
    return pc.match_substring_regex(array, pattern).to_numpy(zero_copy_only=False)  # type: ignore[no-any-return]  # pyarrow has no types


class AnyOf:
    """Tells which lines match at least one of some expressions.

    Parameters
    ----------
    patterns : sequence of str
        In RE2's syntax, each valid by itself.
    """

    def __init__(self, patterns: Sequence[str]) -> None:
        self._patterns = tuple(patterns)

    def matches(self, lines: Sequence[bytes] | pa.Array) -> npt.NDArray[np.bool_]:
        """Return for each line whether it matches."""
        found = np.zeros(len(lines), dtype=np.bool_)
        if len(lines):
            for joined in self._joined:
                found |= matches(lines, joined)
        return found

    @cached_property
    def _joined(self) -> tuple[str, ...]:
        """As few expressions as RE2 takes, together as good as all."""
        return _join(self._patterns)


def _join(patterns: tuple[str, ...]) -> tuple[str, ...]:
    if not patterns:
        return ()
    joined = "|".join(f"(?:{pattern})" for pattern in patterns)
    try:
        matches([b""], joined)
    except pa.ArrowInvalid:
        if len(patterns) == 1:
            raise
        middle = len(patterns) // 2
        return _join(patterns[:middle]) + _join(patterns[middle:])
    return (joined,)
