"""Which records of node events cannot be used.

A missing end means that the event goes on. So an end that is stated and cannot be used costs its record: without the
end, the record would say something else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tracekit.ingest.mapping.convert import rule_text

if TYPE_CHECKING:
    import polars as pl

    from tracekit.ingest.mapping.blocks import RawRows
    from tracekit.ingest.mapping.model import TableMap
    from tracekit.ingest.record_times import RecordTimes

__all__ = ["unusable_events"]


def unusable_events(
    table: TableMap, rows: RawRows, frame: pl.DataFrame, times: RecordTimes
) -> dict[int, tuple[str, str]]:
    """Return the records whose times cannot be, each with the column of the log and the first thing wrong with it.

    Parameters
    ----------
    table : TableMap
        How node_events is filled.
    rows : RawRows
        The records.
    frame : DataFrame
        The columns of node_events, a row for each record.
    times : RecordTimes
        Knows which dates are those of the log.
    """
    labels = {name: rule.label for name in ("start_time", "end_time") if (rule := table.rule(name)) is not None}
    wrong = times.no_dates(frame, list(labels))
    found = [(name, wrong[name], "is no date of this log") for name in labels]
    end = table.rule("end_time")
    if end is not None and end.reads_text:
        stated = rule_text(end, rows, table.reading)[0].is_not_null()
        found.append(("end_time", stated & frame["end_time"].is_null(), "names no instant"))
        found.append(("end_time", frame["end_time"] < frame["start_time"], "lies before the start"))
    bad: dict[int, tuple[str, str]] = {}
    for name, mask, reason in found:
        for row in mask.fill_null(value=False).arg_true().to_list():
            bad.setdefault(row, (labels[name], reason))
    return bad
