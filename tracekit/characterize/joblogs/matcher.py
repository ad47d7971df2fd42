"""Match lines with regular expressions in linear time, whatever the expressions.

RE2, which comes with pyarrow, never backtracks, so that no rule and no log can make it slow. It compiles an expression
anew for each call: one call takes many lines.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tracekit.array_types import Bools


def matches(lines: Sequence[bytes] | pa.Array, patterns: tuple[str, ...]) -> Bools:
    """Return for each line whether it matches at least one of some expressions in RE2's syntax.

    Raises
    ------
    pyarrow.ArrowInvalid
        One of them is no expression, or too large.
    """
    array = lines if isinstance(lines, pa.Array) else pa.array(lines, pa.large_binary())
    found = np.zeros(len(array), dtype=np.bool_)
    for joined in _joined(patterns) if len(array) else ():
        found |= pc.match_substring_regex(array, joined).to_numpy(zero_copy_only=False)
    return found


@lru_cache(maxsize=1000)
def _joined(patterns: tuple[str, ...]) -> tuple[str, ...]:
    """Return as few expressions as RE2 takes, together as good as all."""
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
