"""What is so before the tests import anything: each of several test processes has a processor of its own.

DuckDB and Polars look for processors when they are first imported. In each of two processes on two processors they
would start two threads, which get in each other's way.
"""

from __future__ import annotations

import os

_worker = os.environ.get("PYTEST_XDIST_WORKER")
if _worker and hasattr(os, "sched_setaffinity"):
    _processors = sorted(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {_processors[int(_worker.removeprefix("gw")) % len(_processors)]})
