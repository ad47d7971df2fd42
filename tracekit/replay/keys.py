"""The order of jobs. A key gives each job a number. Smaller numbers go first, and ties go in submission order.

A key is a function of whole numbers. It is called whenever a job starts to wait, starts to run or changes its level:

- submit_ms: submission [ms]
- gpus: GPUs of the job
- estimate_ms: total run time that the policy expects [ms]
- remaining_ms: actual remaining run time, including overheads still to be served [ms], which only oracles use
- attained_gpu_ms: GPU time received so far [GPU*ms]
- level: `Ordered.level_values` of the job's level, or 0 if there are no levels
- value: `Ordered.value` of the job, or 0 if not set

A key returns a whole number of at most 64 bits, depends only on its arguments and has no side effects. Any such Python
function works, at about 0.3 us per call. The engine uses compiled versions of the keys below (engine/keys.pxi).

>>> def most_gpus_first(submit_ms, gpus, estimate_ms, remaining_ms, attained_gpu_ms, level, value):
...     return -gpus
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from tracekit.replay.native import compiled

if TYPE_CHECKING:
    from collections.abc import Callable

    Key: TypeAlias = Callable[[int, int, int, int, int, int, int], int]


_SPAN = 1 << 44
"""Larger than any submission time [ms]: 557 years."""


def by_arrival(
    submit_ms: int, gpus: int, estimate_ms: int, remaining_ms: int, attained_gpu_ms: int, level: int, value: int
) -> int:
    """Earliest submission first."""
    return submit_ms


def shortest(
    submit_ms: int, gpus: int, estimate_ms: int, remaining_ms: int, attained_gpu_ms: int, level: int, value: int
) -> int:
    """Shortest expected run time first."""
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
    """Lowest level first, and in submission order within a level."""
    return level * _SPAN + submit_ms


def least_attained_stays(
    submit_ms: int, gpus: int, estimate_ms: int, remaining_ms: int, attained_gpu_ms: int, level: int, value: int
) -> int:
    """Lowest level first. Jobs with equal keys do not preempt each other and wait in submission order."""
    return level


def most_urgent(
    submit_ms: int, gpus: int, estimate_ms: int, remaining_ms: int, attained_gpu_ms: int, level: int, value: int
) -> int:
    """Largest `value` first, and ties in submission order."""
    return submit_ms - value * _SPAN


def engine_key(key: Key) -> Any:
    """Return the key for the engine: the compiled version if the key is one of this module's, or else the function."""
    own = compiled.KEYS.get(key.__name__) if getattr(key, "__module__", None) == __name__ else None
    return own() if own else compiled.PythonKey(key)
