"""Run any work in Spark tasks, with one job per item, several at a time, and results in item order."""

from __future__ import annotations

import pickle
import threading
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from itertools import islice
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

from tracekit.characterize.engines.spark.starting import reason_of
from tracekit.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from concurrent.futures import Future

T = TypeVar("T")
R = TypeVar("R")


class SparkTasks:
    """Spark executors as workers (`tracekit.workers`).

    Parameters
    ----------
    session : function () -> SparkSession
        Starts Spark if it is not running.
    master : str
        The Spark master, as named in messages.
    """

    def __init__(self, session: Callable[[], Any], master: str) -> None:
        self._session, self._master = session, master

    def start(self) -> None:
        """Start Spark and check that its executors have this version of tracekit.

        Raises
        ------
        UsageError
            Spark cannot be used.
        """
        self._session()

    def in_order(self, work: Callable[[T], R], items: Sequence[T]) -> Generator[R]:
        """Yield the result of `work` for each item, in the order of the items.

        At most twice as many items as executor processors are started or finished but not yet consumed.

        Raises
        ------
        UsageError
            Spark gave up on an item.
        """
        context = self._session().sparkContext
        sent = pickle.dumps(work)
        group = f"tracekit-{uuid4().hex}"
        ending = threading.Event()

        # With one job per item, results arrive unmerged, and only as fast as they are consumed.
        def one(item: T) -> R:
            def task(_: int) -> R:
                import pickle as there

                found: R = there.loads(sent)(item)  # noqa: S301 -- we sent it
                return found

            if ending.is_set():
                raise UsageError("was ended", where=where)
            context.setJobGroup(group, "tracekit", interruptOnCancel=True)
            try:
                (found,) = context.parallelize([0], 1).map(task).collect()
            except Exception as error:
                # Spark adds query plans and stack traces to every error.
                raise UsageError(f"Spark failed: {reason_of(error)}", where=where) from error
            made: R = found
            return made

        where = f"--master {self._master}"
        width = max(2, 2 * context.defaultParallelism)
        pool = ThreadPoolExecutor(width, thread_name_prefix="tracekit-spark")
        rest = iter(items)
        ahead: deque[Future[R]] = deque(pool.submit(one, item) for item in islice(rest, width))
        try:
            while ahead:
                found = ahead.popleft().result()
                ahead.extend(pool.submit(one, item) for item in islice(rest, 1))
                yield found
        finally:
            ending.set()
            pool.shutdown(wait=False, cancel_futures=True)
            if ahead:
                with suppress(Exception):  # if Spark is gone, it has no jobs
                    context.cancelJobGroup(group)
