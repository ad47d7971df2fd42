"""Work of any kind in Spark's tasks: a job for each item, several at a time, taken in the order of the items."""

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
    """The executors of a Spark as workers (`tracekit.workers`).

    Parameters
    ----------
    session : function () -> SparkSession
        Starts Spark where it does not run.
    master : str
        Its master, in messages.
    """

    def __init__(self, session: Callable[[], Any], master: str) -> None:
        self._session, self._master = session, master

    def start(self) -> None:
        """Start Spark, and see that its executors have this tracekit.

        Raises
        ------
        UsageError
            Spark cannot be used.
        """
        self._session()

    def in_order(self, work: Callable[[T], R], items: Sequence[T]) -> Generator[R]:
        """Yield what `work` returns for each item, in the order of the items.

        At most twice as many items as executors have processors are done, or begun, before their results are taken.

        Raises
        ------
        UsageError
            Spark has given an item up.
        """
        context = self._session().sparkContext
        sent = pickle.dumps(work)
        group = f"tracekit-{uuid4().hex}"
        ending = threading.Event()

        # One job an item: results come as they are, and no more of them than are taken.
        def one(item: T) -> R:
            def task(_: int) -> R:
                import pickle as there

                found: R = there.loads(sent)(item)  # noqa: S301 -- sent by ourselves
                return found

            if ending.is_set():
                raise UsageError("was ended", where=where)
            context.setJobGroup(group, "tracekit", interruptOnCancel=True)
            try:
                (found,) = context.parallelize([0], 1).map(task).collect()
            except Exception as error:
                # Whatever it is, Spark says it with its plans and stacks.
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
                with suppress(Exception):  # a Spark that is gone has no jobs
                    context.cancelJobGroup(group)
