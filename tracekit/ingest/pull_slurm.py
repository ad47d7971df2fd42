"""Pull the accounting of a running Slurm: the source `slurm:` runs sacct itself.

One call for each day, so that neither sacct nor this process holds more than that, in UTC and in seconds since 1970, so
that no zone is assumed, and with a delimiter that no name holds. What the programs print is kept beside the Trace, in
TRACE.slurm/<moment of the pull>, and is then read like any other logs. `scontrol show node` and `sacctmgr show event`
are kept there too: what the machines are and when they were out.

sacct may lose its connection to slurmdbd, say so, and end with exit code 0 all the same. What a program prints as an
error is therefore shown, and counted in the check `program_errors`: the output of that call may be incomplete.

sacct lists a job from the time at which it is eligible to run. The last call of a pull that goes up to now therefore
ends years ahead, and has jobs that wait for a begin time. Jobs that never became eligible (held, or with a dependency
that never came true) are in no window: sacct tells of them only when it is asked by their numbers.
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
"""The source that is pulled."""

_AWAY = "pull on a machine of the cluster, or dump the accounting there and name the file"
_PATIENCE_S = 1800.0
"""How long a program may take for one call [s]; a day of a large site takes sacct minutes."""
_MOST_BYTES = 4 << 30
"""Most bytes that one call may print: some 8 million jobs and steps of one day."""
_MOST_ERRORS = 16 << 20
"""Most bytes of errors that one call may print."""
_WORDS = 4096
"""Bytes of the errors that are kept."""
_CHUNK = 1 << 16
_TICK_S = 0.2
"""How often an ended program is noticed although a process that it started still holds its output [s]."""


class Ended(NamedTuple):
    """A program that ended."""

    code: int
    """Its exit code, negative if a signal ended it."""
    words: str
    """The first of what it printed as errors: one printable line without secrets."""
    size: int
    """Bytes that it printed."""


def keep_output(command: list[str], target: Path, variables: Mapping[str, str]) -> Ended:
    """Run a program of Slurm without a shell, and write what it prints to a file.

    Parameters
    ----------
    command : list of str
        The program, which is looked up in PATH, and its arguments.
    target : Path
        The file.
    variables : mapping
        Variables of its environment, besides those of this process.

    Raises
    ------
    SourceError
        There is no such program, it fails or takes too long, or its output or its errors do not end.
    OutputError
        The file cannot be written.
    """
    name = command[0]
    program = shutil.which(name)
    if program is None:
        raise SourceError(f"'{name}' is not among the programs in PATH", where=LIVE, hint=_AWAY)
    try:
        process = subprocess.Popen(  # noqa: S603 -- a program of the site, and no shell
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
        what = f"'{name}' {end}: {ended.words or 'it said nothing'}"
        raise SourceError(what, where=LIVE, hint=f"try it by hand: {name}")
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
                raise SourceError(what, where=LIVE, hint=f"try it by hand: {name}")
            if printed > _MOST_BYTES:
                what = f"'{name}' printed more than {size(_MOST_BYTES)} for one call"
                raise SourceError(what, where=LIVE, hint=f"try it by hand: {name}")
    try:
        code = process.wait(max(0.0, until - time.monotonic()))
    except subprocess.TimeoutExpired as error:
        raise _silent(name) from error
    return Ended(code, passed_on(words), printed)


def _silent(name: str) -> SourceError:
    what = f"'{name}' did not end within {_PATIENCE_S:g} s"
    return SourceError(what, where=LIVE, hint="check that slurmdbd runs, or ask for a shorter span")


_FIELDS = (
    "JobID", "JobIDRaw", "Cluster", "Submit", "Eligible", "Start", "End", "State", "ElapsedRaw", "Suspended",
    "TimelimitRaw", "AllocTRES", "ReqTRES", "NNodes", "NodeList", "NTasks", "Account", "Partition", "QOS", "User",
    "JobName", "SubmitLine", "Priority", "Reason", "Flags", "TotalCPU", "MaxRSS", "TRESUsageInAve", "TRESUsageInTot",
)  # fmt: skip
"""Columns that are asked for, as far as this version of sacct has them.

Free text, which may hold line breaks, is not the last: where the record ends would not be certain.
"""
_NEEDED = frozenset({"JobID", "Submit", "Start", "End", "State"})
_DELIMITER = "\x1f"
_FIRST_DAYS = 30
"""Days before now from which a first pull begins."""
_SHOWN = 3
"""Calls whose errors are shown while the pull runs; the check has the others."""
_PULLED = re.compile(r"sacct-(\d{4}-\d\d-\d\d)\.txt(?:#\d+)?")
_DAY = dt.timedelta(days=1)
_AHEAD = 3650 * _DAY
"""How far ahead the last call ends, where no end is named: jobs may be told to begin no earlier than some day."""


@dataclass
class Pulled:
    """A source to read, and what the programs that printed it said on the way."""

    source: Path
    """The folder with what they printed; any source that is not live as it is."""
    calls: int = 0
    """Calls that ended with exit code 0."""
    errors: list[str] = field(default_factory=list)
    """One line for each of these calls that printed errors, or nothing at all."""

    def heard(self, call: str, ended: Ended, progress: Progress) -> None:
        """Count a call, and show what it said."""
        self.calls += 1
        nothing = not ended.size and call.startswith("sacct-")
        words = ended.words or ("it printed nothing, not even the names of the columns" if nothing else "")
        if not words:
            return
        self.errors.append(f"{call}: {words}")
        if len(self.errors) <= _SHOWN:
            progress.note(f"{call} may be incomplete: {words}")

    def count_errors(self, sink: Sink) -> None:
        """Count the calls that printed errors as a check of the Trace."""
        if self.calls:
            meaning = (
                "calls of Slurm's programs that printed errors, or nothing, but ended with exit code 0: their "
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
    """Return the folder with what a live source printed, and what its programs said; any other source as it is.

    Parameters
    ----------
    source : str or Path
        `slurm:`, or raw files.
    out : Path
        The Trace, beside which the raw output is kept.
    settings : IngestSettings
        From when to when; by default from the last day that was pulled, or the last 30 days, until now.
    earlier : Manifest, optional
        Of the Trace that is appended to.
    progress : Progress
        Receives the steps.
    force : bool
        Whether a Trace at `out` is replaced.

    Raises
    ------
    UsageError
        A span is given and no source is live, or it ends before it begins.
    SourceError
        sacct is not there, fails, or takes too long.
    OutputError
        `out` exists, or its folder cannot be written.
    """
    if str(source) != LIVE:
        if (settings.start or settings.end) and not any(is_address(text) for text in settings.telemetry):
            what = f"apply only to live sources ({LIVE} or --telemetry http://...), and '{source}' is none"
            raise UsageError(
                f"--from and --to {what}", where="--from", hint="leave them out: tracekit reads the whole logs"
            )
        return Pulled(place_of(source))
    if out.exists() and earlier is None and not force:
        raise OutputError("exists already", where=out, hint="add to it with --append, or replace it with --force")
    first, last = _span(settings, earlier)
    delimiter = (settings.options or {}).get("delimiter") or _DELIMITER
    zone = (settings.options or {}).get("timezone", "UTC")
    columns = _columns()
    folder = _new_folder(out)
    pulled = Pulled(folder)
    progress.note(f"the output of Slurm is saved in {folder}")
    for begin, end in _days(first, last):
        until = end + _AHEAD if end == last and settings.end is None else end
        progress.stage(f"asking sacct for {begin:%Y-%m-%d}")
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
    """Return the day from which on a Trace has to be asked for again: the last one pulled, which was not over."""
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
    """Return the columns to ask for: one that a version of sacct does not know would end the call."""
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
    raise OutputError("has too many pulls in the same second", where=out, hint="pull again")
