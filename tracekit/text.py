"""Format numbers and names for readers.

Numbers get the precision that helps readers. Names from a log are shortened, and their control and direction characters
are escaped, so no name can hide, reorder or flood the text around it.
"""

from __future__ import annotations

import math
import os
import re
from decimal import Decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


NAME_LIMIT = 48
"""Maximum length of a name shown in a table or on an axis."""

TITLE_LIMIT = 300
"""Maximum length of a name in report.json, and therefore in tooltips."""

MISSING = "\N{EN DASH}"

_SECRET_VARIABLE = re.compile(r"KEY|SECRET|TOKEN|PASSW|CREDENTIAL|SAS|CONNECTION_STRING")
_SECRET_VALUE = re.compile(
    r"(?i)(\b(?:sig|signature|x-amz-[\w-]{1,40})|(?:passw(?:or)?d|secret|token|api[_-]?key|access[_-]?key)[\w-]{0,40})"
    r"(\"?\s*[=:]\s*)(\"[^\"]*\"?|'[^']*'?|[^&\s,;]+)"
)
_SECRET_WORD = re.compile(r"(?i)\b(bearer|basic)\s+[\w.~+/=-]{8,}")
_SECRET_IN_ADDRESS = re.compile(r"(://)[^/@\s]+@")


def visible(text: str) -> str:
    r"""Return `text` with all nonprintable characters escaped.

    Examples
    --------
    >>> visible("a\tb")
    'a\\tb'
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def is_text(name: str) -> bool:
    """Return whether a name can be written as UTF-8; file names may contain any bytes."""
    return not re.search(r"[\ud800-\udfff]", name)


def readable_name(name: str) -> str:
    r"""Return a file name as valid text, with bytes that are not UTF-8 written as \\xNN.

    Backslashes are doubled in a name that has such bytes or looks as if it had. Other names do not change.
    `original_name` reverses this.

    Examples
    --------
    >>> import os
    >>> readable_name("plain.csv"), readable_name("a\\b.csv"), readable_name(os.fsdecode(b"caf\xe9.csv"))
    ('plain.csv', 'a\\b.csv', 'caf\\xe9.csv')
    >>> readable_name("caf\\xe9.csv")
    'caf\\\\xe9.csv'
    """
    if not re.search(r"[\udc80-\udcff]|\\\\|\\x[89a-f][0-9a-f]", name):
        return name
    doubled = name.replace("\\", r"\\")
    return "".join(rf"\x{ord(c) - 0xDC00:02x}" if "\udc80" <= c <= "\udcff" else c for c in doubled)


def original_name(text: str) -> str:
    r"""Return the file name that `readable_name` turned into `text`.

    Examples
    --------
    >>> original_name("caf\\xe9.csv") == "caf\udce9.csv", original_name("a\\b.csv")
    (True, 'a\\b.csv')
    """
    return re.sub(
        r"\\\\|\\x([89a-f][0-9a-f])",
        lambda found: chr(0xDC00 + int(found[1], 16)) if found[1] else "\\",
        text,
    )


def without_secrets(text: str) -> str:
    """Remove values of secret environment variables from `text`, and secrets that it labels as such.

    Examples
    --------
    >>> without_secrets("password=hunter2 for http://me:pw@db/x?sig=abc&a=1")
    'password=... for http://...@db/x?sig=...&a=1'
    """
    secrets = {value for name, value in os.environ.items() if len(value) > 3 and _SECRET_VARIABLE.search(name.upper())}
    for value in sorted(secrets, key=len, reverse=True):  # one value may be part of another
        text = text.replace(value, "...")
    text = _SECRET_VALUE.sub(r"\1\2...", text)
    return _SECRET_IN_ADDRESS.sub(r"\1...@", _SECRET_WORD.sub(r"\1 ...", text))


def passed_on(said: bytes | str, limit: int = TITLE_LIMIT) -> str:
    r"""Return a program's or server's message as one printable line without secrets, cut to `limit` characters.

    Examples
    --------
    >>> passed_on(b"error: lost\n \x1b[31mpassword=hunter2")
    'error: lost \\x1b[31mpassword=...'
    """
    text = said.decode("utf-8", "replace") if isinstance(said, bytes) else said
    return shorten(without_secrets(" ".join(text[:65_536].split())), limit)


def shorten(text: str, limit: int = NAME_LIMIT) -> str:
    """Return `text` made visible and cut to `limit` characters, with an ellipsis at the end if cut.

    Examples
    --------
    >>> shorten("abcdef", 4)
    'abc…'
    """
    # Cutting first keeps a one-megabyte name cheap; escaping never shortens a string.
    shown = visible(text[: limit + 1])
    return shown if len(shown) <= limit else shown[: limit - 1] + "…"


def labels(names: Iterable[str], limit: int = 22) -> dict[str, str]:
    """Return a short, unique label for each name, so that no two share a position on an axis.

    Examples
    --------
    >>> labels(["abcdef", "abcdeg"], 5)
    {'abcdef': 'abcd…', 'abcdeg': 'abcd… (2)'}
    """
    out: dict[str, str] = {}
    used: set[str] = set()
    for name in dict.fromkeys(names):
        label, n = shorten(name, limit), 1
        while label in used:
            n += 1
            label = f"{shorten(name, limit)} ({n})"
        used.add(label)
        out[name] = label
    return out


def count(value: float) -> str:
    """Return a count or amount with thousands separators, and with decimals only if they matter.

    Examples
    --------
    >>> count(1234567), count(0.254), count(12.34), count(0.00012)
    ('1,234,567', '0.254', '12.3', '0.00012')
    """
    if float(value).is_integer() or abs(value) >= 1000:
        return f"{value:,.0f}"
    if abs(value) >= 10:
        return f"{value:,.1f}"
    return f"{value:.3g}"


def counted(value: float, what: str) -> str:
    """Return a count with its noun, which is given in the plural.

    Examples
    --------
    >>> counted(1, "jobs"), counted(1500, "jobs"), counted(1, "batches")
    ('1 job', '1,500 jobs', '1 batch')
    """
    one = what.removesuffix("es") if what.endswith("ches") else what.removesuffix("s")
    return f"{count(value)} {one if count(value) == '1' else what}"


def percent(share: float) -> str:
    """Return a share [0..1] as a percentage.

    Examples
    --------
    >>> percent(0.1234), percent(0), percent(1), percent(0.00004), percent(0.9996), percent(-0.00004)
    ('12.3 %', '0 %', '100 %', '< 0.1 %', '> 99.9 %', '0 %')
    """
    return f"{_percent_number(share)} %"


def level_percent(share: float) -> str:
    """Return a chosen level [0..1], such as that of an interval, as a percentage without unnecessary digits.

    Examples
    --------
    >>> level_percent(0.8), level_percent(0.995), level_percent(0.07)
    ('80 %', '99.5 %', '7 %')
    """
    return f"{100 * share:g} %"


def signed_percent(share: float) -> str:
    """Return a change [1] as a percentage with its sign.

    Examples
    --------
    >>> signed_percent(0.25), signed_percent(-0.0004), signed_percent(-0.5) == "\N{MINUS SIGN}50.0 %"
    ('+25.0 %', '+0.0 %', True)
    """
    value = round(100 * share, 1) + 0.0
    return f"{value:+.1f} %".replace("-", "\N{MINUS SIGN}")


def _percent_number(share: float) -> str:
    value = 100 * share
    if -0.05 < value <= 0:
        value = 0.0
    if value in {0, 100}:
        return f"{value:.0f}"
    if 0 < value < 0.05:
        return "< 0.1"
    if 99.95 <= value < 100:
        return "> 99.9"
    return f"{value:.1f}"


_UNITS = ((86400, "d"), (3600, "h"), (60, "min"), (1, "s"))


def duration(seconds: float) -> str:
    """Return a duration in the largest unit that it contains at least once.

    Examples
    --------
    >>> duration(0), duration(12), duration(204), duration(7560), duration(200000)
    ('0 s', '12 s', '3.4 min', '2.1 h', '2.31 d')
    """
    for size, unit in _UNITS:
        # 59.97 s would otherwise be written as '60 s'.
        if abs(seconds) >= size * 0.9995:
            value = seconds / size
            text = f"{value:,.0f}" if value >= 100 or (unit == "s" and value >= 10) else f"{value:.3g}"
            return f"{text} {unit}"
    return f"{seconds:.2g} s" if seconds else "0 s"


def alike_durations(seconds: Sequence[float]) -> list[str]:
    """Return durations in the unit of the longest, so that they compare easily.

    A duration below a tenth of that unit keeps its own unit.

    Examples
    --------
    >>> alike_durations((32_760, 22_320, 0)), alike_durations((34_668, 2.2))
    (['9.1 h', '6.2 h', '0 s'], ['9.6 h', '2.2 s'])
    >>> alike_durations((12.34, 0.54)), alike_durations((400_000, 7200))
    (['12.3 s', '0.5 s'], ['111 h', '2.0 h'])
    """
    longest = max(seconds, default=0.0)
    size, unit = next(((s, u) for s, u in _UNITS[1:] if longest >= s), (1, "s"))
    return [duration(s) if s < size / 10 else f"{_one_digit(s / size)} {unit}" for s in seconds]


def _one_digit(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or not value else f"{value:.1f}"


def size(number: float) -> str:
    """Return a number of bytes in the largest unit that it contains at least once.

    Examples
    --------
    >>> size(700), size(20480), size(3 * 2**30)
    ('700 B', '20.0 KiB', '3.0 GiB')
    """
    for unit in ("B", "KiB", "MiB", "GiB"):
        if number < 1024 or unit == "GiB":
            return f"{number:,.0f} B" if unit == "B" else f"{number:,.1f} {unit}"
        number /= 1024
    raise AssertionError


def clock(seconds: float) -> str:
    """Return a duration as h:mm:ss, so that columns align.

    Examples
    --------
    >>> clock(12), clock(7560), clock(0.26), clock(360000), clock(0.004)
    ('0:00:12', '2:06:00', '0:00:00.3', '100:00:00', '< 0:00:00.1')
    """
    if 0 < seconds < 0.05:
        return "< 0:00:00.1"
    sign = "\N{MINUS SIGN}" if seconds < 0 else ""
    # Tenths matter only if the duration is a few seconds.
    tenths = round(abs(seconds) * 10) if abs(seconds) < 9.95 else round(abs(seconds)) * 10
    whole, rest = divmod(tenths, 10)
    hours, left = divmod(whole, 3600)
    tail = f".{rest}" if rest else ""
    return f"{sign}{hours:,}:{left // 60:02}:{left % 60:02}{tail}"


def quantity(value: object, unit: str | None, name: str = "") -> str:
    """Format a table cell's value in the unit that `heading` returns for its column.

    Parameters
    ----------
    value : object
        Any value of report.json.
    unit : str or None
        The column's unit.
    name : str
        The column's name, whose ending gives the unit if `unit` does not.
    """
    if value is None:
        return MISSING
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int | float):
        return _number(value, display_unit(unit, name))
    return shorten(str(value))


def _number(value: float, shown: str) -> str:
    if not math.isfinite(value):
        return MISSING
    if shown == "h:mm:ss":
        return clock(value)
    if shown == "%":
        return _percent_number(value)
    if shown == "% ":
        return f"{value:.1f}"
    return count(value)


_NO_UNITS = {"text", "class", "number", "hour", "see unit", "sentence", "true or false", "utc"}
_SHARES = {"share", "0..1", "fraction", "ratio 0..1"}


def display_unit(unit: str | None, name: str = "") -> str:
    """Return the unit in which a column is printed.

    Seconds become h:mm:ss, and shares become percentages. '% ' with a blank marks a value that is already a percentage.
    """
    word = (unit or "").strip()
    if word in {"s", "seconds"} or (not word and name.endswith("_s")):
        return "h:mm:ss"
    if word.lower() in _SHARES or name.endswith("_share"):
        return "%"
    if word in {"percent", "%", "pct"} or (not word and name.endswith("_pct")):
        return "% "
    return "" if word.lower() in _NO_UNITS else word


_SUFFIXES = ("_s", "_pct", "_share", "_gib", "_gpu_h", "_wh", "_w")

_HEADINGS = {"avg": "mean", "jct": "completion", "diff": "change", "jain": "Jain"}
"""Readable words for parts of column names."""


def heading(name: str, unit: str | None) -> tuple[str, str]:
    """Return a column's heading and the unit to print below it.

    Examples
    --------
    >>> heading("p50_s", "s"), heading("jobs_share", "share"), heading("gpu_hours", "GPU-hours")
    (('p50', 'h:mm:ss'), ('jobs', '%'), ('GPU hours', ''))
    >>> heading("run_s_cv", "ratio")[0], heading("avg_jct_s", "s")[0]
    ('run cv', 'mean completion')
    """
    word = name
    for suffix in _SUFFIXES:
        # 'jobs_share' next to 'jobs' is clear because its unit is shown below as percent.
        if name.endswith(suffix) and len(name) > len(suffix):
            word = name.removesuffix(suffix)
            break
    parts = re.sub("_share_(low|high)$", r"_\1", word).replace("_s_", "_").split("_")
    text = " ".join(_HEADINGS.get(part, part) for part in parts)
    text = text.replace("gpu", "GPU").replace("cpu", "CPU")
    shown = display_unit(unit, name).strip()
    plain = {shown.lower().replace("-", " "), shown.lower().rstrip("s")}
    return text, "" if plain & {text.lower(), text.lower().rstrip("s")} else shown


def plain(value: Any) -> Any:  # noqa: PLR0911 -- one return per type of cell
    """Return a result cell as a JSON value, with times as ISO 8601, long strings cut, and NaN as null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, int):
        return value
    if isinstance(value, str):
        return cut(value)
    if isinstance(value, list | tuple):
        return [plain(v) for v in value[:100]]
    if isinstance(value, dict):
        return {cut(str(k)): plain(v) for k, v in value.items()}
    if isinstance(value, Decimal):
        return float(value)
    return value.isoformat() if hasattr(value, "isoformat") else cut(str(value))


def cut(text: str, limit: int = TITLE_LIMIT) -> str:
    """Return `text` or, if it is too long, its beginning and the number of characters that follow.

    Examples
    --------
    >>> cut("abcdef", 2)
    'ab… (4 more characters)'
    """
    return text if len(text) <= limit else f"{text[:limit]}… ({len(text) - limit:,} more characters)"
