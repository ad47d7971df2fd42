"""The rows of the event log (see `Outcome.log`) and the samples of the timeline, written by compiled code."""

from __future__ import annotations

from typing import Any

from tracekit.replay.engine.compiled import either, inner
from tracekit.replay.engine.nodes import NONE

__all__ = [
    "DOWN",
    "FINISH",
    "RATE",
    "REJECT",
    "START",
    "STOP",
    "SUBMIT",
    "TAKE",
    "UP",
    "forgive_stop",
    "log_start",
    "sample",
    "tell",
    "tell_gpu",
]

SUBMIT, START, TAKE, STOP, FINISH, RATE, UP, DOWN, REJECT = range(1, 10)
"""Kinds, as in `outcome.LOG_KINDS`."""


@inner
def tell(log: Any, g: Any, kind: int, job: int, node: int, value: int) -> None:
    """Write a row where a log is wanted; count it even when the log is full, so that the caller can make a larger."""
    if g.log_on == 0:
        return
    if g.log_size < len(log):
        row = log[g.log_size]
        row.time_ms = g.now
        row.kind = kind
        row.job = job
        row.node = node
        row.gpu = NONE
        row.value = value
    g.log_size += 1


@inner
def tell_gpu(log: Any, g: Any, job: int, node: int, gpu: int, milli: int) -> None:
    """Write what a job takes of one GPU, named by its index in the node."""
    tell(log, g, TAKE, job, node, milli)
    if g.log_on and g.log_size <= len(log):
        log[g.log_size - 1].gpu = gpu


def _tell_number(log: Any, g: Any, j: int, _job: Any, take: Any) -> None:
    tell_gpu(log, g, j, take.node, take.gpu, take.gpus * 1000)


def _tell_block(log: Any, g: Any, j: int, _job: Any, take: Any) -> None:
    for gpu in range(take.gpu, take.gpu + take.gpus):
        tell_gpu(log, g, j, take.node, gpu, 1000)


_tell_take = either(_tell_number, _tell_block, field="spare")


@inner
def log_start(log: Any, g: Any, takes: Any, j: int, job: Any) -> None:
    """Write a start and what the job takes."""
    if g.log_on == 0:
        return
    tell(log, g, START, j, NONE, job.rate)
    if job.take == NONE:
        tell(log, g, TAKE, j, NONE, job.gpus * 1000)
    link = job.take
    while link != NONE:
        _tell_take(log, g, j, job, takes[link])
        link = takes[link].next


@inner
def forgive_stop(log: Any, g: Any, job: Any) -> None:
    """Note that a job evicted in this pass is back where it was: its stop, row `evicted` - 1, charges nothing."""
    if g.log_on and job.evicted <= len(log):
        log[job.evicted - 1].value = 0
    job.evicted = 0


@inner
def sample(samples: Any, g: Any, until: int) -> None:
    """Note the state at every sampling time before `until`; a full table keeps every second row and steps wider."""
    while g.sample_at < until:
        if g.samples == len(samples):
            for i in range(len(samples) // 2):
                samples[i] = samples[2 * i]
            g.samples = len(samples) // 2
            g.sample_step *= 2
            g.sample_at = samples[g.samples - 1].time + g.sample_step
            continue
        row = samples[g.samples]
        row.time = g.sample_at
        row.running = g.running
        row.pending = g.pending
        row.busy = g.busy
        row.free = g.free
        row.fragmented = g.fragmented
        g.samples += 1
        g.sample_at += g.sample_step
