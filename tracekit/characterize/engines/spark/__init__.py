"""Apache Spark: the same queries on many machines (`pip install 'gpu-tracekit[spark]'`).

from tracekit.characterize.engines.spark import SparkEngine
with SparkEngine("spark://head:7077") as engine:
    answer_query("/shared/trace", "queuing/run_time", engine=engine)
"""

from __future__ import annotations

from tracekit.characterize.engines.spark.engine import SparkEngine

__all__ = ["SparkEngine"]
