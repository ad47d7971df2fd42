"""What commands that can be done in shards have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.runs.ledger import Ledger

__all__ = ["asked_work", "echo_shard"]


def asked_work(out: Path, shard: str | None, *, collect: bool) -> Ledger | None:
    """Return the ledger that shards share in OUT.runs; None where neither --shard nor --collect is given.

    Raises
    ------
    TracekitError
        The options contradict each other, or the folder cannot be used.
    """
    from tracekit.runs.ledger import Ledger

    runs = out.with_name(f"{out.name}.runs") if shard is not None or collect else None
    return Ledger.opened(runs, shard, collect=collect)


def echo_shard(shared: Ledger, what: str) -> None:
    """Tell that a shard has ended, with how many results of its own, and what comes next."""
    typer.echo(f"shard {shared.shard}: all {what} are done; {shared.made:,} of them here")
    typer.echo("next: the same command with --collect instead of --shard")
