"""tracekit datasets as a user meets it; nothing here reaches the network."""

from __future__ import annotations

import gzip
import json
import os
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING
from unittest import mock

import pytest

from tests import command
from tracekit.datasets import all_datasets

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Callable, Iterator

    from tests.reviewed import Golden

ROOT = Path(__file__).parent.parent.parent
NOWHERE = "http://127.0.0.1:9"
"""Stands for every server that is not this machine: it refuses the connection."""


def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    """Run tracekit with no way to the network."""
    proxies = {"no_proxy": "127.0.0.1", "http_proxy": NOWHERE, "https_proxy": NOWHERE}
    with mock.patch.dict(os.environ, proxies):
        return command.run("datasets", *arguments)


def error(result: subprocess.CompletedProcess[str]) -> str:
    """Check that the command ended in exit code 2, and return the last line that it said."""
    assert result.returncode == 2
    assert "Traceback" not in result.stderr
    last = result.stderr.splitlines()[-1]
    assert last.startswith("tracekit: error: ")
    return last.removeprefix("tracekit: error: ")


@pytest.fixture
def mirror(tmp_path: Path) -> Iterator[tuple[str, Path]]:
    """Serve a folder and return its URL and path."""
    folder = tmp_path / "mirror"
    folder.mkdir()

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 -- the name of the base class
            return

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as http:
        thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{http.server_address[1]}", folder
        http.shutdown()
        thread.join()


def test_the_list_names_every_dataset_with_size_licence_study_and_origin(golden: Golden) -> None:
    result = run()
    assert result.returncode == 0, result.stderr
    for dataset in all_datasets().values():
        (line,) = (line for line in result.stdout.splitlines() if line.startswith(f" {dataset.name} "))
        for text in (dataset.licence, dataset.citation, dataset.origin):
            assert text in line
    assert " 1.06 GB " in result.stdout
    assert " about 108 MB " in result.stdout
    golden(result.stdout.splitlines()[-1])


def test_the_list_as_json_holds_all_that_is_known() -> None:
    listed = json.loads(run("-f", "json").stdout)
    assert [d["name"] for d in listed] == list(all_datasets())
    assert listed[0]["files"][0]["sha256"] == "2037ccf63a725a02be718b0e1aeee6142c90b7f62d0d849295120e9f6ba13d2c"
    assert set(listed[0]["files"][0]) == {"name", "urls", "bytes", "about_bytes", "sha256", "sha256_from"}


def test_show_tells_the_files_their_sums_and_sources(golden: Golden) -> None:
    shown = run("show", "acme").stdout
    assert "  licence CC BY 4.0\n" in shown
    assert "80 GB of telemetry" in shown
    assert "/data/job_trace/trace_kalos.csv" in shown
    golden(error(run("show", "pilly")))


def test_help_teaches_with_an_example_and_the_readme_names_it() -> None:
    pages = {words: run(*words, "--help").stdout for words in ((), ("show",), ("fetch",))}
    assert all("Example: tracekit datasets" in page for page in pages.values())
    assert all(f" {command} " in pages[()] for command in ("show", "fetch"))
    assert "tracekit datasets fetch helios -o helios-raw" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_licence_and_study_are_said_before_and_all_failures_in_one_line(tmp_path: Path) -> None:
    result = run("fetch", "alibaba-dlrm", "-o", tmp_path / "raw", "--timeout", "5")
    dataset = all_datasets()["alibaba-dlrm"]
    first, second, note, last = result.stderr.splitlines()
    assert first == f"licence: {dataset.licence}"
    assert second == f"cite: {dataset.citation}, {dataset.paper}"
    (file,) = dataset.files
    assert note.startswith(f"note: {file.urls[0]}: no connection: ")
    assert note.endswith("; trying the next source")
    # The line of all sources is long; the notes before it tell each source's failure whole.
    assert last.endswith("(cut short; 'tracekit --debug ...' shows all of it)")
    assert error(result).startswith("disaggregated_DLRM_trace.csv: could not be fetched: ")
    assert not (tmp_path / "raw").exists()


def test_mistakes_are_one_line_and_say_nothing_of_licences(tmp_path: Path, golden: Golden) -> None:
    result = run("fetch", "acme", "-o", tmp_path, "--file", "*.zip")
    golden([error(run("fetch", "spot", "-o", tmp_path)), error(result)])
    assert len(result.stderr.splitlines()) == 1


def test_a_released_file_from_a_mirror_is_checked_and_the_next_command_works(
    mirror: tuple[str, Path], real_data: Callable[[str], Path], tmp_path: Path
) -> None:
    url, folder = mirror
    name = "disaggregated_DLRM_trace.csv"
    (folder / name).write_bytes(gzip.decompress(real_data(f"alibaba_dlrm/{name}.gz").read_bytes()))
    raw = tmp_path / "my raw"
    result = run("fetch", "alibaba-dlrm", "-o", raw, "--mirror", url)
    assert result.returncode == 0, result.stderr
    line, following = result.stdout.splitlines()
    (file,) = all_datasets()["alibaba-dlrm"].files
    assert line == (
        f"{name}: fetched, 2,118,900 bytes, {file.sha256} "
        "(SHA-256 computed from copies of this revision; none is published)"
    )
    assert following == f"Next: tracekit analyze '{raw}' -o out --format alibaba-dlrm"
    (folder / name).unlink()
    assert run("fetch", "alibaba-dlrm", "-o", raw).stdout.startswith(f"{name}: was there, ")


def test_a_mirror_with_another_file_is_refused(mirror: tuple[str, Path], tmp_path: Path) -> None:
    url, folder = mirror
    (folder / "node_info_df.csv").write_bytes(b"x" * 78_330)
    arguments = ("fetch", "alibaba-spot", "-o", tmp_path / "raw", "--file", "node*", "--mirror", url)
    last = error(run(*arguments))
    assert f"{url}/node_info_df.csv: its SHA-256 is not 1aba161961a5...; https://" in last
    (folder / "node_info_df.csv").write_text("version https://git-lfs.github.com/spec/v1\n", encoding="utf-8")
    assert f"{url}/node_info_df.csv: it is a Git-LFS pointer to a file of 0 bytes" in error(run(*arguments))
    assert not (tmp_path / "raw").exists()
