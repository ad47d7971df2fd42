"""Start Spark, or report in one line, within a time limit, why it cannot be used."""

from __future__ import annotations

import os
import re
import shutil
import socket
import sys
import tempfile
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracekit.errors import UsageError
from tracekit.exchange import LateError, within
from tracekit.version import __version__

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

LOCAL = "local[*]"
"""The default master: all processors of this machine."""

LARGE_ROWS = 50_000_000
"""Number of rows of a table from which percentiles are computed from value counts."""

TRIED: dict[str, tuple[str, ...]] = {"pyspark": ("4.3",), "sqlglot": ("30.30",)}
"""Releases with which every query was compared with DuckDB's answer, by their first two numbers."""

_WHERE = "--engine spark"
_CONNECT_S = 5.0
_STOP_S = 30.0

_LOG4J = """\
rootLogger.level = error
rootLogger.appenderRef.file.ref = file
appender.file.type = Console
appender.file.name = file
appender.file.target = SYSTEM_ERR
appender.file.layout.type = PatternLayout
appender.file.layout.pattern = %p %c{1}: %m%n
"""


@dataclass
class Started:
    """A running Spark."""

    session: Any
    process: Any
    folder: Path

    def stop(self) -> None:
        """Stop Spark and its Java process."""
        _end(self.session, [self.process], self.folder)


def untried() -> list[str]:
    """Return a sentence for each package whose release was not tested."""
    from importlib.metadata import PackageNotFoundError, version

    found = []
    for package, tried in TRIED.items():
        try:
            have = version(package)
        except PackageNotFoundError:
            continue
        if not any(have == release or have.startswith(f"{release}.") for release in tried):
            found.append(
                f"Spark's answers were compared with DuckDB's under {package} {' and '.join(tried)}, not under {have}"
            )
    return found


def start(master: str, settings: Mapping[str, str], seconds: float) -> Started:
    """Start Spark at `master` and check that its executors have this version of tracekit.

    Parameters
    ----------
    master : str
        The Spark master, such as 'spark://host:7077', 'yarn', 'k8s://https://host:443' or 'local[4]'.
    settings : mapping
        Spark's own settings, which override ours.
    seconds : float
        Time limit for Spark to start, and also for its executors to answer [s].

    Raises
    ------
    UsageError
        PySpark, sqlglot or Java is missing, the master does not answer, no executor starts, or executors do not have
        tracekit or have a different version.
    """
    _require_packages()
    _require_java()
    _require_master(master)
    folder = Path(tempfile.mkdtemp(prefix="tracekit-spark-"))
    log = folder / "log"
    processes: list[Any] = []
    session: Any = None
    try:
        try:
            session = within(seconds, lambda: _session(master, settings, folder, log, processes))
        except LateError as error:
            what = f"Spark did not start within {seconds:g} s"
            raise UsageError(what, where=f"--master {master}", hint=_LOOK) from error
        started = Started(session, processes[0], folder)
        _require_workers(session, master, seconds)
    except UsageError:
        _end(session, processes, folder)
        raise
    except Exception as error:
        words = _last_line(log) or reason_of(error)
        _end(session, processes, folder)
        raise UsageError(f"Spark did not start: {words}", where=f"--master {master}", hint=_LOOK) from error
    return started


_LOOK = "check that the master is running and that this machine may request executors"


def _require_packages() -> None:
    from importlib.util import find_spec

    for package in TRIED:
        if find_spec(package) is None:
            raise UsageError(f"{package} is not installed", where=_WHERE, hint="pip install 'gpu-tracekit[spark]'")


def _require_java() -> None:
    home = os.environ.get("JAVA_HOME")
    found = (Path(home) / "bin" / "java").is_file() if home else shutil.which("java") is not None
    if not found:
        what = f"no Java found in JAVA_HOME ({home})" if home else "Java is not installed"
        raise UsageError(what, where=_WHERE, hint="install Java 17 or later, and set JAVA_HOME")


def _require_master(master: str) -> None:
    """Check that a master with an address answers, because Spark itself would retry for minutes."""
    match = re.fullmatch(r"(spark|k8s)://(?:https?://)?(.+)", master)
    if match is None:
        if not re.fullmatch(r"yarn|local(\[[\w*,\s]+\])?|local-cluster\[[\d,\s]+\]", master):
            raise UsageError(
                f"'{master}' is not a Spark master",
                where="--master",
                hint="write it like spark://host:7077, yarn or local[4]",
            )
        return
    usual = 7077 if match[1] == "spark" else 443
    faults = []
    for place in match[2].split(","):
        host, _, port = place.strip().rstrip("/").rpartition(":")
        try:
            where = (host or port, int(port) if host else usual)
            with socket.create_connection(where, timeout=_CONNECT_S):
                return
        except (OSError, ValueError) as error:
            faults.append(f"{place.strip()} {str(getattr(error, 'strerror', None) or error).lower()}")
    raise UsageError(f"no Spark master answers: {'; '.join(faults)}", where=f"--master {master}", hint=_LOOK)


def _session(master: str, settings: Mapping[str, str], folder: Path, log: Path, processes: list[Any]) -> Any:
    from pyspark import SparkConf, SparkContext
    from pyspark.java_gateway import launch_gateway
    from pyspark.sql import SparkSession

    (folder / "log4j2.properties").write_text(_LOG4J, encoding="utf-8")
    conf = SparkConf(loadDefaults=False)
    for name, value in _settings(master, folder, settings).items():
        conf.set(name, value)
    with log.open("wb") as stream:
        # The output of Java and Spark would appear between the lines of the answer.
        launch: Any = launch_gateway
        gateway = launch(conf, popen_kwargs={"stderr": stream})
    processes.append(gateway.proc)
    with _python_of(master):
        context = SparkContext(conf=SparkConf(_jvm=gateway.jvm), gateway=gateway)
    context.setLogLevel("ERROR")
    return SparkSession(context)


@contextmanager
def _python_of(master: str) -> Iterator[None]:
    """Make local executors run this Python; a cluster's executors run PYSPARK_PYTHON or python3."""
    name = "PYSPARK_PYTHON"
    if not master.startswith("local") or name in os.environ:
        yield
        return
    os.environ[name] = sys.executable  # read once, when the context is created
    try:
        yield
    finally:
        del os.environ[name]


def _settings(master: str, folder: Path, given: Mapping[str, str]) -> dict[str, str]:
    java = f"-Duser.timezone=UTC -Dlog4j2.configurationFile=file:{folder / 'log4j2.properties'}"
    found = {
        "spark.master": master,
        "spark.app.name": "tracekit",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.extraJavaOptions": java,
        "spark.executor.extraJavaOptions": "-Duser.timezone=UTC",
        # A task has one processor, but Polars would start a thread per processor of the machine.
        "spark.executorEnv.POLARS_MAX_THREADS": "1",
        **MEANINGS,
    }
    if master.startswith("local"):
        found["spark.driver.host"] = "127.0.0.1"
    for name, value in given.items():
        if value != MEANINGS.get(name, value):
            what = f"{name}={value} would change the answers"
            raise UsageError(what, where=_WHERE, hint=f"leave it out: tracekit sets {MEANINGS[name]}")
        # The user's Java options follow ours. Without ours, times would be in a different zone.
        found[name] = f"{found[name]} {value}" if name.endswith(".extraJavaOptions") and name in found else value
    return found


MEANINGS = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.parquet.inferTimestampNTZ.enabled": "false",
    # A product or sum of decimals keeps all its places.
    "spark.sql.decimalOperations.allowPrecisionLoss": "false",
}
"""Settings that give the SQL the same meaning in Spark as in DuckDB."""


def _require_workers(session: Any, master: str, seconds: float) -> None:
    """Check which version of tracekit the executors have."""
    context = session.sparkContext

    # Defined here so that Spark sends it as code: a machine without tracekit could not import it.
    def version_there(_: int) -> tuple[str, str]:
        import socket as there

        try:
            import tracekit.characterize.engines.spark.by_day  # noqa: F401 -- everything that tasks need
            from tracekit.version import __version__ as found
        except ImportError as error:
            found = f"no working tracekit ({error})"
        return there.gethostname(), found

    tasks = max(2, context.defaultParallelism)
    try:
        found = within(seconds, lambda: context.parallelize(range(tasks), tasks).map(version_there).collect())
    except LateError as error:
        context.cancelAllJobs()
        what = f"no executor took a task within {seconds:g} s"
        raise UsageError(what, where=f"--master {master}", hint=_LOOK) from error
    other = sorted({(host, version) for host, version in found if version != __version__})
    if other:
        host, version = other[0]
        more = f" and {len(other) - 1} more" if len(other) > 1 else ""
        has = version if version.startswith("no ") else f"tracekit {version}"
        raise UsageError(
            f"the executor on {host}{more} has {has}, this machine has tracekit {__version__}",
            where=f"--master {master}",
            hint="install this version in the Python of PYSPARK_PYTHON on every machine",
        )


def _end(session: Any, processes: list[Any], folder: Path) -> None:
    """Stop every part of Spark that has started; this process can then start it again."""
    from pyspark import SparkContext

    if session is not None:
        # A dead Java process cannot be stopped, and one without its master may not answer.
        with suppress(Exception):
            within(_STOP_S, session.stop)
    # The accumulator server would print a stack trace when the Java process disconnects.
    server = getattr(SparkContext._active_spark_context, "_accumulatorServer", None)  # noqa: SLF001
    if server is not None:
        with suppress(Exception):
            within(_CONNECT_S, server.shutdown)
    for process in processes:
        end_process(process)
    # PySpark keeps the context of a dead Java process, and would return it again.
    SparkContext._active_spark_context = None  # noqa: SLF001
    SparkContext._gateway = None  # noqa: SLF001
    SparkContext._jvm = None  # noqa: SLF001
    shutil.rmtree(folder, ignore_errors=True)


def end_process(process: Any) -> None:
    """End a Java process that we started."""
    from subprocess import TimeoutExpired

    with suppress(OSError):
        process.stdin.close()  # the signal to end
    try:
        process.wait(5)
    except TimeoutExpired:
        process.kill()
        process.wait(5)


def reason_of(error: Exception) -> str:
    """Return the error in one line, because Spark's messages continue with query plans and Java stack traces."""
    text = str(getattr(error, "java_exception", None) or error)
    causes = re.findall(r"Caused by: ([^\n]+)", text)
    line = causes[-1] if causes else next((line for line in text.splitlines() if line.strip()), type(error).__name__)
    # Python exceptions on an executor end with their own last line.
    last = re.findall(r"^(\w*(?:Error|Exception)\w*: .+)$", text, flags=re.MULTILINE)
    return " ".join((last[-1] if last and not causes else line).split())[:300].rstrip(".")


def _last_line(log: Path) -> str:
    try:
        lines = [line.strip() for line in log.read_text(encoding="utf-8", errors="replace").splitlines()]
    except OSError:
        return ""
    faults = [line for line in lines if re.search(r"error|exception|unable|could not", line, flags=re.IGNORECASE)]
    return re.sub(r'^Exception in thread "main" ', "", faults[0])[:300].rstrip(".") if faults else ""
