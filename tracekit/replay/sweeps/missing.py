"""What is said of runs that no shard has made."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING

from tracekit.errors import UnfinishedError
from tracekit.replay.sweeps.file import SweepRun
from tracekit.shards.shard import Shard, numbers_in_words
from tracekit.text import cut

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tracekit.progress import Progress

__all__ = ["missing_error", "missing_text"]

_NAMED = 10
"""Missing runs that are named one by one."""


def missing_text(shard: Shard) -> str:
    """Return what stands as the error of a run that is missing."""
    return f"missing: shard {shard} has not made it" if shard.of > 1 else "missing: it was not made"


def missing_error(
    missing: Mapping[str, SweepRun],
    owner: Mapping[str, int],
    runs: Mapping[str, SweepRun],
    shards: int,
    command: str,
    out: Path,
    progress: Progress,
) -> UnfinishedError:
    """Return the error that names the shards of missing runs; the first of the runs become notes.

    Parameters
    ----------
    missing, runs : mapping
        Those that are missing, and all, by digest.
    owner : mapping
        The number of each one's shard.
    shards : int
        How many shards there are; 1 where the work was not divided.
    command : str
        The command of the sweep in one piece.
    out : Path
        The sweep's folder.
    progress : Progress
        Receives the notes.
    """
    varied = [f.name for f in fields(SweepRun) if len({getattr(run, f.name) for run in runs.values()}) > 1]
    for digest, run in list(missing.items())[:_NAMED]:
        values = ", ".join(f"{name} {cut(str(getattr(run, name)), 60)}" for name in varied) or run.policy
        of = f" (shard {Shard(owner[digest], shards)})" if shards > 1 else ""
        progress.note(f"missing: {values}{of}")
    if len(missing) > _NAMED:
        progress.note(f"missing: {len(missing) - _NAMED:,} more")
    numbers = sorted({owner[digest] for digest in missing})
    if shards == 1:
        lacks, again = "", f"'{command}' makes them"
    else:
        lacks = f", of {'shard' if len(numbers) == 1 else 'shards'} {numbers_in_words(numbers)} of {shards:,}"
        again = f"run '{command} --shard {numbers[0]}/{shards}'"
        if len(numbers) > 1:
            again += f" and so on (Slurm: --array={numbers_in_words(numbers)})"
        again += ", then --collect again"
    return UnfinishedError(
        f"{len(missing):,} of {len(runs):,} runs are missing{lacks}",
        where=out,
        hint=f"{again}; --allow-missing writes the table without them",
    )
