"""Pseudonyms: names that say nothing, the same ones for the same salt.

A pseudonym is the kind of a name and the first digits of its HMAC-SHA256, keyed with the salt: user-3f9a2c51. Without
the salt nobody can tell a name from its pseudonym, not even by trying all names; with it, pages of different days and
commands use the same ones.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tracekit.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path


SALT_VARIABLE = "TRACEKIT_SALT"
"""Environment variable that may hold the salt."""

_SHORTEST = 16
"""Fewest characters of a salt: a shorter one could be found by trying."""
_DRAWN = 32
"""Bytes of a salt that is drawn."""
_LARGEST = 1 << 16

_BLOCK = 64
"""Bytes of a block of SHA-256."""


@dataclass(frozen=True)
class Pseudonyms:
    """Pseudonyms by one salt."""

    salt: bytes = field(repr=False)
    digits: Mapping[str, int] = field(default_factory=dict)
    """Hexadecimal digits of a pseudonym, by the kind of name."""

    def of(self, kind: str, name: str) -> str:
        """Return the pseudonym of a name."""
        found = hmac.new(self._key, f"{kind}:{name}".encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()
        return f"{kind}-{found[: self.digits[kind]]}"

    def sql(self, kind: str, column: str) -> str:
        """Return SQL for the HMAC of a column, in hexadecimal digits; NULL where the column is."""
        block = self._key.ljust(_BLOCK, b"\0")
        inner, outer = (bytes(byte ^ pad for byte in block).hex() for pad in (0x36, 0x5C))
        return f"sha256(unhex('{outer}') || unhex(sha256(unhex('{inner}') || encode('{kind}:' || {column}))))"

    @property
    def _key(self) -> bytes:
        return hashlib.sha256(self.salt).digest()


def read_salt(file: Path | None) -> tuple[bytes, str | None]:
    """Return the salt, and a sentence on where it is from when the user should know.

    It is the text of `file`, which is made with a salt that is drawn where there is none; else that of the environment
    variable TRACEKIT_SALT; else one that is drawn and forgotten.

    Raises
    ------
    UsageError
        The file cannot be read or written, or the salt is too short.
    """
    if file is not None:
        return _of_file(file)
    given = os.environ.get(SALT_VARIABLE)
    if given is not None:
        return _checked(given.encode("utf-8", "surrogateescape"), SALT_VARIABLE), None
    return (
        secrets.token_bytes(_DRAWN),
        "the pseudonyms are valid only for this run; with --salt-file FILE the next pages use the same ones",
    )


def _of_file(file: Path) -> tuple[bytes, str | None]:
    try:
        try:
            # Nobody else may read it, not for a moment.
            with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as new:
                drawn = secrets.token_hex(_DRAWN).encode()
                new.write(drawn + b"\n")
        except FileExistsError:
            with file.open("rb") as known:
                return _checked(known.read(_LARGEST), file), None
    except OSError as error:
        raise UsageError(
            f"cannot read or make the salt: {error.strerror}", where=file, hint="choose another file"
        ) from error
    return drawn, f"a random salt was written to {file}: anyone who has it can recognize names, so keep it secret"


def _checked(salt: bytes, where: Path | str) -> bytes:
    found = salt.strip()
    if len(found) < _SHORTEST:
        raise UsageError(
            f"the salt has fewer than {_SHORTEST} characters, so names could be guessed",
            where=where,
            hint="name a new file, and tracekit writes a random salt",
        )
    return found
