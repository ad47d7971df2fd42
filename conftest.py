"""What is so before the tests import anything, and before the first of them runs."""

from __future__ import annotations

import gc
import os

# Each of several test processes has a processor of its own. DuckDB and Polars look for processors when they are first
# imported; in each of two processes on two processors they would start two threads, which get in each other's way.
_worker = os.environ.get("PYTEST_XDIST_WORKER")
if _worker and hasattr(os, "sched_setaffinity"):
    _processors = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {_processors[int(_worker.removeprefix("gw")) % len(_processors)]})


# Collection makes half a million objects that stay: modules and tests. Looking for garbage among them only takes time.
gc.disable()


def pytest_collection_finish() -> None:
    """Have the garbage collector pass over what was made until now."""
    gc.collect()
    gc.freeze()
    gc.enable()
