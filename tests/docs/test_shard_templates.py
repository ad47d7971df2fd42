"""The templates of docs/howto/shards.md: what they start, and that the page shows them as they are."""

from __future__ import annotations

import os
import re
import subprocess
from typing import TYPE_CHECKING, Any

import pytest
import yaml  # type: ignore[import-untyped]  # it comes with mkdocs, its stubs do not

from tests.docs.examples import DOCS
from tests.docs.test_commands_shown import wrong

if TYPE_CHECKING:
    from pathlib import Path

ARRAY, JOB = DOCS / "howto" / "sweep-array.sbatch", DOCS / "howto" / "sweep-job.yaml"


def started(folder: Path, command: list[str], **environment: str) -> list[str]:
    """Return the words of the tracekit command that a shell script starts, by a stand-in for tracekit."""
    stand_in = folder / "tracekit"
    stand_in.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\n')
    stand_in.chmod(0o755)
    env = {"PATH": f"{folder}:{os.environ['PATH']}", **environment}
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def manifest() -> dict[str, Any]:
    (document,) = yaml.safe_load_all(JOB.read_text(encoding="utf-8"))
    assert isinstance(document, dict)
    return document


@pytest.mark.parametrize("path", [ARRAY, JOB], ids=lambda path: path.name)
def test_the_page_shows_it_as_it_is(path: Path) -> None:
    page = (DOCS / "howto" / "shards.md").read_text(encoding="utf-8")
    assert re.findall(rf'^```\w+\n--8<-- "docs/howto/{re.escape(path.name)}"\n```$', page, re.MULTILINE)
    assert f"`docs/howto/{path.name}`" in page


def test_a_task_of_the_array_is_the_shard_of_its_number(tmp_path: Path) -> None:
    environment = {"SLURM_ARRAY_TASK_ID": "7", "SLURM_CPUS_PER_TASK": "4"}
    words = started(tmp_path, ["bash", str(ARRAY), "my sweep.toml", "out", "8"], **environment)
    assert words == ["sweep", "my sweep.toml", "-o", "out", "--shard", "7/8", "--workers", "4"]
    assert wrong(words) is None


def test_an_array_that_does_not_know_how_many_shards_there_are_says_so() -> None:
    done = subprocess.run(["bash", ARRAY, "sweep.toml", "out"], capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "how many shards there are" in done.stderr


def test_the_array_tells_slurm_what_it_needs() -> None:
    options = re.findall(r"^#SBATCH --([a-z-]+)(?:=\S+)?$", ARRAY.read_text(encoding="utf-8"), re.MULTILINE)
    assert options == ["job-name", "cpus-per-task", "mem", "time", "requeue", "output"]


def test_a_pod_is_the_shard_of_its_index(tmp_path: Path) -> None:
    spec = manifest()["spec"]
    (container,) = spec["template"]["spec"]["containers"]
    environment = {one["name"]: one["value"] for one in container["env"]}
    shards = []
    for index in range(spec["completions"]):
        command = [*container["command"], *container["args"]]
        words = started(tmp_path, command, JOB_COMPLETION_INDEX=str(index), **environment)
        assert wrong(words) is None
        shards.append(words[words.index("--shard") + 1])
    assert shards == [f"{number}/8" for number in range(1, 9)]


def test_the_job_is_an_indexed_one_and_its_pods_share_a_volume() -> None:
    found = manifest()
    assert (found["apiVersion"], found["kind"], found["spec"]["completionMode"]) == ("batch/v1", "Job", "Indexed")
    pod = found["spec"]["template"]["spec"]
    assert pod["restartPolicy"] == "Never"
    (volume,) = pod["volumes"]
    (mount,) = pod["containers"][0]["volumeMounts"]
    assert volume["name"] == mount["name"]
    assert mount["mountPath"] in " ".join(pod["containers"][0]["args"])
