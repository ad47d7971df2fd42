"""Jobs of Flux: for each its eventlog, the resources R that it got, and its jobspec.

Flux keeps them in its key-value store under these names (RFC 16); `flux jobs` prints neither events nor GPUs. A file
holds an object a job, one a line or in an array: {"id": ..., "eventlog": ..., "R": ..., "jobspec": ...}, each of
these as JSON or as the text that `flux job info ID KEY` prints. This writes one:

    flux jobs -A -a --count=0 -no '{id.dec}' | while read id; do
      for key in eventlog R jobspec; do flux job info $id $key > $key.txt 2> /dev/null; done
      jq -cn --arg id $id --rawfile eventlog eventlog.txt --rawfile R R.txt --rawfile jobspec jobspec.txt '$ARGS.named'
    done > flux.jsonl

The job archive of flux-accounting has the same columns: sqlite3 -json job-archive.sqlite 'select * from jobs'.

Events (RFC 18 and 21; flux-framework.readthedocs.io) carry seconds since 1970. A job is submitted (submit), may be
scheduled from `depend` on, holds its resources from `alloc` and ends with `finish`; where that is missing, with
`free` or `clean`. An exception of severity 0 says why it ended: cancel is cancelled, timeout is timeout, any other
failed. Without one the wait status of `finish` is completed where it is 0, else failed. A job has one run.

R (RFC 20) lists ranks and the cores and GPUs on each: the GPUs of a job are counted there, and a node without `gpu`
has none. Another kind of child may be an accelerator, so that the number is unknown; the option gpu_resource says
what it counts. Host names stand in the order of the ranks. Where R lists ranks in another order, GPUs of a node are
unknown unless all nodes have the same number. Before a job has R, its GPUs are what the jobspec (RFC 14) asks for;
for a node that is asked for as a whole, or a number that is a range, they are unknown.

An id is written in decimal; the form f58 (fABC, or with a florin sign) is turned into it. The time limit is the
duration in jobspec or in the latest jobspec-update; 0 is none.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar

from tracekit.ingest.devices import GPU_RESOURCE
from tracekit.ingest.formats._flux_records import read_jobs
from tracekit.ingest.formats._record_append import merge_records
from tracekit.ingest.interface import Format, FoundFiles, Option, RawFile, Sink, TimeFrame
from tracekit.ingest.job_records import combine_records
from tracekit.ingest.job_tables import write_job_tables

if TYPE_CHECKING:
    from collections.abc import Mapping

    import duckdb

__all__ = ["FORMAT"]


def _looks_right(head: bytes) -> bool:
    """Return whether the first bytes are JSON with the eventlog of a job."""
    begins = head.removeprefix(b"\xef\xbb\xbf").lstrip()[:1] in (b"{", b"[")
    # An eventlog is text inside JSON, with its quotes escaped, or JSON itself.
    log = re.search(rb'"eventlog"\s*:\s*["\[{][^}]{0,2000}?name\\?"\s*:\s*\\?"submit', head)
    return begins and (log is not None or (b"R_lite" in head and b'"jobspec"' in head))


class FluxFormat(Format):
    """Eventlogs of one instance."""

    name = "flux"
    title = "Flux eventlogs with R and jobspec"
    raw_files = (RawFile("jobs", "objects with id, eventlog, R and jobspec, one a job", "", _looks_right),)
    options: ClassVar[Mapping[str, Option]] = {
        "cluster": Option("flux", "name of the cluster"),
        "vc": Option("bank", "what the tenant unit is", ("bank", "project", "queue")),
        "gpu_resource": GPU_RESOURCE,
    }
    nodes_from_jobs: ClassVar[bool] = True

    def merge_jobs(self, con: duckdb.DuckDBPyConnection, options: Mapping[str, str]) -> None:
        """Combine what both exports say of a job."""
        merge_records(con, options)

    def read(self, found: FoundFiles, sink: Sink) -> TimeFrame:
        """Read every file of the source as one log."""
        staged = sink.stage("records", read_jobs(found.get("jobs"), sink))
        if staged is not None:
            with sink.connect() as con:
                combine_records(con, staged, sink)
                write_job_tables(con, sink)
        sink.retries = True
        return TimeFrame("absolute", "UTC")


FORMAT = FluxFormat()
