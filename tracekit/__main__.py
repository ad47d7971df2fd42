"""The command-line program, run as `tracekit` or `python -m tracekit`."""

from __future__ import annotations

import os
import signal
from typing import NoReturn


def main() -> None:
    """Run the command line, handling interruptions even while the commands are being imported."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _end)

    from tracekit.interruption import handle_signals

    with handle_signals():
        from tracekit.cli import main as run

        run()


def _end(*_: object) -> NoReturn:
    """End the process before any work has started."""
    os.write(2, b"tracekit: interrupted; nothing was left half-written\n")
    os._exit(130)


if __name__ == "__main__":
    main()
