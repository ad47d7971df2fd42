"""A planner's view of the jobs and the cluster. Arrays are computed when they are read."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tracekit.replay.engine.state import struct_dtype
from tracekit.replay.native import kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.replay.engine.state import EngineState


class _Column:
    """An array over the waiting and running jobs, by the name of its field in ViewRow."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __get__(self, view: View, owner: type[View]) -> NDArray[np.int64]:
        return view.column(self._name)

    def __set__(self, view: View, value: object) -> None:
        raise AttributeError(f"{self._name} is the engine's and cannot be set")


class View:
    """The waiting and running jobs, in submission order, and the cluster, while a plan is made. Arrays are read-only.

    For long traces, a planner should read `table` in compiled code and name only the jobs that change (`Plan.keep`):
    arrays over all active jobs cost time in proportion to the queue at each plan.
    """

    job = _Column("job")
    """Indices into the arrays of `Jobs` (k,)."""
    held = _Column("held")
    """GPUs allocated to each job, or 0 if it waits (k,)."""
    remaining_ms = _Column("remaining_ms")
    """Remaining run time at the recorded speed [ms] (k,). Only oracles use it."""
    attained_gpu_ms = _Column("attained")
    """GPU time received so far [GPU*ms] (k,)."""
    overhead_ms = _Column("overhead_ms")
    """Overhead not yet served [ms] (k,)."""
    rate = _Column("rate")
    """Speed of each running job [ppm of the recorded speed] (k,)."""
    group = _Column("group")
    """Group of nodes in which each job runs, or -1 if it waits or is placed by count (k,)."""

    def __init__(self, state: EngineState, arrays: Any) -> None:
        self._state, self._arrays = state, arrays
        self._rows: NDArray[Any] = np.zeros(1024, struct_dtype("ViewRow"))
        self._count = -1
        self._settled = False
        self._changes = -1
        self._node_gpus: NDArray[np.int64] = np.zeros(0, np.int64)
        self._group_gpus: NDArray[np.int64] = np.zeros(0, np.int64)
        self._table = state.jobs.view()
        self._table.flags.writeable = False
        self._status = self._table["status"]
        self.group_model = _frozen(state.groups["model"].astype(np.int64))
        """GPU model of each group, index into `Cluster.models` (G,)."""
        self.group_domain = _frozen(state.groups["domain"].astype(np.int64))
        """Domain of each group, index into `Cluster.domains` (G,)."""
        self.node_group = _frozen(state.nodes["group"].astype(np.int64))
        """Group of each node (N,)."""
        self.now_ms = 0
        """The current time [ms after the first submission]."""
        self.submitted = 0
        """Number of jobs submitted so far. They have the smallest indices. Some have ended or were rejected."""

    def renew(self) -> None:
        """Read the current time and jobs."""
        self.now_ms, self.submitted = int(self._state.g["now"][0]), int(self._state.g["submitted"][0])
        self._count, self._settled = -1, False

    def column(self, name: str) -> NDArray[Any]:
        """Return a field of every waiting or running job (k,)."""
        if self._count < 0:
            active = int(self._state.g["active"][0])
            if active > len(self._rows):
                self._rows = np.zeros(2 * active, struct_dtype("ViewRow"))
            self._count = kernel().gather(self._arrays, self._rows)
        return _frozen(self._rows[name][: self._count].copy())

    @property
    def running(self) -> NDArray[np.bool_]:
        """Whether each job runs (k,)."""
        return self.column("running").view(np.bool_)

    def _follow_nodes(self) -> None:
        change = int(self._state.g["change"][0])
        if change != self._changes:
            self._changes = change
            nodes = self._state.nodes
            self._node_gpus = _frozen((nodes["gpus"] * nodes["up"]).astype(np.int64))
            there = np.bincount(nodes["group"], self._node_gpus, len(self._state.groups))
            self._group_gpus = _frozen(there.astype(np.int64))

    @property
    def running_jobs(self) -> int:
        """Number of running jobs."""
        return int(self._state.g["running"][0])

    @property
    def status(self) -> NDArray[Any]:
        """Status of every job, as in `table`, but without settling progress first (n,). Not copied."""
        return self._status

    @property
    def group_gpus(self) -> NDArray[np.int64]:
        """GPUs of the available nodes of each group (G,)."""
        self._follow_nodes()
        return self._group_gpus

    @property
    def node_gpus(self) -> NDArray[np.int64]:
        """GPUs of each node, or 0 while it is away (N,)."""
        self._follow_nodes()
        return self._node_gpus

    @property
    def node_free(self) -> NDArray[np.int64]:
        """GPUs of each node without any job, or 0 while it is away (N,). Undefined if jobs are placed by count."""
        nodes = self._state.nodes
        return _frozen((nodes["free"] * nodes["up"]).astype(np.int64))

    @property
    def places(self) -> NDArray[np.int64]:
        """Places of jobs as rows (job, node, GPUs there, GPU), sorted by job and node (r, 4). Empty if placed by count.

        If jobs share GPUs, a row is one GPU, given by its index in the node. Otherwise, the index is -1.
        """
        state = self._state
        job = np.sort(state.events["job"][: int(state.g["event_size"][0])])
        link = state.jobs["allocation"][job].astype(np.int64)
        rows = []
        while len(job):
            job, link = job[link >= 0], link[link >= 0]
            held = state.allocations[link]
            rows.append(np.column_stack([job, held["node"], held["gpus"], held["gpu"]]))
            link = held["next"].astype(np.int64)
        found = np.concatenate(rows) if rows else np.zeros((0, 4), np.int64)
        return _frozen(found[np.lexsort((found[:, 3], found[:, 1], found[:, 0]))])

    @property
    def pairs(self) -> NDArray[np.int64]:
        """Jobs that share a GPU, as rows (job, other job) sorted by job, with each pair in both directions (r, 2)."""
        places = self.places
        shared = places[places[:, 3] >= 0]
        code = shared[:, 1] * (int(shared[:, 3].max(initial=0)) + 1) + shared[:, 3]
        order = np.argsort(code, kind="stable")
        job, code = shared[order, 0], code[order]
        found = np.zeros((0, 2), np.int64)
        for gap in range(1, len(job)):
            near = code[gap:] == code[:-gap]
            if not near.any():
                break
            found = np.concatenate([found, np.column_stack([job[:-gap][near], job[gap:][near]])])
        return _frozen(np.unique(np.concatenate([found, found[:, ::-1]]), axis=0))

    @property
    def gpus(self) -> int:
        """Number of available GPUs."""
        return int(self.group_gpus.sum())

    @property
    def table(self) -> NDArray[Any]:
        """The engine's own JOB records of all jobs (n,), with running jobs settled to now (see `state`). Not copied."""
        if not self._settled:
            self._settled = True
            kernel().settle_running(self._arrays)
        return self._table


def _frozen(values: NDArray[Any]) -> NDArray[Any]:
    values.flags.writeable = False
    return values
