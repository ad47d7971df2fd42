"""Feed damaged logs to every reader and judge the outcome.

    python tools/fuzz.py --cases 20000 --seed 1
    python tools/fuzz.py --seed 1 --format helios --case 137      # one case again, with its traceback

Each case is a small part of a sample trace with one to four seeded mutations of its bytes or structure. It passes if
ingest reports one clear error and leaves nothing behind, or makes a Trace in which records = kept + rejected and the
counts match the input. Anything else, such as another exception, a crash, a hang, unbounded memory or a wrong count, is
a finding. If there are findings, their inputs are kept under --out, and the exit code is 1. The cases run in a separate
process, so crashes and endless loops in native libraries are also found.
"""

from __future__ import annotations

import argparse
import resource
import shutil
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tools.fuzzing.judge import judge, make_case  # noqa: E402 -- found through the line above
from tools.fuzzing.seeds import Seed, seeds  # noqa: E402 -- found through the path set above
from tools.fuzzing.supervision import CASE_S, Log, Verdict, report, supervise, time_out  # noqa: E402 -- found through the path set above

MEMORY = 3 << 30
"""Maximum memory of the process [bytes]. An ordinary case uses a tenth of it."""


def main() -> int:
    """Run the requested cases, and return the exit code."""
    known = seeds()
    parser = argparse.ArgumentParser(description="Feed damaged logs to every reader and judge the outcome.")
    parser.add_argument("--cases", type=int, default=1000, help="number of cases over all formats")
    parser.add_argument("--seed", type=int, default=1, help="seed of the cases")
    parser.add_argument("--format", choices=known, help="run only cases of this format")
    parser.add_argument("--case", type=int, help="run only this case of --format, and show the outcome")
    parser.add_argument("--out", type=Path, default=Path(tempfile.gettempdir()) / "tracekit-fuzz", help="for findings")
    parser.add_argument("--worker", type=int, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.case is not None and given.format is None:
        parser.error("--case needs --format")
    given.out.mkdir(parents=True, exist_ok=True)
    # Few damaged archives reach a reader, so text files are twice as frequent.
    names = [given.format] if given.format else [name for name in known for _ in range(1 + known[name].is_text)]
    if given.case is not None:
        return _show(known[given.format], given)
    if given.worker is not None:
        return _work(known, names, given)
    log, begin = _log(given), time.monotonic()
    supervise([sys.executable, __file__, *sys.argv[1:], "--worker"], log, given.cases, given.out / "worker.log")
    return report(log, begin, f"python tools/fuzz.py --seed {given.seed} --format {{name}} --case {{case}}")


def _work(known: dict[str, Seed], names: list[str], given: argparse.Namespace) -> int:
    """Run the cases from a given number on, and log each outcome."""
    resource.setrlimit(resource.RLIMIT_AS, (4 * MEMORY, 4 * MEMORY))
    signal.signal(signal.SIGPROF, time_out)
    log = _log(given)
    for number in range(given.worker, given.cases):
        name = names[number % len(names)]
        log.enter(number, name, Verdict("started"))
        folder = given.out / f"case-{given.seed}-{name}-{number}"
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        case = make_case(name, known[name], number, given.seed)
        signal.setitimer(signal.ITIMER_PROF, CASE_S)
        try:
            verdict = judge(case, folder)
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # noqa: BLE001 -- a panic in a native library is not an Exception
            place = traceback.extract_tb(error.__traceback__)[-1]
            what = f"{type(error).__name__}: {error}".splitlines()[0]
            verdict = Verdict("finding", f"{what} in {Path(place.filename).name}, line {place.lineno}")
        signal.setitimer(signal.ITIMER_PROF, 0)
        held = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        if held > MEMORY:
            verdict = Verdict("finding", f"{held >> 20} MiB of memory were used")
        log.enter(number, name, verdict, case.how)
        if verdict.kind != "finding":
            shutil.rmtree(folder)
        if held > MEMORY:
            return 0  # the peak never falls, so the next cases need a fresh process
    return 0


def _show(seed: Seed, given: argparse.Namespace) -> int:
    case = make_case(given.format, seed, given.case, given.seed)
    folder = given.out / f"case-{given.seed}-{given.format}-{given.case}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    print("\n".join(case.how), f"input: {folder / 'source'}", sep="\n")
    verdict = judge(case, folder)
    print(f"{verdict.kind}: {verdict.text}")
    return 1 if verdict.kind == "finding" else 0


def _log(given: argparse.Namespace) -> Log:
    return Log(given.out / f"run-{given.seed}{'-' + given.format if given.format else ''}.jsonl")


if __name__ == "__main__":
    sys.exit(main())
