"""Fixtures that all tests share, such as Traces written from rows, sample sources and real files."""

from __future__ import annotations

import datetime as dt
import fcntl
import functools
import itertools
import os
import pickle
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import polars as pl
import pytest

from tests.reviewed import Golden, GoldenFiles
from tracekit import schema
from tracekit.ingest import ingest_logs
from tracekit.manifest import CAPABILITIES, Capability, Manifest
from tracekit.trace_writer import TraceWriter

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from tracekit.analysis import Analysis
    from tracekit.trace import Trace

_ROOT = Path(__file__).parent.parent

# Use the same examples each time, and let no example fail because the machine is busy.
for name, tried in {"first": 10, "thorough": 25}.items():
    hypothesis.settings.register_profile(name, derandomize=True, deadline=None, max_examples=tried)
hypothesis.settings.load_profile("first")

_GOLDEN = pytest.StashKey[GoldenFiles]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="rewrite the reviewed texts; read the diff")
    parser.addoption("--keep-dumps", metavar="DIR", help="folder in which the tests marked services leave a small dump")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_GOLDEN] = GoldenFiles(update=config.getoption("--update-golden"))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """If the released data is missing next to the repository, let one test per file say so and skip the others."""
    if (_ROOT.parent / "shared" / "data").is_dir():
        return
    kept: list[pytest.Item] = []
    left: list[pytest.Item] = []
    met: set[Path] = set()
    for item in items:
        needs = "real_data" in getattr(item, "fixturenames", ())
        (left if needs and item.path in met else kept).append(item)
        if needs:
            met.add(item.path)
    items[:] = kept
    config.hook.pytest_deselected(items=left)


def pytest_sessionfinish(session: pytest.Session) -> None:
    session.config.stash[_GOLDEN].write()


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """Return a function that compares texts with reviewed texts (see `tests/reviewed.py`)."""
    return Golden(request.config.stash[_GOLDEN], request.path, request.node.name)


@pytest.fixture(scope="session")
def make_trace(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Trace]:
    """Return a function that writes a Trace from rows.

    `make_trace(jobs=[{"job_id": "a", "submit_time": "2017-10-03 00:00"}], manifest_overrides={...})` writes a Trace
    with the named tables. A missing key is NULL, times may be ISO strings, and a table without rows is left out. Every
    capability is available unless `manifest_overrides["capabilities"]` sets it by name.
    """
    folder = tmp_path_factory.mktemp("traces")
    numbers = itertools.count()

    def make(*, manifest_overrides: Mapping[str, Any] | None = None, **tables: list[dict[str, Any]]) -> Trace:
        manifest = _manifest(dict(manifest_overrides or {}))
        with TraceWriter(folder / str(next(numbers))) as writer:
            for table, rows in tables.items():
                writer.write(table, _frame(table, rows))
            writer.drain()
            manifest.tables = writer.tables()
            return writer.commit(manifest)

    return make


def _manifest(overrides: dict[str, Any]) -> Manifest:
    available = {name: Capability(available=True, coverage=1.0) for name in CAPABILITIES}
    facts: dict[str, Any] = {
        "format": "csv",
        "files": [],
        "tracekit_version": "0.1.0",
        "schema_version": schema.SCHEMA_VERSION,
        "time_base": "absolute",
        "timezone": "UTC",
        "created": "2020-01-01T00:00:00Z",
        **overrides,
    }
    facts["capabilities"] = available | dict(overrides.get("capabilities", {}))
    return Manifest(**facts)


def _frame(table: str, rows: list[dict[str, Any]]) -> pl.DataFrame:
    spec = schema.common(table)
    named = {name for row in rows for name in row}
    assert named <= spec.polars.keys(), f"{table} has no columns {sorted(named - spec.polars.keys())}"
    columns: dict[str, list[Any]] = {}
    for column in spec.columns:
        if column.name in named:
            values = [row.get(column.name) for row in rows]
            if column.kind == "datetime":
                values = [dt.datetime.fromisoformat(v) if isinstance(v, str) else v for v in values]
            columns[column.name] = values
    # strict=False accepts a hand-written 4 for 4.0. The writer adds the columns that no row has.
    return pl.DataFrame(columns, schema={name: spec.polars[name] for name in columns}, strict=False)


@pytest.fixture(scope="session")
def sample_source() -> Callable[[str], Path]:
    """Return a function that returns the folder sample_traces/<name>."""

    def source(name: str) -> Path:
        folder = _ROOT / "sample_traces" / name
        assert folder.is_dir(), f"no sample trace '{name}'"
        return folder

    return source


@pytest.fixture(scope="session")
def once(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Callable[[Path], Any]], Any]:
    """Return a function that lets one process of this run do some work whose result all the others read.

    `once("name", make)` returns the result of `make(folder)`, whichever process called it. All work shares the folder,
    whose files must not change afterwards.
    """
    own = tmp_path_factory.getbasetemp()
    folder = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own

    def made(name: str, make: Callable[[Path], Any]) -> Any:
        result = folder / f"{name}.result"
        with (folder / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not result.exists():
                result.write_bytes(pickle.dumps(make(folder)))
        return pickle.loads(result.read_bytes())

    return made


@pytest.fixture(scope="session")
def sample_trace(
    sample_source: Callable[[str], Path], once: Callable[[str, Callable[[Path], Any]], Any]
) -> Callable[[str], Trace]:
    """Return a function that returns the Trace of sample_traces/<name>. It is read once, and no test may change it.

    The Traces are in one folder and are named after the samples.
    """

    def read(name: str) -> Trace:
        trace: Trace = once(
            f"sample-{name}", lambda folder: ingest_logs(sample_source(name), folder / "samples" / name)
        )
        return trace

    return functools.cache(read)


@pytest.fixture(scope="session")
def analyzed(
    sample_trace: Callable[[str], Trace], once: Callable[[str, Callable[[Path], Any]], Any]
) -> Callable[[str], Analysis]:
    """Return a function that returns the analysis of a sample's Trace. It is made once, and no test may change it.

    `analyzed("slurm")` contains everything that `tracekit analyze` makes. The other samples are not fitted, because a
    fit takes longer than the rest of their analyses.
    """
    from tracekit import characterize
    from tracekit.analysis import analyze

    every = characterize.list_queries

    @functools.cache
    def made(name: str) -> Analysis:
        assert characterize.list_queries is every, "ask for the analysis before the questions are patched"
        place, fit = f"analyzed-{name}", name == "slurm"
        found: Analysis = once(place, lambda folder: analyze(sample_trace(name).path, folder / place, fit=fit))
        return found

    return made


@pytest.fixture(scope="session")
def real_data() -> Callable[[str], Path]:
    """Return a function that returns a file or folder of released data, or skips the test if it is missing."""

    def real(name: str) -> Path:
        path = _ROOT.parent / "shared" / "data" / name
        if not path.exists():
            pytest.skip(f"the released data {name} is not beside the repository")
        return path

    return real
