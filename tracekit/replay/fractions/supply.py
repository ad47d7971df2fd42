"""Nodes whose GPUs are divided in thousandths: what is left of them, and how much of that the workload cannot use.

All functions below the state are compiled, keep no memory of their own and work in whole numbers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tracekit.errors import UsageError, nearest
from tracekit.replay.engine.compiled import compiled, inner

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.replay.fractions.demands import Demands, Expected, Supply

__all__ = [
    "NODE",
    "RULES",
    "Fractions",
    "bar",
    "feasible",
    "fractions",
    "release",
    "take",
    "wasted_milli",
]

RULES = ("random", "dotproduct", "clustering", "packing", "bestfit", "fgd")
"""Names of the placement rules; `Fractions.rule` is an index into them."""

WHOLE = 1_000
"""A whole GPU [milli-GPU]."""

NODE = np.dtype(
    [
        ("cpu_left", np.int64),  # [milli-cores]
        ("memory_left", np.int64),  # [MiB]
        ("milli_left", np.int64),  # of all its GPUs together [milli-GPU]
        ("wasted", np.int64),  # see wasted_milli
        ("changed", np.int64),  # number of the last change; see Fractions.changed
        ("gpus", np.int32),
        ("whole", np.int32),  # GPUs that nobody uses
        ("model", np.int32),
    ]
)
"""State of one node."""

CHANGES, MILLI_LEFT, WASTED, CPU_SCALE, GPU_SCALE, WEIGHT = range(6)
"""Places in `Fractions.totals`: changes of nodes so far; sums over the nodes of `milli_left` and `wasted`;
CPU [milli-cores] and GPUs [milli-GPU] of the largest node; tasks of the expected workload."""

_CELLS = 64_000_000
_BARRED = 1 << 60


class Fractions(NamedTuple):
    """Nodes and what runs on them, as arrays that compiled code reads and writes. Nodes stand in order of rank."""

    rule: int
    """Placement rule, an index into RULES."""
    nodes: NDArray[np.void]
    """Rows of NODE (N,)."""
    gpu_left: NDArray[np.int32]
    """What is left of each GPU [milli-GPU] (N, G); 0 beyond the GPUs of a node."""
    holders: NDArray[np.int32]
    """Tasks on each node by size: on a part of a GPU, on 1, on 2, ... whole GPUs (N, 1 + G)."""
    accepted: NDArray[np.bool_]
    """Whether a set of models holds a model (sets, models)."""
    shapes: NDArray[np.void]
    """Shapes of the tasks, rows of SHAPE (S,)."""
    expected: NDArray[np.void]
    """The expected workload, rows of SHAPE (M,)."""
    totals: NDArray[np.int64]
    """See CHANGES and those beside it (6,)."""
    changed: NDArray[np.int32]
    """The nodes of the last N changes, a ring: change number i stands at i modulo N (N,)."""
    scores: NDArray[np.int8]
    """Scores of the nodes for a shape, 0..100, -1 where it does not fit (rows, N). Shape s uses row s modulo rows."""
    scored_shape: NDArray[np.int32]
    """Which shape a row of `scores` belongs to; -1 none yet (rows,)."""
    scored_until: NDArray[np.int64]
    """Number of changes that a row of `scores` knows of (rows,)."""
    random: NDArray[np.uint64]
    """State of the random numbers, never 0 (1,)."""
    scratch: NDArray[np.int32]
    """Room for the GPUs of a task (G,)."""


def fractions(
    supply: Supply,
    tasks: Demands,
    expected: Expected,
    rule: str,
    *,
    seed: int = 0,
    rank: NDArray[np.int64] | None = None,
) -> Fractions:
    """Return empty nodes, ready for tasks of the given shapes.

    Parameters
    ----------
    supply : Supply
        The nodes.
    tasks : Demands
        The tasks that may come; only their shapes are looked at.
    expected : Expected
        The workload that defines fragmentation; see `expected_workload`.
    rule : str
        A name of RULES.
    seed : int
        Seed of the rule 'random', 0 or more.
    rank : array, shape (N,), optional
        Order of the nodes: `rank[0]` is the index in `supply` of the node that wins every tie. As listed by default.

    Raises
    ------
    UsageError
        No such rule.
    """
    if rule not in RULES:
        raise UsageError(f"no placement rule '{rule}'", hint=nearest(rule, RULES))
    order = np.arange(len(supply)) if rank is None else rank
    gpus = supply.gpus[order]
    most = max(1, int(gpus.max(initial=1)))
    nodes = np.zeros(len(order), dtype=NODE)
    nodes["cpu_left"], nodes["memory_left"] = supply.cpu_milli[order], supply.memory_mib[order]
    nodes["gpus"], nodes["whole"], nodes["milli_left"] = gpus, gpus, gpus * WHOLE
    nodes["model"] = supply.model[order]
    nodes["changed"] = -1
    rows = max(1, min(len(tasks.shapes), _CELLS // max(1, len(nodes))))
    totals = np.zeros(6, dtype=np.int64)
    totals[MILLI_LEFT] = gpus.sum() * WHOLE
    totals[CPU_SCALE] = max(1, int(supply.cpu_milli.max(initial=1)))
    totals[GPU_SCALE] = most * WHOLE
    totals[WEIGHT] = expected.shapes["weight"].sum()
    sets = list(dict.fromkeys([*tasks.model_sets, *expected.model_sets]))
    wanted = expected.shapes.copy()
    wanted["models"] = [sets.index(expected.model_sets[index]) for index in wanted["models"]]
    state = Fractions(
        rule=RULES.index(rule),
        nodes=nodes,
        gpu_left=np.where(np.arange(most) < gpus[:, None], WHOLE, 0).astype(np.int32),
        holders=np.zeros((len(nodes), 1 + most), dtype=np.int32),
        accepted=_accepted(sets, supply.models),
        shapes=tasks.shapes,
        expected=wanted,
        totals=totals,
        changed=np.full(len(nodes), -1, dtype=np.int32),
        scores=np.full((rows, len(nodes)), -1, dtype=np.int8),
        scored_shape=np.full(rows, -1, dtype=np.int32),
        scored_until=np.zeros(rows, dtype=np.int64),
        random=np.random.SeedSequence(seed).generate_state(1, np.uint64) | np.uint64(1),
        scratch=np.zeros(most, dtype=np.int32),
    )
    _measure(state)
    return state


def _accepted(model_sets: list[str], models: list[str]) -> NDArray[np.bool_]:
    table = [[not names or model in names.split("|") for model in models] for names in model_sets]
    return np.array(table, dtype=np.bool_).reshape(len(model_sets), len(models))


@compiled
def _measure(state: Fractions) -> None:
    for node in range(len(state.nodes)):
        wasted = wasted_milli(state, node)
        state.nodes[node]["wasted"] = wasted
        state.totals[WASTED] += wasted


@compiled
def feasible(state: Fractions, shape: int, node: int) -> bool:
    """Tell whether a task of a shape fits on a node: CPU, memory, model, and GPUs that each have enough left."""
    task, place = state.shapes[shape], state.nodes[node]
    if place["cpu_left"] < task["cpu"] or place["memory_left"] < task["memory"]:
        return False
    if task["count"] == 0:
        return True
    if not state.accepted[task["models"], place["model"]]:
        return False
    enough = 0
    for gpu in range(place["gpus"]):
        if state.gpu_left[node, gpu] >= task["milli"]:
            enough += 1
    return bool(enough >= task["count"])


@compiled
def wasted_milli(state: Fractions, node: int) -> int:
    """Return the GPU capacity of a node that the expected workload cannot use.

    The sum over the expected shapes of weight * wasted(shape), where wasted is all that is left of the node's GPUs if
    the shape asks for no GPU or does not fit (memory is not looked at), and otherwise what is left on those GPUs that
    have less than the shape asks of each. Divided by the workload's weight it is the fragment F of the node by Weng et
    al., "Beware of Fragmentation", USENIX ATC 2023.

    Returns
    -------
    int
        F * weight of the expected workload [milli-GPU * tasks].
    """
    place = state.nodes[node]
    gpus = place["gpus"]
    idle = 0
    for gpu in range(gpus):
        idle += state.gpu_left[node, gpu]
    if idle == 0:
        return 0
    wasted = 0
    for index in range(len(state.expected)):
        task = state.expected[index]
        lost = idle
        if task["count"] > 0 and place["cpu_left"] >= task["cpu"] and state.accepted[task["models"], place["model"]]:
            enough = 0
            scraps = 0
            for gpu in range(gpus):
                left = state.gpu_left[node, gpu]
                if left >= task["milli"]:
                    enough += 1
                else:
                    scraps += left
            if enough >= task["count"]:
                lost = scraps
        wasted += task["weight"] * lost
    return wasted


@compiled
def take(state: Fractions, shape: int, node: int, gpus: NDArray[np.int32]) -> None:
    """Start a task on a node, on the first `count` of the GPUs given; the caller has made sure that it fits."""
    _change(state, shape, node, gpus, 1)


@compiled
def release(state: Fractions, shape: int, node: int, gpus: NDArray[np.int32]) -> None:
    """End a task: give back what `take` took with the same arguments."""
    _change(state, shape, node, gpus, -1)


@inner
def _change(state: Fractions, shape: int, node: int, gpus: NDArray[np.int32], sign: int) -> None:
    task, place, totals = state.shapes[shape], state.nodes[node], state.totals
    count, milli = task["count"], task["milli"]
    place["cpu_left"] -= sign * task["cpu"]
    place["memory_left"] -= sign * task["memory"]
    for index in range(count):
        gpu = gpus[index]
        before = state.gpu_left[node, gpu]
        after = before - sign * milli
        state.gpu_left[node, gpu] = after
        if before == WHOLE and after < WHOLE:
            place["whole"] -= 1
        if after == WHOLE and before < WHOLE:
            place["whole"] += 1
    if count > 0:
        size = count if milli == WHOLE else 0
        state.holders[node, size] += sign
        place["milli_left"] -= sign * count * milli
        totals[MILLI_LEFT] -= sign * count * milli
    _note(state, node)


@compiled
def bar(state: Fractions, node: int, sign: int) -> None:
    """Let no task fit on a node (sign 1) until that is taken back (-1); what runs there runs on."""
    state.nodes[node]["cpu_left"] -= sign * _BARRED
    _note(state, node)


@inner
def _note(state: Fractions, node: int) -> None:
    place, totals = state.nodes[node], state.totals
    wasted = wasted_milli(state, node)
    totals[WASTED] += wasted - place["wasted"]
    place["wasted"] = wasted
    number = totals[CHANGES]
    state.changed[number % len(state.changed)] = node
    place["changed"] = number
    totals[CHANGES] = number + 1
