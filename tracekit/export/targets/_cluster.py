"""Determine the cluster's size from the options, the machines in the Trace, or an assumption."""

from __future__ import annotations

from tracekit.errors import UsageError
from tracekit.export.interface import ExportLog, JobSelection, Option, Options
from tracekit.text import counted, percent

_GUESS = 8
ALL = "all clusters\0"
"""Used instead of a cluster name to mean all clusters."""

NODES = Option(
    "", "nodes in the cluster; by default those in the Trace, else as many as its jobs used at once", form="count"
)
GPUS_PER_NODE = Option("", "GPUs per node; by default the most on one node in the Trace, else 8", form="count")


def cluster_size(jobs: JobSelection, log: ExportLog, options: Options) -> tuple[int, int]:
    """Return the number of nodes and the GPUs per node, and log any assumption.

    --machines and --target-load take precedence, then the target's options `nodes` and `gpus_per_node`, if it has them.
    All nodes have the same size, so the cluster has at least as many GPUs as the Trace.
    """
    listed, most, gpus = jobs.machines
    nodes = options.machines or _option(options, "nodes")
    per_node = _option(options, "gpus_per_node")
    if per_node is None:
        per_node = most or _GUESS
        if not most:
            named = " (option gpus_per_node)" if "gpus_per_node" in options.values else ""
            log.note(f"the Trace does not record the GPUs per node, so {_GUESS} are assumed{named}")
    if nodes is None and options.target_load is not None:
        return nodes_for_load(jobs, options.target_load, per_node, log), per_node
    if nodes is None:
        if listed:
            nodes = -(-gpus // per_node)
            if nodes * per_node != gpus or len(jobs.node_sizes) > 1:
                change = _change(nodes * per_node, gpus)
                log.note(
                    f"{counted(listed, 'machines')} with {counted(gpus, 'GPUs')} became {counted(nodes, 'nodes')} with "
                    f"{per_node} each, which is {change} (--machines)"
                )
        else:
            # A job larger than the cluster would never start.
            held = max(jobs.peak, jobs.number("ceil(max(size))"), 1)
            nodes = -(-held // per_node)
            log.note(
                f"the Trace has no nodes, so {nodes:,} are assumed for the {counted(held, 'GPUs')} used at once; "
                "hardly any job waits, and policies do not differ (--machines, --target-load)"
            )
    return nodes, per_node


def cluster_groups(jobs: JobSelection, log: ExportLog, options: Options) -> list[tuple[int, int]]:
    """Return nodes by size, as (nodes, GPUs per node), for targets that support nodes of different sizes.

    The groups come from the Trace, the largest first. There is one group if the options set the number of nodes or the
    Trace lists no nodes.
    """
    asked = options.sized or any(_option(options, name) is not None for name in ("nodes", "gpus_per_node"))
    return [cluster_size(jobs, log, options)] if asked or not jobs.node_sizes else jobs.node_sizes


def _change(became: int, gpus: int) -> str:
    """Describe the change in capacity."""
    share = became / gpus - 1
    return f"{percent(abs(share))} {'more' if share > 0 else 'less'} capacity" if share else "the same capacity"


def _option(options: Options, name: str) -> int | None:
    return options.count(name, least=1) if name in options.values else None


def nodes_for_load(jobs: JobSelection, load: float, per_node: int, log: ExportLog, *, cluster: str | None = ALL) -> int:
    """Return the number of nodes that gives the load `load` for the jobs, or for one cluster's jobs.

    The load is the jobs' GPU time divided by the nodes' GPU time from the first to the last submission.

    Raises
    ------
    UsageError
        All jobs are submitted at the same time, so the load is undefined.
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
