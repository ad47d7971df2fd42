"""Parsers for values of Kubernetes objects: times, quantities, GPUs.

Each function raises ValueError, with the place and the reason, when a value cannot be read; one that takes `lost` adds
an optional value there instead, which is then unknown.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from tracekit.gpu_parts import has_profile, part_of_gpu
from tracekit.ingest.devices import WHOLE_GPUS, factor_of, is_extended_device

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from tracekit.ingest.cells import LostValues

__all__ = ["Resources", "at", "items", "optional", "pod_resources", "quantity", "text", "time_s"]

_QUANTITY = re.compile(
    r"([+-]?\d{1,18}(?:\.\d{0,12})?|\.\d{1,12})(?:([numkMGTPE]|[KMGTPE]i)|[eE]([+-]?\d{1,2}))?", re.ASCII
)
_SCALE = {
    "n": 1e-9, "u": 1e-6, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18,
    **{f"{letter}i": 1024.0 ** (power + 1) for power, letter in enumerate("KMGTPE")},
}  # fmt: skip
_MODELS = ("nvidia.com/gpu.product", "cloud.google.com/gke-accelerator", "amd.com/gpu.product-name")
_LARGEST = 1e15
_FRACTION = re.compile(r"(?:0?\.\d{1,9}|1(?:\.0{1,9})?)", re.ASCII)


class Resources(NamedTuple):
    """What a pod asks for."""

    gpus: float | None
    """GPUs, parts as parts; None where a device is not understood."""
    cpus: float | None
    memory_gib: float | None
    model: str | None
    devices: str | None
    """Names of devices that are not understood, '|' between them."""


def at(value: Any, *path: str) -> Any:
    """Return what stands at a path of keys, None where a part of it is missing or no object."""
    for key in path:
        if not isinstance(value, dict):
            return None
        value = value.get(key)
    return value


def items(value: Any, *path: str) -> list[dict[str, Any]]:
    """Return the objects of the array at a path."""
    found = at(value, *path)
    return [item for item in found if isinstance(item, dict)] if isinstance(found, list) else []


def text(value: Any, *path: str) -> str | None:
    """Return the text at a path, None where there is none."""
    found = at(value, *path)
    if found is None or found == "":
        return None
    if not isinstance(found, str):
        raise ValueError(f"{'.'.join(path)}: is not text")  # noqa: TRY004 -- a record's fault, as all others here
    return found


def optional(value: Any, lost: LostValues, *path: str) -> str | None:
    """Return the text at a path that its object can be without, None where there is none or it is no text."""
    found = at(value, *path)
    if found is None or isinstance(found, str):
        return found or None
    lost.add(".".join(path), str(found), "is not text")
    return None


def time_s(value: Any, *path: str) -> float | None:
    """Return the time at a path, such as 2024-03-04T10:00:00Z [s since 1970]."""
    found = text(value, *path)
    if found is None:
        return None
    try:
        moment = datetime.fromisoformat(found)
    except ValueError:
        moment = datetime.min
    if moment.tzinfo is None:
        raise ValueError(f"{'.'.join(path)}: is not a time like 2024-03-04T10:00:00Z")
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds()


def quantity(value: Any, name: str) -> float:
    """Return an amount such as 500m, 16Gi or 2."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        found = float(value)
    else:
        match = _QUANTITY.fullmatch(value) if isinstance(value, str) else None
        if match is None:
            raise ValueError(f"{name}: is not a quantity like 500m or 16Gi")
        found = float(match[1]) * (10.0 ** int(match[3]) if match[3] else _SCALE.get(match[2] or "", 1.0))
    if not 0 <= found <= _LARGEST:
        raise ValueError(f"{name}: is a quantity out of range")
    return found


def pod_resources(spec: Any, notes: Any, factors: Mapping[str, float] | None, lost: LostValues) -> Resources:
    """Return what the containers of a pod ask for together.

    Containers that run first, one after the other, count where one of them needs more than all others together, as
    the scheduler counts; those that go on (restartPolicy Always) count with the others.

    Parameters
    ----------
    spec : object
        The pod's spec.
    notes : object
        Its annotations: KAI and Run:ai state parts of GPUs there.
    factors : mapping, optional
        What devices count [GPUs], by the option gpu_resource.
    lost : LostValues
        Receives amounts that cannot be read; what they are part of is unknown.
    """
    unread: set[str] = set()
    together = [*items(spec, "containers")]
    first: list[dict[str, Any]] = []
    for container in items(spec, "initContainers"):
        (together if container.get("restartPolicy") == "Always" else first).append(container)
    parts = [_of_container(container, lost, unread) for container in together]
    before = [_of_container(container, lost, unread) for container in first]
    names = {name for part in (*parts, *before) for name in part}
    whole = {
        name: max(sum(p.get(name, 0.0) for p in parts), *(b.get(name, 0.0) for b in before), 0.0) for name in names
    }
    selector = at(spec, "nodeSelector")
    models = {v for k in _MODELS if isinstance(v := at(selector, k), str) and v}
    gpus, unknown = 0.0, set()
    asked = {**whole, **_claims(spec, lost), **_fractions(notes)}
    for name, amount in sorted(asked.items()):
        share = _share(name, factors or {}, models)
        if amount and share is None:
            unknown.add(name)
        elif amount and share and has_profile(name):
            models.add("mig-" + name.lower().partition("/")[2].removeprefix("mig-").partition(".me")[0])
        gpus += amount * (share or 0.0)
    memory = None if "memory" in unread else whole.get("memory")
    # An amount that cannot be read may be one of GPUs.
    unread_gpus = any(_share(name, factors or {}, models) != 0 for name in unread)
    return Resources(
        None if unknown or unread_gpus else gpus,
        None if "cpu" in unread else whole.get("cpu"),
        None if memory is None else memory / 2**30,
        "|".join(sorted(models)) or None,
        "|".join(sorted(unknown)) or None,
    )


def _share(name: str, factors: Mapping[str, float], models: Iterable[str]) -> float | None:
    """Return what one of a resource counts [GPUs], None where nobody knows."""
    factor = factor_of(factors, name)
    if factor is not None:
        return factor
    if name == _KAI_FRACTION:
        return 1.0
    if name in WHOLE_GPUS:
        # With MIG in its single strategy every slice is a whole device, and the product names the profile.
        name = next((model for model in models if has_profile(model)), name)
    elif not has_profile(name):
        return None if is_extended_device(name) or name == _KAI_MEMORY else 0.0
    part = part_of_gpu(name)
    return None if part is None else part.compute


_KAI_FRACTION, _KAI_DEVICES, _KAI_MEMORY = "gpu-fraction", "gpu-fraction-num-devices", "gpu-memory"
"""Annotations with which KAI and Run:ai share GPUs; memory is in MiB of a GPU whose size the pod does not say."""


def _fractions(notes: Any) -> dict[str, float]:
    """Return the GPUs that annotations ask for; what cannot be read as a fraction is an unknown device."""
    found = {}
    fraction, memory = at(notes, _KAI_FRACTION), at(notes, _KAI_MEMORY)
    devices = at(notes, _KAI_DEVICES) or "1"
    if isinstance(fraction, str) and fraction:
        valid = _FRACTION.fullmatch(fraction) and re.fullmatch(r"[1-9]\d{0,3}", str(devices), re.ASCII)
        found[_KAI_FRACTION if valid else f"{_KAI_FRACTION}/{fraction[:20]}"] = (
            float(fraction) * int(devices) if valid else 1.0
        )
    if isinstance(memory, str) and memory:
        found[_KAI_MEMORY] = float(memory) if re.fullmatch(r"\d{1,9}", memory, re.ASCII) else 1.0
    return found


def _claims(spec: Any, lost: LostValues) -> dict[str, float]:
    """Return the claims of devices (DRA) by name; what they hold is said elsewhere."""
    found: dict[str, float] = {}
    for claim in items(spec, "resourceClaims"):
        named = (optional(claim, lost, key) for key in ("resourceClaimTemplateName", "resourceClaimName", "name"))
        name = f"resourceclaim/{next(filter(None, named), '')[:60]}"
        found[name] = found.get(name, 0.0) + 1.0
    return found


def _of_container(container: dict[str, Any], lost: LostValues, unread: set[str]) -> dict[str, float]:
    """Return the requests by resource; where only a limit is stated, it is the request too."""
    found = {}
    for kind in ("limits", "requests"):
        stated = at(container, "resources", kind)
        for name, value in stated.items() if isinstance(stated, dict) else ():
            try:
                found[name] = quantity(value, name)
            except ValueError as error:
                lost.add(f"resources.{kind}.{name[:60]}", str(value), str(error).rpartition(": ")[2])
                unread.add(name)
    return found
