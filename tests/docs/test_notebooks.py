"""The notebooks of docs/ run in a kernel as Jupyter runs them, and the page on Python names every function."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import altair as alt
import nbformat
import pytest

import tracekit
from tests.docs.examples import DOCS, ROOT, Reader

if TYPE_CHECKING:
    from pathlib import Path

NOTEBOOKS = sorted(DOCS.glob("notebooks/*.ipynb"))
_HOMES = ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR", "JUPYTER_RUNTIME_DIR")
"""Folders of the user's own, which a test leaves alone."""


def _read(path: Path) -> Any:
    return nbformat.read(path, as_version=4)  # type: ignore[no-untyped-call]  # it has no types


def test_there_is_one_and_a_page_links_to_it() -> None:
    assert [path.name for path in NOTEBOOKS] == ["first_look.ipynb"]
    text = (DOCS / "python.md").read_text(encoding="utf-8")
    assert [path.name for path in NOTEBOOKS if f"(notebooks/{path.name})" not in text] == []


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_is_kept_without_outputs(path: Path) -> None:
    notebook = _read(path)
    nbformat.validate(notebook)
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert len(cells) > 5
    assert [cell.source for cell in cells if cell.outputs or cell.execution_count is not None] == []
    assert str(ROOT) not in path.read_text(encoding="utf-8")


def test_its_first_cells_run_and_show_a_trace_and_a_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sample_traces").symlink_to(ROOT / "sample_traces")
    monkeypatch.chdir(tmp_path)
    cells = [cell.source for cell in _read(DOCS / "notebooks/first_look.ipynb").cells if cell.cell_type == "code"]
    for source in cells:
        compile(source, "cell", "exec")
    names: dict[str, Any] = {}
    with alt.renderers.enable(alt.renderers.active):  # which the notebook changes
        exec(cells[0], names)
    trace = names["trace"]
    assert re.match(r"Trace .*philly-trace\n  source    philly, 5 files\n", repr(trace))
    assert trace._repr_html_().startswith('<table class="tracekit">')


@pytest.mark.thorough
def test_it_runs_and_shows_a_table_a_page_and_pictures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from nbclient import NotebookClient

    for name in _HOMES:
        (tmp_path / name).mkdir()
        monkeypatch.setenv(name, str(tmp_path / name))
    (tmp_path / "sample_traces").symlink_to(ROOT / "sample_traces")
    notebook = _read(DOCS / "notebooks/first_look.ipynb")
    client = NotebookClient(
        notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    )
    client.execute()
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    # Each cell shows its last expression, and nothing else: no warning, no text.
    assert [[output.output_type for output in cell.outputs] for cell in cells] == [
        ["display_data" if ".show(" in cell.source else "execute_result"] for cell in cells
    ]
    shown = [dict(cell.outputs[0].data) for cell in cells]
    first, report, *_ = shown
    assert re.match(r"Trace .*philly-trace\n  source    philly, 5 files\n", first["text/plain"])
    assert first["text/html"].startswith('<table class="tracekit">')
    assert "768 GPU jobs" in report["text/plain"]
    (page,) = (data["text/html"] for data in shown if data.get("text/html", "").startswith("<iframe "))
    assert 'style="border:0;width:100%;height:600px"' in page
    assert len(page) > 1_000_000
    pictures = [data["image/svg+xml"] for data in shown if "image/svg+xml" in data]
    assert [picture.startswith("<svg") for picture in pictures] == [True, True]
    replayed = next(data["text/plain"] for data in shown if data["text/plain"].startswith("Replay of"))
    assert replayed.splitlines()[0].endswith("under srtf")
    assert shown[-1]["text/plain"].startswith("Workload fitted to 797 jobs of format philly\n")


def test_the_page_shows_what_a_trace_prints(tmp_path: Path) -> None:
    assert Reader(tmp_path).follow("python.md") == 1


def test_the_page_names_every_function() -> None:
    named = set(re.findall(r"`tracekit\.(\w+)", (DOCS / "python.md").read_text(encoding="utf-8")))
    assert named == set(tracekit.__all__) - {"__version__"}
