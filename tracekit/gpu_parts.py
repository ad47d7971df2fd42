"""Parts of divided GPUs (MIG): one table of NVIDIA's profiles serves every format and every query.

Source: docs.nvidia.com/datacenter/tesla/mig-user-guide, "Supported MIG Profiles", 2026-11.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable

    import duckdb

__all__ = ["SHARES_SQL", "Part", "cards", "create_shares", "has_profile", "part_of_gpu", "shares"]


class Part(NamedTuple):
    """What a MIG instance has of its GPU, [0..1] each."""

    compute: float
    """Of the compute slices: what it counts as a GPU."""
    memory: float
    """Of the memory."""


# GPU, its compute slices, its memory slices, and each profile with its memory slices.
_GPUS = (
    ("A30", 4, 4, "1g.6gb:1 2g.12gb:2 4g.24gb:4"),
    ("A100 40 GB", 7, 8, "1g.5gb:1 2g.10gb:2 3g.20gb:4 4g.20gb:4 7g.40gb:8"),
    ("A100 and H100 64 GB", 7, 8, "1g.8gb:1 1g.16gb:2 2g.16gb:2 3g.32gb:4 4g.32gb:4 7g.64gb:8"),
    ("A100 and H100 80 GB", 7, 8, "1g.10gb:1 1g.20gb:2 2g.20gb:2 3g.40gb:4 4g.40gb:4 7g.80gb:8"),
    ("H100 94 GB", 7, 8, "1g.12gb:1 1g.24gb:2 2g.24gb:2 3g.47gb:4 4g.47gb:4 7g.94gb:8"),
    ("H20, H100 96 GB", 7, 8, "3g.48gb:4 4g.48gb:4 7g.96gb:8"),
    ("H200 141 GB", 7, 8, "1g.18gb:1 1g.35gb:2 2g.35gb:2 3g.70gb:4 3g.71gb:4 4g.70gb:4 4g.71gb:4 7g.141gb:8"),
    ("GH200 144 GB", 7, 8, "1g.36gb:2 2g.36gb:2 3g.72gb:4 4g.72gb:4 7g.144gb:8"),
    ("B200 180 GB", 7, 8, "1g.23gb:1 1g.45gb:2 2g.45gb:2 3g.90gb:4 4g.90gb:4 7g.180gb:8"),
    ("GB200 186 GB", 7, 8, "1g.47gb:2 2g.47gb:2 3g.93gb:4 4g.93gb:4 7g.186gb:8"),
    ("B300 269 GB", 7, 8, "1g.34gb:1 1g.67gb:2 2g.67gb:2 3g.135gb:4 4g.135gb:4 7g.269gb:8"),
    ("GB300 278 GB", 7, 8, "1g.70gb:2 2g.70gb:2 3g.139gb:4 4g.139gb:4 7g.278gb:8"),
    ("RTX PRO 6000", 4, 4, "4g.96gb:4"),
)
_PROFILES = {
    profile: Part(int(profile[0]) / whole, int(memory) / slices)
    for _, whole, slices, listed in _GPUS
    for profile, _, memory in (word.partition(":") for word in listed.split())
}
# Profiles that are another part of another GPU: known where the name says which GPU it is.
_OF_MODEL = (
    (re.compile(r"rtx.*6000"), {"1g.24gb": Part(1 / 4, 1 / 4), "2g.48gb": Part(2 / 4, 2 / 4)}),
    (re.compile(r"rtx.*5000"), {"1g.24gb": Part(1 / 2, 1 / 2), "2g.48gb": Part(1.0, 1.0)}),
    (re.compile(r"rtx.*4500"), {"1g.16gb": Part(1 / 2, 1 / 2), "2g.32gb": Part(1.0, 1.0)}),
)
_SHARED_NAMES = frozenset({"1g.16gb", "1g.24gb"})
_DATA_CENTRE = re.compile(r"[ah][128]00|h20(?!\d)|gh200")
_PROFILE = re.compile(r"(?<![0-9a-z])([1-9])g[._-]?(\d{1,3})gb(?![0-9a-z])", re.ASCII)


def has_profile(name: str) -> bool:
    """Return whether a name holds a MIG profile, known or not, such as `nvidia_a100_1g.5gb` or `mig-3g.40gb`."""
    return _PROFILE.search(name.lower()) is not None


def part_of_gpu(name: str) -> Part | None:
    """Return what a name says of its GPU: all of it without a MIG profile, None for a profile that is not known.

    Examples
    --------
    >>> part_of_gpu("a100_2g.10gb").memory, part_of_gpu("h100").compute, part_of_gpu("5g.99gb")
    (0.25, 1.0, None)
    """
    name = name.lower()
    match = _PROFILE.search(name)
    if match is None:
        return Part(1.0, 1.0)
    profile = f"{match[1]}g.{int(match[2])}gb"
    for model, parts in _OF_MODEL:
        if model.search(name):
            return parts.get(profile, _PROFILES.get(profile) if profile not in _SHARED_NAMES else None)
    if profile in _SHARED_NAMES and not _DATA_CENTRE.search(name):
        return None
    return _PROFILES.get(profile)


def cards(parts: Iterable[tuple[float, Part]]) -> int:
    """Return the fewest GPUs that can hold so many instances of each part: compute and memory slices both have to fit.

    Examples
    --------
    >>> cards([(7, part_of_gpu("1g.10gb")), (2, part_of_gpu("3g.40gb"))]), cards([(16, part_of_gpu("3g.40gb"))])
    (2, 8)
    """
    listed = list(parts)
    most = max((sum(n * part[place] for n, part in listed) for place in (0, 1)), default=0.0)
    return math.ceil(most - 1e-6)


SHARES_SQL = """
CREATE TABLE gpu_parts AS SELECT unnest(CAST(? AS VARCHAR[])) AS profile, unnest(CAST(? AS DOUBLE[])) AS share"""
"""The table that queries join; its parameters are the profiles of `shares`, and their shares."""


def create_shares(con: duckdb.DuckDBPyConnection) -> None:
    """Create the table `gpu_parts`, which the view attempt_samples reads."""
    con.execute(SHARES_SQL, [list(shares()), list(shares().values())])


def shares() -> dict[str, float]:
    """Return the compute share [0..1] of each profile that is one part of every GPU that has it, by its name."""
    return {name: part.compute for name, part in sorted(_PROFILES.items()) if name not in _SHARED_NAMES}
