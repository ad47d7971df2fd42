"""`--where`: a part of a Trace in every command that reads one, next to the whole Trace and next to other ways."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

import tracekit
from tests.command import run
from tests.worlds.kinds import make_site
from tests.worlds.site import simulate
from tests.worlds.slurm_dump import write_logs
from tracekit.calibration.twin import read_twin

if TYPE_CHECKING:
    from pathlib import Path

    from tests.worlds.site import Site


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> tuple[Site, Path]:
    """Return a site with three partitions on nodes of their own, and its Trace."""
    made, folder = make_site("disjoint partitions", 0), tmp_path_factory.mktemp("where")
    write_logs(made, simulate(made), folder / "logs")
    tracekit.ingest_logs(folder / "logs", folder / "trace")
    return made, folder / "trace"


NOTE = "note: only jobs with partition h100, with all rows that belong to them; capacity: the partition's own 4 nodes"


def test_the_users_of_a_partition(site: tuple[Site, Path]) -> None:
    made, trace = site
    done = run("efficiency", trace, "--where", "partition=h100", "-f", "csv")
    users = {job.user for job in made.jobs if job.partition == "h100"}
    assert {line.partition(",")[0] for line in done.stdout.splitlines()[1:]} == users
    assert done.stderr.splitlines().count(NOTE) == 1


def test_the_twin_of_a_partition_is_that_of_its_pool(site: tuple[Site, Path], tmp_path: Path) -> None:
    _, trace = site
    done = run("calibrate", trace, "-o", tmp_path / "part.toml", "--where", "partition=h100")
    assert (done.returncode, done.stderr.splitlines().count(NOTE)) == (0, 1)
    run("calibrate", trace, "-o", tmp_path / "pool.toml", "--cluster-name", "h100")
    whole = tracekit.Trace.open(trace)
    part = read_twin(tmp_path / "part.toml", whole.window(where={"partition": "h100"}).divided)
    pool = read_twin(tmp_path / "pool.toml", whole.divided)
    assert [one.scores for one in part.cluster.values()] == [pool.cluster["h100"].scores]
    assert pool.cluster["h100"].grade == "close"

    # The twin belongs to this part, which other commands have to be given as well.
    replayed = run("replay", trace, "--twin", tmp_path / "part.toml", "-p", "sjf", "-o", tmp_path / "out")
    assert (replayed.returncode, "is a twin of" in replayed.stderr) == (2, True)
    replayed = run(
        "replay",
        trace,
        "--twin",
        tmp_path / "part.toml",
        "-p",
        "sjf",
        "-o",
        tmp_path / "out",
        "--where",
        "partition=h100",
    )
    assert (replayed.returncode, NOTE in replayed.stderr) == (0, True)
    summary = json.loads((tmp_path / "out" / "twin" / "summary.json").read_text())
    assert summary["jobs"] == sum(job.partition == "h100" for job in site[0].jobs)


@pytest.mark.parametrize(
    "command",
    [
        ("guidelines", "--only", "overloaded-partition"),
        ("plan", "--target", "mean<=1h", "-o", "OUT"),
        ("wait", "--gpus", "1"),
        ("fit", "-o", "OUT"),
        ("replay", "-p", "fifo", "-o", "OUT"),
        ("calibrate", "-o", "OUT"),
        ("efficiency",),
    ],
    ids=lambda command: command[0],
)
def test_a_value_that_no_job_has(site: tuple[Site, Path], tmp_path: Path, command: tuple[str, ...]) -> None:
    name, *options = (str(tmp_path / "out") if word == "OUT" else word for word in command)
    done = run(name, site[1], *options, "--where", "partition=h10")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == (
        "tracekit: error: --where: no job of the trace has the partition 'h10'; did you mean 'h100'?"
    )
    assert not (tmp_path / "out").exists()


def test_the_wait_in_a_partition(site: tuple[Site, Path]) -> None:
    of_part, of_all = (
        json.loads(run("wait", site[1], "--gpus", "1", "-f", "json", *where).stdout)
        for where in (("--where", "partition=h100"), ("--partition", "h100"))
    )
    assert [of_part[key] for key in ("low_s", "high_s", "like_jobs")] == [
        of_all[key] for key in ("low_s", "high_s", "like_jobs")
    ]
    assert 0 < of_part["like_jobs"] <= sum(job.partition == "h100" for job in site[0].jobs)
