"""Printouts that are no log, and times in a foreign form: the error ends in the one line that cures it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.command import run
from tracekit.errors import TracekitError, UnknownFormatError
from tracekit.ingest import ingest_logs
from tracekit.ingest.formats._slurm_text import COMMAND

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    WriteSource = Callable[[Mapping[str, str | bytes]], Path]

SQUEUE = """             JOBID PARTITION     NAME     USER ST       TIME  NODES NODELIST(REASON)
               102       gpu    train    alice PD       0:00      1 (Resources)
"""
SREPORT = """--------------------------------------------------------------------------------
Cluster/Account/User Utilization 2025-03-01T00:00:00 - 2025-03-31T23:59:59 (2678400 secs)
Usage reported in CPU Minutes
--------------------------------------------------------------------------------
  Cluster         Account     Login     Proper Name     Used   Energy
"""
YAML = "apiVersion: v1\nitems:\n- apiVersion: v1\n  kind: Pod\n  metadata:\n    name: train\nkind: List\n"
PODS = "NAMESPACE   NAME    READY   STATUS    RESTARTS   AGE\nteam-a      train   1/1     Running   0          3d\n"
BJOBS = "JOBID   USER    STAT  QUEUE      FROM_HOST   EXEC_HOST   JOB_NAME\n1 ana RUN gpu h h1 train\n"
QSTAT = "Job id            Name             User              Time Use S Queue\n12.pbs   train  ana  00:01:02 R gpu\n"
SHOW_JOBS = "kubectl get pods,workloads -A -o json > pods.json"


@pytest.mark.parametrize(
    ("text", "what", "cure"),
    [
        (SQUEUE, "squeue shows only current jobs", COMMAND),
        ("JOBID|PARTITION|ST|NODELIST(REASON)\n102|gpu|PD|(Resources)\n", "squeue shows", COMMAND),
        (SREPORT, "sreport prints totals for a period, not jobs", COMMAND),
        ("Cluster|Account|Login|Proper Name|Used|Energy\nhydra|root|||12|0\n", "sreport prints totals", COMMAND),
        (YAML, "kubectl printed YAML, which tracekit does not read", SHOW_JOBS),
        (f"---\n{YAML}", "kubectl printed YAML", SHOW_JOBS),
        (PODS, "kubectl printed a human-readable table", SHOW_JOBS),
        (BJOBS, "bjobs printed a human-readable table", "bhist -a -l -u all > bhist.txt"),
        (QSTAT, "qstat shows only current jobs", "$PBS_HOME/server_priv/accounting"),
    ],
)
def test_a_printout_is_refused_with_the_command_that_writes_a_log(
    write_source: WriteSource, tmp_path: Path, text: str, what: str, cure: str
) -> None:
    source = write_source({"dump.txt": text})
    for chosen in (None, "slurm"):
        with pytest.raises(UnknownFormatError) as caught:
            ingest_logs(source, tmp_path / "out", format_name=chosen)
        assert f"dump.txt: {what}" in str(caught.value)
        assert str(caught.value).endswith(cure)


def test_the_cure_is_never_cut_off(write_source: WriteSource, tmp_path: Path) -> None:
    source = write_source({"dump.txt": SQUEUE}).rename(tmp_path / ("deep" * 60))
    done = run("ingest", str(source), "-o", str(tmp_path / "out"))
    assert done.returncode == 2
    assert f"; write the history with: {COMMAND}" in done.stderr
    assert done.stderr.count("\n") == 1


SACCT = (
    "JobID|User|Submit|Start|End|State|AllocTRES\n1|ana|{0} 09:00:00|{0} 09:05:00|{0} 10:05:00|COMPLETED|gres/gpu=2\n"
)


@pytest.mark.parametrize("day", ["03/14/2025", "14.03.2025", "14 Mar"])
def test_times_in_a_form_of_the_site_are_refused_with_the_cure(
    write_source: WriteSource, tmp_path: Path, day: str
) -> None:
    with pytest.raises(
        TracekitError, match=r"column Submit: is not a time like .*; export it again with SLURM_TIME_FORMAT"
    ):
        ingest_logs(write_source({"sacct.txt": SACCT.format(day)}), tmp_path / "out")


def test_a_mapping_says_how_its_own_times_are_written(write_source: WriteSource, tmp_path: Path) -> None:
    source = write_source({"jobs.csv": "id,at\n1,03/14/2025 09:00\n"})
    mapping = tmp_path / "mapping.toml"
    mapping.write_text('[source]\ntimezone = "UTC"\n[jobs.columns]\njob_id = "id"\nsubmit_time = "at"\n')
    with pytest.raises(TracekitError, match=r"is not a time like .*; set time_format in the mapping file"):
        ingest_logs(source, tmp_path / "out", format_name="csv", options={"map": str(mapping)})


def test_columns_that_sacct_prints_by_itself_lack_what_is_needed(write_source: WriteSource, tmp_path: Path) -> None:
    head, row = "JobID|JobName|Partition|Account|AllocCPUS|State|ExitCode\n", "1|train|gpu|physics|8|COMPLETED|0:0\n"
    table = (
        "JobID           JobName  Partition\n------------ ---------- ----------\n101               train        gpu\n"
    )
    for text in (head + row, table):
        with pytest.raises(TracekitError) as caught:
            ingest_logs(write_source({"sacct.txt": text}), tmp_path / "out")
        assert str(caught.value).endswith(COMMAND)
