"""Three jobs with 2, 2 and 1 GPUs on one 2-GPU node, and a sweep of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tracekit.trace import Trace

__all__ = ["three_jobs", "written"]


def three_jobs(make_trace: Callable[..., Trace]) -> Trace:
    rows = [("a", 0, 2, 100), ("b", 10, 2, 100), ("c", 20, 1, 10)]
    return make_trace(
        jobs=[
            {
                "job_id": name,
                "submit_time": f"2020-01-01 00:00:{at:02}",
                "start_time": f"2020-01-01 01:00:{at:02}",
                "run_s": run_s,
                "gpu_count": gpus,
                "status": "completed",
            }
            for name, at, gpus, run_s in rows
        ],
        nodes=[{"node_id": "n", "gpu_count": 2}],
        manifest_overrides={"capabilities": {}},
    )


def written(folder: Path, trace: Trace, more: str = "", policies: str = '"fifo", "srtf"') -> Path:
    path = folder / "sweep.toml"
    path.write_text(f'traces = ["{trace.path}"]\npolicies = [{policies}]\n{more}\n')
    return path
