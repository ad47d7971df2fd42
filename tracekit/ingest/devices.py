"""Devices by name: which are GPUs, which are parts of one, which are none, and which nobody knows.

One table of NVIDIA's MIG profiles serves every format (docs.nvidia.com/datacenter/tesla/mig-user-guide, "Supported MIG
Profiles", 2026-11). A device that is in no list here may be an accelerator: how many GPUs its holder has is then
unknown, until the option gpu_resource says what it counts.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from tracekit.errors import UsageError
from tracekit.options import Option

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tracekit.ingest.sink import Sink

__all__ = [
    "GPU_RESOURCE",
    "WHOLE_GPUS",
    "Part",
    "UnknownDevices",
    "cards",
    "device_factors",
    "factor_of",
    "has_profile",
    "is_accelerator",
    "is_extended_device",
    "is_gres_device",
    "part_of_gpu",
]

GPU_RESOURCE = Option(
    "",
    "devices that count as GPUs, each as NAME or NAME=FACTOR: npu, gpu:vgpu=0.25, huawei.com/Ascend910=1, fpga=0; give "
    "several with commas between them, or the option several times",
)
"""The option of formats whose logs name devices."""

WHOLE_GPUS = ("nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/i915", "gpu.intel.com/xe", "habana.ai/gaudi")
"""Kubernetes' names of whole GPUs."""

_MOST = 4_096.0
"""Largest factor."""


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


def device_factors(text: str) -> dict[str, float]:
    """Return what the option gpu_resource says a device counts [GPUs], by its name in small letters.

    Raises
    ------
    UsageError
        A name is missing, or a factor is no number from 0 to 4,096.

    Examples
    --------
    >>> device_factors("npu,gpu:vgpu=0.25")
    {'npu': 1.0, 'gpu:vgpu': 0.25}
    """
    found = {}
    for word in filter(None, (part.strip() for part in text.split(","))):
        name, equals, factor = word.partition("=")
        valid = re.fullmatch(r"\d{1,4}(\.\d{1,9})?", factor, re.ASCII) if equals else True
        if not name.strip() or not valid or (equals and float(factor) > _MOST):
            hint = "give NAME or NAME=FACTOR, like huawei.com/Ascend910 or npu=1"
            raise UsageError(f"'{word[:80]}' names no device and its GPUs", where="--option gpu_resource", hint=hint)
        found[name.strip().lower().removeprefix("gres/")] = float(factor) if equals else 1.0
    return found


def factor_of(factors: Mapping[str, float], *names: str) -> float | None:
    """Return what the first of the names counts that the option gpu_resource has, None without any [GPUs]."""
    return next((factors[name.lower()] for name in names if name.lower() in factors), None)


# What sites declare as GRES that is no accelerator: fast disks, network ports, licences, displays.
_NO_GRES = re.compile(
    r"craynetwork|gpumem|gpuutil|none|"
    r"(?!.*gpu|.*vram).*(?:tmp|scratch|disk|dsk|ssd|hdd|nvme|stor|lustre|gpfs|beegfs|ceph|bandw|net|infini|roce|rdma|"
    r"licen|token|mem|swap|cache|burst|quota|energy|power|display|vnc|x11|viz|port).*|"
    r"nic|hca\d*|ib\d*|opa|mlx\d*.*|efa|eth.*|bw|fs|nfs|bb|lic|hbm|slots?",
    re.ASCII | re.IGNORECASE,
)
# Extended resources of Kubernetes that are no accelerator: networks, files, virtual machines, cryptography.
_NO_EXTENDED = re.compile(
    r".*(?:rdma|hca|roce|infiniband|sriov|/ib\b|/efa|\beni\b|/nic\b|/vf|network|hostdev|multus|ovs|dpdk|kubevirt|"
    r"/kvm|/tun|/vhost|/fuse|sgx|tdx|/sev|/qat|/dsa|/iaa|batch-cpu|batch-memory|mid-cpu|mid-memory|ephemeral|hugepage|"
    r"storage|volume|/disk|/ssd|/nvme|private-?ip|podip|pod-ip|branch|licen|smarter-devices|snd|video|input).*",
    re.ASCII | re.IGNORECASE,
)


def is_gres_device(kind: str) -> bool:
    """Return whether a kind of Slurm's generic resources may be an accelerator."""
    return _NO_GRES.fullmatch(kind) is None


def is_extended_device(name: str) -> bool:
    """Return whether a resource of Kubernetes may be an accelerator: it has a slash and is no known other thing."""
    return "/" in name and _NO_EXTENDED.fullmatch(name) is None


_ACCELERATOR = re.compile(
    r"n?(?:_?(?:npu|dcu|hpu|mlu|gcu|xpu|tpu|ipu|vpu|fpga|mic|ve|accelerator|ascend\w*|gaudi\w*)s?|"
    r"(?!.*(?:mem|vram|cap|type|model|util|driver|cuda|mode|freq|share|_id))\w*(?:gpu|mig)\w*)",
    re.ASCII | re.IGNORECASE,
)


def is_accelerator(name: str) -> bool:
    """Return whether a resource that a site defined counts accelerators, by its name; for schedulers without types.

    Examples
    --------
    >>> is_accelerator("nmics"), is_accelerator("ngpus_a100"), is_accelerator("gpu_mem"), is_accelerator("scratch")
    (True, True, False, False)
    """
    return _ACCELERATOR.fullmatch(name) is not None


class UnknownDevices:
    """Counts devices that nobody knows, by name.

    Parameters
    ----------
    sink : Sink
        Receives a check for each batch, and a note in the end.
    things : str
        What holds them: 'jobs', 'pods'.
    """

    def __init__(self, sink: Sink, things: str) -> None:
        self._sink, self._things = sink, things
        self._counts: Counter[str] = Counter()

    def add(self, holders: Iterable[tuple[str, str]], of: int | None) -> None:
        """Count pairs of a holder's name and its devices, '|' between several, among `of` things looked at."""
        found = list(holders)
        for _, devices in found:
            self._counts.update(devices.split("|"))
        self._sink.check(
            f"unknown_devices_of_{self._things}",
            len(found),
            of,
            f"{self._things} with devices that are not understood; how many GPUs they have is unknown (option "
            "gpu_resource says what a device counts)",
            [f"{holder}: {devices}" for holder, devices in found],
        )

    def report(self) -> None:
        """Name what was found."""
        if self._counts:
            named = ", ".join(f"{name} ({count:,})" for name, count in self._counts.most_common(8))
            more = f" and {len(self._counts) - 8} more" if len(self._counts) > 8 else ""
            example = self._counts.most_common(1)[0][0]
            self._sink.note(
                f"devices of {self._things} that are not understood: {named}{more}; their GPUs are unknown; "
                f"--option gpu_resource={example}=FACTOR says what one counts, 0 for no GPU"
            )
