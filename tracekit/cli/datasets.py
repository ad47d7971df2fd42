"""tracekit datasets."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tracekit.cli.display import TerminalProgress, print_table
from tracekit.cli.options import with_options
from tracekit.cli.streams import print_json
from tracekit.settings import Flag, ListForm

if TYPE_CHECKING:
    from tracekit.datasets import Dataset, FetchedFile

_CHECKED = {
    "publisher": "SHA-256 as published",
    "git-lfs": "SHA-256 as in the publisher's repository",
    "recorded": "SHA-256 computed from copies of this revision; none is published",
    "nothing": "no SHA-256 is published; compare yours with a colleague's",
}

Name = Annotated[str, typer.Argument(metavar="NAME", help="A dataset listed by 'tracekit datasets'.")]


group = typer.Typer(invoke_without_command=True, rich_markup_mode="markdown")


@group.callback()
@with_options
def datasets(context: typer.Context, form: ListForm = "table") -> None:
    """List the public traces with size, licence, study and origin, or fetch one.

    Without a subcommand, the command lists the traces. **show** describes a trace, and **fetch** downloads it.

    Example: tracekit datasets fetch helios -o helios-raw
    """
    if context.invoked_subcommand is not None:
        return

    from tracekit.datasets import all_datasets

    known = list(all_datasets().values())
    if form == "json":
        print_json([asdict(d) for d in known])
        return
    print_table(
        ("dataset", "size", "licence", "cite", "origin"),
        [(d.name, _size(d), d.licence, d.citation, d.origin) for d in known],
    )
    typer.echo("Fetch one with 'tracekit datasets fetch NAME -o DIR'; 'tracekit datasets show NAME' lists its files.")


@group.command()
def show(name: Name) -> None:
    """Describe a public trace, and list its files, their checksums and their sources.

    Example: tracekit datasets show alibaba-pai
    """
    from tracekit.datasets import find_dataset

    dataset = find_dataset(name)
    typer.echo(dataset.title)
    for what, text in (
        ("format", dataset.format),
        ("size", _size(dataset)),
        ("licence", dataset.licence),
        ("cite", f"{dataset.citation}, {dataset.paper}"),
        ("origin", dataset.origin),
        ("remark", dataset.remark),
    ):
        if text:
            typer.echo(f"  {what:8}{text}")
    print_table(
        ("file", "bytes", "SHA-256", "from"), [(f.name, f.bytes, f.sha256, f.sha256_from) for f in dataset.files]
    )
    print_table(("file", "sources, in this order"), [(f.name, url) for f in dataset.files for url in f.urls])


@group.command()
@with_options
def fetch(
    name: Name,
    out: Annotated[Path, Flag("-o --output DIR", "Folder for the files; created if missing.")],
    only: Annotated[
        tuple[str, ...], Flag("--file PATTERN", "Only matching files, such as '*.csv'; may be repeated.")
    ] = (),
    mirror: Annotated[
        str | None, Flag("--mirror URL", "URL of a mirror with files of the same names, tried first.")
    ] = None,
    force: Annotated[bool, Flag("--force", "Replace an existing file with different content.")] = False,
    timeout: Annotated[
        float, Flag("--timeout SECONDS", "Give up if a server sends less than 1 KiB/s for this long.", 0.1)
    ] = 60.0,
) -> None:
    """Download a public trace as its publisher released it.

    An interrupted download resumes when you run the command again. A known SHA-256 is checked; an unknown one is shown.
    If a source fails, the next one is tried. DIR/tracekit-dataset.json records the checksums, the licence and the
    study.

    Example: tracekit datasets fetch alibaba-spot -o spot-raw && tracekit analyze spot-raw -o out
    """
    from tracekit.datasets import choose_files, fetch_dataset, find_dataset

    dataset = find_dataset(name)
    choose_files(dataset, only)
    typer.echo(f"licence: {dataset.licence}", err=True)
    typer.echo(f"cite: {dataset.citation}, {dataset.paper}", err=True)
    if dataset.remark:
        typer.echo(f"remark: {dataset.remark}", err=True)
    with TerminalProgress() as progress:
        found = fetch_dataset(dataset, out, only=only, mirror=mirror, force=force, timeout=timeout, progress=progress)
    for each in found:
        typer.echo(_line(each))
    typer.echo(f"Next: tracekit analyze {shlex.quote(str(out))} -o out --format {dataset.format}")


def _line(file: FetchedFile) -> str:
    where = "was there" if file.was_there else "fetched"
    return f"{file.path.name}: {where}, {file.bytes:,} bytes, {file.sha256} ({_CHECKED[file.checked]})"


def _size(dataset: Dataset) -> str:
    about = "" if dataset.size_is_exact else "about "
    size = dataset.bytes / 1e6
    return f"{about}{size / 1e3:.2f} GB" if size >= 1000 else f"{about}{size:.3g} MB"
