"""Small nodes with divided GPUs for tests, and the placement rules written in plain Python from their definitions."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from tracekit.replay import kernel
from tracekit.replay.fractions.supply import Fractions, fractions
from tracekit.replay.fractions.tasks import Supply, Tasks, expected_workload, group_tasks

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "Node",
    "Task",
    "a_state",
    "a_supply",
    "a_workload",
    "feasible",
    "fragment",
    "place",
    "plain_score",
    "release",
    "score",
    "take",
    "wasted_milli",
]

Task = tuple[int, int, int, int, str]
"""CPU [milli-cores], memory [MiB], GPUs, milli-GPU on each, and accepted models."""


def a_workload(*tasks: Task) -> Tasks:
    """Make tasks by shape, in the given order."""
    columns = [np.array([task[i] for task in tasks], dtype=np.int64) for i in range(4)]
    return group_tasks(columns[0], columns[1], columns[2], columns[3], [task[4] for task in tasks])


def a_supply(*nodes: tuple[int, int, int, str]) -> Supply:
    """Make nodes from (CPU, memory, GPUs, model)."""
    models = sorted({node[3] for node in nodes})
    columns = [np.array([node[i] for node in nodes], dtype=np.int64) for i in range(3)]
    return Supply(columns[0], columns[1], columns[2], np.array([models.index(node[3]) for node in nodes]), models)


def a_state(
    rule: str, nodes: list[tuple[int, int, int, str]], tasks: list[Task], expected: list[Task] | None = None
) -> Fractions:
    """Make empty nodes for tasks of the given shapes, which are the expected workload by default."""
    workload = a_workload(*tasks)
    wanted = expected_workload(a_workload(*(expected or tasks)), 1.0)
    return fractions(a_supply(*nodes), workload, wanted, rule)


@dataclass
class Node:
    """One node, whose state is kept in plain Python."""

    cpu: int
    memory: int
    gpus: list[int]
    model: str
    sizes: list[int] = field(default_factory=list)
    """GPUs of each running task that requests any, or 0 for a part of a GPU."""

    def fits(self, task: Task) -> bool:
        cpu, memory, count, milli, models = task
        if cpu > self.cpu or memory > self.memory:
            return False
        return count == 0 or (_accepts(models, self.model) and sum(left >= milli for left in self.gpus) >= count)

    def change(self, task: Task, gpus: list[int], sign: int) -> None:
        cpu, memory, count, milli, _ = task
        self.cpu -= sign * cpu
        self.memory -= sign * memory
        for gpu in gpus:
            self.gpus[gpu] -= sign * milli
        if count:
            size = count if milli == 1000 else 0
            (self.sizes.append if sign > 0 else self.sizes.remove)(size)


def _accepts(models: str, model: str) -> bool:
    return not models or model in models.split("|")


def fragment(node: Node, expected: list[tuple[Task, int]]) -> int:
    """Return how much of a node the expected tasks (with their numbers) cannot use [milli-GPU * tasks]."""
    total = 0
    for (cpu, _, count, milli, models), weight in expected:
        able = count > 0 and cpu <= node.cpu and _accepts(models, node.model)
        able = able and sum(left >= milli for left in node.gpus) >= count
        total += weight * sum(left for left in node.gpus if not able or left < milli)
    return total


def _least_left(node: Node, task: Task) -> list[int]:
    enough = sorted((left, gpu) for gpu, left in enumerate(node.gpus) if left >= task[3])
    return [gpu for _, gpu in enough[: task[2]]]


def plain_score(
    rule: str, node: Node, task: Task, expected: list[tuple[Task, int]], cpu_scale: int, gpu_scale: int
) -> tuple[int, list[int]]:
    """Return a task's score and GPUs on a node, or -1 and none if it does not fit. The rule 'random' scores 0."""
    if not node.fits(task):
        return -1, []
    cpu, _, count, milli, _ = task
    gpus = _least_left(node, task)
    idle, asked = sum(node.gpus), count * milli
    points = 0
    if rule == "dotproduct":
        cpu_part, gpu_part = (node.cpu / cpu_scale) * (cpu / cpu_scale), (idle / gpu_scale) * (asked / gpu_scale)
        points = int(100.0 * (1.0 - (cpu_part + gpu_part) / 2.0))
    elif rule == "bestfit":
        cpu_part, gpu_part = (node.cpu - cpu) / cpu_scale, (idle - asked) / gpu_scale
        points = int((1.0 - (cpu_part * 0.5 + gpu_part * 0.5)) * 100.0)
    elif rule == "clustering" and count:
        points = _company(node, count if milli == 1000 else 0) + 25 * (gpu_scale - idle) // gpu_scale
    elif rule == "packing" and count:
        points = _packed(node, gpus)
    elif rule == "fgd":
        choices = [gpus]
        if count == 1 and milli < 1000:
            choices = [[gpu] for gpu, left in enumerate(node.gpus) if left >= milli]
        scored = [(_gain(node, task, choice, expected), choice) for choice in choices]
        points, gpus = max(scored, key=lambda pair: pair[0])
    return points, gpus


def _company(node: Node, own: int) -> int:
    if own in node.sizes:
        return 75 if set(node.sizes) == {own} else 50
    return 0 if node.sizes else 25


def _packed(node: Node, gpus: list[int]) -> int:
    if all(left == 1000 for left in node.gpus):
        return 33 - len(node.gpus)
    whole = sum(node.gpus[gpu] == 1000 for gpu in gpus)
    if whole:
        return max(50 - whole, 33)
    return max(100 - sum(node.gpus[gpu] // 10 for gpu in gpus) // 10, 50)


def _gain(node: Node, task: Task, gpus: list[int], expected: list[tuple[Task, int]]) -> int:
    before = fragment(node, expected)
    node.change(task, gpus, 1)
    after = fragment(node, expected)
    node.change(task, gpus, -1)
    lost = (before - after) / sum(weight for _, weight in expected) / 1000.0
    return int(100.0 * (1.0 / (1.0 + math.exp(-lost))))


def place(state: Fractions, shape: int, gpus: NDArray[np.int32]) -> int:
    """Do the same as the engine's rule of this name."""
    return int(kernel.rules_place(kernel.Fractions(state), shape, gpus))


def score(state: Fractions, shape: int, node: int) -> int:
    """Return the same as the engine's function of this name."""
    return int(kernel.score(kernel.Fractions(state), shape, node))


def feasible(state: Fractions, shape: int, node: int) -> bool:
    """Return the same as the engine's function of this name."""
    return bool(kernel.feasible(kernel.Fractions(state), shape, node))


def wasted_milli(state: Fractions, node: int) -> int:
    """Return the same as the engine's function of this name."""
    return int(kernel.wasted_milli(kernel.Fractions(state), node))


def take(state: Fractions, shape: int, node: int, gpus: NDArray[np.int32]) -> None:
    """Do the same as the engine's function of this name."""
    kernel.supply_take(kernel.Fractions(state), shape, node, gpus)


def release(state: Fractions, shape: int, node: int, gpus: NDArray[np.int32]) -> None:
    """Do the same as the engine's function of this name."""
    kernel.supply_release(kernel.Fractions(state), shape, node, gpus)
