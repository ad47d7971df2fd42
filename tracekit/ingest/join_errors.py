"""What a join that does not fit ends with."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from tracekit.errors import OutputError, UsageError
from tracekit.outputs import final_place, full_disk

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@contextmanager
def join_errors(out: Path) -> Iterator[None]:
    """Raise one clear error when a join runs out of memory or disk."""
    import duckdb

    try:
        yield
    except duckdb.OutOfMemoryException as error:
        reason = str(error).splitlines()[0]
        raise full_disk(error) or UsageError(
            f"a join ran out of memory: {reason}", hint="give a larger --memory-limit"
        ) from error
    except duckdb.IOException as error:
        reason = str(error).splitlines()[0]
        raise full_disk(error) or OutputError(
            f"a join cannot spill to disk: {reason}", where=final_place(out), hint="free the temporary folder"
        ) from error
