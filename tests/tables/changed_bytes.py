"""Change random bytes in a Trace's jobs table, use the Trace, and print how each use ends.

    python -m tests.tables.changed_bytes TRACE footer 100

Each use is a separate process, because a library may end it. It is forked from this process, which never uses a library
with threads.
"""

from __future__ import annotations

import os
import random
import signal
import sys
from pathlib import Path

from tracekit import run_query
from tracekit.errors import TracekitError
from tracekit.trace import Trace

OUTCOMES = {
    0: "answered",
    1: "failed, and validate says why",
    2: "failed, and validate finds nothing",
    3: "failed by an error of a library",
}


def main() -> None:
    folder, where, cases = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
    path = folder / "jobs.parquet"
    content = path.read_bytes()
    begin = len(content) - 8 - int.from_bytes(content[-8:-4], "little") if where == "footer" else 0
    draw = random.Random(where)
    for case in range(cases):
        damaged = bytearray(content)
        for _ in range(draw.randint(1, 6)):
            damaged[draw.randrange(begin, len(damaged))] = draw.randrange(256)
        path.write_bytes(damaged)
        code = in_own_process(folder)
        print(case, OUTCOMES.get(code, f"ended by the signal {-code}"), flush=True)
    path.write_bytes(content)


def in_own_process(folder: Path) -> int:
    number = os.fork()
    if number:
        return os.waitstatus_to_exitcode(os.waitpid(number, 0)[1])
    code = 3
    try:
        signal.alarm(60)
        code = use(folder)
    finally:
        os._exit(code)


def use(folder: Path) -> int:
    """Return which of `OUTCOMES` results from using a Trace."""
    opened = False
    try:
        trace = Trace.open(folder)
        opened = True
        run_query(trace, "overview/summary")
        run_query(trace, "queuing/queue_delay")
        trace.scan("jobs").collect()
    except TracekitError as error:
        if not str(error).isprintable():
            return 3
        # Only its checksum may reveal a damaged page. Damage that keeps a Trace from being opened is found at once.
        return 1 if Trace.open(folder, check=False).validate(deep=opened) else 2
    Trace.open(folder, check=False).validate()
    return 0


if __name__ == "__main__":
    main()
