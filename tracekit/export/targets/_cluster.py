"""The size of the cluster: from the options, else from the machines of the Trace, else assumed."""

from __future__ import annotations

from tracekit.export.interface import ExportLog, JobSelection, Option, Options
from tracekit.text import counted

__all__ = ["GPUS_PER_NODE", "NODES", "cluster_size"]

_GUESS = 8

NODES = Option("", "nodes of the cluster; empty: those of the Trace, else as many as its jobs held at once")
GPUS_PER_NODE = Option("", "GPUs of a node; empty: the most on one node of the Trace, else 8")


def cluster_size(jobs: JobSelection, log: ExportLog, options: Options) -> tuple[int, int]:
    """Return the number of nodes and the GPUs of each; an assumption is logged.

    Options `nodes` and `gpus_per_node` come first. All nodes are alike, so that GPUs are at least those of the Trace.
    """
    listed, most, gpus = jobs.machines
    nodes, per_node = options.count("nodes", least=1), options.count("gpus_per_node", least=1)
    if per_node is None:
        per_node = most or _GUESS
        if not most:
            log.note(f"GPUs of a node are not in the Trace: {_GUESS} (option gpus_per_node)")
    if nodes is None:
        if listed:
            nodes = -(-gpus // per_node)
            if nodes * per_node != gpus:
                log.note(
                    f"{counted(listed, 'machines')} with {counted(gpus, 'GPUs')} became {counted(nodes, 'nodes')} "
                    f"with {per_node} each (option nodes)"
                )
        else:
            # A job larger than the cluster would wait for ever.
            held = max(jobs.peak, jobs.number("ceil(max(size))"), 1)
            nodes = -(-held // per_node)
            log.note(
                f"nodes are not in the Trace: {nodes:,}, for the {counted(held, 'GPUs')} held at once (option nodes)"
            )
    return nodes, per_node
