"""The cluster that stands beside the jobs: what the options say, else the Trace's machines, else a guess."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.export.interface import Option
from tracekit.text import counted

if TYPE_CHECKING:
    from tracekit.export.chosen import Chosen
    from tracekit.export.interface import Options
    from tracekit.export.told import Told

__all__ = ["GPUS_PER_NODE", "NODES", "cluster_size"]

_GUESS = 8

NODES = Option("", "nodes of the cluster; empty: those of the Trace, else as many as its jobs held at once")
GPUS_PER_NODE = Option("", "GPUs of a node; empty: the most on one node of the Trace, else 8")


def cluster_size(jobs: Chosen, told: Told, options: Options) -> tuple[int, int]:
    """Return the number of nodes and the GPUs of each; what the Trace does not say is told.

    Options `nodes` and `gpus_per_node` come first. All nodes are alike, so that GPUs are at least those of the Trace.
    """
    listed, most, gpus = jobs.machines
    nodes, per_node = options.count("nodes", least=1), options.count("gpus_per_node", least=1)
    if per_node is None:
        per_node = most or _GUESS
        if not most:
            told.note(f"GPUs of a node are not in the Trace: {_GUESS} (option gpus_per_node)")
    if nodes is None:
        if listed:
            nodes = -(-gpus // per_node)
            if nodes * per_node != gpus:
                told.note(
                    f"{counted(listed, 'machines')} with {counted(gpus, 'GPUs')} became {counted(nodes, 'nodes')} "
                    f"with {per_node} each (option nodes)"
                )
        else:
            # A job larger than the cluster would wait for ever.
            held = max(jobs.peak, jobs.number("ceil(max(size))"), 1)
            nodes = -(-held // per_node)
            told.note(
                f"nodes are not in the Trace: {nodes:,}, for the {counted(held, 'GPUs')} held at once (option nodes)"
            )
    return nodes, per_node
