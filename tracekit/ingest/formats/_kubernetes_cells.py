"""Parsers for values of Kubernetes objects: times, quantities, GPUs.

Each function raises ValueError, with the place and the reason, when a value cannot be read.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime
from typing import Any, NamedTuple

__all__ = ["Resources", "at", "items", "pod_resources", "quantity", "text", "time_s"]

_QUANTITY = re.compile(
    r"([+-]?\d{1,18}(?:\.\d{0,12})?|\.\d{1,12})(?:([numkMGTPE]|[KMGTPE]i)|[eE]([+-]?\d{1,2}))?", re.ASCII
)
_SCALE = {
    "n": 1e-9, "u": 1e-6, "m": 1e-3, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15, "E": 1e18,
    **{f"{letter}i": 1024.0 ** (power + 1) for power, letter in enumerate("KMGTPE")},
}  # fmt: skip
_WHOLE_GPUS = ("nvidia.com/gpu", "amd.com/gpu", "gpu.intel.com/i915", "gpu.intel.com/xe", "habana.ai/gaudi")
_MIG = re.compile(r"nvidia\.com/mig-((\d)g\.(\d{1,3})gb)(?:\..*)?", re.ASCII)
_A30 = frozenset({"1g.6gb", "2g.12gb", "4g.24gb"})
"""Profiles of a GPU that divides into 4 parts; all others divide into 7."""
_MODELS = ("nvidia.com/gpu.product", "cloud.google.com/gke-accelerator", "amd.com/gpu.product-name")
_LARGEST = 1e15


class Resources(NamedTuple):
    """What a pod asks for."""

    gpus: float
    cpus: float | None
    memory_gib: float | None
    model: str | None
    shared: bool
    """Whether it asks for parts of GPUs of unknown size."""


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


def pod_resources(spec: Any) -> Resources:
    """Return what the containers of a pod ask for together.

    Containers that run first, one after the other, count where one of them asks for more than all others together, as
    the scheduler counts; those that go on (restartPolicy Always) count with the others.
    """
    together = [*items(spec, "containers")]
    first: list[dict[str, Any]] = []
    for container in items(spec, "initContainers"):
        (together if container.get("restartPolicy") == "Always" else first).append(container)
    parts = [_of_container(container) for container in together]
    before = [_of_container(container) for container in first]
    names = {name for part in (*parts, *before) for name in part}
    whole = {
        name: max(sum(p.get(name, 0.0) for p in parts), *(b.get(name, 0.0) for b in before), 0.0) for name in names
    }
    gpus, models, shared = 0.0, set(), False
    for name, amount in whole.items():
        mig = _MIG.fullmatch(name)
        if name in _WHOLE_GPUS:
            gpus += amount
        elif mig:
            gpus += amount * int(mig[2]) / (4 if mig[1] in _A30 else 7)
            if amount:
                models.add(f"mig-{mig[1]}")
        elif name.endswith("/gpu.shared") and amount:
            shared = True
    selector = at(spec, "nodeSelector")
    models |= {v for k in _MODELS if isinstance(v := at(selector, k), str) and v}
    memory = whole.get("memory")
    return Resources(
        gpus, whole.get("cpu"), None if memory is None else memory / 2**30, "|".join(sorted(models)) or None, shared
    )


def _of_container(container: dict[str, Any]) -> dict[str, float]:
    """Return the requests by resource; where only a limit is stated, it is the request too."""
    found = {}
    for kind in ("limits", "requests"):
        stated = at(container, "resources", kind)
        for name, value in stated.items() if isinstance(stated, dict) else ():
            found[name] = quantity(value, f"resources.{kind}.{name[:60]}")
    return found
