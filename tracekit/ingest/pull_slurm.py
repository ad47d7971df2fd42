"""Pull the accounting of a running Slurm: the source `slurm:` runs sacct itself.

One call for each day, so that neither sacct nor this process holds more than that, in UTC and in seconds since 1970, so
that no zone is assumed, and with a delimiter that no name holds. What the programs print is kept beside the Trace, in
TRACE.slurm/<moment of the pull>, and is then read like any other logs. `scontrol show node` and `sacctmgr show event`
are kept there too: what the machines are and when they were out.

sacct lists a job from the time at which it is eligible to run. The last call of a pull that goes up to now therefore
ends years ahead, and has jobs that wait for a begin time. Jobs that never became eligible (held, or with a dependency
that never came true) are in no window: sacct tells of them only when it is asked by their numbers.
"""

from __future__ import annotations

import datetime as dt
import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from tracekit.errors import OutputError, SourceError, UsageError
from tracekit.ingest.companion import is_address
from tracekit.outputs import output_errors
from tracekit.places import place_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from tracekit.manifest import Manifest
    from tracekit.progress import Progress
    from tracekit.settings import IngestSettings

__all__ = ["LIVE", "pull"]

LIVE = "slurm:"
"""The source that is pulled."""

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
_PATIENCE_S = 1800.0
"""How long a program may take for one call [s]; a day of a large site takes sacct minutes."""
_PULLED = re.compile(r"sacct-(\d{4}-\d\d-\d\d)\.txt(?:#\d+)?")
_DAY = dt.timedelta(days=1)
_AHEAD = 3650 * _DAY
"""How far ahead the last call ends, where no end is named: jobs may be told to begin no earlier than some day."""


def pull(
    source: str | Path,
    out: Path,
    settings: IngestSettings,
    earlier: Manifest | None,
    progress: Progress,
    *,
    force: bool,
) -> Path:
    """Return the folder with what a live source printed; any other source as it is.

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
            what = f"bound what live sources are asked for ({LIVE} or --telemetry http://...), and '{source}' is none"
            raise UsageError(f"--from and --to {what}", where="--from", hint="leave them out: all of the logs is read")
        return place_of(source)
    if out.exists() and earlier is None and not force:
        raise OutputError("exists already", where=out, hint="add to it with --append, or replace it with --force")
    first, last = _span(settings, earlier)
    delimiter = (settings.options or {}).get("delimiter") or _DELIMITER
    zone = (settings.options or {}).get("timezone", "UTC")
    columns = _columns()
    folder = _new_folder(out)
    progress.note(f"what Slurm prints is kept in {folder}")
    for begin, end in _days(first, last):
        until = end + _AHEAD if end == last and settings.end is None else end
        progress.stage(f"asking sacct for {begin:%Y-%m-%d}")
        command = [
            "sacct", "--parsable2", "--allusers", "--duplicates", f"--delimiter={delimiter}", f"--format={columns}",
            f"--starttime={begin:%Y-%m-%dT%H:%M:%S}", f"--endtime={until:%Y-%m-%dT%H:%M:%S}",
        ]  # fmt: skip
        _keep(command, folder / f"sacct-{begin:%Y-%m-%d}.txt", {"TZ": "UTC", "SLURM_TIME_FORMAT": "%s"})
    for command, name in (
        (["scontrol", "show", "node"], "scontrol-nodes.txt"),
        (["sacctmgr", "--parsable", "show", "event", f"Start={first:%Y-%m-%d}"], "sacctmgr-event.psv"),
    ):
        try:
            _keep(command, folder / name, {"TZ": zone, "SLURM_TIME_FORMAT": "standard"})
        except SourceError as error:
            progress.note(f"{name} is missing: {error}")
    return folder


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
        _keep(["sacct", "--helpformat"], listing, {})
        known = {word.lower() for word in re.findall(r"\w+", listing.read_text("utf-8", "replace"))}
    found = [name for name in _FIELDS if name.lower() in known]
    if not _NEEDED.issubset(found):
        raise SourceError("'sacct --helpformat' names no columns", where=LIVE, hint="is this the sacct of Slurm?")
    return ",".join(found)


def _new_folder(out: Path) -> Path:
    moment = f"{dt.datetime.now(dt.UTC):%Y-%m-%dT%H-%M-%S}"
    with output_errors(out):
        for number in range(1, 1000):
            folder = out.with_name(f"{out.name}.slurm") / (moment if number == 1 else f"{moment}-{number}")
            if not folder.exists():
                folder.mkdir(parents=True)
                return folder
    raise OutputError("has too many pulls of this second", where=out, hint="pull again")


def _keep(command: list[str], target: Path, variables: Mapping[str, str]) -> None:
    """Run a program of Slurm, without a shell, and write what it prints to a file."""
    name = command[0]
    program = shutil.which(name)
    if program is None:
        hint = "pull on a machine of the cluster, or dump the accounting there and name the file"
        raise SourceError(f"'{name}' is not among the programs in PATH", where=LIVE, hint=hint)
    with output_errors(target), target.open("wb") as out, tempfile.TemporaryFile() as told:
        try:
            code = subprocess.run(  # noqa: S603 -- a program of Slurm, and no shell
                [program, *command[1:]],
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=told,
                env={**os.environ, **variables},
                timeout=_PATIENCE_S,
                check=False,
            ).returncode
        except subprocess.TimeoutExpired as error:
            what = f"'{name}' gave no answer within {_PATIENCE_S:g} s"
            raise SourceError(what, where=LIVE, hint="is slurmdbd up? a shorter span takes less") from error
        except OSError as error:
            raise SourceError(f"'{name}' cannot be run: {error.strerror or error}", where=program) from error
        told.seek(0)
        words = " ".join(told.read(2000).decode("utf-8", "replace").split())[:300]
    if code:
        end = f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"
        raise SourceError(f"'{name}' {end}: {words or 'it said nothing'}", where=LIVE, hint=f"try it by hand: {name}")
