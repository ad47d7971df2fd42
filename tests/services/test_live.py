"""Slurm asked directly: `tracekit ingest slurm:` runs sacct itself."""

from __future__ import annotations

import datetime as dt
from typing import TYPE_CHECKING

import pytest

from tests.services.tables import attempts_of, by_job, differing, ingest, rows

if TYPE_CHECKING:
    from pathlib import Path

    from tests.services.conftest import Records
    from tests.services.daemons import Services

pytestmark = pytest.mark.services


@pytest.fixture
def as_operator(ran: Records, monkeypatch: pytest.MonkeyPatch) -> Services:
    """Make the environment that of someone on a machine of the cluster."""
    for name in ("PATH", "SLURM_CONF", "TZ", "LC_ALL", "LD_PRELOAD", "NSS_WRAPPER_PASSWD", "NSS_WRAPPER_GROUP"):
        monkeypatch.setenv(name, ran.services.env[name])
    return ran.services


def _window(ran: Records) -> tuple[str, str, str, str]:
    """Return the window of the dumps: two hours on, as sacct lists a job from the time at which it may begin."""
    first, last = (find(run.submit for run in ran.runs) for find in (min, max))
    return ("--from", f"{first:%Y-%m-%d}", "--to", f"{last + dt.timedelta(hours=2):%Y-%m-%dT%H:%M:%S}")


def test_a_live_pull_equals_the_dump(ran: Records, as_operator: Services, tmp_path: Path) -> None:
    dumped = ingest(ran.folder / "all-columns", tmp_path / "dumped")
    pulled = ingest("slurm:", tmp_path / "pulled", "", *_window(ran))
    assert pulled.manifest.rejected == 0
    assert differing(by_job(dumped), by_job(pulled)) == {}
    assert differing(attempts_of(dumped), attempts_of(pulled)) == {}
    assert rows(pulled, "placements") == rows(dumped, "placements")


def test_a_live_pull_has_every_job_of_the_database(ran: Records, as_operator: Services, tmp_path: Path) -> None:
    pulled = ingest("slurm:", tmp_path / "pulled", "", *_window(ran))
    assert by_job(pulled).keys() == ran.jobs.keys()


def test_a_second_pull_changes_nothing(ran: Records, as_operator: Services, tmp_path: Path) -> None:
    once = ingest("slurm:", tmp_path / "pulled", "", *_window(ran))
    jobs, attempts = by_job(once), attempts_of(once)
    again = ingest("slurm:", tmp_path / "pulled", "", *_window(ran), append=True)
    assert differing(jobs, by_job(again)) == {}
    assert differing(attempts, attempts_of(again)) == {}
