"""Every call of the package that reaches a server or a program is bounded: in one place, or by what it states itself.

The tests walk the syntax of every module. A new call of a network library fails here until it goes through
`tracekit.exchange` (web servers, calls of clients), `tracekit.places.stores` (object stores) or
`tracekit.ingest.pull_slurm` (pull_slurm), or states its bounds.
"""

from __future__ import annotations

import ast
import functools
import inspect
import re
from collections import Counter
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

import tracekit
from tracekit import exchange
from tracekit.datasets import download
from tracekit.ingest import pull_slurm
from tracekit.ingest.telemetry import _complete
from tracekit.places import stores

if TYPE_CHECKING:
    from collections.abc import Iterable

PACKAGE = Path(tracekit.__file__).parent

WEB = {
    "aiohttp", "asyncio", "ftplib", "grpc", "http.client", "httpx", "imaplib", "paramiko", "poplib", "requests",
    "smtplib", "ssl", "telnetlib", "urllib.request", "urllib3", "websocket", "websockets", "xmlrpc",
}  # fmt: skip
"""Libraries that connect to servers of the web."""
STORES = {
    "adlfs", "azure", "boto3", "botocore", "fsspec", "gcsfs", "google", "minio", "obstore", "pyarrow.fs", "s3fs",
    "smart_open",
}  # fmt: skip
"""Clients of object stores."""
OTHERS = {"pyspark", "socket", "socketserver", "subprocess", "uvicorn"}

IMPORTERS = {
    "exchange.py": {"http.client", "socket", "urllib.request"},
    "places/stores.py": {"pyarrow.fs"},
    "places/in_duckdb.py": {"fsspec"},  # a file system whose only reader is `places.reader`
    "interruption.py": {"socket"},  # a pair of sockets in this process
    "ingest/file_tasks.py": {"socket"},  # the name of this machine
    "runs/ledger.py": {"socket"},  # the name of this machine
    "serve/limits.py": {"asyncio"},  # ends what the server of the page does not answer in time
    # Listens and bounds the connections of those who ask; `serve.limits` bounds what it answers.
    "serve/run.py": {"asyncio", "socket", "uvicorn"},
    "characterize/engines/spark/starting.py": {"socket", "pyspark", "subprocess"},
    "ingest/pull_slurm.py": {"subprocess"},
    "report/pdf.py": {"subprocess"},
    "analysis/answering.py": {"subprocess"},
}
"""Modules that may import such a library, with the reason where it does not connect to a server."""

LOCAL = {
    "socketpair",
    "gethostname",
    "getfqdn",
    "create_server",
    "gaierror",
    "SOCK_STREAM",
    "AI_PASSIVE",
    "getaddrinfo",
}
"""What a module may use of `socket` without a bound: nothing of it connects."""


class Call(NamedTuple):
    """A call in a module of the package."""

    module: str
    function: str
    """The dotted name of what is called."""
    node: ast.Call

    @property
    def keywords(self) -> set[str]:
        """The names of its arguments; '**' where some are unpacked."""
        return {word.arg or "**" for word in self.node.keywords}


REACHING = (
    "get_file_info", "open_input_file", "open_input_stream", "read_at", "_object.readinto", "resolve_s3_region",
    "copy_file",
)  # fmt: skip
"""What asks a store's client for something."""

_WORTH = {name.rpartition(".")[2] for name in (*WEB, *STORES, *OTHERS, *REACHING)} | {
    "import_module", "__import__", "httpfs", "ask", "within", "Bounds", "system", "popen", "spawnv",
}  # fmt: skip
"""Words of which every module has one that these tests look for; the others need not be parsed."""

_WORTH_TOO = re.compile(r"FileSystem|['\"](\s|\\n)*(force\s+)?(install|load)\b|httpfs", re.IGNORECASE)
"""The same for parts of words, and for what a text begins with."""


@functools.cache
def trees() -> dict[str, ast.Module]:
    """Return what is parsed of the package: the modules by their paths."""
    texts = {path: path.read_text(encoding="utf-8") for path in sorted(PACKAGE.rglob("*.py"))}
    return {path.relative_to(PACKAGE).as_posix(): ast.parse(text) for path, text in texts.items() if worth(text)}


def worth(text: str) -> bool:
    """Return whether a module can hold what these tests look for."""
    return not _WORTH.isdisjoint(re.findall(r"\w+", text)) or _WORTH_TOO.search(text) is not None


@functools.cache
def every_node() -> dict[str, list[ast.AST]]:
    """Return the nodes of each parsed module."""
    return {module: list(ast.walk(tree)) for module, tree in trees().items()}


def dotted(node: ast.expr) -> str:
    """Return the dotted name of what is called; '' where it begins with something else than a name."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


@functools.cache
def every_call() -> list[Call]:
    return [
        Call(module, dotted(node.func), node)
        for module, nodes in every_node().items()
        for node in nodes
        if isinstance(node, ast.Call)
    ]


@functools.cache
def imports() -> dict[str, set[str]]:
    """Return what each parsed module imports."""
    return {module: imported(nodes) for module, nodes in every_node().items()}


def imported(nodes: Iterable[ast.AST]) -> set[str]:
    """Return the modules that are imported, wherever in a file, also under another name or for types only."""
    found = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found |= {node.module} | {f"{node.module}.{alias.name}" for alias in node.names}
        elif isinstance(node, ast.Call) and dotted(node.func).endswith(("import_module", "__import__")):
            found |= {a.value for a in node.args if isinstance(a, ast.Constant) and isinstance(a.value, str)}
    return found


def network(names: set[str]) -> set[str]:
    """Return which libraries that reach a server or a program are among imported names."""
    known = WEB | STORES | OTHERS
    return {library for library in known for name in names if name == library or name.startswith(f"{library}.")}


def calls(*endings: str) -> list[Call]:
    """Return the calls of functions whose dotted names end so."""
    tails = tuple(f".{ending}" for ending in endings)
    return [call for call in every_call() if f".{call.function}".endswith(tails)]


def calls_of_exchange(name: str) -> list[Call]:
    """Return the calls of a function of `tracekit.exchange`, by the modules that import it and its own."""
    users = {module for module, names in imports().items() if f"tracekit.exchange.{name}" in names}
    return [call for call in every_call() if call.function == name and call.module in users | {"exchange.py"}]


def test_only_known_modules_import_what_reaches_a_server_or_a_program() -> None:
    found = {module: network(names) for module, names in imports().items()}
    spark = "characterize/engines/spark/"
    others = {
        module: names - ({"pyspark"} if module.startswith(spark) else set())
        for module, names in found.items()
        if module not in IMPORTERS
    }
    assert {module: names for module, names in others.items() if names} == {}
    assert {module: found[module] for module in IMPORTERS} == IMPORTERS


@pytest.mark.parametrize(
    "text", ["con.execute('INSTALL httpfs')", 'SQL = """\nforce load x"""', "'load azure'", "within(5)"]
)
def test_a_module_with_such_a_text_is_parsed(text: str) -> None:
    assert worth(text)
    assert not worth("x = load(offsets)  # requested: 'the load'")


@pytest.mark.parametrize(
    "text",
    [
        "import requests",
        "from urllib import request",
        "import urllib.request as r",
        "def f():\n    from botocore.session import get_session",
        "import importlib\nimportlib.import_module('httpx')",
        "from pyarrow import fs",
        "from subprocess import run",
    ],
)
def test_the_walk_finds_a_library_however_it_is_imported(text: str) -> None:
    assert worth(text)
    assert network(imported(ast.walk(ast.parse(text))))


def test_web_servers_are_asked_in_one_function_with_bounds() -> None:
    found = calls("OpenerDirector", "build_opener", "urlopen", "HTTPConnection", "HTTPSConnection", "urlretrieve")
    assert [(call.module, call.function) for call in found] == [("exchange.py", "OpenerDirector")]
    asking = calls_of_exchange("ask")
    assert sorted(call.module for call in asking) == ["datasets/download.py", "ingest/telemetry/_complete.py"]
    assert all(len(call.node.args) == 3 for call in asking)
    assert inspect.signature(exchange.ask).parameters["bounds"].default is inspect.Parameter.empty
    assert [call.module for call in calls("opener.open")] == ["exchange.py"]


def test_every_bound_of_a_web_server_is_a_number() -> None:
    made = calls_of_exchange("Bounds")
    assert {call.module for call in made} == {"exchange.py"}
    assert len(made) == 2
    for bounds in (exchange.DOWNLOADS, exchange.QUESTIONS, _complete._NAMES):
        values = {field.name: getattr(bounds, field.name) for field in fields(bounds)}
        assert all(isinstance(value, int | float) for value in values.values())
        assert values.pop("redirects") in range(11)
        assert all(0 < value < float("inf") for value in values.values())
        assert bounds.attempts <= 5
        assert bounds.first_s <= 130
        assert bounds.silence_s <= 60
        assert bounds.whole_s <= 86_400


def test_a_loop_that_asks_a_server_again_counts_its_attempts() -> None:
    """No `while True` and no endless iterator around a request."""
    for module in ("datasets/download.py", "datasets/fetch.py", "ingest/telemetry/_complete.py", "exchange.py"):
        for node in every_node()[module]:
            if isinstance(node, ast.While):
                assert not isinstance(node.test, ast.Constant), f"{module}, line {node.lineno}"
    assert calls("cycle", "repeat") == [call for call in calls("cycle", "repeat") if not call.module.startswith("data")]
    assert download._FRESH_STARTS == 1
    assert _complete._TOO_LARGE == 3


def test_clients_of_stores_state_their_bounds() -> None:
    needed = {
        "S3FileSystem": {"connect_timeout", "request_timeout", "retry_strategy"},
        "GcsFileSystem": {"retry_time_limit"},
        "AzureFileSystem": set(),  # takes no bounds: those of `asked_of` hold it
        "HadoopFileSystem": set(),  # the same
    }
    for name, words in needed.items():
        found = calls(name)
        assert {call.module for call in found} == {"places/stores.py"}
        assert all(words <= call.keywords for call in found), name
    assert calls("FileSystem.from_uri") == []


def test_calls_of_a_stores_client_run_inside_a_bound() -> None:
    """What reaches a store is an argument of `asked_of` or `within`, which end it."""
    functions = {"opened", "_fill", "_s3"}  # passed to `asked_of`, and called by `store_of`
    for module in ("places/stores.py", "places/reader.py"):
        inside: set[int] = set()
        for node in every_node()[module]:
            bounded = isinstance(node, ast.Call) and dotted(node.func) in ("asked_of", "within")
            if bounded or (isinstance(node, ast.FunctionDef) and node.name in functions):
                inside |= {id(child) for child in ast.walk(node)}
        outside = [
            f"{call.function}, line {call.node.lineno}"
            for call in calls(*REACHING)
            if call.module == module and id(call.node) not in inside
        ]
        assert outside == []
    assert {call.module for call in calls(*REACHING)} == {"places/stores.py", "places/reader.py"}
    assert "tracekit.places.stores.asked_of" in imports()["places/reader.py"]
    assert 0 < stores._WHOLE_S <= 120
    assert stores._ATTEMPTS <= 3


def test_sockets_connect_with_a_timeout() -> None:
    for module, nodes in every_node().items():
        for node in nodes:
            if isinstance(node, ast.Attribute) and dotted(node.value) == "socket":
                assert node.attr in LOCAL | {"create_connection", "socket"}, f"{module}, line {node.lineno}"
    (call,) = calls("socket.create_connection")
    assert "timeout" in call.keywords
    assert calls("socket.socket") == []


def test_calls_of_spark_run_inside_a_bound() -> None:
    found = Counter(call.module for call in calls_of_exchange("within"))
    assert found == {"characterize/engines/spark/starting.py": 4, "places/stores.py": 2}


def test_programs_end_in_time() -> None:
    """A program runs until a deadline, or is one of ours, which has bounds of its own."""
    found = calls(
        "subprocess.run", "subprocess.Popen", "subprocess.call", "subprocess.check_call", "subprocess.check_output",
        "os.system", "os.popen", "os.spawnv", "create_subprocess_exec",
    )  # fmt: skip
    assert sorted((call.module, call.function) for call in found) == [
        ("analysis/answering.py", "subprocess.Popen"),  # tracekit fit, on files of this machine
        ("ingest/pull_slurm.py", "subprocess.Popen"),
        ("report/pdf.py", "subprocess.Popen"),
    ]
    assert not any("shell" in call.keywords for call in found)
    (communicate,) = calls("process.communicate")
    assert (communicate.module, communicate.keywords) == ("report/pdf.py", {"timeout"})
    assert 0 < pull_slurm._PATIENCE_S <= 1800
    assert 0 < pull_slurm._MOST_ERRORS < pull_slurm._MOST_BYTES <= 4 << 30


def test_no_sql_of_the_package_reaches_the_network() -> None:
    """DuckDB's httpfs has no bounds of ours: stores are read through `places.in_duckdb`."""
    for module, nodes in every_node().items():
        for node in nodes:
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                words = node.value.lower()
                assert "httpfs" not in words, f"{module}, line {node.lineno}"
                assert not re.fullmatch(r"\s*(force )?(install|load) \S+\s*", words), f"{module}, line {node.lineno}"
    for path in (PACKAGE.parent / "queries").rglob("*.sql"):
        assert "://" not in "".join(
            line for line in path.read_text(encoding="utf-8").splitlines() if not line.startswith("--")
        )


def test_each_promise_of_the_documentation_names_a_test_that_is_there() -> None:
    text = (PACKAGE.parent / "docs" / "security.md").read_text(encoding="utf-8")
    rows = [row for row in text.splitlines() if row.startswith("| ") and "`test" in row]
    assert len(rows) == 67
    for row in rows:
        files = [PACKAGE.parent / name for name in re.findall(r"`(tests/[\w/]+\.py)`", row)]
        names = re.findall(r"`(test_\w+)`", row)
        searched = files or [PACKAGE.parent / "tests" / "test_exchange.py"]
        assert all(path.is_file() for path in searched), row
        for name in names:
            assert any(f"def {name}(" in path.read_text(encoding="utf-8") for path in searched), name


def test_the_bounds_of_the_documentation_are_those_of_the_code() -> None:
    text = (PACKAGE.parent / "docs" / "security.md").read_text(encoding="utf-8")
    cells = [[cell.strip() for cell in row.split("|")[1:-1]] for row in text.splitlines() if row.count("|") == 6]
    rows = {row[0]: row[1:] for row in cells}
    first, whole = rows["connection, first byte"], rows["one answer or call"]
    files, questions = exchange.DOWNLOADS, exchange.QUESTIONS
    assert [f"{files.first_s:g} s (`--timeout`)", f"{questions.first_s:g} s"] == first[:2]
    assert rows["silence, or less than 1 KiB/s, for"][1] == f"{questions.silence_s:g} s"
    assert [f"{files.whole_s / 3600:g} h", f"{questions.whole_s / 3600:g} h"] == whole[:2]
    assert whole[2].startswith(f"{stores._WHOLE_S / 60:g} min, and 1 s more for each {stores._LEAST_RATE / 1024:g} KiB")
    assert whole[3] == f"{pull_slurm._PATIENCE_S / 60:g} min"
    assert f"{files.most_bytes >> 30} GiB" in rows["bytes of one answer"][0]
    assert (
        rows["bytes of one answer"][3]
        == f"{pull_slurm._MOST_BYTES >> 30} GiB; errors {pull_slurm._MOST_ERRORS >> 20} MiB"
    )
    assert rows["attempts"][0].startswith(f"{files.attempts}, ")
    assert rows["attempts"][2] == str(stores._ATTEMPTS)
    assert rows["redirects"][:2] == [str(files.redirects), str(questions.redirects)]
