"""Digests of what a result hangs on: settings, contents of files, and the program."""

from __future__ import annotations

from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

import orjson

from tracekit.places import place_of

__all__ = ["code_of", "content_of", "digest_of_facts", "forget_files"]

_PACKAGE = Path(__file__).parents[1]


def digest_of_facts(facts: dict[str, Any]) -> str:
    """Return a digest of facts, whatever the order of their keys."""
    return blake2b(orjson.dumps(facts, option=orjson.OPT_SORT_KEYS), digest_size=12).hexdigest()


@cache
def content_of(path: str) -> str:
    """Return the digest of a file's content, read once; what is missing has a digest too, of its name."""
    try:
        return blake2b(place_of(path).read_bytes(), digest_size=16).hexdigest()
    except OSError:
        return f"missing {path}"  # the work itself reports what is wrong


def forget_files() -> None:
    """Forget what was read of files, which may have changed since."""
    content_of.cache_clear()


@cache
def code_of(*rooms: str, compiled: str = "") -> str:
    """Return the digest of some packages and modules of this program.

    Parameters
    ----------
    *rooms : str
        Their names, such as 'replay' or 'trace'.
    compiled : str
        What the compiled engine was made of (`kernel().SOURCES`).
    """
    found = blake2b(compiled.encode(), digest_size=16)
    for room in rooms:
        module = _PACKAGE / f"{room}.py"
        for path in [module] if module.is_file() else sorted((_PACKAGE / room).rglob("*")):
            if path.suffix in (".py", ".toml"):
                found.update(path.relative_to(_PACKAGE).as_posix().encode() + b"\0" + path.read_bytes())
    return found.hexdigest()
