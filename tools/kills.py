"""Kill every command that writes something at random times, and check what it leaves.

    python tools/kills.py --kills 70 --seed 1
    python tools/kills.py --kills 5 --seed 1 --command digest

Each command first runs to its end, as the reference. Then its process group is killed at a random time, in half of the
cases not before something is written. A kill of a process that has ended does not count. After a kill, each output must
be absent, unchanged or equal to the reference, and beside it only documented unfinished files may stay. The same
command again, with --force if an output is there, must leave exactly the files of the reference. Anything else is a
finding. The folders of findings are kept under --out, and the exit code is 1.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tools.fuzzing.commands import COMMANDS, Place  # noqa: E402 -- found through the line above
from tools.fuzzing.supervision import Log, Verdict, report  # noqa: E402 -- found through the path set above
from tracekit.ingest import ingest_logs  # noqa: E402 -- found through the path set above

if TYPE_CHECKING:
    from collections.abc import Callable

_SOURCE = ROOT / "sample_traces" / "slurm-outages"
_READERS = {"validate", "info", "query", "wait", "guidelines"}
"""Commands of `COMMANDS` that write nothing there."""
_KEPT = {
    "sweep": re.compile(r"out/runs\b"),
    "datasets fetch": re.compile(r"out/(\.tracekit-fetch|tracekit-dataset\.json)\b"),
    "ingest --append": re.compile("(?!)"),
}
"""Commands that resume, each with the finished work that a killed run keeps for the next one."""
_HIDDEN = re.compile(r"\.(?P<name>[^/]+)\.(?:partial|old)-\d+")
_VARIES = re.compile(rb'"(?:fetched|wall_s|jobs_per_s)": "?[^",}]*"?')
"""Parts of a file that differ between two runs: the time of a download, and the speed of the engine."""
Files = dict[str, str]
"""The SHA-256 of each file by its path, and '' for a folder."""


class Reference(NamedTuple):
    """The files before and after an undisturbed run."""

    before: Files
    after: Files
    whole_s: float
    writing_s: float
    """Time from the first new file to the end [s]."""


def commands(mirror: str) -> dict[str, Callable[[Place], list[str]]]:
    """Return every command that writes something, by name. The server `mirror` has the files of datasets."""
    ingest = ("ingest", str(_SOURCE), "-o")
    fetch = ["datasets", "fetch", "alibaba-openb", "--mirror", mirror, "--file", "openb_pod_list_cpu0*", "-o"]
    written = {name: command for name, command in COMMANDS.items() if name.split()[0] not in _READERS}
    return written | {
        "ingest": lambda p: [*ingest, str(p.out), "--partition", "day"],
        "ingest --force": lambda p: [*ingest, str(shutil.copytree(p.good, p.out)), "--force"],
        "query": lambda p: ["query", str(p.trace), "queuing/timeline", "-f", "csv", "-o", str(p.out)],
        "guidelines": lambda p: ["guidelines", str(p.trace), "-o", str(p.out)],
        "efficiency": lambda p: ["efficiency", str(p.trace), "-f", "csv", "-o", str(p.out)],
        "calibrate": lambda p: ["calibrate", str(p.trace), "-o", str(p.out)],
        "fit": lambda p: ["fit", str(p.trace), "-o", f"{p.out}.json", "--plots", str(p.out), "--bootstrap", "0"],
        "generate": lambda p: ["generate", str(p.trace), "--jobs", "500", "-o", str(p.out)],
        "datasets fetch": lambda p: [*fetch, str(p.out)],
    }


def main() -> int:
    """Kill the requested number of runs, and return the exit code."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _SlowServer)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    known = commands(f"http://127.0.0.1:{server.server_address[1]}")
    parser = argparse.ArgumentParser(description="Kill commands at random times, and check what they leave.")
    parser.add_argument("--kills", type=int, default=70, help="number of kills that hit a running process")
    parser.add_argument("--seed", type=int, default=1, help="seed of the times")
    parser.add_argument("--command", choices=known, help="kill only this command")
    parser.add_argument("--out", type=Path, default=Path(tempfile.gettempdir()) / "tracekit-kills", help="for findings")
    given = parser.parse_args()
    shutil.rmtree(given.out, ignore_errors=True)
    given.out.mkdir(parents=True)
    log, begin, bench = Log(given.out / f"run-{given.seed}.jsonl"), time.monotonic(), Bench(given.out, known)
    names = [given.command] if given.command else list(known)
    number = hits = 0
    while hits < given.kills:
        name = names[number % len(names)]
        how, verdict = bench.kill(name, random.Random(f"{given.seed}:{number}"))
        log.enter(number, name, verdict, [how])
        hits += verdict.kind != "ended"
        if verdict.kind == "finding":
            shutil.copytree(bench.folder, given.out / f"finding-{number}", symlinks=True)
        number += 1
    return report(log, begin, f"python tools/kills.py --seed {given.seed} --command '{{name}}'")


class Bench:
    """A folder in which one command at a time runs, on fresh copies of its inputs."""

    def __init__(self, out: Path, known: dict[str, Callable[[Place], list[str]]]) -> None:
        self.folder, self._inputs, self._commands = out / "place", out / "inputs", known
        self.reference = cache(self._reference)
        half = self._inputs / "half-logs"
        shutil.copytree(_SOURCE, half)
        lines = (half / "sacct.txt").read_text().splitlines(keepends=True)
        (half / "sacct.txt").write_text("".join(lines[: len(lines) // 2]))
        ingest_logs(half, self._inputs / "half")
        ingest_logs(_SOURCE, self._inputs / "trace")

    def kill(self, name: str, rng: random.Random) -> tuple[str, Verdict]:
        """Kill a command once, run it again, and return when it was killed and the outcome."""
        reference, arguments = self.reference(name), self._prepare(name)
        writes = rng.random() < 0.5
        delay = rng.uniform(0, reference.writing_s if writes else reference.whole_s)
        process = self._start(arguments)
        while writes and process.poll() is None and not self._wrote(reference.before):
            time.sleep(0.001)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(delay)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        hit = process.wait() == -signal.SIGKILL
        left = self._files()
        faults = faults_of(name, reference.before, left, reference.after)
        shutil.rmtree(self.folder / "tmp")  # a killed process cannot empty its temporary folder
        (self.folder / "tmp").mkdir()
        there = any(reference.after.get(path) == left[path] for path in left.keys() - reference.before.keys())
        code = self._start([*arguments, "--force"] if there and name not in _KEPT else arguments).wait()
        if code or (again := self._files()) != reference.after:
            what = f"exit code {code}" if code else f"other files, such as {_differing(again, reference.after)}"
            faults.append(f"run again after the kill: {what}")
        how = f"killed {delay:.2f} s after the {'first file' if writes else 'start'}"
        return how, Verdict("finding", f"{name}: {'; '.join(faults)}") if faults else Verdict(
            "killed" if hit else "ended"
        )

    def _reference(self, name: str) -> Reference:
        arguments = self._prepare(name)
        before, begin, first = self._files(), time.monotonic(), None
        process = self._start(arguments)
        while process.poll() is None:
            first = first or (time.monotonic() if self._wrote(before) else None)
            time.sleep(0.001)
        end = time.monotonic()
        after = self._files()
        if process.returncode or after == before or any(path.startswith("tmp/") for path in after):
            message = f"{name}: exit code {process.returncode}; {(self.folder.parent / 'talk').read_text()[-1000:]}"
            raise RuntimeError(message)
        for manifest in self.folder.glob("**/manifest.json"):
            if self._start(["validate", str(manifest.parent)]).wait():
                message = f"{name}: its Trace is not valid"
                raise RuntimeError(message)
        return Reference(before, after, end - begin, end - (first or end))

    def _prepare(self, name: str) -> list[str]:
        """Make the inputs of a command afresh, and return its arguments."""
        shutil.rmtree(self.folder, ignore_errors=True)
        place = Place(*(self.folder / part for part in ("trace", "half", "logs", "logs", "out")))
        shutil.copytree(self._inputs / ("half" if name == "ingest --append" else "trace"), place.trace)
        shutil.copytree(self._inputs / "half", place.good)
        for folder in ("home", "tmp", "logs"):
            (self.folder / folder).mkdir()
        (place.logs / "job-70003.log").write_text("RuntimeError: CUDA out of memory\n")
        return self._commands[name](place._replace(source=_SOURCE))

    def _start(self, arguments: list[str]) -> subprocess.Popen[bytes]:
        folders = {"TMPDIR": str(self.folder / "tmp"), "HOME": str(self.folder / "home"), "PYTHONPATH": str(ROOT)}
        env = {**os.environ, **folders, "SOURCE_DATE_EPOCH": "1767225600", "no_proxy": "*"}
        with (self.folder.parent / "talk").open("wb") as talk:
            return subprocess.Popen(
                [sys.executable, "-m", "tracekit", *arguments],
                cwd=self.folder,
                env=env,
                stdout=talk,
                stderr=talk,
                start_new_session=True,
            )

    def _wrote(self, before: Files) -> bool:
        return any(path.name not in before for path in self.folder.iterdir())

    def _files(self) -> Files:
        found = {}
        for path in sorted(self.folder.rglob("*")):
            content = None if path.is_dir() else _VARIES.sub(b"", path.read_bytes())
            found[str(path.relative_to(self.folder))] = "" if content is None else hashlib.sha256(content).hexdigest()
        return found


def faults_of(name: str, before: Files, left: Files, after: Files) -> list[str]:
    """Return what a killed command must not leave: outputs in part, and files that nobody expects."""
    hidden = {path.split("/")[0]: found["name"] for path in left if (found := _HIDDEN.match(path))}
    kept = _KEPT.get(name)

    def parts(files: Files) -> dict[str, Files]:
        """Return the files by output. A command that resumes gives each file its name as soon as it is complete."""
        found: dict[str, Files] = {}
        for path, digest in files.items():
            if not (kept and kept.match(path)) and path.split("/")[0] not in hidden:
                found.setdefault(path if kept else path.split("/")[0], {})[path] = digest
        return found

    was, now, whole = parts(before), parts(left), parts(after)
    now["tmp"] = {path: digest for path, digest in now["tmp"].items() if not path.startswith("tmp/tracekit-")}
    faults = [f"left {path}" for path, output in hidden.items() if output not in whole]
    for part in sorted(was.keys() | now.keys() | whole.keys()):
        aside = part not in now and part in hidden.values()  # the next run puts it back
        if not aside and now.get(part) not in (was.get(part), whole.get(part)):
            faults.append(f"{part} is half-written: {_differing(now.get(part, {}), whole.get(part, {}))}")
    return faults


def _differing(one: Files, other: Files) -> list[str]:
    return sorted(path for path in one.keys() | other.keys() if one.get(path) != other.get(path))[:5]


class _SlowServer(BaseHTTPRequestHandler):
    """Sends 200 kB for each path, in half a second, and resumes where the client asks for it."""

    def do_GET(self) -> None:
        """Send the content."""
        content = hashlib.shake_256(self.path.encode()).digest(200_000)
        start = int(self.headers.get("Range", "bytes=0-")[6:-1])
        self.send_response(206 if start else 200)
        self.send_header("ETag", f'"{self.path}"')
        self.send_header("Content-Length", str(len(content) - start))
        self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
        self.end_headers()
        with contextlib.suppress(OSError):  # the client was killed
            for at in range(start, len(content), 4_000):
                self.wfile.write(content[at : at + 4_000])
                time.sleep(0.01)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


if __name__ == "__main__":
    sys.exit(main())
