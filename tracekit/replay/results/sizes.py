"""The size classes of jobs, as in the view queries/views/job_classes.sql, for arrays."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tracekit.replay.jobs import Jobs


GPU_CLASSES = ("0", "<1", "1", "2-4", "5-8", ">8")
"""The classes in order; a class includes its upper limit, so 4.5 GPUs are in '5-8'."""


def gpus_of(jobs: Jobs) -> NDArray[np.int64]:
    """Return the total request of each job [milli-GPU], shape (n,)."""
    return jobs.devices.astype(np.int64) * jobs.milli


def gpu_class(milli: NDArray[np.int64]) -> NDArray[np.int8]:
    """Return the index in `GPU_CLASSES` for requests in milli-GPUs, shape (n,)."""
    # A limit belongs to the class below it, except 1 GPU, which has its own class.
    return np.searchsorted(np.array([0, 999, 1000, 4000, 8000]), milli).astype(np.int8)
