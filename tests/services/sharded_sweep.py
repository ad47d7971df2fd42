"""A sweep in three shards on the tests' Slurm cluster, with the template from the documentation."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

from tests.command import run

if TYPE_CHECKING:
    from tests.services.daemons import Services

__all__ = ["submit_sweep"]

_ROOT = Path(__file__).parents[2]
_TEMPLATE = _ROOT / "docs" / "howto" / "sweep-array.sbatch"
_SWEEP = 'traces = ["philly"]\npolicies = ["fifo", "srtf", "las"]\nseeds = [0, 1]\n'


def submit_sweep(services: Services, folder: Path) -> list[str]:
    """Submit shards 1 and 3, then shard 2 as if lost earlier, then the job that collects them. Return the ids."""
    folder.mkdir()
    told = run("ingest", _ROOT / "sample_traces" / "philly", "-o", folder / "philly")
    assert told.returncode == 0, told.stderr
    (folder / "sweep.toml").write_text(_SWEEP, encoding="ascii")
    # In the gate, only root can read the tests' environment. Jobs find the tracekit in this environment first.
    path = f"{Path(sys.executable).parent}:{services.env['PATH']}"
    common = ("--parsable", f"--export=ALL,PATH={path},PYTHONPATH={_ROOT}", f"-D{folder}", "-t5", "-c1", "--mem=2G")

    def submitted(*words: str) -> str:
        return services.run("sbatch", *common, *words).split(";")[0].strip()

    shards = ("sweep.toml", "out", "3")
    first = submitted("--array=1,3", str(_TEMPLATE), *shards)
    second = submitted("--array=2", f"--dependency=afterany:{first}", str(_TEMPLATE), *shards)
    collect = "tracekit sweep sweep.toml -o out --collect"
    table = submitted("-Jcollect", f"--dependency=afterany:{second}", "-ocollect.log", "--wrap", collect)
    return [first, second, table]
