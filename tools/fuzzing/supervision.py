"""Run numbered cases in a worker process, restart it after each crash or hang, and report the findings."""

from __future__ import annotations

import contextlib
import json
import re
import signal
import subprocess
import time
from collections import Counter
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

if TYPE_CHECKING:
    from pathlib import Path

__all__ = ["CASE_S", "Log", "Verdict", "report", "supervise", "time_out"]

CASE_S = 60
"""Time limit of a case [s of processor time, so that a busy machine is no finding]."""
HANG_S = 10 * CASE_S
"""Time without progress after which the supervisor kills the process [s]."""


class Verdict(NamedTuple):
    """The outcome of a case."""

    kind: str
    """'finding' or the name of a good outcome."""
    text: str = ""


class Log:
    """The outcomes so far, one line per case, in a file that the worker and the supervisor share."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def enter(self, number: int, name: str, verdict: Verdict, how: list[str] | None = None) -> None:
        """Add the outcome of a case. Only a case's last outcome counts."""
        entry = {"case": number, "name": name, "kind": verdict.kind, "text": verdict.text, "how": how or []}
        with self.path.open("a") as stream:
            stream.write(json.dumps(entry) + "\n")

    def entries(self) -> dict[int, dict[str, Any]]:
        """Return the last entry of each case."""
        return {entry["case"]: entry for entry in map(json.loads, self.path.read_text().splitlines())}


def supervise(command: list[str], log: Log, cases: int, talk: Path) -> None:
    """Run all cases. `command` plus a number runs the cases from that number on and logs each of them."""
    log.path.write_text("")
    start = 0
    while start < cases:
        with talk.open("ab") as stream:
            status = _wait(subprocess.Popen([*command, str(start)], stderr=stream), log.path)
        entries = log.entries()
        last = max(entries, default=start)
        if status:
            reason = "it hung" if status == -signal.SIGKILL else f"the process ended with status {status}"
            entry = entries.get(last, {})
            log.enter(last, "crash", Verdict("finding", f"{entry.get('name')}: {reason}"), entry.get("how"))
        start = last + 1


def report(log: Log, begin: float, again: str) -> int:
    """Print the number of cases per outcome, and similar findings together. Return the exit code.

    Parameters
    ----------
    log : Log
        The outcomes.
    begin : float
        Start of the run [s, monotonic].
    again : str
        The command that repeats a case, with {name} and {case}.
    """
    outcomes = log.entries()
    kinds = Counter(entry["kind"] for entry in outcomes.values())
    print(", ".join(f"{n} {kind}" for kind, n in sorted(kinds.items())), f"in {time.monotonic() - begin:.0f} s")
    alike: dict[tuple[str, str], list[int]] = {}
    for number, entry in outcomes.items():
        if entry["kind"] == "finding":
            alike.setdefault((entry["name"], re.sub(r"\d+", "N", entry["text"])), []).append(number)
    for (name, _), numbers in alike.items():
        entry = outcomes[numbers[0]]
        print(f"{entry['text'][:500]}\n    {'; '.join(entry['how'])}")
        more = f", and {len(numbers) - 1} alike: {numbers[1:6]}" if numbers[1:] else ""
        print(f"    {again.format(name=name, case=numbers[0])}{more}")
    return 1 if kinds["finding"] else 0


def time_out(_signal: int, _frame: object) -> NoReturn:
    """Handle SIGPROF by ending a case that takes too long."""
    message = f"not finished after {CASE_S} s of processor time"
    raise TimeoutError(message)


def _wait(process: subprocess.Popen[bytes], log: Path) -> int:
    """Return the process's exit status, after killing it if its log has not grown for too long."""
    while True:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(5)
        if time.time() - log.stat().st_mtime > HANG_S:
            process.kill()
