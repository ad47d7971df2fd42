"""The order of jobs: a key gives each job a number, and jobs with smaller numbers go first, ties by submission.

A key is a function of whole numbers, asked whenever a job starts to wait, starts to run or changes its level:

- submit_ms: submission [ms]
- gpus: GPUs of the gang
- estimate_ms: what the policy believes the job will run, in all [ms]
- remaining_ms: run time that is truly left, with overheads not yet served [ms]; only oracles look at it
- attained_gpu_ms: service so far [GPU*ms]
- level: `Ordered.level_values` of the job's level, 0 without levels
- value: `Ordered.value` of the job, 0 without

It returns a whole number that 64 bits hold, looks at nothing else and changes nothing. Any Python function will do, at
about 0.3 us a call; those below have a compiled twin in engine/keys.pxi, which the engine takes in their place.

>>> def most_gpus_first(submit_ms, gpus, estimate_ms, remaining_ms, attained_gpu_ms, level, value):
...     return -gpus
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable

    Key: TypeAlias = Callable[[int, int, int, int, int, int, int], int]

__all__ = [
    "by_arrival",
    "engine_key",
    "least_attained",
    "least_attained_stays",
    "most_urgent",
    "shortest",
    "shortest_left",
    "smallest",
    "smallest_left",
]

_SPAN = 1 << 44
"""Above every submission [ms]: 557 years."""


def by_arrival(
    submit_ms: int, gpus: int, estimate_ms: int, remaining_ms: int, attained_gpu_ms: int, level: int, value: int
) -> int:
    """Earliest submission first."""
    return submit_ms


def shortest(
    submit_ms: int, gpus: int, estimate_ms: int, remaining_ms: int, attained_gpu_ms: int, level: int, value: int
) -> int:
    """Least expected run time first."""
    return estimate_ms


def smallest(
    submit_ms: int, gpus: int, estimate_ms: int, remaining_ms: int, attained_gpu_ms: int, level: int, value: int
) -> int:
    """Least expected GPU time first."""
    return estimate_ms * gpus


def shortest_left(
    submit_ms: int, gpus: int, estimate_ms: int, remaining_ms: int, attained_gpu_ms: int, level: int, value: int
) -> int:
    """Least remaining run time first."""
    return remaining_ms


def smallest_left(
    submit_ms: int, gpus: int, estimate_ms: int, remaining_ms: int, attained_gpu_ms: int, level: int, value: int
) -> int:
    """Least remaining GPU time first."""
    return remaining_ms * gpus


def least_attained(
    submit_ms: int, gpus: int, estimate_ms: int, remaining_ms: int, attained_gpu_ms: int, level: int, value: int
) -> int:
    """Lowest level first, by submission inside a level."""
    return level * _SPAN + submit_ms


def least_attained_stays(
    submit_ms: int, gpus: int, estimate_ms: int, remaining_ms: int, attained_gpu_ms: int, level: int, value: int
) -> int:
    """Lowest level first; equal keys evict nobody, and wait by submission."""
    return level


def most_urgent(
    submit_ms: int, gpus: int, estimate_ms: int, remaining_ms: int, attained_gpu_ms: int, level: int, value: int
) -> int:
    """Greatest `value` first, by submission among equals."""
    return submit_ms - value * _SPAN


def engine_key(key: Key) -> Any:
    """Return what the engine asks: the compiled twin of a key of this module, or else the function itself."""
    from tracekit.replay.kernel import KEYS, PythonKey

    compiled = KEYS.get(key.__name__) if getattr(key, "__module__", None) == __name__ else None
    return compiled() if compiled else PythonKey(key)
