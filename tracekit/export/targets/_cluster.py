"""The size of the cluster: from the options, else from the machines of the Trace, else assumed."""

from __future__ import annotations

from tracekit.errors import UsageError
from tracekit.export.interface import ExportLog, JobSelection, Option, Options
from tracekit.text import counted, percent

_GUESS = 8
ALL = "all clusters\0"
"""In place of the name of a cluster."""

NODES = Option("", "nodes of the cluster; empty: those of the Trace, else as many as its jobs held at once")
GPUS_PER_NODE = Option("", "GPUs of a node; empty: the most on one node of the Trace, else 8")


def cluster_size(jobs: JobSelection, log: ExportLog, options: Options) -> tuple[int, int]:
    """Return the number of nodes and the GPUs of each; an assumption is logged.

    --machines and --target-load come first, then the options `nodes` and `gpus_per_node` of the target, if it has them.
    All nodes are alike, so that GPUs are at least those of the Trace.
    """
    listed, most, gpus = jobs.machines
    nodes = options.machines or _option(options, "nodes")
    per_node = _option(options, "gpus_per_node")
    if per_node is None:
        per_node = most or _GUESS
        if not most:
            named = " (option gpus_per_node)" if "gpus_per_node" in options.values else ""
            log.note(f"the Trace does not record the GPUs per node: {_GUESS} assumed{named}")
    if nodes is None and options.target_load is not None:
        return nodes_for_load(jobs, options.target_load, per_node, log), per_node
    if nodes is None:
        if listed:
            nodes = -(-gpus // per_node)
            if nodes * per_node != gpus or len(jobs.node_sizes) > 1:
                change = _change(nodes * per_node, gpus)
                log.note(
                    f"{counted(listed, 'machines')} with {counted(gpus, 'GPUs')} became {counted(nodes, 'nodes')} "
                    f"with {per_node} each: {change} (--machines)"
                )
        else:
            # A job larger than the cluster would wait for ever.
            held = max(jobs.peak, jobs.number("ceil(max(size))"), 1)
            nodes = -(-held // per_node)
            log.note(
                f"nodes are not in the Trace: {nodes:,}, for the {counted(held, 'GPUs')} held at once, so that hardly "
                "a job waits and policies tie (--machines, --target-load)"
            )
    return nodes, per_node


def cluster_groups(jobs: JobSelection, log: ExportLog, options: Options) -> list[tuple[int, int]]:
    """Return nodes by their size, as (nodes, GPUs of each), for targets that hold different nodes.

    Those of the Trace, the largest first; one group where the options say how many there are, or the Trace lists none.
    """
    asked = options.sized or any(_option(options, name) is not None for name in ("nodes", "gpus_per_node"))
    return [cluster_size(jobs, log, options)] if asked or not jobs.node_sizes else jobs.node_sizes


def _change(became: int, gpus: int) -> str:
    """Return by how much the capacity changed, in words."""
    share = became / gpus - 1
    return f"{percent(abs(share))} {'more' if share > 0 else 'less'} capacity" if share else "the same capacity"


def _option(options: Options, name: str) -> int | None:
    return options.count(name, least=1) if name in options.values else None


def nodes_for_load(jobs: JobSelection, load: float, per_node: int, log: ExportLog, *, cluster: str | None = ALL) -> int:
    """Return the nodes with which the jobs, or those of one cluster, ask for `load` times what the nodes can do.

    The load is the GPU time of the jobs over that of the nodes from the first to the last submission.

    Raises
    ------
    UsageError
        All jobs are submitted at once, so that no cluster has a load.
    """
    own = "" if cluster is ALL else " WHERE cluster IS NOT DISTINCT FROM $cluster"
    span_s, gpu_s, largest = jobs.rows(
        f"SELECT max(submit_s) - min(submit_s), sum(work_s * size), max(size) FROM chosen{own}",
        {"cluster": cluster} if own else None,
    )[0]
    if not span_s:
        raise UsageError("all jobs are submitted at the same time, so the load is undefined", where="--target-load")
    wanted = -(-gpu_s // (span_s * load * per_node))
    least = -(-largest // per_node)
    nodes = int(max(wanted, least, 1))
    reached = gpu_s / (span_s * nodes * per_node)
    why = ", as many as the largest job needs" if least > wanted else ""
    each = counted(per_node, "GPUs")
    log.note(f"{counted(nodes, 'nodes')} with {each} each give a load of {reached:.3g}{why} (--target-load)")
    return nodes
