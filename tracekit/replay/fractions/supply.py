"""Nodes with GPUs in thousandths: their free capacity, and the part that the workload cannot use.

The functions for these nodes are compiled (fractional.pxi), have no state of their own and use integers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from tracekit.errors import UsageError, nearest
from tracekit.replay.engine.state import struct_dtype
from tracekit.replay.native import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.replay.fractions.tasks import ExpectedWorkload, Supply, Tasks


RULES = ("random", "dotproduct", "clustering", "packing", "bestfit", "fgd")
"""Names of the placement rules, into which `Fractions.rule` is an index."""

WHOLE = 1_000
"""A whole GPU [milli-GPU]."""

_CELLS = 64_000_000


class Fractions(NamedTuple):
    """Nodes and the tasks on them, as arrays that compiled code reads and writes. Nodes are sorted by rank."""

    rule: int
    """Placement rule, an index into RULES."""
    nodes: NDArray[np.void]
    """PartNode of each node (N,)."""
    gpu_left: NDArray[np.int32]
    """Free capacity of each GPU [milli-GPU], or 0 beyond the GPUs of a node (N, G)."""
    holders: NDArray[np.int32]
    """Number of tasks on each node by size: part of a GPU, then 1, 2, ... whole GPUs (N, 1 + G)."""
    accepted: NDArray[np.uint8]
    """Whether a set of models contains a model (sets, models)."""
    shapes: NDArray[np.void]
    """Shapes of the tasks, Shape (S,)."""
    expected: NDArray[np.void]
    """The expected workload, Shape (M,)."""
    totals: NDArray[np.int64]
    """Totals, at the positions given by CHANGES and the constants after it in fractional.pxi (6,)."""
    changed: NDArray[np.int32]
    """The nodes of the last N changes, as a ring in which change number i is at i modulo N (N,)."""
    scores: NDArray[np.int8]
    """Scores of the nodes for a shape, 0..100, or -1 if it does not fit (rows, N). Shape s uses row s modulo rows."""
    scored_shape: NDArray[np.int32]
    """Shape to which a row of `scores` belongs, or -1 if the row is still unused (rows,)."""
    scored_until: NDArray[np.int64]
    """Number of changes that a row of `scores` includes (rows,)."""
    random: NDArray[np.uint64]
    """State of the random number generator, never 0 (1,)."""
    scratch: NDArray[np.int32]
    """Buffer for the GPUs of a task (G,)."""


def fractions(
    supply: Supply,
    tasks: Tasks,
    expected: ExpectedWorkload,
    rule: str,
    *,
    seed: int = 0,
    rank: NDArray[np.int64] | None = None,
) -> Fractions:
    """Return empty nodes, prepared for tasks of the given shapes.

    Parameters
    ----------
    supply : Supply
        The nodes.
    tasks : Tasks
        The tasks that may come. Only their shapes are used.
    expected : ExpectedWorkload
        The workload that defines fragmentation (see `expected_workload`).
    rule : str
        A name of RULES.
    seed : int
        Seed of the rule 'random', at least 0.
    rank : array, shape (N,), optional
        Order of the nodes: `rank[0]` is the index in `supply` of the node that wins every tie. By default, nodes are in
        the listed order.

    Raises
    ------
    UsageError
        The rule does not exist.
    """
    if rule not in RULES:
        raise UsageError(f"no placement rule '{rule}'", hint=nearest(rule, RULES))
    order = np.arange(len(supply)) if rank is None else rank
    gpus = supply.gpus[order]
    most = max(1, int(gpus.max(initial=1)))
    nodes = np.zeros(len(order), dtype=struct_dtype("PartNode"))
    nodes["cpu_left"], nodes["memory_left"] = supply.cpu_milli[order], supply.memory_mib[order]
    nodes["gpus"], nodes["whole"], nodes["milli_left"] = gpus, gpus, gpus * WHOLE
    nodes["model"] = supply.model[order]
    nodes["changed"] = -1
    rows = max(1, min(len(tasks.shapes), _CELLS // max(1, len(nodes))))
    totals = np.zeros(6, dtype=np.int64)
    totals[compiled.MILLI_LEFT] = gpus.sum() * WHOLE
    totals[compiled.CPU_SCALE] = max(1, int(supply.cpu_milli.max(initial=1)))
    totals[compiled.GPU_SCALE] = most * WHOLE
    totals[compiled.WEIGHT] = expected.shapes["weight"].sum()
    sets = list(dict.fromkeys([*tasks.model_sets, *expected.model_sets]))
    expected_shapes = expected.shapes.copy()
    expected_shapes["models"] = [sets.index(expected.model_sets[index]) for index in expected_shapes["models"]]
    state = Fractions(
        rule=RULES.index(rule),
        nodes=nodes,
        gpu_left=np.where(np.arange(most) < gpus[:, None], WHOLE, 0).astype(np.int32),
        holders=np.zeros((len(nodes), 1 + most), dtype=np.int32),
        accepted=_accepted(sets, supply.models).view(np.uint8),
        shapes=tasks.shapes,
        expected=expected_shapes,
        totals=totals,
        changed=np.full(len(nodes), -1, dtype=np.int32),
        scores=np.full((rows, len(nodes)), -1, dtype=np.int8),
        scored_shape=np.full(rows, -1, dtype=np.int32),
        scored_until=np.zeros(rows, dtype=np.int64),
        random=np.random.SeedSequence(seed).generate_state(1, np.uint64) | np.uint64(1),
        scratch=np.zeros(most, dtype=np.int32),
    )
    compiled.measure(compiled.Fractions(state))
    return state


def _accepted(model_sets: list[str], models: list[str]) -> NDArray[np.bool_]:
    table = [[not names or model in names.split("|") for model in models] for names in model_sets]
    return np.array(table, dtype=np.bool_).reshape(len(model_sets), len(models))
