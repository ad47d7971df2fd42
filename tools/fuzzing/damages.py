"""Ways to damage a Trace's bytes, columns, values, manifest and whole files."""

from __future__ import annotations

import json
import random
import shutil
from typing import TYPE_CHECKING, Any

import polars as pl

from tracekit import schema

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

__all__ = ["damage"]

Random = random.Random
if TYPE_CHECKING:
    Damage = Callable[[Path, Random], str]

_NUMBERS = (-100.0, -0.001, float("nan"), float("inf"), float("-inf"), 1e308, 1e18, 1e-320)
_WHOLE = (-1, -(2**63), 2**63 - 1, 2**53 + 1, 10**12)
_TIMES = (-(2**63), 2**63 - 1, -62_135_596_800_000_001, 253_402_300_800_000_000, 0, -1)
"""Times [microseconds since 1970], including the years 1 and 10000."""
_TEXTS = ("", "a\nb", "\x1b[31m", "\u202egpj", "x" * 100_000, "'; DROP TABLE jobs; --", "<script>", "\0")
_JSON: tuple[Any, ...] = (
    *(None, True, -1, 0, 2**63, 2**64 - 1, 1e300, 0.5, "", "x", "../x", "\u202e", [], {}, [[]], [None], {"a": {}}),
    *("x" * 100_000, {"../x": {"rows": 1, "bytes": 1, "columns": []}}, ["a"] * 1000),
)


def damage(folder: Path, rng: Random) -> list[str]:
    """Damage the Trace in `folder` in one or two ways, and return a description."""
    done = []
    for _ in range(rng.choice((1, 1, 1, 2))):
        way = rng.choices(_WAYS, [weight for _, weight in _DAMAGES])[0]
        try:
            done.append(way(folder, rng))
        except (OSError, pl.exceptions.PolarsError, ValueError, KeyError) as error:
            # The first damage may have removed the second one's target.
            done.append(f"not done: {type(error).__name__}")
    return done


def _table(folder: Path, rng: Random) -> Path:
    return rng.choice(sorted(folder.glob("*.parquet")))


def _flip(path: Path, rng: Random, first: int, last: int) -> None:
    data = bytearray(path.read_bytes())
    for _ in range(rng.choice((1, 1, 2, 8, 64))):
        data[rng.randrange(max(first, 0), min(last, len(data)))] ^= 1 << rng.randrange(8)
    path.write_bytes(data)


def _flip_anywhere(folder: Path, rng: Random) -> str:
    path = _table(folder, rng)
    _flip(path, rng, 0, path.stat().st_size)
    return f"flip bits in {path.name}"


def _flip_in_footer(folder: Path, rng: Random) -> str:
    path = _table(folder, rng)
    size = path.stat().st_size
    footer = int.from_bytes(path.read_bytes()[-8:-4], "little")
    _flip(path, rng, size - footer - 8, size)
    return f"flip bits in the footer of {path.name}"


def _flip_plain_pages(folder: Path, rng: Random) -> str:
    """Flip bits in uncompressed pages to reach the decoders, which flipped bits in compressed pages rarely do."""
    path = _table(folder, rng)
    pl.read_parquet(path).write_parquet(path, compression="uncompressed", use_pyarrow=rng.random() < 0.5)
    footer = int.from_bytes(path.read_bytes()[-8:-4], "little")
    _flip(path, rng, 4, path.stat().st_size - footer - 8)
    return f"flip bits in uncompressed pages of {path.name}"


def _break_text(folder: Path, rng: Random) -> str:
    """Write bytes that are not UTF-8 where the footer declares text."""
    path = _table(folder, rng)
    pl.read_parquet(path).write_parquet(path, compression="uncompressed")
    data = path.read_bytes()
    words = [w for w in (b"job", b"application", b"completed", b"Pass", b"COMPLETED", b"vc", b"m1") if w in data]
    word = rng.choice(words or [data[:4]])
    path.write_bytes(data.replace(word, b"\xff\xfe\x80"[: len(word)] + word[3:]))
    return f"break text in {path.name}"


def _truncate(folder: Path, rng: Random) -> str:
    path = _table(folder, rng)
    path.write_bytes(path.read_bytes()[: rng.choice((0, 1, 4, 12, rng.randrange(path.stat().st_size)))])
    return f"truncate {path.name}"


def _grow(folder: Path, rng: Random) -> str:
    path = _table(folder, rng)
    path.write_bytes(path.read_bytes() + rng.randbytes(rng.choice((1, 8, 1000))))
    return f"append bytes to {path.name}"


def _swap(folder: Path, rng: Random) -> str:
    first, second = _table(folder, rng), _table(folder, rng)
    one, other = first.read_bytes(), second.read_bytes()
    first.write_bytes(other)
    second.write_bytes(one)
    return f"swap {first.name} and {second.name}"


def _retype(folder: Path, rng: Random) -> str:
    path = _table(folder, rng)
    frame = pl.read_parquet(path)
    name = rng.choice(frame.columns)
    kinds = (pl.String, pl.Int32, pl.Float32, pl.Int64, pl.Float64, pl.Boolean, pl.Datetime("ms"), pl.Binary, pl.Date)
    kind: Any = rng.choice((*kinds, pl.Datetime("us", "UTC"), pl.Categorical, pl.Duration("us"), pl.List(pl.Int64)))
    frame.with_columns(pl.lit(None, dtype=kind).alias(name)).write_parquet(path)
    return f"make {name} of {path.name} {kind}"


def _rename(folder: Path, rng: Random) -> str:
    path = _table(folder, rng)
    frame = pl.read_parquet(path)
    name = rng.choice(frame.columns)
    how = rng.choice(("drop", "rename", "add", "move"))
    if how == "drop":
        frame = frame.drop(name)
    elif how == "rename":
        frame = frame.rename({name: rng.choice((name.upper(), "x\ny", "\u202e", "a" * 70_000))})
    elif how == "add":
        frame = frame.with_columns(pl.lit(1).alias("more"))
    else:
        frame = frame.select(pl.exclude(name), name)
    frame.write_parquet(path)
    return f"{how} {name} of {path.name}"


def _value(folder: Path, rng: Random) -> str:
    path = _table(folder, rng)
    frame = pl.read_parquet(path)
    columns = [c for c in schema.common(path.stem).columns if c.kind in {"number", "integer", "datetime", "string"}]
    column = rng.choice(columns)
    pool: dict[str, tuple[Any, ...]] = {"number": _NUMBERS, "integer": _WHOLE, "datetime": _TIMES, "string": _TEXTS}
    value = rng.choice((None, *pool[column.kind]))
    lit = (
        pl.lit(value, dtype=pl.Int64).cast(column.polars) if column.kind == "datetime" else pl.lit(value, column.polars)
    )
    # Change one row, some rows or all rows.
    share = rng.choice((0.0, 0.3, 1.0))
    rows = [i == 0 or rng.random() < share for i in range(frame.height)]
    frame.with_columns(pl.when(pl.Series(rows)).then(lit).otherwise(column.name).alias(column.name)).write_parquet(path)
    return f"set {column.name} of {path.name} to {str(value)[:40]!r} in {sum(rows)} rows"


def _repeat_rows(folder: Path, rng: Random) -> str:
    path = _table(folder, rng)
    frame = pl.read_parquet(path)
    pl.concat([frame, frame.head(rng.choice((1, frame.height)))]).write_parquet(path)
    return f"repeat rows of {path.name}"


def _no_rows(folder: Path, rng: Random) -> str:
    path = _table(folder, rng)
    pl.read_parquet(path).clear().write_parquet(path)
    return f"empty {path.name}"


def _replace_file(folder: Path, rng: Random) -> str:
    path = rng.choice([*sorted(folder.glob("*.parquet")), folder / "manifest.json"])
    path.unlink()
    how = rng.choice(("nothing", "a folder", "an empty file", "a link to itself", "a link to nothing", "text"))
    if how == "a folder":
        path.mkdir()
    elif how == "an empty file":
        path.touch()
    elif how.startswith("a link"):
        path.symlink_to(path.name if how == "a link to itself" else "nowhere")
    elif how == "text":
        path.write_text("job_id,user\n1,2\n")
    return f"put {how} in place of {path.name}"


def _manifest_value(folder: Path, rng: Random) -> str:
    """Replace, drop, rename or add a part of the manifest."""
    path = folder / "manifest.json"
    raw = json.loads(path.read_bytes())
    parts = list(_parts(raw))
    parent, key = rng.choice(parts)
    how = rng.choice(("set", "set", "set", "drop", "rename", "add"))
    if how == "set":
        parent[key] = rng.choice(_JSON)
    elif how == "drop" or isinstance(parent, list):
        del parent[key]
    else:
        name = rng.choice(("../x", "x", "", "jobs", "\u202e", "x" * 10_000))
        parent[name] = parent.pop(key) if how == "rename" else rng.choice(_JSON)
    path.write_text(json.dumps(raw))
    return f"{how} '{str(key)[:40]}' in manifest.json"


def _parts(value: Any) -> list[tuple[Any, Any]]:
    """Return every part of a JSON value as its container and its key in it."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    return [(value, key) for key in keys] + [part for key in keys for part in _parts(value[key])]


def _manifest_text(folder: Path, rng: Random) -> str:
    path = folder / "manifest.json"
    text = path.read_text()
    place = rng.randrange(len(text))
    how = rng.choice(("nest", "number", "flip", "cut", "repeat", "nan"))
    if how == "nest":
        text = text[:place] + "[" * 100_000 + text[place:]
    elif how == "number":
        text = text.replace(": 1", f": {'9' * rng.choice((19, 30, 5000))}", 1)
    elif how == "cut":
        text = text[:place]
    elif how == "repeat":
        text += text
    elif how == "nan":
        text = text.replace(": 1", ": NaN", 1)
    path.write_text(text)
    if how == "flip":
        _flip(path, rng, 0, len(text))
    return f"{how} in the text of manifest.json"


def _copy_out(folder: Path, _rng: Random) -> str:
    shutil.rmtree(folder / "scratch", ignore_errors=True)
    (folder / "more.parquet").write_bytes(b"PAR1")
    return "add a file that the manifest does not know"


_DAMAGES: tuple[tuple[Damage, int], ...] = (
    (_flip_anywhere, 8),
    (_flip_in_footer, 8),
    (_flip_plain_pages, 12),
    (_break_text, 3),
    (_truncate, 4),
    (_grow, 2),
    (_swap, 3),
    (_retype, 8),
    (_rename, 5),
    (_value, 20),
    (_repeat_rows, 3),
    (_no_rows, 3),
    (_replace_file, 6),
    (_manifest_value, 14),
    (_manifest_text, 4),
    (_copy_out, 1),
)
"""Damages with their weights."""

_WAYS = [way for way, _ in _DAMAGES]
