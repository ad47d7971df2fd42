"""Jobs that share GPUs in thousandths."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import polars as pl

from tracekit.replay.engine.build import build, lay_queues, open_nodes
from tracekit.replay.engine.run import Run
from tracekit.replay.engine.state import NONE, EngineState, struct_dtype
from tracekit.replay.fractions.supply import WHOLE, Fractions, fractions
from tracekit.replay.fractions.tasks import Supply, Tasks, expected_workload, group_tasks
from tracekit.replay.keys import engine_key
from tracekit.replay.native import compiled

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.replay.clusters.assignment import Assignment
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.engine.build import Ordered
    from tracekit.replay.engine.run import Setting
    from tracekit.replay.jobs import Jobs


@dataclass(frozen=True)
class Fractional:
    """Jobs share GPUs in thousandths and also request CPU and memory. A rule scores the nodes (`fractions.supply`).

    A job goes to one node if an empty node could hold it. Otherwise, it is split into parts as large as an empty node
    can hold, plus one part for the remainder. CPU and memory are split in proportion, and each part runs on its own
    node.
    """

    order: Ordered
    """The order of the jobs, which must not evict, have levels or relax. Its key gets milli-GPUs and milli-GPU * ms
    instead of GPUs and GPU * ms."""
    rule: str
    """A name of `fractions.RULES`."""
    popularity: float = 0.95
    """Share of the jobs whose shapes form the expected workload (see `tasks.expected_workload`)."""
    seed: int = 0
    """Seed of the rule 'random'."""

    def prepare(self, setting: Setting) -> Run:
        """Return a run in which jobs share GPUs in thousandths (see fractional.pxi)."""
        whole = build(setting, replace(self.order, fit="count"), rule=setting.rule, kind="Fractional")
        open_nodes(whole, setting.cluster)
        state, nodes, gangs = divide(whole, setting.jobs, setting.cluster, setting.assignment, self)
        arrays = compiled.State(state), compiled.Fractions(nodes), gangs
        return Run(state, partial(compiled.run_fractional, *arrays, engine_key(self.order.key)), unit=1)


def divide(
    state: EngineState, jobs: Jobs, cluster: Cluster, assignment: Assignment, mechanism: Fractional
) -> tuple[EngineState, Fractions, Any]:
    """Convert a state whose nodes are open to milli-GPUs, and return its nodes and gangs.

    The arrays of jobs, totals, samples and log remain those of `state`. CPU and memory count only if they are known for
    all nodes. A job that does not request them needs none.

    Raises
    ------
    UsageError
        The rule does not exist.
    """
    kinds, class_of = _kinds(jobs, cluster, assignment, by_tenant=mechanism.order.by_tenant)
    sets, accepts, supply = _accepted(jobs, cluster, kinds, assignment.queue_sets)
    gangs, tasks = _cut(kinds, sets, accepts, supply)
    nodes = fractions(
        supply, tasks, expected_workload(tasks, mechanism.popularity), mechanism.rule, seed=mechanism.seed
    )
    table = np.zeros(len(kinds), struct_dtype("JobClass"))
    for name in ("domain", "tenant"):
        table[name] = kinds[name].to_numpy()
    table["gpus"] = (kinds["devices"] * kinds["milli"]).to_numpy()
    table["relaxed"] = NONE
    state.jobs["gpus"], state.jobs["job_class"] = table["gpus"][class_of], class_of
    state.jobs["never"] = (gangs["parts"][class_of] == 0) | (assignment.domain < 0)
    queues, domains, room = lay_queues(assignment, table, class_of, mechanism.order)
    there = state.nodes["up"] == 1
    domains["free"] = np.bincount(cluster.domain[there], cluster.gpus[there] * WHOLE, len(domains))
    divided_nodes = compiled.Fractions(nodes)
    for node in np.flatnonzero(~there):
        compiled.bar(divided_nodes, int(node), 1)
    g = state.g[0]
    g["by_count"], g["free"] = 0, domains["free"].sum()
    running = min(len(jobs), int(supply.gpus.sum()) * (WHOLE // int(jobs.milli.min(initial=WHOLE))))
    held = min(int(jobs.devices.sum()), int(supply.gpus.sum()) * (WHOLE // int(jobs.milli.min(initial=WHOLE))))
    allocations = np.zeros(held + 1, struct_dtype("Allocation"))
    allocations["next"] = np.arange(1, len(allocations) + 1)
    allocations["next"][-1] = NONE
    g["unused_allocation"] = 0
    divided = state._replace(
        job_classes=table,
        queues=queues,
        domains=domains,
        waiting=np.zeros(room, struct_dtype("Entry")),
        touched=np.zeros(len(domains), np.int32),
        allocations=allocations,
        events=np.zeros(running, struct_dtype("Entry")),
    )
    chosen, barred = np.zeros_like(nodes.scratch), np.zeros(max(len(supply), 1), np.int32)
    return divided, nodes, compiled.Gangs(gangs=gangs, chosen=chosen, barred=barred)


def _kinds(
    jobs: Jobs, cluster: Cluster, assignment: Assignment, *, by_tenant: bool
) -> tuple[pl.DataFrame, NDArray[np.int32]]:
    """Return the job classes with their numbers of jobs, and the class of each job."""
    nothing = np.zeros(len(jobs), np.int64)
    table = pl.DataFrame(
        {
            "domain": np.maximum(assignment.domain, 0),
            "queue": assignment.kind_queue[assignment.kind],
            "model": jobs.model,
            "cpu": np.maximum(jobs.cpu_milli, 0) if (cluster.cpu_milli >= 0).all() else nothing,
            "memory": np.maximum(jobs.memory_mib, 0) if (cluster.memory_mib >= 0).all() else nothing,
            "devices": jobs.devices.astype(np.int64),
            "milli": jobs.milli.astype(np.int64),
            "tenant": jobs.tenant if by_tenant else np.full(len(jobs), NONE, np.int32),
        }
    )
    key = table.columns
    kinds = table.group_by(key, maintain_order=True).len("jobs").with_row_index("kind")
    index = table.join(kinds, on=key, how="left", maintain_order="left")["kind"]
    return kinds, index.cast(pl.Int32).to_numpy()


def _accepted(
    jobs: Jobs, cluster: Cluster, kinds: pl.DataFrame, queue_sets: NDArray[np.bool_]
) -> tuple[list[str], list[NDArray[np.bool_]], Supply]:
    """Return the kinds of nodes that each job class accepts, as a string and as a mask of nodes, and the nodes.

    A kind of nodes is a domain, a set of partitions and a GPU model. A job may request one of several models, joined by
    '|'. `queue_sets` are the partition sets that each queue may use (see `Assignment`).
    """
    parts, apart = len(cluster.domains) > 1, len(queue_sets) > 1
    serves = cluster.serves if apart else np.zeros_like(cluster.serves)
    of_kind, kind_of = np.unique(np.stack([cluster.domain, serves, cluster.model]), axis=1, return_inverse=True)
    of_kind, kind_of = of_kind.T.tolist(), kind_of.ravel()
    names = [f"{d}." * parts + f"{s}." * apart + cluster.models[m].replace("|", "/") for d, s, m in of_kind]
    unstated = all(model == "" for model in cluster.models)
    found: dict[tuple[int, int, int], tuple[str, NDArray[np.bool_]]] = {}
    for domain, queue, model in kinds.select("domain", "queue", "model").unique().iter_rows():
        accepted_models: list[str | None] = [None]
        if model >= 0 and not unstated:
            accepted_models = [part.casefold() for part in jobs.models[model].split("|")]
        chosen = [
            k
            for part in accepted_models
            for k, (d, s, m) in enumerate(of_kind)
            if d == domain and queue_sets[queue, s] and (part is None or cluster.models[m].casefold() == part)
        ]
        text = "" if len(set(chosen)) == len(names) else "|".join(names[k] for k in chosen)
        found[domain, queue, model] = text, np.isin(kind_of, chosen)
    both = [found[key] for key in kinds.select("domain", "queue", "model").iter_rows()]
    cpu, memory = cluster.cpu_milli, cluster.memory_mib
    supply = Supply(
        cpu_milli=cpu if (cpu >= 0).all() else np.zeros_like(cpu),
        memory_mib=memory if (memory >= 0).all() else np.zeros_like(memory),
        gpus=cluster.gpus.astype(np.int64),
        model=kind_of.astype(np.int64),
        models=names,
    )
    return [text for text, _ in both], [mask for _, mask in both], supply


def _cut(
    kinds: pl.DataFrame, sets: list[str], accepts: list[NDArray[np.bool_]], supply: Supply
) -> tuple[NDArray[Any], Tasks]:
    """Return the parts of each job class (no parts if it can never run), and the shapes of all parts."""
    gangs = np.zeros(len(kinds), struct_dtype("Gang"))
    gangs["rest"] = NONE
    gangs["milli"] = kinds["milli"].to_numpy()
    rows: list[tuple[int, int, int, int, str, int]] = []
    for k, kind in enumerate(kinds.iter_rows(named=True)):
        part, parts = _largest_part(kind, accepts[k], supply)
        rest = kind["devices"] - part * parts
        gangs[k]["parts"] = parts
        whole = [(part, parts), (rest, 1)] if parts else [(kind["devices"], 1)]
        for place, (devices, count) in enumerate(whole):
            if devices:
                gangs[k]["rest" if place else "full"] = len(rows)
                cpu, memory = (-(-kind[name] * devices // kind["devices"]) for name in ("cpu", "memory"))
                rows.append((cpu, memory, devices, kind["milli"], sets[k], count * kind["jobs"]))
    columns = list(zip(*rows, strict=True)) if rows else [()] * 6
    arrays = [np.array(column, dtype=np.int64) for column in columns[:4]]
    tasks = group_tasks(arrays[0], arrays[1], arrays[2], arrays[3], columns[4])
    gangs["full"] = tasks.shape[gangs["full"]] if rows else 0
    gangs["rest"] = np.where(gangs["rest"] == NONE, NONE, tasks.shape[gangs["rest"]]) if rows else NONE
    weights = np.array(columns[5], dtype=np.int64)
    tasks.shapes["weight"] = np.bincount(tasks.shape, weights, len(tasks.shapes))
    return gangs, Tasks(tasks.shapes, np.repeat(tasks.shape, weights), tasks.model_sets)


def _largest_part(kind: dict[str, int], accepted: NDArray[np.bool_], supply: Supply) -> tuple[int, int]:
    """Return the GPUs of a full part and the number of full parts, which is 0 if the gang can never run."""

    def able(part: int) -> int:
        """Return the number of empty nodes that could hold `part` GPUs of the gang."""
        cpu, memory = (-(-kind[name] * part // kind["devices"]) for name in ("cpu", "memory"))
        fits = accepted & (supply.gpus >= part) & (supply.cpu_milli >= cpu) & (supply.memory_mib >= memory)
        return int(np.count_nonzero(fits))

    for part in range(min(kind["devices"], int(supply.gpus[accepted].max(initial=0))), 0, -1):
        there = able(part)
        if there:
            parts, rest = divmod(kind["devices"], part)
            enough = there >= parts and (rest == 0 or able(rest) > parts)
            return (part, parts) if enough else (part, 0)
    return 0, 0
