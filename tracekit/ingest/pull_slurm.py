"""Pull accounting data from a running Slurm. For the source `slurm:`, tracekit runs sacct itself.

Each call to sacct asks for one day, so neither sacct nor this process keeps more than a day in memory. We request times
in seconds since 1970, so no time zone is assumed. The delimiter is a character that occurs in no name. The output is
stored next to the Trace, in TRACE.slurm/<time of the pull>, and is then read like any other log. The same folder stores
the output of `scontrol show node` and `sacctmgr show event`, which shows the machines and their outages.

sacct may lose its connection to slurmdbd, print an error, and still exit with code 0. We show what a program prints as
errors and count it in the `program_errors` check, because the call's output may be incomplete.

sacct lists a job from the time at which it is eligible to run. The last call of a pull up to the present therefore ends
years in the future, to include jobs that wait for a begin time. Jobs that never became eligible (on hold, or with a
dependency that was never met) are in no time window. sacct lists them only by job number.
"""

from __future__ import annotations

import datetime as dt
import os
import re
import selectors
import shutil
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from tracekit.errors import OutputError, SourceError, UsageError
from tracekit.ingest.companion import is_address
from tracekit.interruption import cleanup_on_interrupt, end_process
from tracekit.manifest import PROGRAM_ERRORS
from tracekit.outputs import output_errors
from tracekit.places import place_of
from tracekit.text import passed_on, size

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import IO

    from tracekit.ingest.sink import Sink
    from tracekit.manifest import Manifest
    from tracekit.progress import Progress
    from tracekit.settings import IngestSettings


LIVE = "slurm:"
"""Name of the live source."""

_AWAY = "run this on a machine in the cluster, or dump the accounting data there and name the file"
_PATIENCE_S = 1800.0
"""Time limit for one program call [s]. At a large site, sacct takes minutes per day."""
_MOST_BYTES = 4 << 30
"""Maximum output of one call [bytes], which is about 8 million jobs and steps in one day."""
_MOST_ERRORS = 16 << 20
"""Maximum error output of one call [bytes]."""
_WORDS = 4096
"""Maximum size of the stored error output [bytes]."""
_CHUNK = 1 << 16
_TICK_S = 0.2
"""How often to check whether a program has ended while a child process keeps its output open [s]."""


class Ended(NamedTuple):
    """A program that has ended."""

    code: int
    """Exit code, which is negative if a signal ended the program."""
    words: str
    """The beginning of its error output: one printable line without secrets."""
    size: int
    """Size of its output [bytes]."""


def keep_output(command: list[str], target: Path, variables: Mapping[str, str]) -> Ended:
    """Run a Slurm program without a shell, and write its output to a file.

    Parameters
    ----------
    command : list of str
        The program, which is looked up in PATH, and its arguments.
    target : Path
        The file.
    variables : mapping
        Environment variables, in addition to those of this process.

    Raises
    ------
    SourceError
        The program does not exist, fails, takes too long, or prints too much output or too many errors.
    OutputError
        The file cannot be written.
    """
    name = command[0]
    program = shutil.which(name)
    if program is None:
        raise SourceError(f"'{name}' was not found in PATH", where=LIVE, hint=_AWAY)
    try:
        process = subprocess.Popen(  # noqa: S603 -- one of the site's programs, without a shell
            [program, *command[1:]],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env={**os.environ, **variables},
            bufsize=0,
        )
    except OSError as error:
        raise SourceError(f"'{name}' cannot be run: {error.strerror or error}", where=program) from error
    with process, cleanup_on_interrupt(lambda: end_process(process.pid)):
        try:
            with output_errors(target), target.open("wb") as out:
                ended = _listen(process, name, out)
        except BaseException:
            process.kill()
            target.unlink(missing_ok=True)
            raise
    if ended.code:
        end = f"was ended by signal {-ended.code}" if ended.code < 0 else f"ended with exit code {ended.code}"
        what = f"'{name}' {end}: {ended.words or 'it printed no error'}"
        raise SourceError(what, where=LIVE, hint=f"run it by hand: {name}")
    return ended


def _listen(process: subprocess.Popen[bytes], name: str, out: IO[bytes]) -> Ended:
    """Write the output to `out` until the program ends."""
    until = time.monotonic() + _PATIENCE_S
    words, errors, printed = b"", 0, 0
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ)  # type: ignore[arg-type]  # a pipe
        selector.register(process.stderr, selectors.EVENT_READ)  # type: ignore[arg-type]  # a pipe
        while selector.get_map():
            over = process.poll() is not None
            left = until - time.monotonic()
            if left <= 0:
                raise _silent(name)
            ready = selector.select(0 if over else min(left, _TICK_S))
            if over and not ready:
                break
            for key, _ in ready:
                chunk = os.read(key.fd, _CHUNK)
                if not chunk:
                    selector.unregister(key.fileobj)
                elif key.fileobj is process.stdout:
                    out.write(chunk)
                    printed += len(chunk)
                else:
                    words, errors = words + chunk[: max(0, _WORDS - len(words))], errors + len(chunk)
            if errors > _MOST_ERRORS:
                what = f"'{name}' printed more than {size(_MOST_ERRORS)} of errors: {passed_on(words)}"
                raise SourceError(what, where=LIVE, hint=f"run it by hand: {name}")
            if printed > _MOST_BYTES:
                what = f"'{name}' printed more than {size(_MOST_BYTES)} in one call"
                raise SourceError(what, where=LIVE, hint=f"run it by hand: {name}")
    try:
        code = process.wait(max(0.0, until - time.monotonic()))
    except subprocess.TimeoutExpired as error:
        raise _silent(name) from error
    return Ended(code, passed_on(words), printed)


def _silent(name: str) -> SourceError:
    what = f"'{name}' did not end within {_PATIENCE_S:g} s"
    return SourceError(what, where=LIVE, hint="check that slurmdbd is running, or ask for a shorter time span")


_FIELDS = (
    "JobID", "JobIDRaw", "Cluster", "Submit", "Eligible", "Start", "End", "State", "ElapsedRaw", "Suspended",
    "TimelimitRaw", "AllocTRES", "ReqTRES", "NNodes", "NodeList", "NTasks", "Account", "Partition", "QOS", "User",
    "JobName", "SubmitLine", "Constraints", "Priority", "Reason", "Flags", "TotalCPU", "MaxRSS", "TRESUsageInAve",
    "TRESUsageInTot",
)  # fmt: skip
"""Columns to request, if this version of sacct has them.

Free text, which may contain line breaks, is not the last column, or the end of the record would be uncertain.
"""
_NEEDED = frozenset({"JobID", "Submit", "Start", "End", "State"})
_DELIMITER = "\x1f"
_FIRST_DAYS = 30
"""Number of days before now at which a first pull begins."""
_SHOWN = 3
"""Errors of at most this many calls are shown during the pull. The check counts all calls with errors."""
_PULLED = re.compile(r"sacct-(\d{4}-\d\d-\d\d)\.txt(?:#\d+)?")
_DAY = dt.timedelta(days=1)
_AHEAD = 3650 * _DAY
"""How far in the future the last call's window ends if no end is given, because jobs may have a begin time."""


@dataclass
class Pulled:
    """A source to read, and the errors that Slurm's programs printed during the pull."""

    source: Path
    """The folder with the programs' output, or the unchanged source if it is not live."""
    calls: int = 0
    """Number of calls that ended with exit code 0."""
    errors: list[str] = field(default_factory=list)
    """One line for each of these calls that printed errors or nothing."""

    def heard(self, call: str, ended: Ended, progress: Progress) -> None:
        """Count a call, and show its errors."""
        self.calls += 1
        nothing = not ended.size and call.startswith("sacct-")
        words = ended.words or ("it printed nothing, not even the names of the columns" if nothing else "")
        if not words:
            return
        self.errors.append(f"{call}: {words}")
        if len(self.errors) <= _SHOWN:
            progress.note(f"{call} may be incomplete: {words}")

    def count_errors(self, sink: Sink) -> None:
        """Add a check to the Trace that counts the calls that printed errors."""
        if self.calls:
            meaning = (
                "calls to Slurm's programs that printed errors, or nothing, but ended with exit code 0; their "
                "output may be incomplete, and jobs may be missing"
            )
            sink.check(PROGRAM_ERRORS, len(self.errors), self.calls, meaning, self.errors[:5] or None)


def pull(
    source: str | Path,
    out: Path,
    settings: IngestSettings,
    earlier: Manifest | None,
    progress: Progress,
    *,
    force: bool,
) -> Pulled:
    """Pull a live source, and return the folder with its output and the errors. Any other source is unchanged.

    Parameters
    ----------
    source : str or Path
        `slurm:`, or raw files.
    out : Path
        The Trace, next to which the raw output is stored.
    settings : IngestSettings
        Gives the start and end of the pull. By default, it starts at the last day pulled, or 30 days ago, and ends now.
    earlier : Manifest, optional
        Manifest of the Trace being appended to.
    progress : Progress
        Receives the steps.
    force : bool
        Whether a Trace at `out` is replaced.

    Raises
    ------
    UsageError
        A time span is given but no source is live, or the span ends before it begins.
    SourceError
        sacct does not exist, fails, or takes too long.
    OutputError
        `out` exists, or its folder cannot be written.
    """
    if str(source) != LIVE:
        if (settings.start or settings.end) and not any(is_address(text) for text in settings.telemetry):
            what = f"apply only to live sources ({LIVE} or --telemetry http://...), and '{source}' is not one"
            raise UsageError(f"--from and --to {what}", where="--from", hint="omit them: tracekit reads the whole logs")
        return Pulled(place_of(source))
    if out.exists() and earlier is None and not force:
        raise OutputError("exists already", where=out, hint="add to it with --append, or replace it with --force")
    first, last = _span(settings, earlier)
    delimiter = (settings.options or {}).get("delimiter") or _DELIMITER
    zone = (settings.options or {}).get("timezone", "UTC")
    columns = _columns()
    folder = _new_folder(out)
    pulled = Pulled(folder)
    progress.note(f"Slurm's output is saved in {folder}")
    for begin, end in _days(first, last):
        until = end + _AHEAD if end == last and settings.end is None else end
        progress.stage(f"running sacct for {begin:%Y-%m-%d}")
        command = [
            "sacct", "--parsable2", "--allusers", "--duplicates", f"--delimiter={delimiter}", f"--format={columns}",
            f"--starttime={begin:%Y-%m-%dT%H:%M:%S}", f"--endtime={until:%Y-%m-%dT%H:%M:%S}",
        ]  # fmt: skip
        name = f"sacct-{begin:%Y-%m-%d}.txt"
        pulled.heard(name, keep_output(command, folder / name, {"TZ": "UTC", "SLURM_TIME_FORMAT": "%s"}), progress)
    for command, name in (
        (["scontrol", "show", "node"], "scontrol-nodes.txt"),
        (["sacctmgr", "--parsable", "show", "event", f"Start={first:%Y-%m-%d}"], "sacctmgr-event.psv"),
    ):
        try:
            ended = keep_output(command, folder / name, {"TZ": zone, "SLURM_TIME_FORMAT": "standard"})
        except SourceError as error:
            progress.note(f"{name} is missing: {error}")
        else:
            pulled.heard(name, ended, progress)
    if len(pulled.errors) > _SHOWN:
        progress.note(f"{len(pulled.errors)} of {pulled.calls} calls printed errors; 'tracekit info' names some")
    return pulled


def _span(settings: IngestSettings, earlier: Manifest | None) -> tuple[dt.datetime, dt.datetime]:
    now = dt.datetime.now(dt.UTC).replace(tzinfo=None, microsecond=0)
    last = settings.end or now
    first = settings.start or (_last_day(earlier) if earlier else None)
    first = first or (last - _FIRST_DAYS * _DAY).replace(hour=0, minute=0, second=0)
    if first >= last:
        what = f"the pull would begin at {first} and end at {last}"
        raise UsageError(what, where="--from", hint="give a --to that is later than --from, both in UTC")
    return first, last


def _last_day(earlier: Manifest) -> dt.datetime | None:
    """Return the last day pulled. It must be pulled again because it was not over yet."""
    days = [match[1] for account in earlier.files if (match := _PULLED.fullmatch(account.path))]
    if days:
        return dt.datetime.fromisoformat(max(days))
    arrivals = earlier.capabilities.get("arrivals")
    if arrivals is None or arrivals.window is None:
        return None
    return dt.datetime.fromisoformat(arrivals.window[1]).replace(hour=0, minute=0, second=0, microsecond=0)


def _days(first: dt.datetime, last: dt.datetime) -> Iterator[tuple[dt.datetime, dt.datetime]]:
    begin = first
    while begin < last:
        end = min(begin.replace(hour=0, minute=0, second=0, microsecond=0) + _DAY, last)
        yield begin, end
        begin = end


def _columns() -> str:
    """Return the columns to request, without those that this version of sacct would reject."""
    with tempfile.TemporaryDirectory() as folder:
        listing = Path(folder) / "fields"
        ended = keep_output(["sacct", "--helpformat"], listing, {})
        known = {word.lower() for word in re.findall(r"\w+", listing.read_text("utf-8", "replace"))}
    found = [name for name in _FIELDS if name.lower() in known]
    if not _NEEDED.issubset(found):
        said = f": {ended.words}" if ended.words else ""
        raise SourceError(
            f"'sacct --helpformat' lists no columns{said}", where=LIVE, hint="check that this is the sacct of Slurm"
        )
    return ",".join(found)


def _new_folder(out: Path) -> Path:
    moment = f"{dt.datetime.now(dt.UTC):%Y-%m-%dT%H-%M-%S}"
    with output_errors(out):
        for number in range(1, 1000):
            folder = out.with_name(f"{out.name}.slurm") / (moment if number == 1 else f"{moment}-{number}")
            if not folder.exists():
                folder.mkdir(parents=True)
                return folder
    raise OutputError("has too many pulls from the same second", where=out, hint="pull again")
