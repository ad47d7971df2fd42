"""twin.toml: the settings with which a replay best reproduces a log, one table per cluster.

The file is a replay scenario that you can read and edit. It identifies its Trace by a digest of the jobs, and is
rejected if used with another Trace.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import sys
from dataclasses import asdict, dataclass, field, fields
from typing import TYPE_CHECKING, Annotated, Any, Literal

from tracekit.calibration.delays import QUANTILES
from tracekit.calibration.rules import Rules, Seconds
from tracekit.calibration.score import Grade  # noqa: TC001 -- read at run time, by tracekit.decode
from tracekit.calibration.workbench import UNNAMED
from tracekit.decode import Count, NonEmpty, Range, Text, abbreviated
from tracekit.errors import UsageError, nearest
from tracekit.replay.jobs import GPU_CLASSES
from tracekit.replay.scenario import placement_named
from tracekit.toml_text import TomlText

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.trace import Trace

CAPACITIES = {
    "stated": "the nodes or the capacity recorded in the Trace",
    "events": "the nodes recorded in the Trace, except while node events show them out of service",
    "outages": "like events, and jobs on a node that goes down stop and start over",
    "observed": "the most GPUs in use at once in the log",
}
"""The possible sources of a twin's capacity, with their descriptions."""

_NotNegative = Annotated[float, Range(0, sys.float_info.max)]
_COMMAND = "tracekit calibrate TRACE -o twin.toml"
_SHOWN = len("sha256:") + 12
"""Number of digest characters that errors show. They are enough to distinguish two Traces."""


@dataclass(frozen=True)
class Delays:
    """Waits that no policy explains."""

    holds: bool = False
    """Whether a job competes for GPUs only from the time at which it became eligible in the log."""
    startup: dict[str, Annotated[tuple[Seconds, ...], NonEmpty()]] = field(default_factory=dict)
    """Start-up delays by job size: quantiles at the midpoints of ten equal parts of the distribution [s]."""


@dataclass(frozen=True)
class Scores:
    """How well the twin reproduced the jobs held out from the calibration (see `score.Score`)."""

    jobs: Count
    recorded_mean_s: _NotNegative
    twin_mean_s: _NotNegative
    agreeing_share: Annotated[float, Range(0, 1)]
    ratio: _NotNegative | None = None
    ratio_low: _NotNegative | None = None
    ratio_high: _NotNegative | None = None
    rank_correlation: float | None = None
    unexplained_share: _NotNegative | None = None
    queue_correlation: float | None = None


@dataclass(frozen=True)
class ClusterTwin(Rules):
    """The twin of one cluster."""

    capacity: Literal["stated", "events", "outages", "observed"] = "stated"
    """Source of the capacity, a key of `CAPACITIES`."""
    jobs: Annotated[int, Range(1, 2**62)] | None = None
    """Only this many of the first jobs are used for the calibration, or all jobs if None."""
    since: Text | None = None
    """Of these, only the jobs submitted from this time on are used (ISO, UTC unless it has an offset)."""
    delays: Delays = field(default_factory=Delays)
    grade: Grade = "poor"
    scores: Scores | None = None

    @property
    def rules(self) -> Rules:
        """The rules alone."""
        return Rules(**{f.name: getattr(self, f.name) for f in fields(Rules)})

    @property
    def carries(self) -> bool:
        """Whether effects can be estimated with this twin."""
        return self.grade in {"close", "fair"}


@dataclass(frozen=True)
class Twin:
    """The content of twin.toml."""

    trace: Text
    """`digest_of_jobs` of the Trace."""
    cluster: dict[str, ClusterTwin]
    """The twins by cluster name, which is 'all' if the Trace names no clusters."""
    name: str = ""
    """Name of the Trace's folder."""


def digest_of_jobs(trace: Trace) -> str:
    """Return a digest of the jobs, their users and their times. It is the same for every Trace of the same log."""
    columns = ["job_id", "submit_time", "start_time", "end_time", "gpu_count"]
    found = hashlib.sha256()
    for part in trace.scan("jobs").select(columns).collect().iter_slices(100_000):
        found.update(part.write_csv().encode())
    return f"sha256:{found.hexdigest()[:32]}"


def check_twin_file(path: Path) -> None:
    """Check everything in a twin file that can be checked without a Trace: syntax, keys and values.

    Raises
    ------
    UsageError
        The file cannot be read, or a value is invalid. The error names the line and key.
    """
    _parse(path)


def read_twin(path: Path, trace: Trace) -> Twin:
    """Read the twin of this Trace from a file.

    Raises
    ------
    UsageError
        The file cannot be read, a value is invalid (the error names the line and key), or the file is the twin of
        another Trace.
    """
    text, twin = _parse(path)
    here = digest_of_jobs(trace)
    if twin.trace != here:
        shown, own = twin.trace[:_SHOWN], here[:_SHOWN]
        of = f"'{twin.name}' ({shown})" if twin.name else shown
        raise UsageError(
            f"is a twin of the Trace {of}, not of '{trace.path}' ({own})",
            where=path,
            line=text.line(("trace",)),
            hint=f"make a twin of this Trace with '{_COMMAND}'",
        )
    clusters = trace.scan("jobs").select("cluster").unique().collect()["cluster"].drop_nulls().sort().to_list()
    for name in twin.cluster:
        if name not in (clusters or [UNNAMED]):
            raise text.error(
                ("cluster", name), "the Trace has no such cluster", nearest(name[:80], clusters or [UNNAMED])
            )
    return twin


def _parse(path: Path) -> tuple[TomlText, Twin]:
    text = TomlText(path, "twin", hint=f"make it with '{_COMMAND}'")
    twin = text.decode(Twin)
    if not twin.cluster:
        raise text.error(("cluster",), "contains no cluster", f"make it with '{_COMMAND}'")
    for name, one in twin.cluster.items():
        place = ("cluster", name)
        fault = one.fault()
        if fault is not None:
            raise text.error(place, fault)
        if one.since is not None and not _is_time(one.since):
            what = f"{abbreviated(one.since)} is not a time"
            raise text.error((*place, "since"), what, "write it as in 2026-03-21T08:30")
        try:
            placement_named(one.placement)
        except UsageError as error:
            raise text.error((*place, "placement"), error.what, error.hint) from None
        for size, values in one.delays.startup.items():
            if size not in GPU_CLASSES or len(values) != len(QUANTILES):
                what = f"'{size}' is not a size class" if size not in GPU_CLASSES else f"has {len(values)} values"
                hint = f"{len(QUANTILES)} seconds for each of {', '.join(GPU_CLASSES)}"
                raise text.error((*place, "delays", "startup", size), what, hint)
    return text, twin


def _is_time(text: str) -> bool:
    try:
        dt.datetime.fromisoformat(text)
    except ValueError:
        return False
    return True


def twin_text(twin: Twin) -> str:
    """Format a twin as TOML, with comments on the values that you may change."""
    lines = [
        "# The twin of a log: the replay settings that best reproduce it. You can edit this file and try it with",
        "#     tracekit replay TRACE --twin THIS-FILE -p POLICY -o out",
        f"trace = {_value(twin.trace)}",
        f"name = {_value(twin.name)}",
    ]
    for name, one in twin.cluster.items():
        lines += ["", f"[cluster.{_value(name)}]", f"# {one.rules.words()}".replace("\n", " ")]
        shown = {k: v for k, v in asdict(one).items() if k not in {"delays", "scores"} and v is not None}
        lines += [f"{key} = {_value(value)}" for key, value in shown.items()]
        lines += ["", f"[cluster.{_value(name)}.delays]", f"holds = {_value(one.delays.holds)}"]
        if one.delays.startup:
            lines += [
                "",
                f"[cluster.{_value(name)}.delays.startup]",
                "# ten equal parts of all jobs of a size, seconds",
            ]
            lines += [f"{_value(size)} = {_value(list(values))}" for size, values in one.delays.startup.items()]
        if one.scores is not None:
            lines += ["", f"[cluster.{_value(name)}.scores]"]
            lines += [f"{key} = {_value(value)}" for key, value in asdict(one.scores).items() if value is not None]
    return "\n".join(lines) + "\n"


def write_twin(twin: Twin, out: Path) -> None:
    """Write twin.toml completely or not at all."""
    from tracekit.outputs import StagedFiles, output_errors

    with StagedFiles(out, force=True) as staged, output_errors(out):
        staged.part(out).write_text(twin_text(twin), encoding="utf-8")
        staged.commit()


def _value(value: Any) -> str:
    """Format a value in TOML syntax. Basic strings are the same as in JSON, except for the character DEL."""
    if isinstance(value, float):
        return repr(value)
    if isinstance(value, dict):
        return "{ " + ", ".join(f"{key} = {_value(item)}" for key, item in value.items()) + " }"
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
