"""The reference page of the public traces, generated from the catalog."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tools.manual.markdown import code, head, plain, sentence, table
from tracekit.datasets import all_datasets

if TYPE_CHECKING:
    from tracekit.datasets import Dataset, RemoteFile

__all__ = ["page"]

_INTRO = """\
`tracekit datasets fetch NAME -o DIR` downloads one of these public traces. If you run it again after an interruption,
it resumes where it stopped. Each publisher's licence applies. Cite the study when you publish results. tracekit itself
contains none of the data."""


def page() -> str:
    """Return the page as Markdown."""
    known = all_datasets().values()
    lines = head("Public traces", "tracekit/datasets/catalog.toml", _INTRO)
    rows = [(f"[{d.name}](#{d.name})", plain(d.title), _size(d), plain(d.licence)) for d in known]
    lines += table(("dataset", "what it is", "size", "licence"), rows)
    for dataset in known:
        lines += ["", f"## {dataset.name}", "", plain(sentence(dataset.title))]
        lines += ["", f"Read by the [{dataset.format}](formats.md#{dataset.format}) format."]
        lines += [f"Licence: {plain(sentence(dataset.licence))}"]
        lines += ["", f"Cite: {plain(dataset.citation)} (<{dataset.paper}>). Publisher: <{dataset.origin}>."]
        if dataset.remark:
            lines += ["", plain(dataset.remark)]
        lines += table(("file", "bytes", "SHA-256"), [_file(file) for file in dataset.files])
    return "\n".join(lines) + "\n"


def _size(dataset: Dataset) -> str:
    about = "" if dataset.size_is_exact else "about "
    return f"{about}{dataset.bytes / 1e6:,.0f} MB" if dataset.bytes >= 1e6 else f"{about}{dataset.bytes / 1e3:,.0f} kB"


def _file(file: RemoteFile) -> tuple[str, str, str]:
    if file.bytes is not None:
        size = f"{file.bytes:,}"
    else:
        size = "unknown" if file.about_bytes is None else f"about {file.about_bytes:,}"
    return code(file.name), size, "unknown" if file.sha256 is None else f"`{file.sha256[:16]}...`, {file.sha256_from}"
