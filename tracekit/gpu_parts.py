"""Parts of partitioned GPUs (MIG): one table of NVIDIA's profiles for all formats and queries.

Sources, 2026-11:

- docs.nvidia.com/datacenter/tesla/mig-user-guide, "Supported MIG Profiles": A30 to B200, RTX PRO, Thor;
- docs.nvidia.com/ai-enterprise, "NVIDIA vGPU Types Reference", "Corresponding GPU Instance Profile": H100 with 64 GB,
  H20, H200 NVL;
- github.com/NVIDIA/mig-parted, deployments/systemd/config-default.yaml: GH200 with 144 GB, GB200, B300, GB300.
"""

from __future__ import annotations

import math
import re
from functools import cache, lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    import duckdb


class Part(NamedTuple):
    """A MIG instance's shares of its GPU, each in [0..1]."""

    compute: float
    """Share of the compute slices. The instance counts as this fraction of a GPU."""
    memory: float
    """Share of the memory."""


# Pattern in the model's name, compute slices, memory slices, and each profile with its memory slices. Early drivers use
# different names for some profiles of the H200 (3g.70gb, 4g.70gb) and GB200 (1g.24gb to 7g.189gb).
_TABLE = (
    (r"a30", 4, 4, "1g.6gb:1 2g.12gb:2 4g.24gb:4"),
    (r"a[18]00(?!.*80gb)", 7, 8, "1g.5gb:1 1g.10gb:2 2g.10gb:2 3g.20gb:4 4g.20gb:4 7g.40gb:8"),  # 40 GB
    (r"[ah]100", 7, 8, "1g.8gb:1 1g.16gb:2 2g.16gb:2 3g.32gb:4 4g.32gb:4 7g.64gb:8"),  # 64 GB
    (r"[ah][18]00(?!.*40gb)", 7, 8, "1g.10gb:1 1g.20gb:2 2g.20gb:2 3g.40gb:4 4g.40gb:4 7g.80gb:8"),  # 80 GB
    (r"h[18]00", 7, 8, "1g.12gb:1 1g.24gb:2 2g.24gb:2 3g.47gb:4 4g.47gb:4 7g.94gb:8"),  # 94 GB, NVL
    (r"a100|h100|h20(?!\d)|gh200", 7, 8, "1g.12gb:1 1g.24gb:2 2g.24gb:2 3g.48gb:4 4g.48gb:4 7g.96gb:8"),  # 96 GB
    (r"(?<!g)h20", 7, 8, "1g.18gb:1 1g.35gb:2 2g.35gb:2 3g.70gb:4 3g.71gb:4 4g.70gb:4 4g.71gb:4 7g.141gb:8"),  # 141 GB
    (r"gh200", 7, 8, "1g.18gb:1 1g.36gb:2 2g.36gb:2 3g.72gb:4 4g.72gb:4 7g.144gb:8"),  # 144 GB
    (r"(?<!g)b200", 7, 8, "1g.23gb:1 1g.45gb:2 2g.45gb:2 3g.90gb:4 4g.90gb:4 7g.180gb:8"),
    (r"gb200", 7, 8, "1g.23gb:1 1g.47gb:2 2g.47gb:2 3g.93gb:4 4g.93gb:4 7g.186gb:8"),
    (r"gb200", 7, 8, "1g.24gb:1 3g.95gb:4 4g.95gb:4 7g.189gb:8"),
    (r"(?<!g)b300", 7, 8, "1g.34gb:1 1g.67gb:2 2g.67gb:2 3g.135gb:4 4g.135gb:4 7g.269gb:8"),
    (r"gb300", 7, 8, "1g.35gb:1 1g.70gb:2 2g.70gb:2 3g.139gb:4 4g.139gb:4 7g.278gb:8"),
    (r"rtx.*6000", 4, 4, "1g.24gb:1 2g.48gb:2 4g.96gb:4"),
    (r"rtx.*5000", 2, 2, "1g.24gb:1 2g.48gb:2"),  # 48 GB; the guide has no profile names for the 72 GB board
    (r"rtx.*4500", 2, 2, "1g.16gb:1 2g.32gb:2"),
    (r"thor", 3, 3, "1g.0gb:1 2g.0gb:2 3g.0gb:3"),  # uses CPU memory; bandwidth follows the compute slices
)


def _parts(whole: int, slices: int, listed: str) -> dict[str, Part]:
    """Return each profile's part of the GPU."""
    pairs = (word.split(":") for word in listed.split())
    return {profile: Part(int(profile[0]) / whole, int(memory) / slices) for profile, memory in pairs}


_GPUS = [(re.compile(named), _parts(whole, slices, listed)) for named, whole, slices, listed in _TABLE]
_PROFILE = re.compile(r"(?<![0-9a-z])([1-9])g[._-]?(\d{1,3})gb(?![0-9a-z])", re.ASCII)


def has_profile(name: str) -> bool:
    """Return whether a name contains a MIG profile, known or not, such as `nvidia_a100_1g.5gb` or `mig-3g.40gb`."""
    return _PROFILE.search(name.lower()) is not None


@lru_cache(maxsize=4096)
def part_of_gpu(name: str) -> Part | None:
    """Return the part of a GPU that `name` refers to: the whole GPU if it has no MIG profile, or None if it is unknown.

    If a profile's part differs between GPUs, the part is known only if the name includes the GPU. If only the memory
    differs, the smallest counts.

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
    model = name[: match.start()] + name[match.end() :]
    having = [(named, parts[profile]) for named, parts in _GPUS if profile in parts]
    return _agreed([part for named, part in having if named.search(model)] or [part for _, part in having])


def _agreed(parts: list[Part]) -> Part | None:
    """Return the part that all GPUs with the same profile have in common."""
    if len({part.compute for part in parts}) != 1:
        return None
    return min(parts, key=lambda part: part.memory)


def cards(parts: Iterable[tuple[float, Part]]) -> int:
    """Return the smallest number of GPUs whose compute and memory slices fit the given number of each part.

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
"""SQL that creates the table for queries to join. Its parameters are the profiles in `shares` and their shares."""


def create_shares(con: duckdb.DuckDBPyConnection) -> None:
    """Create the table `gpu_parts`, which the view attempt_samples reads."""
    con.execute(SHARES_SQL, [list(shares()), list(shares().values())])


@cache
def shares() -> Mapping[str, float]:
    """Return the compute share [0..1] of each profile that is the same part on all its GPUs."""
    profiles = sorted({profile for _, parts in _GPUS for profile in parts})
    found = ((name, _agreed([parts[name] for _, parts in _GPUS if name in parts])) for name in profiles)
    return MappingProxyType({name: part.compute for name, part in found if part is not None})
