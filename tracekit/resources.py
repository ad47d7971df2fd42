"""Find schemas/, queries/ and reports/, in a checkout or an installed wheel."""

from __future__ import annotations

from functools import cache
from pathlib import Path

_PACKAGE = Path(__file__).parent


@cache
def folder(name: str) -> Path:
    """Return the folder of shipped data files called `name`.

    Parameters
    ----------
    name : {"schemas", "queries", "reports"}
        A top-level folder of the repository, which the wheel includes in the package.
    """
    packed = _PACKAGE / "_data" / name
    return packed if packed.is_dir() else _PACKAGE.parent / name
