"""A published number: what it states, which rows of which query it stands for, and what it counts in words.

row          conditions on columns of the result, joined by ';', all of which hold: status=failed|timeout (one of
             these words), gpu_class!=0, gpu_count<=4
aggregate    '' the only row; sum, max or mean over the rows; share: the sum over `row` / the sum over `of`
weight       the column that weighs a mean; empty: all rows weigh alike
"""

from __future__ import annotations

import re
from dataclasses import dataclass

__all__ = ["PublishedValue", "conditions", "words"]

_CONDITION = re.compile(r"(?P<name>\w+)(?P<op><=|>=|!=|=|<|>)(?P<value>.*)")


def conditions(text: str) -> list[tuple[str, str, str]]:
    """Return conditions as (column, operator, value).

    Raises
    ------
    ValueError
        A condition is misshapen.

    Examples
    --------
    >>> conditions("gpu_class=>8;gpu_count<=4")
    [('gpu_class', '=', '>8'), ('gpu_count', '<=', '4')]
    """
    found = []
    for part in filter(None, text.split(";")):
        match = _CONDITION.fullmatch(part)
        if match is None:
            raise ValueError(f"not a condition: {part!r}")
        found.append((match["name"], match["op"], match["value"]))
    return found


@dataclass(frozen=True)
class PublishedValue:
    """One published number and where a query measures it; the fields are the columns of the CSV files."""

    query: str
    params: str
    options: str
    cluster: str
    row: str
    of: str
    column: str
    aggregate: str
    weight: str
    kind: str
    value: float | None
    """In `unit`; None for a range or a bound."""
    low: float | None
    high: float | None
    unit: str
    as_printed: str
    """The number and its unit as the source has them."""
    artefact: str
    """Table, figure or file of the source."""
    source: str
    confidence: str
    """A key of `published.CONFIDENCE`."""
    accuracy: str
    """How exactly a figure could be read; empty for a printed number."""
    population_note: str
    """Which jobs the source counts, where they are not those of the release."""

    @property
    def what(self) -> str:
        """What the number counts, in words."""
        text = words(self.row, self.of, self.column, self.aggregate, self.weight)
        return f"{text} ({self.params.replace(';', ', ')})" if self.params else text

    @property
    def cell(self) -> dict[str, str] | None:
        """The row's key by column, when the number is a plain cell of the result with default parameters."""
        found = conditions(self.row)
        plain = not self.aggregate and not self.params and all(op == "=" and "|" not in v for _, op, v in found)
        return {name: value for name, _, value in found} if plain else None

    def difference(self, measured: float) -> float:
        """Return measured minus published, in `unit`: 0 inside a range or bound, else from its nearest end."""
        low = self.value if self.value is not None else self.low
        high = self.value if self.value is not None else self.high
        if low is not None and measured < low:
            return measured - low
        if high is not None and measured > high:
            return measured - high
        return 0.0


_NAMES = {
    "gpu_class": "size",
    "gpu_count": "GPUs",
    "node_count": "nodes",
    "instance_count": "instances",
    "vc": "VC",
    "user_share": "share of users",
}
_OPERATORS = {"=": " ", "!=": " not ", "<=": " at most ", ">=": " at least ", "<": " below ", ">": " above "}
_AGGREGATES = {"": "", "sum": "sum of", "min": "smallest", "max": "largest", "mean": "mean", "share": "share of"}
_COLUMNS = {
    "p50": "median",
    "jobs_share": "share of jobs",
    "gpu_hours_share": "share of GPU-hours",
    "gpu_hours": "GPU-hours",
    "gpu_time_share": "share of GPU time",
    "cpu_time_share": "share of CPU time",
    "gpu_count": "number of GPUs",
    "node_count": "number of nodes",
    "instance_count": "number of instances",
    "allocated_share": "share of GPUs allocated",
}
_WHOLES = {
    "gpu_class!=0": "jobs with GPUs",
    "gpu_count>0": "jobs with GPUs",
}
_EVERYTHING = {"gpu_count>=0", "trials>0", "jobs>=1", "instance_count>0"}


def words(row: str, of: str, column: str, aggregate: str, weight: str = "") -> str:
    """Return in words what a published number counts.

    Examples
    --------
    >>> words("status=failed|timeout", "", "jobs_share", "sum")
    'share of jobs: status failed or timeout'
    >>> words("metric=gpu_jobs", "", "value", "")
    'GPU jobs'
    >>> words("gpu_count>0;gpu_count<=4", "gpu_count>0", "jobs", "share")
    'share of jobs: GPUs at most 4, of jobs with GPUs'
    >>> words("gpu_class!=0", "", "max_s", "max")
    'max: jobs with GPUs'
    """
    said = conditions(row)
    metric = next((value for name, _, value in said if name == "metric"), None)
    if metric is not None:
        return _capitals(metric.removesuffix("_s").replace("_", " "))
    plain = column.removesuffix("_s").removesuffix("_pct")
    what = _COLUMNS.get(plain, re.sub(r"^p(\d+)$", r"\1th percentile", plain))
    what = _capitals(what.replace("_", " "))
    if weight and aggregate == "share":
        what += f" times {weight}"
    start = _AGGREGATES[aggregate]
    # 'sum of share of jobs' and 'largest max' say one thing twice.
    if (aggregate == "sum" and column.endswith("_share")) or plain.startswith(aggregate):
        start = ""
    if any(name == "user_share" for name, _, _ in said):
        start = ""
    if start == "share of" and what.startswith("share of"):
        start = ""
    whole = [c for c in conditions(of) if "".join(c) not in _EVERYTHING]
    parts = [_in_words(c) for c in said if "".join(c) not in _EVERYTHING and c not in whole]
    text = ": ".join(filter(None, [f"{start} {what}".strip(), ", ".join(parts)]))
    return f"{text}, of {', '.join(map(_in_words, whole))}" if whole else text


def _capitals(text: str) -> str:
    return re.sub(r"\b(gpu|cpu)", lambda m: m[1].upper(), text).replace("vcs", "VCs")


def _in_words(condition: tuple[str, str, str]) -> str:
    name, op, value = condition
    if "".join(condition) in _WHOLES:
        return _WHOLES["".join(condition)]
    one_of = " or ".join(value.replace("_", " ").split("|"))
    return f"{_NAMES.get(name, name.replace('_', ' '))}{_OPERATORS[op]}{one_of}"
