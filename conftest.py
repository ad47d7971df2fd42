"""Set up the process before the tests import anything and before the first test runs."""

from __future__ import annotations

import gc
import os

# If there are several test processes, each gets its own processor. DuckDB and Polars count processors when they are
# first imported. In each of two processes on two processors, they would start two threads, which would slow each other
# down.
_worker = os.environ.get("PYTEST_XDIST_WORKER")
if _worker and hasattr(os, "sched_setaffinity"):
    _processors = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {_processors[int(_worker.removeprefix("gw")) % len(_processors)]})


# Collection makes half a million objects that stay, such as modules and tests. Searching them for garbage is useless.
gc.disable()


def pytest_collection_finish() -> None:
    """Exclude all objects that exist so far from garbage collection."""
    gc.collect()
    gc.freeze()
    gc.enable()
