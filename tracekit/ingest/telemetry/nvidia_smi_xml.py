"""Read the output of `nvidia-smi -q -x`: one document per time, or several in one file, as written with `-l SECONDS`.

docs.nvidia.com/deploy/nvidia-smi. A record is a line. Times are the wall clock of the machine, and the file name (or
folder name) must contain the machine's name. GPUs are numbered in the order in which a document lists them, like
nvidia-smi numbers them. N/A means no value, and values for parts of a divided GPU (MIG) are not used for the whole GPU.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

import polars as pl

from tracekit.ingest.companion import TelemetryReader
from tracekit.ingest.localtime import to_utc
from tracekit.ingest.records import text_lines
from tracekit.ingest.telemetry._series import Labels, Samples, host_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tracekit.ingest.interface import TimeFrame
    from tracekit.ingest.sink import OpenedFile, Sink

_FIELDS: Final = {
    ("utilization", "gpu_util"): "DCGM_FI_DEV_GPU_UTIL",
    ("fb_memory_usage", "used"): "DCGM_FI_DEV_FB_USED",
    ("gpu_power_readings", "instant_power_draw"): "DCGM_FI_DEV_POWER_USAGE",
    ("gpu_power_readings", "average_power_draw"): "DCGM_FI_DEV_POWER_USAGE",
    ("gpu_power_readings", "power_draw"): "DCGM_FI_DEV_POWER_USAGE",
    ("power_readings", "power_draw"): "DCGM_FI_DEV_POWER_USAGE",
}
"""Metric by section and name; if several fill the same metric, the last in the document with a value is used."""

_OPEN = re.compile(r"\s*<(\w+)(?: [^<>]*)?>\s*")
_CLOSE = re.compile(r"\s*</(\w+)>\s*")
_VALUE = re.compile(r"\s*<(\w+)>([^<]*)</\1>\s*")
_NUMBER = re.compile(r"(\d{1,12}(?:\.\d{1,6})?) ?(?:%|MiB|W)?", re.ASCII)
_TIME: Final = "%a %b %d %H:%M:%S %Y"


class _Sample(NamedTuple):
    time: str
    gpu: int
    uuid: str | None
    metric: str
    value: float


class NvidiaSmiXmlReader(TelemetryReader):
    """Reads XML documents of nvidia-smi."""

    name = "nvidia-smi-xml"
    title = "samples printed by nvidia-smi -q -x"

    def looks_right(self, name: str, head: bytes) -> bool:  # noqa: ARG002 -- any name is accepted
        """Return whether a file begins like an nvidia-smi document."""
        start = head[:400].lstrip(b"\xef\xbb\xbf \r\n\t")
        return start.startswith(b"<") and b"<nvidia_smi_log>" in start

    def read(self, opened: OpenedFile, frame: TimeFrame, hosts: frozenset[str], sink: Sink) -> Iterator[Samples]:  # noqa: ARG002 -- documents contain nothing to count
        """Yield the samples of a machine.

        Raises
        ------
        SourceError
            The file's name contains no machine of the log, or several.
        """
        host = host_of(opened.path, hosts)
        document = _Document()
        for lines in text_lines(opened):
            for line in lines:
                document.take(line.text)
            yield from _samples(document.finished(), host, frame)


class _Document:
    """Processes the lines of documents; elements nested deeper than a section of a GPU are skipped."""

    def __init__(self) -> None:
        self._time = ""
        self._gpu = -1
        self._uuid: str | None = None
        self._inside: list[str] = []
        self._values: dict[str, float] = {}
        self._samples: list[_Sample] = []

    def take(self, text: str) -> None:
        """Process a line."""
        if value := _VALUE.fullmatch(text):
            self._field(value[1], value[2].strip())
        elif opened := _OPEN.fullmatch(text):
            if opened[1] == "nvidia_smi_log":
                self._inside, self._gpu, self._time = [], -1, ""
            elif opened[1] == "gpu" and self._inside == ["nvidia_smi_log"]:
                self._gpu, self._uuid, self._values = self._gpu + 1, None, {}
            self._inside.append(opened[1])
        elif (closed := _CLOSE.fullmatch(text)) and closed[1] in self._inside:
            while self._inside.pop() != closed[1]:
                pass
            if closed[1] == "gpu" and self._inside == ["nvidia_smi_log"]:
                self._samples += [
                    _Sample(self._time, self._gpu, self._uuid, metric, value) for metric, value in self._values.items()
                ]

    def _field(self, name: str, text: str) -> None:
        if self._inside == ["nvidia_smi_log"] and name == "timestamp":
            self._time = text
        elif self._inside == ["nvidia_smi_log", "gpu"] and name == "uuid":
            self._uuid = text
        elif len(self._inside) == 3:
            metric = _FIELDS.get((self._inside[2], name))
            number = _NUMBER.fullmatch(text)
            if metric and number:
                self._values[metric] = float(number[1])

    def finished(self) -> list[_Sample]:
        """Return the samples of complete GPUs, each once."""
        found, self._samples = self._samples, []
        return found


def _samples(found: list[_Sample], host: str, frame: TimeFrame) -> Iterator[Samples]:
    if not found:
        return
    table = pl.DataFrame(found, schema=["time", "gpu", "uuid", "metric", "value"], orient="row")
    local = table["time"].str.to_datetime(_TIME, strict=False, time_unit="us")
    table = table.with_columns(time=to_utc(local, frame.timezone)).drop_nulls("time")
    for (gpu, uuid, metric), part in table.group_by("gpu", "uuid", "metric", maintain_order=True):
        labels = Labels(host, int(gpu), uuid, None, None, None, None)
        yield Samples(labels, str(metric), part["time"].dt.epoch("us").to_numpy(), part["value"].to_numpy())


READERS = (NvidiaSmiXmlReader(),)
