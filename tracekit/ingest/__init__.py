"""Ingest raw logs into a Trace: turn files into records, typed cells and common tables, and count rejected records."""

from __future__ import annotations

from tracekit.ingest.detect import Detection, all_formats, find_format
from tracekit.ingest.interface import Format, Option, RawFile, TimeFrame
from tracekit.ingest.run import ingest_logs

__all__ = ["Detection", "Format", "Option", "RawFile", "TimeFrame", "all_formats", "find_format", "ingest_logs"]
