"""The services, started once for all tests, with dumps in every form of a few hundred jobs."""

from __future__ import annotations

import datetime as dt
import shutil
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.services import dumps, planted, records
from tests.services.daemons import Services, wait_until, what_is_missing
from tests.services.sample import keep_sample
from tests.services.workload import Done, add_accounts, run_workload

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.services.planted import Held, Planted
    from tests.services.records import Event, Job, Run


@dataclass(frozen=True)
class Records:
    """The running services, and their own records of the jobs."""

    services: Services
    folder: Path
    """Folders named after the variants of dumps, and `half-way`, `machines` and `query-range`."""
    done: Done
    runs: list[Run]
    jobs: dict[str, Job]
    """Jobs that sacct lists."""
    never_eligible: dict[str, Job]
    """Jobs that sacct leaves out unless they are requested by number."""
    events: list[Event]
    held: list[Held]
    unrecorded: set[tuple[int, str]]
    """Job number and machine of runs that a machine recorded but the database did not."""
    samples: list[Planted]


@pytest.fixture(scope="session")
def ran(request: pytest.FixtureRequest) -> Iterator[Records]:
    missing = what_is_missing()
    if missing:
        pytest.skip(f"services: NOT RUN, because {missing}")
    base = Path(tempfile.mkdtemp(prefix="services-"))
    # Other users' jobs must be able to read their scripts.
    base.chmod(0o755)
    begun = time.monotonic()
    try:
        with Services(base) as services:
            found = _ran(services, base / "dumps")
            seconds = time.monotonic() - begun
            kept = request.config.getoption("--keep-dumps")
            if kept:
                keep_sample(found, Path(kept))
            said = f"services: {len(found.jobs)} jobs in {len(found.runs)} runs, {seconds:.0f} s"
            if found.unrecorded:
                said += f"; not in the database: {sorted(found.unrecorded)}"
            request.config.stash.setdefault(_SAID, []).append(said)
            yield found
    finally:
        shutil.rmtree(base, ignore_errors=True)


_SAID = pytest.StashKey[list[str]]()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    for line in config.stash.get(_SAID, []):
        terminalreporter.write_line(line)


def _ran(services: Services, folder: Path) -> Records:
    add_accounts(services)

    def half_way() -> None:
        dumps.dump_sacct(services, folder / "half-way", ["readme-columns"])

    try:
        done = run_workload(services, half_way)
    except TimeoutError as error:
        queue = services.run("squeue", check=False)
        raise RuntimeError(f"{error}\n{queue}\n{services.log_ends()}") from error
    # The database records an end a little later.
    wait_until("accounting", lambda: records.unfinished(services) == 0, 60, 0.5)
    runs = records.read_runs(services)
    dumps.dump_sacct(services, folder)
    dumps.dump_machines(services, folder / "machines", done.samples)
    held, unrecorded = planted.held_gpus((services.base / "run" / "held").read_text(encoding="ascii"), runs)
    start = min(run.submit for run in runs)
    end = max(run.end for run in runs if run.end is not None) + dt.timedelta(seconds=10)
    samples = planted.plant(held, start, end)
    planted.fill(services, samples)
    planted.range_queries(services, start, end, folder / "query-range")
    jobs = records.jobs_of(runs)
    return Records(
        services=services,
        folder=folder,
        done=done,
        runs=runs,
        jobs={name: job for name, job in jobs.items() if job.listed},
        never_eligible={name: job for name, job in jobs.items() if not job.listed},
        events=records.read_events(services),
        held=held,
        unrecorded=unrecorded,
        samples=samples,
    )
