"""What stands beside a log and completes its Trace: what a mapping file adds, machine lists, node events, telemetry."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tracekit.databases import sql_text
from tracekit.errors import SourceError
from tracekit.ingest.companion import CompanionFiles, find_companions, named_telemetry
from tracekit.ingest.derived import shown_gpus
from tracekit.ingest.telemetry._own_samples import samples_lack_jobs

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.ingest.files import SourceFile
    from tracekit.ingest.interface import Format, TimeFrame
    from tracekit.ingest.mapping.addition import MapAddition
    from tracekit.ingest.sink import Sink
    from tracekit.settings import IngestSettings

__all__ = ["Beside", "split_source"]


@dataclass(frozen=True)
class Beside:
    """The files of a source that are not its log."""

    added: MapAddition | None
    """What a mapping file adds to the format."""
    companions: CompanionFiles
    """Files that are recognized by their first bytes, and servers."""

    @property
    def one_by_one(self) -> list[SourceFile]:
        """The files of telemetry, which are read one by one; not what a server will answer."""
        added = [] if self.added is None else self.added.one_by_one
        return [*added, *(file for files in self.companions.telemetry.values() for file in files)]

    def complete(self, form: Format, frame: TimeFrame, sink: Sink) -> None:
        """Complete the tables of a log that has been read: telemetry needs to know the machines.

        Raises
        ------
        SourceError
            A file cannot be read as what it claims to be, or a server does not answer.
        """
        if self.added is not None:
            self.added.read(form, frame, sink)
        sink.flush()
        sink.writer.drain()
        if self.companions.machines:
            from tracekit.ingest.machines._complete import complete_machines

            complete_machines(self.companions.machines, frame, sink, from_jobs=form.nodes_from_jobs)
            sink.flush()
            sink.writer.drain()
        if self.companions.telemetry or self.companions.servers or samples_lack_jobs(sink):
            from tracekit.ingest.telemetry._complete import complete_telemetry

            complete_telemetry(self.companions, frame, sink)
            if form.nodes_from_jobs:
                _count_shown_gpus(sink)


def _count_shown_gpus(sink: Sink) -> None:
    """Give machines that only jobs name the GPUs that telemetry shows on them, as far as jobs held them."""
    nodes, placements = (sink.folder / f"{table}.parquet" for table in ("nodes", "placements"))
    if not nodes.is_file() or not placements.is_file():
        return
    rest = sink.writer.scratch / "nodes_before_telemetry.parquet"
    nodes.replace(rest)
    shown = shown_gpus(f"read_parquet({sql_text(placements)})")
    with sink.connect() as con:
        sink.writer.copy(
            "nodes",
            con,
            f"""SELECT n.* REPLACE (
                CASE WHEN n.source IS NULL THEN coalesce(s.gpu_count, n.gpu_count) ELSE n.gpu_count END AS gpu_count)
            FROM read_parquet({sql_text(rest)}, file_row_number = true) n LEFT JOIN ({shown}) s USING (node_id)
            ORDER BY n.file_row_number""",
        )


def split_source(
    source: Path, files: list[SourceFile], settings: IngestSettings
) -> tuple[list[SourceFile], dict[str, str], Beside]:
    """Return the files of the log, the options of its format, and what stands beside it.

    Raises
    ------
    SourceError
        There is no log, or telemetry that was named cannot be read or is of no known kind.
    UsageError
        The mapping file is missing or wrong.
    """
    taken = {file.path for file in files}
    options = dict(settings.options or {})
    if settings.format_name == "csv":  # its mapping names its files
        return files, options, Beside(None, named_telemetry(settings.telemetry, CompanionFiles(), taken, settings))
    added = None
    if settings.format_name is not None and "map" in options:
        from tracekit.ingest.mapping.addition import MapAddition

        added = MapAddition(options.pop("map"), files)
        files = added.rest
    found = find_companions(files)
    log = [file for file in files if file.path not in found.paths]
    if not log:
        shown = ", ".join(sorted(found.paths)[:3])
        raise SourceError(
            f"holds no log, only what stands beside one ({shown})",
            where=source,
            hint="put the scheduler's log into the same folder",
        )
    return log, options, Beside(added, named_telemetry(settings.telemetry, found, taken, settings))
