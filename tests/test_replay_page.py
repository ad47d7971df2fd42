"""The page on replays: its policies run, its files are read."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.replay.builders import make_cluster, make_jobs
from tracekit.errors import UsageError
from tracekit.replay.api import scenario_of
from tracekit.replay.assumptions.models import load_models
from tracekit.replay.clusters.file import read_cluster
from tracekit.replay.registry import policies as all_policies
from tracekit.replay.scenario import Scenario
from tracekit.settings import ReplaySettings

if TYPE_CHECKING:
    from typing import Any

PAGE = (Path(__file__).parent.parent / "docs" / "replay.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    found: list[str] = re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    return found


@pytest.fixture
def policies(tmp_path: Path) -> Path:
    """Return the file that the page's examples make together."""
    file = tmp_path / "my_policies.py"
    file.write_text("\n\n".join(blocks("python")), encoding="utf-8")
    return file


def ends(text: str) -> Any:
    jobs = make_jobs([(0, 4, 100), (10, 1, 50), (20, 4, 50), (30, 2, 50)])
    return (Scenario.make(jobs, make_cluster((4,))).run(text).outcome.end_ms // 1000).tolist()


def test_the_ordering_example_starts_wide_jobs_first(policies: Path) -> None:
    assert ends(f"{policies}:LargestFirst") == [100, 200, 150, 200]


def test_the_planner_example_starts_narrow_jobs_first_at_whole_minutes(policies: Path) -> None:
    # It first looks at 0 s; the end at 100 s is noticed at 120 s, when both narrow jobs start; then at 180 s.
    assert ends(f"{policies}:FewestGpusFirst") == [100, 170, 230, 170]


def test_the_example_of_pairs_puts_a_job_beside_one_of_its_size(policies: Path) -> None:
    # The third, from 20 s on beside the first, takes 50 / 0.8 s; the first has 30 s left then. The others find no GPUs.
    assert ends(f"{policies}:Pairs") == [112, 162, 82, 162]


def test_the_files_of_the_page_are_read(tmp_path: Path) -> None:
    cluster, models = blocks("toml")
    assert tomllib.loads(cluster)["pool"][0]["gpus_per_node"] == 8
    (tmp_path / "c.toml").write_text(cluster)
    (tmp_path / "m.toml").write_text(models)
    found = read_cluster(tmp_path / "c.toml", make_jobs([(0, 1, 1)], vc="research"))
    assert (found.nodes, found.total_gpus, found.domains) == (16, 128, ["research"])
    assert load_models(tmp_path / "m.toml").overhead.default == "helios"


class _BeginsError(Exception):
    """A replay with outages would begin."""


def test_the_policies_without_outages_are_those_of_the_page(sample_trace: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def begin(*_: object) -> None:
        raise _BeginsError

    # What takes outages then looks how jobs save their work.
    monkeypatch.setattr("tracekit.replay.scenario.checkpoints_for", begin)
    settings = ReplaySettings(outages="recorded", limit=5)
    scenario = scenario_of(sample_trace("slurm-outages"), settings, force=True)
    refused, begun = {}, set()
    for policy in all_policies():
        try:
            scenario.run(policy)
        except UsageError as error:
            refused[policy] = error
        except _BeginsError:
            begun.add(policy)
    assert begun | set(refused) == set(all_policies())
    assert "fifo" in begun
    assert all("does not support outages" in str(error) for error in refused.values())
    (told,) = (p for p in PAGE.split("\n\n") if p.startswith("Some policies do not support outages"))
    assert set(re.findall(r"`([a-z-]+)`", told)) == set(refused)
