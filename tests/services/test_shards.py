"""The Slurm array of docs/howto/shards.md, carried out: its table is that of the sweep in one piece."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl
import pytest

from tracekit.sweeps.sweep import sweep

if TYPE_CHECKING:
    from pathlib import Path

    from tests.services.conftest import Records

pytestmark = pytest.mark.services


def test_the_array_makes_the_table_of_the_sweep_in_one_piece(ran: Records, tmp_path: Path) -> None:
    folder = ran.services.base / "sweep"
    logs = {path.name: path.read_text(encoding="utf-8") for path in folder.glob("*.log")}
    first, second, _ = ran.done.jobs["shards"]
    shards = {name: text.splitlines()[-2] for name, text in logs.items() if name.startswith("sweep-")}
    assert shards == {
        f"sweep-{job}_{number}.log": f"shard {number}/3: 2 of 2 runs done"
        for job, number in ((first, 1), (second, 2), (first, 3))
    }
    assert logs["collect.log"].splitlines()[-1] == "sweep: out/sweep.parquet"
    found = pl.read_parquet(folder / "out" / "sweep.parquet")
    assert found.equals(sweep(folder / "sweep.toml", tmp_path / "alone", workers=1))
    assert found["error"].null_count() == 6


def test_every_shard_ran_once_and_to_its_end(ran: Records) -> None:
    runs = [run for run in ran.runs if run.name in {"sweep", "collect"} and run.user == "root"]
    assert [run.state for run in runs] == ["COMPLETED"] * 4
