"""Nodes whose changes to come are exchanged: the cluster says how many of nodes alike leave, a plan says which."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tracekit.errors import UsageError
from tracekit.replay.planning.plan_reader import HINT

if TYPE_CHECKING:
    from tracekit.replay.engine.state import EngineState

__all__ = ["exchange_changes"]


def exchange_changes(state: EngineState, pairs: Any, name: str) -> None:
    """Let each node of a pair have the changes to come of the other.

    Parameters
    ----------
    state : EngineState
        Its changes are altered.
    pairs : array, optional
        Rows (node, other), carried out one after the other (r, 2); None for none.
    name : str
        Of the policy.

    Raises
    ------
    UsageError
        The pairs are no rows of two nodes that are both there, of one group, and have equally many GPUs.
    """
    if pairs is None:
        return
    rows = np.asarray(pairs)
    if rows.ndim != 2 or rows.shape[1] != 2 or (rows.dtype.kind not in "iu" and len(rows)):
        raise UsageError(f"the policy {name} exchanged nodes, but not in rows of two whole numbers", hint=HINT)
    to_come = state.changes["node"][int(state.g["change"][0]) :]
    nodes = state.nodes
    for one, other in rows.tolist():
        if not (0 <= one < len(nodes) and 0 <= other < len(nodes)):
            raise UsageError(f"the policy {name} exchanged nodes {one} and {other} of {len(nodes)}", hint=HINT)
        alike = all(nodes[column][one] == nodes[column][other] for column in ("group", "gpus"))
        if not (alike and nodes["up"][one] and nodes["up"][other]):
            raise UsageError(
                f"the policy {name} exchanged nodes {one} and {other}, which are not both there and alike", hint=HINT
            )
        mine, theirs = to_come == one, to_come == other
        to_come[mine], to_come[theirs] = other, one
