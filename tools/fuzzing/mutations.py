"""Ways to damage a log's bytes, encoding, lines and fields."""

from __future__ import annotations

import random
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["mutate"]

Random = random.Random
if TYPE_CHECKING:
    Mutation = Callable[[bytes, Random], bytes]
    _Pool = dict[str, tuple[Mutation, int]]

NASTY = (
    *(
        "",
        " ",
        "-1",
        "-0",
        "+5",
        "1e308",
        "1e400",
        "-1e308",
        "1e-320",
        "9" * 30,
        "-" + "9" * 30,
        "1_000",
        "1,5",
        "0x10",
    ),
    *("2147483648", "4294967296", "9223372036854775807", "9223372036854775808", "-9223372036854775808"),
    *("NaN", "nan", "inf", "-inf", "Infinity", "None", "NULL", "null", "N/A", "true"),
    *(
        "0001-01-01 00:00:00",
        "9999-12-31 23:59:59",
        "2017-02-30 00:00:00",
        "2017-13-01 00:00:00",
        "1969-12-31 23:59:59",
    ),
    *("2017-11-05 01:30:00", "2017-03-12 02:30:00", "2020-10-25 02:30:00", "2017-10-03T08:00:00Z", "2017-10-03"),
    *("2017-10-03 08:00:00+14:00", "2017-10-03 24:00:00", "2017-10-03 08:00:60", "99999-01-01 00:00:00", "-1-01-01"),
    *(
        "\u2028",
        "\ufeff",
        "\u0661\u0662",
        "\x1b[31m",
        "e\u0301",
        "\U0001f600",
        "=1+1",
        "../../x",
        "%s%n",
        "a\tb",
        "a|b",
    ),
    *('"', '""', '"a', 'a"b', '"a\nb"', '"a,b"', "'", "[", "[1,2", "[1-3]", "n[1-999999999]", "n[1-3,5]", "\\", "\r"),
    *(
        "1-00:00:00",
        "99999999-00:00:00",
        "00:00:-1",
        "gres/gpu=-1",
        "gres/gpu=1e9",
        "cpu=,mem=",
        "4294967294",
        "-62135596801",
    ),
)
"""Possible replacements for a field."""

NASTY_JSON = (
    *(
        "null",
        "true",
        "-1",
        "1e400",
        "-0.0",
        "[]",
        "{}",
        "[[]]",
        '""',
        '"\\ud800"',
        '"\\u0000"',
        "NaN",
        "Infinity",
        "{",
    ),
    *(
        "9" * 30,
        '"9999-12-31 23:59:59"',
        '"0001-01-01 00:00:00"',
        '"2017-11-05 01:30:00"',
        '{"a": 1, "a": 2}',
        "]",
        ",",
    ),
    *("[" * 2000 + "]" * 2000, "[" * 100_000, '"' + "x" * 100_000 + '"', "'x'", "undefined", "1 2", "\u2028", '"\n"'),
)
"""Possible replacements for a JSON value."""

_TOKEN = re.compile(rb'"[^"\n]*"|-?\d+(?:\.\d+)?|null')


def _place(data: bytes, rng: Random) -> int:
    return rng.randrange(len(data) + 1)


def _flip(data: bytes, rng: Random) -> bytes:
    if not data:
        return data
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 4, 32))):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _insert(*pieces: bytes) -> Mutation:
    def apply(data: bytes, rng: Random) -> bytes:
        at = _place(data, rng)
        return data[:at] + rng.choice(pieces) + data[at:]

    return apply


def _insert_noise(data: bytes, rng: Random) -> bytes:
    at = _place(data, rng)
    return data[:at] + rng.randbytes(rng.choice((1, 2, 16, 500))) + data[at:]


def _cut_out(data: bytes, rng: Random) -> bytes:
    at = _place(data, rng)
    return data[:at] + data[at + rng.choice((1, 1, 7, 300)) :]


def _repeat(data: bytes, rng: Random) -> bytes:
    at = _place(data, rng)
    end = at + rng.choice((1, 7, 90, 1000))
    return data[:end] + data[at:end] * rng.choice((1, 1, 50)) + data[end:]


def _truncate(data: bytes, rng: Random) -> bytes:
    return data[: _place(data, rng)] if rng.random() < 0.5 else data[_place(data, rng) :]


def _encode(encoding: str) -> Mutation:
    return lambda data, _rng: data.decode("utf-8", "replace").encode(encoding, "replace")


def _mark(data: bytes, rng: Random) -> bytes:
    return rng.choice((b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff", b"\xef\xbb\xbf" * 2)) + data


def _line_ends(end: bytes) -> Mutation:
    return lambda data, _rng: data.replace(b"\n", end)


def _in_lines(change: Callable[[list[bytes], Random], None]) -> Mutation:
    """Return a mutation that changes the list of lines."""

    def apply(data: bytes, rng: Random) -> bytes:
        lines = data.split(b"\n")
        change(lines, rng)
        return b"\n".join(lines)

    return apply


def _some_line(lines: list[bytes], rng: Random) -> int:
    """Return a line number. In a small file, the header is as likely as all other lines together."""
    return 0 if rng.random() < 0.15 else rng.randrange(len(lines))


def _drop_line(lines: list[bytes], rng: Random) -> None:
    del lines[_some_line(lines, rng)]


def _repeat_line(lines: list[bytes], rng: Random) -> None:
    lines.insert(rng.randrange(len(lines) + 1), lines[_some_line(lines, rng)])


def _swap_lines(lines: list[bytes], rng: Random) -> None:
    one, other = _some_line(lines, rng), rng.randrange(len(lines))
    lines[one], lines[other] = lines[other], lines[one]


def _blank_line(lines: list[bytes], rng: Random) -> None:
    lines.insert(rng.randrange(len(lines) + 1), rng.choice((b"", b"\r", b" ", b",", b"\t", b";", b"#")))


def _in_fields(change: Callable[[list[bytes], Random], None]) -> Mutation:
    """Return a mutation that changes fields in one or several lines."""

    def apply(data: bytes, rng: Random) -> bytes:
        delimiter = max((b",", b"|", b"\t", b" "), key=data[:2000].count)
        lines = data.split(b"\n")
        for _ in range(rng.choice((1, 1, 1, 5, len(lines)))):
            number = _some_line(lines, rng)
            fields = lines[number].split(delimiter)
            change(fields, rng)
            lines[number] = delimiter.join(fields)
        return b"\n".join(lines)

    return apply


def _nasty_field(fields: list[bytes], rng: Random) -> None:
    fields[rng.randrange(len(fields))] = rng.choice(NASTY).encode()


def _swap_fields(fields: list[bytes], rng: Random) -> None:
    one, other = rng.randrange(len(fields)), rng.randrange(len(fields))
    fields[one], fields[other] = fields[other], fields[one]


def _repeat_field(fields: list[bytes], rng: Random) -> None:
    fields.insert(rng.randrange(len(fields) + 1), rng.choice(fields))


def _overwrite_field(fields: list[bytes], rng: Random) -> None:
    fields[rng.randrange(len(fields))] = rng.choice(fields)


def _drop_field(fields: list[bytes], rng: Random) -> None:
    del fields[rng.randrange(len(fields))]


def _quote_field(fields: list[bytes], rng: Random) -> None:
    at = rng.randrange(len(fields))
    fields[at] = rng.choice((b'"%b"', b'"%b', b'%b"', b'"%b\n"', b'"%b"x', b'"" %b')) % fields[at].replace(b"%", b"")


def _huge_field(data: bytes, rng: Random) -> bytes:
    at = _place(data, rng)
    piece = rng.choice((b"9", b"x", b"\xff", b'"', b"1,", b"[", b"\0"))
    return data[:at] + piece * (rng.randrange(1_000_000, 10_000_000) // len(piece)) + data[at:]


def _json_value(data: bytes, rng: Random) -> bytes:
    tokens = list(_TOKEN.finditer(data))
    if not tokens:
        return data
    token = rng.choice(tokens)
    return data[: token.start()] + rng.choice(NASTY_JSON).encode() + data[token.end() :]


_STRAY = (b"\0", b"\r", b"\n", b"\xff", b"\xc3", b"\xed\xa0\x80", "\u2028".encode(), b"\x1a", b'"', b"\xef\xbb\xbf")

_ANY: _Pool = {
    "flip bits": (_flip, 6),
    "insert noise": (_insert_noise, 3),
    "insert a stray byte": (_insert(*_STRAY), 6),
    "cut bytes out": (_cut_out, 4),
    "repeat bytes": (_repeat, 4),
    "truncate": (_truncate, 2),
}
_TEXT: _Pool = {
    **_ANY,
    "add a byte order mark": (_mark, 1),
    "make UTF-16": (_encode("utf-16"), 1),
    "make UTF-16 without mark": (_encode("utf-16-be"), 1),
    "make Latin-1": (_encode("latin-1"), 1),
    "end lines with CRLF": (_line_ends(b"\r\n"), 2),
    "end lines with CR": (_line_ends(b"\r"), 1),
    "double line ends": (_line_ends(b"\n\n"), 1),
    "drop a line": (_in_lines(_drop_line), 3),
    "repeat a line": (_in_lines(_repeat_line), 4),
    "swap lines": (_in_lines(_swap_lines), 3),
    "insert a blank line": (_in_lines(_blank_line), 3),
    "set fields": (_in_fields(_nasty_field), 16),
    "swap fields": (_in_fields(_swap_fields), 5),
    "repeat fields": (_in_fields(_repeat_field), 3),
    "copy fields over others": (_in_fields(_overwrite_field), 4),
    "drop fields": (_in_fields(_drop_field), 3),
    "quote fields": (_in_fields(_quote_field), 5),
}
_JSON: _Pool = {**_TEXT, "set a JSON value": (_json_value, 40)}
"""Mutations by description, with their weights."""

_HUGE = 0.004
"""Share of mutations that enlarge a field to megabytes."""


def mutate(files: dict[str, bytes], rng: Random) -> tuple[dict[str, bytes], list[str]]:
    """Apply one to four mutations to one or two files, and return all files with a description."""
    changed = dict(files)
    how = []
    for _ in range(rng.choice((1, 1, 1, 2, 2, 3, 4))):
        name = rng.choice(sorted(changed))
        data = changed[name]
        if rng.random() < 0.03:
            other = changed[rng.choice(sorted(changed))]
            changed[name] = data[: _place(data, rng)] + other[_place(other, rng) :]
            how.append(f"splice {name}")
            continue
        if rng.random() < 0.02 and len(changed) > 1:
            del changed[name]
            how.append(f"drop {name}")
            continue
        plain = b"\0" not in data[:500]
        pool = _ANY if not plain else _JSON if data[:1] in {b"[", b"{"} else _TEXT
        what = rng.choices(list(pool), [weight for _, weight in pool.values()])[0]
        if plain and rng.random() < _HUGE:
            what = "enlarge a field"
        changed[name] = (_huge_field if what not in pool else pool[what][0])(data, rng)
        how.append(f"{what} in {name}")
    return changed, how
