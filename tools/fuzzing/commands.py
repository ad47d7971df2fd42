"""Run tracekit's commands on a Trace in this process, and judge how each one ends."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import sys
import tempfile
import traceback
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple
from unittest import mock

import tracekit.cli

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

__all__ = ["COMMANDS", "Command", "Ended", "Place", "faults_of", "in_turn", "run", "writing_commands"]

_NOTE = re.compile(r"(?:note|failures): .*")
_ERROR = re.compile(r"tracekit: error: (?P<text>.*)")
_INSIDE = re.compile(r"Traceback|panicked|\b[A-Z]\w+Error: |\bpyo3|\.rs:\d|/src/")
_LONGEST = 2_000
"""Longest error message [characters]."""

_SWEEP = """traces = [{trace!r}]
policies = ["fifo", "srtf"]
"""


class Ended(NamedTuple):
    """How a command ended."""

    code: int
    stdout: str
    stderr: str


class Place(NamedTuple):
    """The folders of a case."""

    trace: Path
    good: Path
    """The same Trace, undamaged."""
    source: Path
    """The logs from which the Trace was made."""
    logs: Path
    """A folder with a job log."""
    out: Path


Command = Callable[[Place], list[str]]
"""Returns the arguments of a command in a place, after writing the files that it needs there."""


def _sweep(place: Place) -> list[str]:
    file = place.out.with_suffix(".toml")
    file.write_text(_SWEEP.format(trace=str(place.trace)))
    return ["sweep", str(file), "-o", str(place.out), "--workers", "1"]


def _query(name: str) -> Command:
    return lambda place: ["query", str(place.trace), name, "-f", "csv"]


def _export(target: str) -> Command:
    return lambda place: ["export", str(place.trace), "--to", target, "-o", str(place.out)]


def _own_query(place: Place) -> list[str]:
    file = place.out.with_suffix(".sql")
    file.write_text("SELECT * FROM jobs ORDER BY ALL")
    return ["query", str(place.trace), str(file), "-f", "json"]


COMMANDS: dict[str, Command] = {
    "validate": lambda p: ["validate", str(p.trace)],
    "validate --deep": lambda p: ["validate", str(p.trace), "--deep"],
    "info": lambda p: ["info", str(p.trace)],
    "info json": lambda p: ["info", str(p.trace), "-f", "json"],
    "query": lambda p: ["query", str(p.trace)],
    "query own": _own_query,
    "query summary": _query("overview/summary"),
    "query queue_delay": _query("queuing/queue_delay"),
    "query timeline": _query("queuing/timeline"),
    "query delay_causes": _query("queuing/delay_causes"),
    "query by_node": _query("failures/by_node"),
    "query dedicated": _query("utilization/dedicated"),
    "query arrivals": _query("overview/arrivals_by_hour"),
    "query recurrence": _query("workload/recurrence"),
    "compare": lambda p: ["compare", str(p.trace), str(p.good), "-o", str(p.out), "--query", "queuing/run_time"],
    "wait": lambda p: ["wait", str(p.trace), "--gpus", "1"],
    "digest": lambda p: ["digest", str(p.trace), "-o", str(p.out)],
    "guidelines": lambda p: ["guidelines", str(p.trace)],
    "replay": lambda p: ["replay", str(p.trace), "-p", "fifo", "-p", "srtf", "-o", str(p.out)],
    "replay recorded": lambda p: ["replay", str(p.trace), "-p", "recorded", "-o", str(p.out), "--cluster", "auto"],
    "fidelity": lambda p: ["calibrate", str(p.trace), "--report", str(p.out)],
    "plan": lambda p: ["plan", str(p.trace), "-o", str(p.out), "--resamples", "5", "--workers", "1"],
    "sweep": _sweep,
    "fit": lambda p: ["fit", str(p.trace), "-o", str(p.out), "--bootstrap", "0"],
    "export gavel": _export("gavel"),
    "export helios": _export("helios"),
    "export swf": _export("swf"),
    "export csv": _export("csv"),
    "export alibaba-sim": _export("alibaba-sim"),
    "classify-logs": lambda p: ["classify-logs", str(p.logs), "--trace", str(p.trace), "-o", f"{p.out}.parquet"],
    "classify-logs --add": lambda p: ["classify-logs", str(p.logs), "--trace", str(p.trace), "--add"],
    "ingest --append": lambda p: ["ingest", str(p.source), "-o", str(p.trace), "--append", "--max-reject-share", "1"],
    "analyze": lambda p: ["analyze", str(p.trace), "-o", str(p.out), "--replay-jobs", "0", "--no-fit"],
    "analyze all": lambda p: ["analyze", str(p.trace), "-o", str(p.out), "--replay-jobs", "20"],
}
"""Every command that reads a Trace, by name."""


def writing_commands(mirror: str) -> dict[str, Command]:
    """Return every command that writes files, by name. The server `mirror` has the files of a dataset."""
    fetch = ["datasets", "fetch", "alibaba-openb", "--mirror", mirror, "--file", "openb_pod_list_cpu0*", "-o"]
    readers = {"validate", "info", "query", "wait", "guidelines"}
    return {name: command for name, command in COMMANDS.items() if name.split()[0] not in readers} | {
        "ingest": lambda p: ["ingest", str(p.source), "--partition", "day", "-o", str(p.out)],
        "ingest --force": lambda p: ["ingest", str(p.source), "-o", str(shutil.copytree(p.good, p.out)), "--force"],
        "query": lambda p: ["query", str(p.trace), "queuing/timeline", "-f", "csv", "-o", str(p.out)],
        "guidelines": lambda p: ["guidelines", str(p.trace), "-o", str(p.out)],
        "efficiency": lambda p: ["efficiency", str(p.trace), "-f", "csv", "-o", str(p.out)],
        "calibrate": lambda p: ["calibrate", str(p.trace), "-o", str(p.out)],
        "calibrate --shard": lambda p: ["calibrate", str(p.trace), "-o", f"{p.out}.toml", "--shard", "1/2"],
        "plan --shard": lambda p: [*COMMANDS["plan"](p), "--shard", "1/2"],
        "fit": lambda p: ["fit", str(p.trace), "-o", f"{p.out}.json", "--plots", str(p.out), "--bootstrap", "0"],
        "generate": lambda p: ["generate", str(p.trace), "--jobs", "500", "-o", str(p.out)],
        "datasets fetch": lambda p: [*fetch, str(p.out)],
    }


def in_turn(number: int, several: int) -> list[str]:
    """Return `several` commands for case `number`. The next case gets the commands that follow."""
    names = list(COMMANDS)
    return [names[(number * several + i) % len(names)] for i in range(min(several, len(names)))]


def run(name: str, trace: Path, good: Path, source: Path, folder: Path) -> list[str]:
    """Run a command on a Trace, and return the faults in how it ended. `folder` is empty before and after."""
    logs = folder / "logs"
    logs.mkdir(parents=True)
    (logs / "job.log").write_text("RuntimeError: CUDA out of memory\n")
    place = Place(trace, good, source, logs, folder / "out")
    before = _contents(trace)
    ended = _ended(COMMANDS[name](place), folder)
    faults = faults_of(name, ended)
    if ended.code:
        left = sorted(p.name for p in folder.iterdir() if p.name.startswith((".out", "out", ".trace")))
        left = [n for n in left if n not in {"out.toml", "out.sql"} and not (name == "sweep" and n == "out")]
        faults += [f"left {left} behind"] if left else []
        faults += [] if _contents(trace) == before else ["changed the Trace although it failed"]
    shutil.rmtree(folder)
    return faults


def faults_of(name: str, ended: Ended) -> list[str]:
    """Return the faults in how a command ended, such as a wrong exit code or unexpected text on stderr."""
    lines = [line for line in ended.stderr.split("\n") if line]
    errors = [line for line in lines if _ERROR.fullmatch(line)]
    odd = [line for line in lines if not _ERROR.fullmatch(line) and not _NOTE.fullmatch(line)]
    faults = []
    allowed = {0, 1, 2} if name.startswith("validate") else {0, 2}
    if ended.code not in allowed:
        faults.append(f"exit code {ended.code}")
    if len(errors) != (ended.code == 2):
        faults.append(f"{len(errors)} error lines with exit code {ended.code}")
    if odd:
        faults.append(f"prints on stderr: {odd[-1][:300]}")
    shown = [line for line in errors if _INSIDE.search(line) or len(line) > _LONGEST]
    return [*faults, *(f"the error shows internals: {line[:300]}" for line in shown)]


def _contents(trace: Path) -> dict[str, bytes | None]:
    return {p.name: p.read_bytes() if p.is_file() else None for p in sorted(trace.iterdir())}


def _ended(arguments: list[str], folder: Path) -> Ended:
    """Run tracekit as a user would. Text that libraries write to the process's own streams is included."""
    with (
        mock.patch.object(sys, "argv", ["tracekit", *arguments]),
        # A command may leave signal handlers disabled because its process normally ends. This process continues.
        mock.patch.object(tracekit.cli, "handle_signals", contextlib.nullcontext),
        mock.patch.dict(os.environ, {"NO_COLOR": "1", "COLUMNS": "200", "TRACEKIT_DEBUG": ""}),
        contextlib.chdir(folder),
        _captured(1) as out,
        _captured(2) as err,
    ):
        code = _code()
    return Ended(code, out(), err())


def _code() -> int:
    try:
        tracekit.cli.main()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 -- a panic in a native library is not an Exception
        traceback.print_exc()
        return 1
    return 0


@contextlib.contextmanager
def _captured(stream: int) -> Iterator[Callable[[], str]]:
    """Redirect a process stream and its Python object to a file, and yield a function that returns the text."""
    name = {1: "stdout", 2: "stderr"}[stream]
    getattr(sys, name).flush()
    with tempfile.TemporaryFile() as file:
        kept = os.dup(stream)
        os.dup2(file.fileno(), stream)
        text = ""
        try:
            with (
                os.fdopen(os.dup(stream), "w", encoding="utf-8", errors="backslashreplace") as own,
                mock.patch.object(sys, name, own),
            ):
                yield lambda: text
        finally:
            os.dup2(kept, stream)
            os.close(kept)
            file.seek(0)
            text = file.read().decode("utf-8", "replace")
