"""Many damaged logs give a lawful Trace or one clear error; and the judge of it sees what is wrong."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.effort import examples
from tracekit.errors import SourceError
from tracekit.ingest import ingest_logs

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import ModuleType

ROOT = Path(__file__).parents[2]
FIRST = 2
"""Cases of each seed that are tried each time; the others are thorough."""
CASES = examples(18)
RUN = 20_260
"""Number of the run; the tool makes the same cases with `--seed 20260 --format NAME --case NUMBER`."""
NAMES = (
    *("philly", "helios", "alibaba-pai", "alibaba-openb", "alibaba-dlrm", "alibaba-spot", "acme", "slurm", "swf"),
    *("slurm-site", "slurm-samples", "pbs", "lsf", "kubernetes", "flux", "infinitehbd"),
    *("csv", "csv-jsonl", "csv-json", "csv-parquet", "tar-gz", "tar", "tar-xz", "zip", "parts"),
)
SOME = {"philly", "helios", "alibaba-pai", "slurm-samples", "lsf", "kubernetes", "csv", "tar-gz"}
"""One of each kind of source, which the first tier tries."""
EACH = [pytest.param(name, marks=() if name in SOME else pytest.mark.thorough) for name in NAMES]


def tool(name: str) -> ModuleType:
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT))
        return importlib.import_module(f"tools.fuzzing.{name}")


@pytest.fixture(scope="module")
def fuzzing() -> ModuleType:
    """Return tools/fuzzing/judge.py."""
    return tool("judge")


@pytest.fixture(scope="module")
def seeds() -> dict[str, Any]:
    """Return the logs that are damaged, which no test may change."""
    found: dict[str, Any] = tool("seeds").seeds()
    return found


def test_every_seed_is_tried(seeds: dict[str, Any]) -> None:
    assert sorted(seeds) == sorted(NAMES)


@pytest.mark.parametrize("name", EACH)
def test_an_undamaged_seed_passes(name: str, fuzzing: ModuleType, seeds: dict[str, Any], tmp_path: Path) -> None:
    seed = seeds[name]
    assert fuzzing.judge(fuzzing.Case(seed, seed.files, []), tmp_path) == fuzzing.Verdict("trace")


@pytest.mark.parametrize(
    "numbers", [range(FIRST), pytest.param(range(FIRST, CASES), marks=pytest.mark.thorough)], ids=["few", "many"]
)
@pytest.mark.parametrize("name", EACH)
def test_damaged_logs_give_a_lawful_trace_or_one_error(
    name: str, numbers: range, fuzzing: ModuleType, seeds: dict[str, Any], tmp_path: Path
) -> None:
    for number in numbers:
        folder = tmp_path / str(number)
        folder.mkdir()
        case = fuzzing.make_case(name, seeds[name], number, RUN)
        verdict = fuzzing.judge(case, folder)
        assert verdict.kind in {"error", "trace"}, f"case {number}: {'; '.join(case.how)}: {verdict.text}"


def test_a_case_is_the_same_each_time_and_another_for_another_number(
    fuzzing: ModuleType, seeds: dict[str, Any]
) -> None:
    cases = [fuzzing.make_case("helios", seeds["helios"], number, 1) for number in (1, 1, 2)]
    assert cases[0] == cases[1]
    assert cases[0] != cases[2]


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        (lambda lines: lines[:-1], "Earth/cluster_log.csv: 38 records counted, [39] expected; "),
        (
            lambda lines: [*lines[:-1], lines[-1].replace(b"vc", b"VC")],
            "Earth/cluster_log.csv: its SHA-256 differs from the file's; Earth/cluster_log.csv: the untouched record",
        ),
    ],
    ids=["lost", "changed"],
)
def test_a_lost_or_changed_record_is_a_finding(
    fuzzing: ModuleType,
    seeds: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    change: Callable[[list[bytes]], list[bytes]],
    fault: str,
) -> None:
    def spoil(source: Path, out: Path, **arguments: Any) -> Any:
        path = source / "Earth" / "cluster_log.csv"
        path.write_bytes(b"".join(change(path.read_bytes().splitlines(keepends=True))))
        return ingest_logs(source, out, **arguments)

    case = fuzzing.Case(seeds["helios"], seeds["helios"].files, [])
    (tmp_path / "good").mkdir()
    assert fuzzing.judge(case, tmp_path / "good").kind == "trace"
    monkeypatch.setattr(fuzzing, "ingest_logs", spoil)
    (tmp_path / "bad").mkdir()
    verdict = fuzzing.judge(case, tmp_path / "bad")
    assert verdict.kind == "finding"
    assert verdict.text.startswith(fault)


@pytest.mark.parametrize(
    ("error", "fault"),
    [
        (SourceError("bad", hint="x" * 5000), "the error has 5005 characters: bad; x"),
        (SourceError("ValueError: oops"), "the error shows internals: ValueError: oops"),
    ],
)
def test_an_unclear_error_is_a_finding(
    fuzzing: ModuleType,
    seeds: dict[str, Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    error: SourceError,
    fault: str,
) -> None:
    def fail(_source: Path, out: Path, **_arguments: Any) -> None:
        (out.parent / "rest").mkdir()
        raise error

    monkeypatch.setattr(fuzzing, "ingest_logs", fail)
    verdict = fuzzing.judge(fuzzing.Case(seeds["swf"], seeds["swf"].files, []), tmp_path)
    assert verdict.kind == "finding"
    assert verdict.text.startswith(fault)
    assert verdict.text.endswith("; an error left ['rest'] behind")


@pytest.mark.thorough
def test_the_tool_counts_outcomes(tmp_path: Path) -> None:
    tool = str(ROOT / "tools" / "fuzz.py")
    command = [sys.executable, tool, "--cases", "3", "--format", "swf", "--out", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.endswith(" s\n")
    assert sum(int(part.split()[0]) for part in done.stdout.split(" in ")[0].split(", ")) == 3
