"""The six rules that choose a node and its GPUs for a task, and their memory of scores.

A rule gives each node that fits a whole score of 0..100, cut and not rounded; the highest wins, ties by rank of the
node. They follow the study of Weng et al., "Beware of Fragmentation", USENIX ATC 2023, where scores are such whole
numbers and ties therefore common. Its 128 cores and 8 GPUs, by which two rules divide, are here the largest node.

A node's score depends on the node and the task's shape alone. So scores are kept by shape, and when a shape comes again
only those nodes are scored that changed in between.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from tracekit.replay.engine.compiled import compiled, inner
from tracekit.replay.fractions.supply import (
    CHANGES,
    CPU_SCALE,
    GPU_SCALE,
    RULES,
    WEIGHT,
    WHOLE,
    feasible,
    wasted_milli,
)

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.replay.fractions.supply import Fractions

__all__ = ["fitting", "place", "score"]

_RANDOM, _DOTPRODUCT, _CLUSTERING, _PACKING, _BESTFIT, _FGD = range(len(RULES))

_SHIFTS = (np.uint64(13), np.uint64(7), np.uint64(17))
_HALF = np.uint64(32)


@compiled
def place(state: Fractions, shape: int, gpus: NDArray[np.int32]) -> int:
    """Choose a node and GPUs for a task by the rule of the state; nothing is taken.

    Parameters
    ----------
    state : Fractions
        Nodes; only its memory of scores and, for the rule 'random', the random state are written.
    shape : int
        Index of the task's shape.
    gpus : array, shape (at least the GPUs of the largest node,)
        Receives the indices of the GPUs, as many as the task asks for.

    Returns
    -------
    int
        Index of the node; -1 where the task fits nowhere.
    """
    row = shape % len(state.scored_shape)
    _refresh(state, shape, row)
    scores = state.scores[row]
    node = _any_that_fits(state, scores) if state.rule == _RANDOM else _highest(scores)
    if node >= 0:
        _choose_gpus(state, shape, node, gpus)
    return node


@inner
def fitting(state: Fractions, shape: int) -> int:
    """Return on how many nodes a task of a shape fits."""
    row = shape % len(state.scored_shape)
    _refresh(state, shape, row)
    count = 0
    for node in range(len(state.nodes)):
        count += state.scores[row, node] >= 0
    return count


@compiled
def score(state: Fractions, shape: int, node: int) -> int:
    """Return the score of a node for a task, 0..100; -1 where the task does not fit."""
    if not feasible(state, shape, node):
        return -1
    points = 0  # the rule 'random' needs to know only who fits
    if state.rule == _DOTPRODUCT:
        points = _dotproduct(state, shape, node)
    elif state.rule == _CLUSTERING:
        points = _clustering(state, shape, node)
    elif state.rule == _PACKING:
        points = _packing(state, shape, node)
    elif state.rule == _BESTFIT:
        points = _bestfit(state, shape, node)
    elif state.rule == _FGD:
        points = _fgd(state, shape, node)
    return points


@inner
def _refresh(state: Fractions, shape: int, row: int) -> None:
    changes = state.totals[CHANGES]
    known = state.scored_until[row]
    # The ring of changes holds as many as there are nodes: beyond that, or for another shape, all are scored.
    everything = state.scored_shape[row] != shape or changes - known > len(state.changed)
    for number in range(0 if everything else known, len(state.nodes) if everything else changes):
        node = number if everything else state.changed[number % len(state.changed)]
        if everything or state.nodes[node]["changed"] == number:
            state.scores[row, node] = score(state, shape, node)
    state.scored_shape[row] = shape
    state.scored_until[row] = changes


@inner
def _highest(scores: NDArray[np.int8]) -> int:
    highest = np.int8(-1)
    for node in range(len(scores)):
        highest = max(highest, scores[node])
    if highest < 0:
        return -1
    for node in range(len(scores)):
        if scores[node] == highest:
            return node
    return -1


@inner
def _any_that_fits(state: Fractions, scores: NDArray[np.int8]) -> int:
    fitting = 0
    for node in range(len(scores)):
        fitting += scores[node] >= 0
    if fitting == 0:
        return -1
    before = _draw(state.random, fitting)
    for node in range(len(scores)):
        if scores[node] >= 0:
            if before == 0:
                return node
            before -= 1
    return -1


@inner
def _draw(random: NDArray[np.uint64], below: int) -> int:
    """Return a random whole number of 0..below-1 (xorshift64, its upper half; `below` under 2^32)."""
    bits = random[0]
    bits ^= bits << _SHIFTS[0]
    bits ^= bits >> _SHIFTS[1]
    bits ^= bits << _SHIFTS[2]
    random[0] = bits
    return int(((bits >> _HALF) * np.uint64(below)) >> _HALF)


@inner
def _dotproduct(state: Fractions, shape: int, node: int) -> int:
    """Score 100 * (1 - mean over CPU and GPU of left * asked), in parts of the largest node."""
    task, there = state.shapes[shape], state.nodes[node]
    cpu_scale, gpu_scale = state.totals[CPU_SCALE], state.totals[GPU_SCALE]
    cpu = (there["cpu_left"] / cpu_scale) * (task["cpu"] / cpu_scale)
    gpu = (there["milli_left"] / gpu_scale) * (task["count"] * task["milli"] / gpu_scale)
    return int(100.0 * (1.0 - (cpu + gpu) / 2.0))


@inner
def _bestfit(state: Fractions, shape: int, node: int) -> int:
    """Score 100 * (1 - mean over CPU and GPU of what stays free), in parts of the largest node.

    The study then stretches the scores over 0..100; that keeps their order and makes no two of them equal, so that the
    same node wins without it.
    """
    task, there = state.shapes[shape], state.nodes[node]
    cpu = (there["cpu_left"] - task["cpu"]) / state.totals[CPU_SCALE]
    gpu = (there["milli_left"] - task["count"] * task["milli"]) / state.totals[GPU_SCALE]
    return int((1.0 - (cpu * 0.5 + gpu * 0.5)) * 100.0)


@inner
def _clustering(state: Fractions, shape: int, node: int) -> int:
    """Score by company: only tasks of the same size, such among others, no tasks, only others; fuller first."""
    task, there = state.shapes[shape], state.nodes[node]
    if task["count"] == 0:
        return 0
    sizes = 0
    for size in range(state.holders.shape[1]):
        sizes += state.holders[node, size] > 0
    full: int = 25 * (state.totals[GPU_SCALE] - there["milli_left"]) // state.totals[GPU_SCALE]
    own = task["count"] if task["milli"] == WHOLE else 0
    if state.holders[node, own] > 0:
        return full + (75 if sizes == 1 else 50)
    return full + (25 if sizes == 0 else 0)


@inner
def _packing(state: Fractions, shape: int, node: int) -> int:
    """Score GPUs in use before unused GPUs of a used node before unused nodes."""
    task, there = state.shapes[shape], state.nodes[node]
    if task["count"] == 0:
        return 0
    if there["whole"] == there["gpus"]:
        return int(max(33 - there["gpus"], min(33, there["gpus"])))
    # The GPUs with least left that suffice: whole ones are needed where the used ones are too few.
    used = 0
    for gpu in range(there["gpus"]):
        left = state.gpu_left[node, gpu]
        used += task["milli"] <= left < WHOLE
    if used < task["count"]:
        return int(max(50 - (task["count"] - used), 33))
    _least_left_of_all(state, shape, node, state.scratch)
    free_percent = 0
    for index in range(task["count"]):
        free_percent += state.gpu_left[node, state.scratch[index]] * 100 // WHOLE
    return int(max(100 - free_percent // 10, 50))


@inner
def _fgd(state: Fractions, shape: int, node: int) -> int:
    """Score 100 * sigmoid of the fragment that the task takes away, in GPUs; the best of its GPUs for a part of one."""
    task = state.shapes[shape]
    if task["count"] == 1 and task["milli"] < WHOLE:
        return _best_gpu(state, shape, node)[0]
    there = state.nodes[node]
    _least_left_of_all(state, shape, node, state.scratch)
    there["cpu_left"] -= task["cpu"]
    for index in range(task["count"]):
        state.gpu_left[node, state.scratch[index]] -= task["milli"]
    after = wasted_milli(state, node)
    for index in range(task["count"]):
        state.gpu_left[node, state.scratch[index]] += task["milli"]
    there["cpu_left"] += task["cpu"]
    return _gain(state, there["wasted"], after)


@inner
def _best_gpu(state: Fractions, shape: int, node: int) -> tuple[int, int]:
    """Return the best score among the GPUs that fit and the GPU, the lowest on ties."""
    task, there = state.shapes[shape], state.nodes[node]
    best, chosen = -1, -1
    there["cpu_left"] -= task["cpu"]
    for gpu in range(there["gpus"]):
        left = state.gpu_left[node, gpu]
        if left < task["milli"]:
            continue
        seen = False  # a GPU with as much left gives the same fragment
        for earlier in range(gpu):
            seen |= state.gpu_left[node, earlier] == left
        if seen:
            continue
        state.gpu_left[node, gpu] = left - task["milli"]
        points = _gain(state, there["wasted"], wasted_milli(state, node))
        state.gpu_left[node, gpu] = left
        if points > best:
            best, chosen = points, gpu
    there["cpu_left"] += task["cpu"]
    return best, chosen


@inner
def _gain(state: Fractions, before: int, after: int) -> int:
    fragment = (before - after) / state.totals[WEIGHT] / 1000.0 if state.totals[WEIGHT] > 0 else 0.0
    return int(100.0 * (1.0 / (1.0 + math.exp(-fragment))))


@inner
def _least_left(state: Fractions, node: int, milli: int, last: int) -> int:
    """Return the next GPU after `last` (-1: the first) by what is left, then index, among those with enough left."""
    chosen = -1
    for gpu in range(state.nodes[node]["gpus"]):
        left = state.gpu_left[node, gpu]
        if left < milli:
            continue
        if last >= 0:
            limit = state.gpu_left[node, last]
            if left < limit or (left == limit and gpu <= last):
                continue
        if chosen < 0 or left < state.gpu_left[node, chosen]:
            chosen = gpu
    return chosen


@inner
def _least_left_of_all(state: Fractions, shape: int, node: int, gpus: NDArray[np.int32]) -> None:
    """Write the GPUs with least left that suffice; whole ones come in order of their index."""
    task = state.shapes[shape]
    last = -1
    for index in range(task["count"]):
        last = _least_left(state, node, task["milli"], last)
        gpus[index] = last


@inner
def _choose_gpus(state: Fractions, shape: int, node: int, gpus: NDArray[np.int32]) -> None:
    task = state.shapes[shape]
    part = task["count"] == 1 and task["milli"] < WHOLE
    if part and state.rule == _FGD:
        gpus[0] = _best_gpu(state, shape, node)[1]
    elif part and state.rule == _RANDOM:
        gpus[0] = _any_gpu(state, node, task["milli"])
    else:
        _least_left_of_all(state, shape, node, gpus)


@inner
def _any_gpu(state: Fractions, node: int, milli: int) -> int:
    enough = 0
    for gpu in range(state.nodes[node]["gpus"]):
        enough += state.gpu_left[node, gpu] >= milli
    before = _draw(state.random, enough)
    for gpu in range(state.nodes[node]["gpus"]):
        if state.gpu_left[node, gpu] >= milli:
            if before == 0:
                return gpu
            before -= 1
    return -1
