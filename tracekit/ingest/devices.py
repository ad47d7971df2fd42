"""Classify a device by its name: a GPU, part of a GPU, another device, or unknown.

A device not listed here may be an accelerator. A job with such a device has an unknown GPU count, unless the
gpu_resource option sets how many GPUs the device counts as. `tracekit.gpu_parts` handles parts of GPUs.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING

from tracekit.errors import UsageError
from tracekit.options import Option

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tracekit.ingest.sink import Sink

GPU_RESOURCE = Option(
    "",
    "devices that count as GPUs, each as NAME or NAME=FACTOR: npu, gpu:vgpu=0.25, huawei.com/Ascend910=1, fpga=0; "
    "separate several with commas, or repeat the option",
)
"""The option for formats whose logs name devices."""

WHOLE_GPUS = ("nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/i915", "gpu.intel.com/xe", "habana.ai/gaudi")
"""Kubernetes resource names of whole GPUs."""

_MOST = 4_096.0
"""Largest allowed factor."""


def device_factors(text: str) -> dict[str, float]:
    """Return how many GPUs each device counts as, from the gpu_resource option, by lowercase name.

    Raises
    ------
    UsageError
        A name is missing, or a factor is not a number from 0 to 4,096.

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
            hint = "give NAME or NAME=FACTOR, such as huawei.com/Ascend910 or npu=1"
            raise UsageError(
                f"'{word[:80]}' is not a device with a number of GPUs", where="--option gpu_resource", hint=hint
            )
        found[name.strip().lower().removeprefix("gres/")] = float(factor) if equals else 1.0
    return found


def factor_of(factors: Mapping[str, float], *names: str) -> float | None:
    """Return the factor [GPUs] of the first name that is in the gpu_resource option, or None if none is."""
    return next((factors[name.lower()] for name in names if name.lower() in factors), None)


# Generic resources (GRES) that sites declare for things other than accelerators, such as fast disks, network ports,
# licences and displays.
_NO_GRES = re.compile(
    r"craynetwork|gpumem|gpuutil|none|"
    r"(?!.*gpu|.*vram).*(?:tmp|scratch|disk|dsk|ssd|hdd|nvme|stor|lustre|gpfs|beegfs|ceph|bandw|net|infini|roce|rdma|"
    r"licen|token|mem|swap|cache|burst|quota|energy|power|display|vnc|x11|viz|port).*|"
    r"nic|hca\d*|ib\d*|opa|mlx\d*.*|efa|eth.*|bw|fs|nfs|bb|lic|hbm|slots?",
    re.ASCII | re.IGNORECASE,
)
# Kubernetes extended resources that are not accelerators, such as networks, files, virtual machines and cryptography.
_NO_EXTENDED = re.compile(
    r".*(?:rdma|hca|roce|infiniband|sriov|/ib\b|/efa|\beni\b|/nic\b|/vf|network|hostdev|multus|ovs|dpdk|kubevirt|"
    r"/kvm|/tun|/vhost|/fuse|sgx|tdx|/sev|/qat|/dsa|/iaa|batch-cpu|batch-memory|mid-cpu|mid-memory|ephemeral|hugepage|"
    r"storage|volume|/disk|/ssd|/nvme|private-?ip|podip|pod-ip|branch|licen|smarter-devices|snd|video|input).*",
    re.ASCII | re.IGNORECASE,
)


def is_gres_device(kind: str) -> bool:
    """Return whether a type of Slurm generic resource (GRES), such as 'gpu' or 'npu', may be an accelerator."""
    return _NO_GRES.fullmatch(kind) is None


def is_extended_device(name: str) -> bool:
    """Return whether a Kubernetes resource may be an accelerator: it has a slash and is not in the list above."""
    return "/" in name and _NO_EXTENDED.fullmatch(name) is None


_ACCELERATOR = re.compile(
    r"n?(?:_?(?:npu|dcu|hpu|mlu|gcu|xpu|tpu|ipu|vpu|fpga|mic|ve|accelerator|ascend\w*|gaudi\w*)s?|"
    r"(?!.*(?:mem|vram|cap|type|model|util|driver|cuda|mode|freq|share|_id))\w*(?:gpu|mig)\w*)",
    re.ASCII | re.IGNORECASE,
)


def is_accelerator(name: str) -> bool:
    """Return whether the name of a site-defined resource looks like an accelerator.

    For schedulers without device types.

    Examples
    --------
    >>> is_accelerator("nmics"), is_accelerator("ngpus_a100"), is_accelerator("gpu_mem"), is_accelerator("scratch")
    (True, True, False, False)
    """
    return _ACCELERATOR.fullmatch(name) is not None


class UnknownDevices:
    """Counts unknown devices by name.

    Parameters
    ----------
    sink : Sink
        Receives a check for each batch and a note at the end.
    things : str
        The owners of the devices: 'jobs' or 'pods'.
    """

    def __init__(self, sink: Sink, things: str) -> None:
        self._sink, self._things = sink, things
        self._counts: Counter[str] = Counter()

    def add(self, holders: Iterable[tuple[str, str]], of: int | None) -> None:
        """Count owners with unknown devices, out of `of`. Each is a name and its devices, separated by '|'."""
        found = list(holders)
        for _, devices in found:
            self._counts.update(devices.split("|"))
        self._sink.check(
            f"unknown_devices_of_{self._things}",
            len(found),
            of,
            f"{self._things} with unknown devices; their number of GPUs is unknown (the option "
            "gpu_resource sets how many GPUs a device counts as)",
            [f"{holder}: {devices}" for holder, devices in found],
        )

    def report(self) -> None:
        """Add a note that names the unknown devices."""
        if self._counts:
            named = ", ".join(f"{name} ({count:,})" for name, count in self._counts.most_common(8))
            more = f" and {len(self._counts) - 8} more" if len(self._counts) > 8 else ""
            example = self._counts.most_common(1)[0][0]
            self._sink.note(
                f"unknown devices of {self._things}: {named}{more}; their GPUs are unknown; "
                f"--option gpu_resource={example}=FACTOR sets how many GPUs a device counts as, 0 for none"
            )
