"""Ask every shipped query of DuckDB and of Spark on every sample trace, and write the table of docs/reference/spark.md.

    python tools/spark_answers.py

It takes half an hour on two processors, needs `tracekit[spark]` and Java, and fails where an answer differs.
"""

from __future__ import annotations

import math
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.spark.alike import difference  # noqa: E402 -- found through the line above
from tracekit.characterize import answer_query, lacks, list_queries  # noqa: E402 -- the same
from tracekit.characterize.engines.spark.kinds import ways_of  # noqa: E402 -- the same
from tracekit.characterize.session import Session  # noqa: E402 -- the same

if TYPE_CHECKING:
    from collections.abc import Mapping

    import polars as pl

    from tracekit.trace import Trace

__all__ = ["BEGIN", "END", "PAGE", "rows_of_page", "table"]

PAGE = ROOT / "docs" / "reference" / "spark.md"
BEGIN = "<!-- answers: written by tools/spark_answers.py -->"
END = "<!-- end of answers -->"
_HEADS = ("query", "how it crosses", "equal", "on")

_ROWS = (list, tuple)

SETTINGS = {"spark.driver.memory": "2g", "spark.sql.shuffle.partitions": "2"}


def table(found: Mapping[str, Mapping[str, str]]) -> str:
    """Return the table; `found` has, for each query and trace, 'exactly' or 'to 1e-9', with '(no rows)' where so."""
    lines = [f"| {' | '.join(_HEADS)} |", "|---|---|---|---|"]
    for query in list_queries():
        answers = found.get(query.name, {})
        with_rows = [name for name, how in answers.items() if "no rows" not in how]
        empty = [name for name, how in answers.items() if "no rows" in how]
        near = any("1e-9" in how for how in answers.values())
        on = ", ".join(with_rows) or "the planted Trace of the tests"
        more = f"; without rows: {', '.join(empty)}" if empty else ""
        lines.append(f"| {query.name} | {ways_of(query)} | {'to 1e-9' if near else 'exactly'} | {on}{more} |")
    return "\n".join(lines)


def rows_of_page(text: str) -> list[list[str]]:
    """Return the cells of the table in a page."""
    body = text.partition(BEGIN)[2].partition(END)[0].strip().splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in body]


def _samples(folder: Path) -> dict[str, Trace]:
    from tracekit.ingest import ingest_logs

    found = {}
    for source in sorted((ROOT / "sample_traces").iterdir()):
        if source.is_dir():
            # The folders of slurm-dumps are forms of one and the same dump.
            found[source.name] = ingest_logs(
                source / "site" if source.name == "slurm-dumps" else source, folder / source.name
            )
    return found


def _equal(one: pl.DataFrame, other: pl.DataFrame) -> str:
    how = "exactly" if _same(one.rows(), other.rows()) else "to 1e-9"
    return how if one.height else f"{how} (no rows)"


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, _ROWS) and isinstance(other, _ROWS):
        return len(one) == len(other) and all(_same(a, b) for a, b in zip(one, other, strict=True))
    if isinstance(one, float) and isinstance(other, float) and math.isnan(one):
        return math.isnan(other)
    return bool(one == other)


def main() -> int:
    """Ask, and write the table; return 1 where an answer differs."""
    from tracekit.characterize.engines.spark import SparkEngine

    found: dict[str, dict[str, str]] = {}
    wrong: list[str] = []
    with tempfile.TemporaryDirectory() as folder, SparkEngine("local[2]", SETTINGS) as engine:
        for name, trace in _samples(Path(folder)).items():
            mine, theirs = Session(trace), Session(trace, engine=engine)
            for query in list_queries():
                if lacks(query, trace):
                    continue
                one = answer_query(trace, query, session=mine).frame
                other = answer_query(trace, query, session=theirs).frame
                differs = difference(one, other)
                if differs is not None:
                    wrong.append(f"{query.name} on {name}: {differs}")
                    print(wrong[-1], flush=True)
                found.setdefault(query.name, {})[name] = _equal(one, other)
            print(f"{name}: done", flush=True)
    if wrong:
        return 1
    text = PAGE.read_text(encoding="utf-8")
    before, after = text.partition(BEGIN)[0], text.partition(END)[2]
    PAGE.write_text(f"{before}{BEGIN}\n{table(found)}\n{END}{after}", encoding="utf-8")
    pairs = sum(len(traces) for traces in found.values())
    print(f"{len(found)} queries, {pairs} pairs: Spark's answer is DuckDB's")
    return 0


if __name__ == "__main__":
    sys.exit(main())
