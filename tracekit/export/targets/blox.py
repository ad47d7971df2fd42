"""Blox: the workload file that Blox's Workload class replays.

Source: github.com/msr-fiddle/blox, workload/workload.py (populate_from_trace) and workload/model_zoo.py. There is no
header. Each job is a line with number, model, arrival [s], iterations and GPUs, separated by commas. Blox treats an
unknown model as its first image model. It has profiles only for jobs of 1, 2, 4, 12 and 16 GPUs, and its loader stops
at the first job of another size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import polars as pl

from tracekit.errors import UsageError
from tracekit.export.interface import FRACTIONS, ExportLog, Field, JobSelection, Option, Options, Output, Target
from tracekit.export.targets._cluster import GPUS_PER_NODE, NODES, cluster_size
from tracekit.export.text import write_csv
from tracekit.text import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


_ITERATION_S = {
    "alexnet": "0.6",
    "res18": "0.64",
    "res50": "0.78",
    "mobilenet": "0.71",
    "shufflenet": "0.615",
    "gnmt": "0.12",
    "transformer": "0.67",
    "lstm": "0.011",
    "deepspeech": "0.757",
}
"""Time per iteration in Blox's own profiles (iter_time) [s]. Blox multiplies it by a job's iterations."""
_PROFILED = (1, 2, 4, 12, 16)
"""Numbers of GPUs in create_models_multigpu of model_zoo.py."""


class BloxTarget(Target):
    """The workload file for a replay in Blox."""

    name = "blox"
    title = "Blox workload"
    reads = "Workload(..., trace=FILE)"
    fields = (
        Field("1 job id", "number", "from 0, in submission order"),
        Field("2 model", "one of Blox's models", "option model"),
        Field("3 arrival", "s since the first submission", "submit_time"),
        Field("4 iterations", "training steps", "sum of the attempts' run times over option seconds_per_iteration"),
        Field("5 GPUs", "count", "gpu_count"),
    )
    options: ClassVar[Mapping[str, Option]] = {
        "fractions": FRACTIONS,
        "sizes": Option(
            "profiled",
            "whether to export only job sizes with a profile in Blox, or any size, for your own profiles",
            ("profiled", "any"),
        ),
        "nodes": NODES,
        "gpus_per_node": GPUS_PER_NODE,
        "model": Option("res50", "model of every job", tuple(_ITERATION_S)),
        "seconds_per_iteration": Option(
            "", "time per iteration of that model [s]; if empty, as in Blox's profiles", form="positive"
        ),
    }
    needs = "submission, a number of GPUs that has a profile (option sizes), run time"
    lost = "users, VCs, statuses, attempts, CPU jobs"
    sources = ("github.com/msr-fiddle/blox, workload/workload.py, model_zoo.py and models/",)

    def write(self, jobs: JobSelection, out: Output, log: ExportLog, options: Options) -> None:
        """Write the workload."""
        step, model = _step(options), options.values["model"]
        log.filled("model", model, jobs.count, "model")
        log.filled("iterations", f"one per {step:g} s of run time", jobs.count, "seconds_per_iteration")
        every = options.values["sizes"] == "any"
        other = jobs.count_where(f"size NOT IN {_PROFILED}")
        why = f"Blox has profiles only for {', '.join(map(str, _PROFILED))} GPUs, and stops at jobs of other sizes"
        if every:
            log.changed(other, why)
        elif other:
            log.left_out[f"{why} (option sizes)"] = other
            log.written -= other
        if not log.written:
            raise UsageError("no job can be exported", where="--option sizes", hint=why)
        nodes, gpus = cluster_size(jobs, log, options)
        log.setting(
            f"Workload(None, trace='{out.target.name}', per_server_size=[{gpus}, CPU cores, memory in GB, storage "
            f"speed]) for {counted(nodes, 'servers')}; if the constructor does not set self.trace, add 'self.trace = "
            "trace' at its beginning"
        )
        write_csv(out.main, _rows(jobs, model, step, every=every), log, guard=False, header=False)


def _step(options: Options) -> float:
    """Return the time per iteration [s].

    Raises
    ------
    UsageError
        The option is not a number above 0.
    """
    if options.values["seconds_per_iteration"]:
        return options.positive("seconds_per_iteration")
    return float(_ITERATION_S[options.values["model"]])


def _rows(jobs: JobSelection, model: str, step: float, *, every: bool) -> Iterator[pl.DataFrame]:
    number = 0
    for block in jobs.blocks("submit_s", "work_s", "size"):
        taken = block if every else block.filter(pl.col("size").cast(pl.Int64).is_in(_PROFILED))
        number += taken.height
        yield taken.select(
            pl.int_range(number - taken.height, number).alias("n"),
            pl.lit(model).alias("model"),
            pl.col("submit_s"),
            (pl.col("work_s") / step + 0.5).floor().cast(pl.Int64).clip(lower_bound=1).alias("iterations"),
            pl.col("size").cast(pl.Int64),
        )


MEMBERS = (BloxTarget(),)
