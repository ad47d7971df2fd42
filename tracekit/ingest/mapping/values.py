"""Convert the strings of a mapped log to times, words, and numbers with a unit such as 16Gi.

Times have an epoch, ISO 8601 or strptime format, and become naive UTC. A mapping file lists words literally or as
patterns with * and ?.
"""

from __future__ import annotations

import datetime as dt
import re
from typing import TYPE_CHECKING, NamedTuple
from zoneinfo import available_timezones

import polars as pl

from tracekit.errors import nearest
from tracekit.ingest.cells import FIRST_TIME, LAST_TIME
from tracekit.ingest.localtime import is_zone, to_utc

if TYPE_CHECKING:
    from collections.abc import Mapping

EPOCHS = {"epoch_s": 1e6, "epoch_ms": 1e3, "epoch_us": 1.0}
"""Number of microseconds in one unit of each epoch format."""

_ISO = (
    r"^\s*(\d{4}-\d\d-\d\d)(?:[T ](\d\d:\d\d)(?::(\d\d))?(?:[.,](\d{1,9}))?)?"
    r"\s*(?:(Z|z|UTC)|([+-])(\d\d):?(\d\d)?)?\s*$"
)


class Times(NamedTuple):
    """A column of times."""

    utc: pl.Series
    """Times in naive UTC, with microseconds."""
    local: pl.Series | None
    """The wall-clock times of strings without a zone, or None if the format has a zone."""
    unread: pl.Series
    """Mask of the cells whose value is not a time."""
    out_of_range: pl.Series
    """Mask of the times outside the range of any log."""


def read_times(cells: pl.Series, form: str, zone: str = "UTC", doubled_hour: str = "bounded") -> Times:
    """Parse a column of times in a given format.

    Parameters
    ----------
    cells : polars.Series
        Strings with NULL for unknown, or times from a Parquet file, whose type overrides `form`.
    form : str
        epoch_s, epoch_ms, epoch_us, iso8601, or a strptime format.
    zone : str
        IANA name of the zone of wall-clock times.
    doubled_hour : str
        See `tracekit.ingest.localtime.DOUBLED_HOUR_MEANING`.
    """
    local: pl.Series | None = None
    if cells.dtype in (pl.Datetime, pl.Date):
        moments = cells.cast(pl.Datetime("us", getattr(cells.dtype, "time_zone", None)))
    elif form in EPOCHS:
        moments = _from_epoch(cells, EPOCHS[form])
    elif form == "iso8601":
        return _from_iso(cells, zone, doubled_hour)
    else:
        moments = cells.cast(pl.String).str.to_datetime(form, strict=False, time_unit="us")
    utc = moments
    if getattr(moments.dtype, "time_zone", None) is not None:
        utc = moments = moments.dt.convert_time_zone("UTC").dt.replace_time_zone(None)
    elif form not in EPOCHS or cells.dtype in (pl.Datetime, pl.Date):
        local, utc = moments, _to_utc(moments, zone, doubled_hour)
    return Times(utc, local, cells.is_not_null() & moments.is_null(), _outside(moments))


def _to_utc(local: pl.Series, zone: str, doubled_hour: str) -> pl.Series:
    return local if zone == "UTC" else to_utc(local, zone, doubled_hour)


def _outside(moments: pl.Series) -> pl.Series:
    return ((moments < FIRST_TIME) | (moments > LAST_TIME)).fill_null(value=False)


def _from_epoch(cells: pl.Series, factor: float) -> pl.Series:
    """Return the times. A time beyond the range of Datetime becomes a limit that is out of range."""
    micros = cells.cast(pl.Float64, strict=False) * factor
    known = micros.is_finite()
    whole = micros.clip(-1e15, 1e17).round().cast(pl.Int64, strict=False)
    return whole.cast(pl.Datetime("us")).set(~known.fill_null(value=False), None)


def _from_iso(cells: pl.Series, zone: str, doubled_hour: str) -> Times:
    parts = cells.cast(pl.String).to_frame("x").select(pl.col("x").str.extract_groups(_ISO).alias("g")).unnest("g")
    date, clock, second, fraction, zulu, sign, hours, minutes = (pl.col(name) for name in parts.columns)
    zero = pl.lit("00")
    moment = (
        (date + "T" + clock.fill_null("00:00") + ":" + second.fill_null(zero)).str.to_datetime(
            "%Y-%m-%dT%H:%M:%S", strict=False, time_unit="us"
        )
    ) + pl.duration(microseconds=fraction.str.pad_end(9, "0").str.head(6).cast(pl.Int64).fill_null(0))
    ahead = pl.duration(minutes=hours.cast(pl.Int64) * 60 + minutes.cast(pl.Int64).fill_null(0))
    frame = parts.select(
        moment=moment,
        offset=pl.when(sign == "-")
        .then(-ahead)
        .when(sign == "+")
        .then(ahead)
        .when(zulu.is_not_null())
        .then(pl.duration(minutes=0)),
    )
    aware = frame["offset"].is_not_null()
    local = frame["moment"].set(aware, None)
    utc = frame.select(pl.col("moment") - pl.col("offset")).to_series()
    unread = cells.is_not_null() & frame["moment"].is_null()
    merged = pl.select(pl.when(aware).then(utc).otherwise(_to_utc(local, zone, doubled_hour))).to_series()
    return Times(merged, local, unread, _outside(merged))


_IANA = "give an IANA name such as Europe/Berlin"


def zone_fault(zone: str) -> str | None:
    """Return a hint for a time zone that does not exist, or None if the zone exists."""
    if is_zone(zone):
        return None
    known = available_timezones()
    return _IANA if zone in known else nearest(zone, known, otherwise=_IANA)


def format_fault(form: str) -> str | None:
    """Return a hint for an invalid time format, or None if the format is valid.

    A format that cannot parse its own output would reject all records.
    """
    if form in EPOCHS or form == "iso8601":
        return None
    probe = pl.Series([dt.datetime(2017, 10, 23, 14, 5, 6)])
    if "%z" in form:
        probe = probe.dt.replace_time_zone("UTC")
    try:
        back = probe.dt.to_string(form).str.to_datetime(form, strict=False, time_unit="us")[0]
    except (pl.exceptions.PolarsError, ValueError):
        back = None
    if back is None or back.date() != dt.date(2017, 10, 23):
        return "use iso8601, epoch_s, epoch_ms, epoch_us, or a date such as %Y-%m-%d %H:%M:%S"
    return None


_COUNT = {"percent": 0.01, "milli": 0.001}
_GIB = 2.0**-30

FACTORS: dict[str, dict[str, float]] = {
    "s": {"s": 1, "ms": 1e-3, "us": 1e-6, "min": 60, "h": 3600, "d": 86400},
    "GiB": {
        "B": _GIB,
        "KiB": 2.0**-20,
        "MiB": 2.0**-10,
        "GiB": 1,
        "TiB": 1024,
        "KB": 1e3 * _GIB,
        "MB": 1e6 * _GIB,
        "GB": 1e9 * _GIB,
        "TB": 1e12 * _GIB,
    },
    "percent": {"percent": 1, "share": 100},
    "W": {"W": 1, "mW": 1e-3, "kW": 1e3},
    "GPUs": {"GPUs": 1, **_COUNT},
    "cores": {"cores": 1, **_COUNT},
}
"""Factor from a given unit to the Trace's unit, keyed first by the Trace's unit."""

TEXT_UNITS = {"s": "clock", "GiB": "quantity", "GPUs": "quantity", "cores": "quantity"}
"""Text notations: clock for durations like 1-02:03:04, and quantity for amounts like 16Gi or 500m."""

_BYTES = {"k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12, "p": 1e15}
_BINARY = {"ki": 2.0**10, "mi": 2.0**20, "gi": 2.0**30, "ti": 2.0**40, "pi": 2.0**50}
_MEMORY = {
    **{
        word + end: factor * _GIB
        for table in (_BYTES, _BINARY)
        for word, factor in table.items()
        for end in ("", "b", "bytes")
    },
    "": _GIB,
    "b": _GIB,
    "byte": _GIB,
    "bytes": _GIB,
}


def units_of(unit: str | None) -> list[str]:
    """Return the allowed units for a column with the unit `unit`."""
    if unit not in FACTORS:
        return []
    return [*FACTORS[unit], *([TEXT_UNITS[unit]] if unit in TEXT_UNITS else [])]


def clock_seconds(text: pl.Series) -> pl.Series:
    """Convert durations such as 1-02:03:04, 02:03:04 or 03:04.5 to seconds. Any other text gives NULL."""
    parts = text.str.extract_groups(r"^\s*(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+(?:\.\d+)?)\s*$").struct.unnest()
    days, hours, minutes, seconds = (parts.to_series(i).cast(pl.Float64) for i in range(4))
    return days.fill_null(0.0) * 86400 + hours.fill_null(0.0) * 3600 + minutes * 60 + seconds


def quantity(text: pl.Series, unit: str) -> pl.Series:
    """Convert amounts such as 16Gi, 4096 MB or 500m to `unit`. Any other text gives NULL.

    For memory, a number without a unit is in bytes, and K, M and G are powers of ten, as in Kubernetes. For GPUs and
    cores, m means a thousandth, and k means a thousand.
    """
    parts = text.str.extract_groups(r"^\s*([+-]?[\d.]+(?:[eE][+-]?\d+)?)\s*([A-Za-z]*)\s*$").struct.unnest()
    words = parts.to_series(1)
    if unit == "GiB":
        words, factors = words.str.to_lowercase(), _MEMORY
    else:
        factors = {"": 1.0, "m": 1e-3, "k": 1e3}
    factor = words.replace_strict(factors, default=None, return_dtype=pl.Float64)
    return parts.to_series(0).cast(pl.Float64, strict=False) * factor


def meanings(texts: pl.Series, words: Mapping[str, str], *, exact: bool = False) -> pl.Series:
    """Look up the meaning of each string, or NULL if no list contains it.

    A literal word matches only the same string. In a pattern, * matches any number of characters and ? exactly one.
    Literal words win over patterns, and longer patterns over shorter ones.

    Parameters
    ----------
    texts : Series of String
        Cells of a column.
    words : mapping
        The meaning of each word.
    exact : bool
        Whether all words are literal.
    """
    patterns = {} if exact else {word: meaning for word, meaning in words.items() if "*" in word or "?" in word}
    found = dict(words)
    if patterns:
        # Polars matches in linear time for any pattern.
        left = texts.drop_nulls().unique()
        left = left.filter(~left.is_in(list(words)))
        for word in sorted(patterns, key=lambda word: (-len(word), word)):
            fits = left.str.contains(f"(?s)^{_regex(word)}$")
            found |= dict.fromkeys(left.filter(fits).to_list(), patterns[word])
            left = left.filter(~fits)
    return texts.replace_strict(found, default=None, return_dtype=pl.String)


def _regex(word: str) -> str:
    # Consecutive stars mean the same as one star.
    parts = re.split(r"(\*+|\?)", word)
    return "".join(".*" if p.startswith("*") else "." if p == "?" else re.escape(p) for p in parts)
