"""Kill every command that writes something at random times, and judge what it leaves.

    python tools/kills.py --kills 70 --seed 1
    python tools/kills.py --kills 5 --seed 1 --command digest

Each command first runs to its end, as the reference. Then its process group is killed at a random time, in half of the
cases not before it writes. A kill after the end does not count. After a kill, each output must be absent, unchanged, or
equal to the reference, and only documented unfinished files may be next to it. The same command again, with --force if
an output exists, must leave exactly the files of the reference. Anything else is a finding. If there are findings,
their folders are kept under --out, and the exit code is 1.
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
import time
from functools import cache
from itertools import count
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tools.fuzzing.commands import Place, writing_commands  # noqa: E402 -- found through the line above
from tools.fuzzing.mirror import start_mirror  # noqa: E402 -- found through the path set above
from tools.fuzzing.supervision import Log, Verdict, report  # noqa: E402 -- found through the path set above
from tracekit.ingest import ingest_logs  # noqa: E402 -- found through the path set above

if TYPE_CHECKING:
    from tools.fuzzing.commands import Command

_SOURCE = ROOT / "sample_traces" / "slurm-outages"
_RESUMED = {
    "sweep": "out/runs/",
    "calibrate --shard": "out.toml.runs/",
    "plan --shard": "out.runs/",
    "datasets fetch": "out/(.tracekit-fetch|tracekit-dataset.json)",
}
"""Commands that resume, and the pattern of the finished work that a killed run keeps for the next one."""
_HIDDEN = re.compile(r"\.(?P<output>[^/]+)\.(?:partial|old)-\d+")
_VARIES = re.compile(rb'"(?:fetched|wall_s|jobs_per_s|check)": "?[^",}]*"?')
"""Values that differ between two runs: the time of a download, the speed of the engine, and its checksum in a sweep."""
Files = dict[str, str]
"""SHA-256 of each file by path, and '' for a folder."""


def main() -> int:
    """Kill runs until the requested number of kills hit, and return the exit code."""
    known = writing_commands(start_mirror())
    parser = argparse.ArgumentParser(description="Kill commands at random times, and judge what they leave.")
    parser.add_argument("--kills", type=int, default=70, help="number of kills that hit a running process")
    parser.add_argument("--seed", type=int, default=1, help="seed of the times")
    parser.add_argument("--command", choices=known, help="kill only this command")
    parser.add_argument("--out", type=Path, default=Path(tempfile.gettempdir()) / "tracekit-kills", help="for findings")
    given = parser.parse_args()
    shutil.rmtree(given.out, ignore_errors=True)
    bench = Bench(given.out, known)
    log, begin = Log(given.out / f"run-{given.seed}.jsonl"), time.monotonic()
    names, hits = [given.command] if given.command else list(known), 0
    for number in count():
        name, how = names[number % len(names)], random.Random(f"{given.seed}:{number}")
        hit, verdict = bench.kill(name, share=how.random(), writing=how.random() < 0.5)
        log.enter(number, name, verdict)
        hits += hit
        if verdict.kind == "finding":
            shutil.copytree(bench.folder, given.out / f"finding-{number}")
        if hits == given.kills:
            break
    return report(log, begin, f"python tools/kills.py --seed {given.seed} --command '{{name}}'")


class Bench:
    """A folder in which one command at a time runs, on new copies of its inputs."""

    def __init__(self, out: Path, known: dict[str, Command]) -> None:
        self.folder, self._inputs, self._commands = out / "place", out / "inputs", known
        self._reference_of = cache(self._reference)
        shutil.copytree(_SOURCE, self._inputs / "half-logs")
        text = (_SOURCE / "sacct.txt").read_text()
        (self._inputs / "half-logs" / "sacct.txt").write_text(text[: text.rindex("\n", 0, len(text) // 2) + 1])
        ingest_logs(self._inputs / "half-logs", self._inputs / "half")
        ingest_logs(_SOURCE, self._inputs / "trace")

    def kill(self, name: str, *, share: float, writing: bool) -> tuple[bool, Verdict]:
        """Kill a command after a share of its run, or of the part in which it writes. Return if it still ran."""
        before, after, whole_s, writing_s = self._reference_of(name)
        arguments = self._prepare(name)
        code, _, _ = self._run(arguments, share * (writing_s if writing else whole_s), writing=writing)
        left = self._files()
        faults = faults_of(name, before, left, after)
        shutil.rmtree(self.folder / "tmp")  # a later process never uses what is there
        (self.folder / "tmp").mkdir()
        there = any(after.get(path) == left[path] for path in left.keys() - before.keys())
        force = there and name not in _RESUMED and "--append" not in arguments
        again, _, _ = self._run([*arguments, "--force"] if force else arguments)
        if again or self._files() != after:
            faults.append(f"run again: exit code {again}, {_differing(self._files(), after)} differ")
        hit = code == -signal.SIGKILL
        kind = "finding" if faults else "killed" if hit else "ended"
        return hit, Verdict(kind, "; ".join([name, *faults]))

    def _reference(self, name: str) -> tuple[Files, Files, float, float]:
        """Return the files before and after a whole run, its time, and the part of it in which it writes [s]."""
        arguments, before = self._prepare(name), self._files()
        code, whole_s, writing_s = self._run(arguments)
        after = self._files()
        valid = [not self._run(["validate", str(file.parent)])[0] for file in self.folder.glob("**/manifest.json")]
        if code or before == after or not all(valid):
            message = f"{name}: exit code {code}, Traces valid {valid}: {self.folder.with_name('talk').read_text()}"
            raise RuntimeError(message)
        return before, after, whole_s, writing_s

    def _prepare(self, name: str) -> list[str]:
        """Make the inputs of a command again, and return its arguments."""
        shutil.rmtree(self.folder, ignore_errors=True)
        place = Place(self.folder / "trace", self.folder / "half", _SOURCE, self.folder / "logs", self.folder / "out")
        shutil.copytree(self._inputs / ("half" if name == "ingest --append" else "trace"), place.trace)
        shutil.copytree(self._inputs / "half", place.good)
        for folder in ("home", "tmp", "logs"):
            (self.folder / folder).mkdir()
        (place.logs / "job-70003.log").write_text("RuntimeError: CUDA out of memory\n")
        return self._commands[name](place)

    def _run(self, arguments: list[str], delay: float = inf, *, writing: bool = False) -> tuple[int, float, float]:
        """Run a command, kill it `delay` seconds after its start or first file, and return code and both times [s]."""
        folders = {"TMPDIR": str(self.folder / "tmp"), "HOME": str(self.folder / "home"), "PYTHONPATH": str(ROOT)}
        env = {**os.environ, **folders, "SOURCE_DATE_EPOCH": "1767225600", "no_proxy": "*"}
        command, names = [sys.executable, "-m", "tracekit", *arguments], set(self.folder.iterdir())
        begin, first = time.monotonic(), inf
        with self.folder.with_name("talk").open("wb") as talk:
            process = subprocess.Popen(command, env=env, stdout=talk, stderr=talk, start_new_session=True)
        while process.poll() is None:
            if first == inf and set(self.folder.iterdir()) - names:
                first = time.monotonic()
            if time.monotonic() - (first if writing else begin) >= delay:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
            time.sleep(0.002)
        return process.returncode, time.monotonic() - begin, max(time.monotonic() - first, 0)

    def _files(self) -> Files:
        found = {}
        for path in self.folder.rglob("*"):
            content = None if path.is_dir() else _VARIES.sub(b"", path.read_bytes())
            found[str(path.relative_to(self.folder))] = "" if content is None else hashlib.sha256(content).hexdigest()
        return found


def faults_of(name: str, before: Files, left: Files, after: Files) -> list[str]:
    """Return what a killed command must not leave: outputs in part, and files that are not documented."""
    unfinished = re.compile(f"tmp/tracekit-|{_RESUMED.get(name, 'tmp/tracekit-')}")
    hidden = {top: found["output"] for top in map(_top, left) if (found := _HIDDEN.fullmatch(top))}

    def outputs(files: Files) -> dict[str, Files]:
        found: dict[str, Files] = {}
        for path, digest in files.items():
            if not unfinished.match(path) and _top(path) not in hidden:
                # A command that resumes completes its files one by one.
                found.setdefault(path if name in _RESUMED else _top(path), {})[path] = digest
        return found

    was, now, whole = outputs(before), outputs(left), outputs(after)
    faults = [f"{path} is left" for path, output in hidden.items() if output not in map(_top, after)]
    for output in sorted(was.keys() | now.keys() | whole.keys()):
        aside = output not in now and output in hidden.values()  # the next run restores it
        if not aside and now.get(output) not in (was.get(output), whole.get(output)):
            faults.append(f"half-written: {_differing(now.get(output, {}), whole.get(output, {}))}")
    return faults


def _top(path: str) -> str:
    return path.split("/", maxsplit=1)[0]


def _differing(one: Files, other: Files) -> list[str]:
    return sorted({path for path, _ in one.items() ^ other.items()})[:5]


if __name__ == "__main__":
    sys.exit(main())
