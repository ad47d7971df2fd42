"""GPU-hours that rejects cost are counted, and said where they are more than one in a hundred."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tracekit.ingest import ingest_logs

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tracekit.trace import Trace

    Ingest = Callable[..., Trace]

HEADER = "JobID|Submit|Start|End|State|Elapsed|AllocTRES|NNodes|NodeList"


def row(job: str, hours: int, gpus: int, submit: str = "2025-03-03T00:00:00") -> str:
    ends = f"2025-03-03T00:00:00|2025-03-03T{hours:02}:00:00|COMPLETED|{hours:02}:00:00"
    return f"{job}|{submit}|{ends}|cpu=8,gres/gpu={gpus},node=1|1|gn01"


def sacct(*rows: str) -> dict[str, str]:
    return {"sacct.txt": "\n".join([HEADER, *rows]) + "\n"}


@pytest.mark.parametrize(
    ("lost", "count", "said"),
    [
        (row("2", 3, 8, "soon"), 24, True),  # 24 of 220 GPU-hours
        (row("2", 2, 1, "soon"), 2, True),  # 2 of 198
        (row("2", 1, 1, "soon"), 1, False),  # 1 of 197
        (row("job", 2, 8), 16, True),  # the id is none
    ],
)
def test_gpu_hours_of_rejects_are_counted(ingest: Ingest, lost: str, count: int, said: bool) -> None:
    # The jobs that stay held 14 * 14 GPU-hours, a CPU job and a step of the lost one nothing.
    kept = [row("1", 14, 14), row("3", 5, 0)]
    trace = ingest(sacct(*kept, lost, row("2.0", 3, 8, "soon")), max_reject_share=0.9)
    check = trace.manifest.checks["rejected_gpu_hours"]
    assert (check.count, check.of) == (count, 196 + count)
    assert any("all results leave them out" in note for note in trace.manifest.notes) == said


def test_without_rejects_nothing_is_counted(ingest: Ingest) -> None:
    assert "rejected_gpu_hours" not in ingest(sacct(row("1", 14, 14))).manifest.checks


def test_later_exports_add_to_what_was_lost(ingest: Ingest, write_source: Callable[..., Path]) -> None:
    first = ingest(sacct(row("1", 10, 8), row("2", 3, 8, "soon")))
    later = write_source(sacct(row("3", 5, 8), row("4", 1, 8, "soon")))
    grown = ingest_logs(later, first.path, append=True)
    check = grown.manifest.checks["rejected_gpu_hours"]
    assert (check.count, check.of) == (24 + 8, 80 + 40 + 24 + 8)
