"""Gavel: the trace and its throughputs."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.export.loaders import GavelJob, read_gavel, read_throughputs
from tracekit.errors import SourceError, UsageError
from tracekit.export.api import export

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.reviewed import Golden
    from tracekit.trace import Trace

    Run = Callable[..., tuple[Path, Any]]


def test_jobs_run_for_as_long_as_in_the_trace(small: Trace, run: Run, golden: Golden) -> None:
    path, done = run(small, "gavel", "small.trace")
    jobs = read_gavel(path)
    assert jobs == [
        GavelJob("tracekit", 100, 4, 1.0, 0.0),
        GavelJob("tracekit", 75, 8, 1.0, 60.0),
        GavelJob("tracekit", 12, 1, 1.0, 240.0),
    ]
    rates = read_throughputs(path.with_name("small.throughputs.json"))
    assert [job.steps / rates["v100"][job.kind, job.scale]["null"] for job in jobs] == [100, 75, 12]
    # A policy that shares GPUs looks up every pair.
    pairs = {(kind, other) for kind, found in rates["v100"].items() for other in found if other != "null"}
    assert len(pairs) == 9
    golden(done.log.sentences)


def throughputs(folder: Path) -> Path:
    table = {
        "v100": {
            "('LM (batch size 5)', 1)": {"null": 2.5, "('A3C', 1)": [1.0, 1.0]},
            "('LM (batch size 5)', 4)": {"null": 9.0},
            "('LM (batch size 5)', 8)": {"null": 0.0},
            "('A3C', 1)": {"null": 4.0},
        },
        "k80": {"('A3C', 1)": {"null": 1.0}},
    }
    path = folder / "rates.json"
    path.write_text(json.dumps(table))
    return path


def test_throughputs_of_gavel_turn_run_times_into_steps(small: Trace, run: Run, tmp_path: Path, golden: Golden) -> None:
    path, done = run(
        small, "gavel", "o.trace", throughputs=throughputs(tmp_path), job_type="LM (batch size 5)", weight=2
    )
    # 100 s at 9 steps a second, 12.4 s at 2.5; 8 GPUs make no step.
    assert read_gavel(path) == [
        GavelJob("LM (batch size 5)", 900, 4, 2.0, 0.0),
        GavelJob("LM (batch size 5)", 31, 1, 2.0, 240.0),
    ]
    assert done.jobs == 2
    golden(f"{jobs}: {why}" for why, jobs in done.log.left_out.items())
    assert done.files == (path,)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"job_type": "x\ty"}, r"--option job_type: 'x\\ty' is not one printable line"),
        ({"job_type": "x\ny"}, "is not one printable line"),
        ({"job_type": ""}, "--option job_type: is empty"),
        ({"job_type": "it's"}, "--option job_type: contains a quote"),
        ({"command": "a\tb"}, "--option command"),
        ({"weight": "0"}, "--option weight: '0' is not a number from 1e-09"),
        ({"weight": "inf"}, "--option weight"),
        ({"throughputs": "RATES"}, "--option job_type: no job type is given"),
        ({"throughputs": "RATES", "job_type": "LM"}, r"has no job type 'LM'; choose one of: A3C, LM \(batch size 5\)"),
        ({"throughputs": "RATES", "job_type": "A3C", "worker": "v10"}, "has no GPU 'v10'; did you mean 'v100'"),
        ({"typo": "1"}, "the target gavel has no option 'typo'"),
    ],
)
def test_a_wrong_option_is_one_line(small: Trace, tmp_path: Path, options: dict[str, str], message: str) -> None:
    given = {k: str(throughputs(tmp_path)) if v == "RATES" else v for k, v in options.items()}
    with pytest.raises(UsageError, match=message):
        export(small, "gavel", tmp_path / "o.trace", options=given)
    assert not (tmp_path / "o.trace").exists()


@pytest.mark.parametrize(
    "content", ["", "[1]", '{"v100": {"(\'A3C\', 1)": {}}}', '{"v100": {"(\'A3C\', 1)": {"null": "x"}}}']
)
def test_a_file_without_throughputs_is_one_line(small: Trace, tmp_path: Path, content: str) -> None:
    (tmp_path / "rates.json").write_text(content)
    options = {"throughputs": str(tmp_path / "rates.json"), "job_type": "A3C"}
    with pytest.raises(SourceError, match="is not a throughputs file of Gavel"):
        export(small, "gavel", tmp_path / "o.trace", options=options)
    with pytest.raises(SourceError, match="cannot read: No such file"):
        export(small, "gavel", tmp_path / "o.trace", options={**options, "throughputs": str(tmp_path / "none")})
