"""Damage Traces in many ways, run every command on each Trace, and judge how the command ends.

    python tools/damaged.py --cases 500 --seed 1
    python tools/damaged.py --seed 1 --case 137      # one case again

Each case is a Trace made from part of a sample trace, with one or two seeded damages. A command passes if it leaves
nothing half-written and ends with exit code 0 and only notes on stderr, or with exit code 2 and a one-line error.
`validate` may also end with 1. Anything else, such as a traceback, a library panic, a crash or a hang, is a finding. If
there are findings, their Traces are kept under --out, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import signal
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tools.fuzzing.commands import COMMANDS, in_turn  # noqa: E402 -- found through the line above
from tools.fuzzing.supervision import CASE_S, Log, Verdict, report, supervise, time_out  # noqa: E402 -- found through the path set above
from tools.fuzzing.traces import Traces, judge, make_case  # noqa: E402 -- found through the path set above

MEMORY = 6 << 30
"""Memory that the process may write to [bytes]. The chart library reserves far more address space than this."""
_OUT = Path(tempfile.gettempdir()) / "tracekit-damaged"


def main() -> int:
    """Run the requested cases, and return the exit code."""
    parser = argparse.ArgumentParser(description="Damage Traces and run every command on each.")
    parser.add_argument("--cases", type=int, default=500, help="number of damaged Traces")
    parser.add_argument("--seed", type=int, default=1, help="seed of the cases")
    parser.add_argument("--case", type=int, help="run only this case, and show the outcome")
    parser.add_argument(
        "--several", type=int, default=len(COMMANDS), help="number of commands per case, in rotation; all by default"
    )
    parser.add_argument("--command", choices=COMMANDS, help="run only this command")
    parser.add_argument("--out", type=Path, default=_OUT, help="for findings")
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    log = Log(given.out / f"run-{given.seed}.jsonl")
    traces = Traces(given.out / "good")
    if given.case is not None:
        return _show(given, traces)
    if given.worker is not None:
        return _work(given, traces, log)
    begin = time.monotonic()
    supervise([sys.executable, __file__, *sys.argv[1:], "--worker"], log, given.cases, given.out / "worker.log")
    return report(log, begin, f"python tools/damaged.py --seed {given.seed} --case {{case}}")


def _work(given: argparse.Namespace, traces: Traces, log: Log) -> int:
    """Run the cases from a given number on, and log each outcome."""
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY, MEMORY))
    signal.signal(signal.SIGPROF, time_out)
    for number in range(given.worker, given.cases):
        folder = given.out / f"case-{given.seed}-{number}"
        case = make_case(number, given.seed, traces, folder)
        faults = []
        for name in _names(given, number):
            log.enter(number, name, Verdict("started"), case.how)
            signal.setitimer(signal.ITIMER_PROF, CASE_S)
            faults += [f"{name}: {fault}" for fault in judge(case, name)]
            signal.setitimer(signal.ITIMER_PROF, 0)
        verdict = Verdict("finding", "; ".join(faults)) if faults else Verdict("passed")
        log.enter(number, case.name, verdict, case.how)
        if not faults:
            shutil.rmtree(folder)
    return 0


def _show(given: argparse.Namespace, traces: Traces) -> int:
    case = make_case(given.case, given.seed, traces, given.out / f"case-{given.seed}-{given.case}")
    print(f"{case.name}: {'; '.join(case.how)}\n{case.trace}")
    faults = [f"{name}: {fault}" for name in _names(given, given.case) for fault in judge(case, name)]
    print("\n".join(faults) or "passed")
    return int(bool(faults))


def _names(given: argparse.Namespace, number: int) -> list[str]:
    return [given.command] if given.command else in_turn(number, given.several)


if __name__ == "__main__":
    sys.exit(main())
