"""Matchings in graphs, by libraries."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

__all__ = ["best_assignment", "heaviest_pairs"]


def heaviest_pairs(edges: Sequence[tuple[int, int, int]]) -> list[tuple[int, int, int]]:
    """Return the edges of a matching whose weights sum to the most, by Edmonds' blossoms.

    Parameters
    ----------
    edges : sequence of (weight, one, other)
        Whole weights; pairs with a weight of 0 or less are in no matching.

    Returns
    -------
    list
        The edges chosen, each with the smaller end first, by that end.
    """
    import networkx as nx

    graph = nx.Graph()
    graph.add_weighted_edges_from((one, other, weight) for weight, one, other in edges if weight > 0)
    found = nx.max_weight_matching(graph)
    return sorted(
        ((int(graph[one][other]["weight"]), min(one, other), max(one, other)) for one, other in found),
        key=lambda edge: edge[1],
    )


def best_assignment(weight: NDArray[np.float64]) -> list[tuple[int, int]]:
    """Return the pairs (row, column) whose weights sum to the most, each row and column at most once.

    Parameters
    ----------
    weight : array (R, C)
        Weights; pairs at or below 0 are never made.
    """
    from scipy.optimize import linear_sum_assignment

    rows, columns = linear_sum_assignment(np.maximum(weight, 0.0), maximize=True)
    return [(r, c) for r, c in zip(rows.tolist(), columns.tolist(), strict=True) if weight[r, c] > 0]
