"""Complete the tables of a log by the machine files beside it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, cast

import polars as pl

from tracekit.ingest.companion import companions
from tracekit.ingest.machines._held import complete_placements
from tracekit.ingest.machines._interface import EVENT, HELD, LISTS, MACHINE, MachineReader
from tracekit.ingest.machines._names import Machine, machine_ids
from tracekit.ingest.machines._node_tables import attach_known, still_shown, write_events, write_nodes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tracekit.ingest.files import SourceFile
    from tracekit.ingest.interface import TimeFrame
    from tracekit.ingest.sink import Sink

__all__ = ["complete_machines"]

_ORDER = ("kubernetes-nodes", "sinfo", "slurm-json", "scontrol", "sacctmgr", "scontrol-jobs")
"""Kinds in the order in which they are read: what a later one says of a machine replaces what an earlier one says."""

_SOURCES = {"kubernetes-nodes": "kubernetes", "slurm-json": "sinfo"}
"""What nodes.source calls a list of machines, where that is not the name of its kind."""

_FILE = {"kind": pl.String(), "rank": pl.Int64()}
"""The kind of file that a row comes from, and the number of the file among all."""


class _Told(NamedTuple):
    """What machine files tell."""

    machines: list[pl.DataFrame]
    events: list[pl.DataFrame]


def complete_machines(
    files: dict[str, list[SourceFile]], frame: TimeFrame, sink: Sink, *, from_jobs: bool = False
) -> None:
    """Read the machine files, and complete nodes, node_events and placements by them.

    Of several lists of one machine the last counts, in the order of kinds and then of paths.

    Parameters
    ----------
    from_jobs : bool
        Whether the log's machines are those that jobs name, with the most GPUs held there at once.

    Raises
    ------
    SourceError
        A file is not what it claims to be.
    """
    told = _Told([pl.DataFrame(schema=MACHINE | _FILE)], [pl.DataFrame(schema=EVENT | _FILE)])
    held = sink.stage("held", _read(files, frame, sink, told))
    listed, happened = pl.concat(told.machines), pl.concat(told.events)
    dated = frame.base == "absolute"
    if not dated:
        sink.note(f"the times of the log are {frame.base}, so what machine files say about times is left out")
        happened = happened.clear()
    with sink.connect() as con:
        if held is not None and dated:
            complete_placements(con, held, sink)
    with sink.connect() as con:
        known = [Machine(*row) for row in attach_known(con, sink).iter_rows()]
        found = pl.concat([listed.select("host", "cluster"), happened.select("host", "cluster")]).unique()
        ids, doubtful = machine_ids(known, (Machine(*row) for row in found.iter_rows()))
        sink.check(
            "ambiguous_machines",
            len(doubtful),
            found.height,
            "names in machine files that may mean several machines of the log; what is said of them is left out",
            doubtful,
        )
        listed, happened = (_with_ids(rows, ids) for rows in (listed, happened))
        happened = still_shown(happened, listed, sink)
        if "sacctmgr" in files:
            # It tells the same times, with their ends.
            shown = happened["source"].is_in(LISTS)
            if shown.any():
                sink.note(f"states in lists of machines are left out ({shown.sum()}), since sacctmgr tells events")
            happened = happened.filter(~shown)
        # Samples may show more GPUs of a machine than an even split did.
        if listed.height or (from_jobs and held is not None and known):
            write_nodes(con, _one_list(listed, sink), sink, from_jobs=from_jobs)
        if happened.height:
            write_events(happened, sink)


def _read(files: dict[str, list[SourceFile]], frame: TimeFrame, sink: Sink, told: _Told) -> Iterator[pl.DataFrame]:
    """Yield what jobs held, and add machines and events to `told`."""
    number = 0
    for kind in sorted(files, key=lambda name: _ORDER.index(name) if name in _ORDER else -1):
        reader = cast("MachineReader", companions("machines")[kind])
        for file in files[kind]:
            number += 1
            origin = {"kind": pl.lit(kind), "rank": pl.lit(number, dtype=pl.Int64)}
            with sink.opened(file) as opened:
                for name, rows in reader.read(opened, frame, sink):
                    if name == "held":
                        yield rows.select(list(HELD))
                    elif rows.height:
                        (told.machines if name == "machine" else told.events).append(rows.with_columns(**origin))


def _with_ids(rows: pl.DataFrame, ids: dict[Machine, str]) -> pl.DataFrame:
    """Return rows with node_id; those of names that may mean several machines are left out."""
    table = pl.DataFrame(
        [(machine.name, machine.cluster, node) for machine, node in ids.items()],
        schema={"host": pl.String, "cluster": pl.String, "node_id": pl.String},
        orient="row",
    )
    return rows.join(table, on=["host", "cluster"], how="inner", nulls_equal=True, maintain_order="left")


def _one_list(listed: pl.DataFrame, sink: Sink) -> pl.DataFrame:
    """Return a row for each machine: of each column the last value that is stated."""
    if listed.is_empty():
        return pl.DataFrame(schema={"node_id": pl.String, **MACHINE, "source": pl.String}).drop("host")
    several = listed.group_by("node_id").agg(pl.col("gpu_count").drop_nulls().n_unique().alias("counts"))
    differ = several.filter(pl.col("counts") > 1)["node_id"].sort()
    sink.check(
        "machine_lists_differ",
        differ.len(),
        several.height,
        "machines to which several lists give different numbers of GPUs; the last list counts",
        differ,
    )
    source = pl.col("kind").replace(_SOURCES).filter(pl.col("gpu_count").is_not_null()).last()
    return (
        listed.sort("rank", maintain_order=True)
        .group_by("node_id", maintain_order=True)
        .agg(
            *(pl.col(name).drop_nulls().last() for name in MACHINE if name != "host"),
            source=pl.coalesce(source, pl.col("kind").replace(_SOURCES).last()),
        )
        .sort("node_id")
    )
