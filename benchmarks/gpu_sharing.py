"""Measure how jobs share one GPU, and write the results as assumptions for a replay.

    python benchmarks/gpu_sharing.py -o DIR [--jobs vgg16:64 ...] [--split vgg16:64 ...] [--repeats 3] [--window 2]
    python benchmarks/gpu_sharing.py -o DIR --from RUNS.csv
    tracekit replay TRACE -p sjf-bsbf --models DIR/models.toml -o OUT

alone   each job trains by itself; measures steps per second, peak memory, and utilization as reported by nvidia-smi
split   the same batch is divided into 2 and 4 sub-batches, whose gradients add up to one step
pair    two jobs use the GPU at once, for every pair of --jobs, including a job with itself

Every run uses new processes. The processes of several runs start together because a start takes longer than a window,
and then wait idle for their turn. Both jobs of a pair are warm and training before the window begins, and train until
it ends. The script writes runs.csv (one row per run) and models.toml to DIR, and prints the summary. With --from, it
recomputes models.toml and the summary from the runs of an earlier measurement, without a GPU. The measurement needs
PyTorch and a GPU that nobody else uses. --device cpu tests the script without a GPU, so that utilization and memory are
unknown.
"""

from __future__ import annotations

import argparse
import csv
import importlib
import importlib.util
import multiprocessing
import shutil
import subprocess
import sys
import threading
import time
from collections import deque
from contextlib import contextmanager
from datetime import UTC, datetime
from itertools import chain, combinations_with_replacement
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

from gpu_sharing_model import COLUMNS, OPTIONAL, Job, MeasurementError, models_toml, read_runs, summary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from multiprocessing.connection import Connection
    from multiprocessing.context import ForkServerContext

PARTS = (2, 4)
"""Numbers of sub-batches."""
JOBS = ("mlp:64", "transformer:8", "lstm:80", "vgg16:32")
SPLIT = ("vgg16:32", "transformer:8", "transformer:32")
"""Jobs paired and batches split by default."""

_LEAD_S, _TAIL_S = 0.3, 0.05
"""Time for which the jobs of a run train before and after the window [s]."""
_WORDS = 32_000
_CONVOLUTIONS = {
    "vgg16": (224, (64, 64, 0, 128, 128, 0, 256, 256, 256, 0, 512, 512, 512, 0, 512, 512, 512)),
    "cnn": (32, (64, 64, 64, 0, 128, 128, 128, 0, 256, 256, 256)),
}
"""Image size, and channels of the layers, where 0 halves the image."""
MODELS = (*_CONVOLUTIONS, "transformer", "lstm", "mlp")


# Each job is a separate process, which alone imports PyTorch, so the script itself does not need it.


def _model(torch: Any, job: Job) -> tuple[Any, Callable[[Any], Any], Any, Any]:
    """Return a job's model, its forward function, and a batch of inputs and targets."""
    nn, batch = torch.nn, job.batch
    if job.model in _CONVOLUTIONS:
        side, channels = _CONVOLUTIONS[job.model]
        layers, before = [], 3
        for width in channels:
            if width:
                layers += [nn.Conv2d(before, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()]
                before = width
            else:
                layers.append(nn.MaxPool2d(2))
        net = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, 1000))
        return net, net, torch.randn(batch, 3, side, side), torch.randint(1000, (batch,))
    if job.model == "mlp":
        net = nn.Sequential(nn.Linear(64, 256), nn.Tanh(), nn.Linear(256, 256), nn.Tanh(), nn.Linear(256, 8))
        return net, net, torch.randn(batch, 64), torch.randint(8, (batch,))
    length, width = (512, 768) if job.model == "transformer" else (35, 650)
    embed, head = nn.Embedding(_WORDS, width), nn.Linear(width, _WORDS)
    words = torch.randint(_WORDS, (2, batch, length))
    if job.model == "lstm":
        core = nn.LSTM(width, width, 2, batch_first=True)
        return nn.ModuleList([embed, core, head]), lambda x: head(core(embed(x))[0]), *words
    layer = nn.TransformerEncoderLayer(width, 12, 4 * width, batch_first=True, norm_first=True)
    core = nn.TransformerEncoder(layer, 12, enable_nested_tensor=False)
    return nn.ModuleList([embed, core, head]), lambda x: head(core(embed(x))), *words


def _training_step(torch: Any, job: Job, device: str) -> Callable[[], None]:
    """Return a function that trains a job for one step with SGD, using bf16 on a GPU."""
    with torch.device(device):
        net, forward, x, y = _model(torch, job)
    inputs, targets = x.chunk(job.parts), y.chunk(job.parts)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.001, momentum=0.9)

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        for part, wanted in zip(inputs, targets, strict=True):
            with torch.autocast(device, torch.bfloat16, enabled=device == "cuda"):
                loss = torch.nn.functional.cross_entropy(forward(part).flatten(0, -2), wanted.flatten())
            (loss / job.parts).backward()
        optimizer.step()

    return step


def train(pipe: Connection, job: Job, device: str) -> None:
    """Train until the window ends. Send None when warm, then steps per second and peak memory [GiB], or an error."""
    torch: Any = importlib.import_module("torch")
    gpu = device == "cuda"
    try:
        step = _training_step(torch, job, device)
        for _ in range(3):
            step()
        if gpu:
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
        pipe.send(None)
        begin, end = pipe.recv()
        running: deque[Any] = deque()
        ends: list[float] = []
        while time.monotonic() < end + _TAIL_S:
            step()
            if gpu:
                # The CPU may be two steps ahead, so that a launch never waits for it and each step's end is seen at
                # once.
                running.append(torch.cuda.Event())
                running[-1].record()
                if len(running) <= 2:
                    continue
                running.popleft().synchronize()
            ends.append(time.monotonic())
        inside = [moment for moment in ends if begin <= moment <= end]
        if len(inside) < 3:
            pipe.send(f"{job}: {len(inside)} steps in the window; give a longer --window or a smaller batch")
            return
        rate = (len(inside) - 1) / (inside[-1] - inside[0])
        pipe.send((rate, torch.cuda.max_memory_allocated() / 2**30 if gpu else None))
        pipe.recv()  # wait to be killed, because ending would take GPU time from another run's window
    except RuntimeError as error:
        pipe.send(f"{job}: {' '.join(str(error).split())[:200]}")


def probe(pipe: Connection) -> None:
    """Send the GPU's name and UUID, or None."""
    torch: Any = importlib.import_module("torch")
    if not torch.cuda.is_available():
        pipe.send(None)
        return
    found = torch.cuda.get_device_properties(0)
    pipe.send((found.name, f"GPU-{found.uuid}"))


class Process(NamedTuple):
    """The process of a job."""

    job: Job | None
    process: Any
    pipe: Connection

    def answer(self) -> Any:
        """Return the process's next message.

        Raises
        ------
        MeasurementError
            The process sent an error or ended.
        """
        try:
            found = self.pipe.recv()
        except EOFError:
            raise MeasurementError(f"a process of {self.job or 'PyTorch'} ended early; see its output") from None
        if isinstance(found, str):
            raise MeasurementError(found)
        return found


class Bench(NamedTuple):
    """Device on which jobs run, and duration of a run."""

    processes: ForkServerContext
    device: str
    window_s: float

    def start(self, job: Job | None) -> Process:
        """Start the process of a job or, without a job, the process that looks for the GPU."""
        here, there = self.processes.Pipe()
        target, arguments = (train, (there, job, self.device)) if job else (probe, (there,))
        process = self.processes.Process(target=target, args=arguments, daemon=True)
        process.start()
        there.close()
        return Process(job, process, here)

    def window(self, run: Sequence[Process]) -> tuple[list[tuple[float, float | None]], float, float]:
        """Let warm jobs train at once. Return each one's steps per second and peak memory [GiB], begin and end [s]."""
        begin = time.monotonic() + _LEAD_S
        end = begin + self.window_s
        for one in run:
            one.pipe.send((begin, end))
        return [one.answer() for one in run], begin, end


class Plan(NamedTuple):
    """Number and duration of the measurements."""

    repeats: int
    ahead: int
    """Number of runs whose processes start together because a start takes longer than a window."""
    limit_s: float
    """Time after which no run begins [s]."""


@contextmanager
def _utilization(gpu: str | None) -> Iterator[list[tuple[float, str]]]:
    """Append (time [s], utilization [%] as nvidia-smi prints it) to a list ten times per second."""
    samples: list[tuple[float, str]] = []
    if gpu is None:
        yield samples
        return
    query = ["--query-gpu=utilization.gpu", "--format=csv,noheader,nounits", "-lms", "100"]
    with subprocess.Popen(["nvidia-smi", "-i", gpu, *query], stdout=subprocess.PIPE, text=True) as process:

        def read() -> None:
            assert process.stdout
            while line := process.stdout.readline():
                samples.append((time.monotonic(), line.strip()))

        threading.Thread(target=read, daemon=True).start()
        try:
            yield samples
        finally:
            process.terminate()


def _gpu(bench: Bench) -> tuple[str, str | None]:
    """Return the GPU's name and UUID, where the UUID is None on a CPU."""
    if importlib.util.find_spec("torch") is None:
        raise MeasurementError("PyTorch is not installed; the measurement needs it, but --from FILE does not")
    if bench.device == "cpu":
        return "cpu", None
    found: tuple[str, str] | None = bench.start(None).answer()
    if found is None:
        raise MeasurementError("PyTorch finds no GPU; the measurement needs one, but --from FILE does not")
    if shutil.which("nvidia-smi") is None:
        raise MeasurementError("nvidia-smi is not in the path; the measurement needs it for the utilization")
    return found


def measure(path: Path, jobs: Sequence[Job], split: Sequence[Job], chosen: Plan, bench: Bench) -> None:
    """Run all jobs and write one row per run.

    Raises
    ------
    MeasurementError
        PyTorch or a GPU is missing, or a run failed. Earlier rows are in the file.
    """
    began = time.monotonic()
    name, gpu = _gpu(bench)
    once: list[tuple[Job, ...]] = [(job,) for job in dict.fromkeys([*jobs, *split])]
    once += [(job._replace(parts=parts),) for job in split for parts in PARTS]
    once += combinations_with_replacement(jobs, 2)
    runs = once * chosen.repeats
    done = 0
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="", encoding="utf-8") as file, _utilization(gpu) as samples:
        rows = csv.DictWriter(file, [*COLUMNS, *OPTIONAL])
        rows.writeheader()
        for first in range(0, len(runs), chosen.ahead):
            group = [[bench.start(job) for job in run] for run in runs[first : first + chosen.ahead]]
            try:
                for process in chain(*group):
                    process.answer()
                for run in group:
                    if time.monotonic() - began > chosen.limit_s:
                        print(f"stopped after {chosen.limit_s:.0f} s: {done} of {len(runs)} runs", file=sys.stderr)
                        return
                    rows.writerow({**_measured(bench, run, samples if gpu else None), "gpu": name})
                    file.flush()
                    done += 1
                    what = " with ".join(str(process.job) for process in run)
                    print(f"{time.monotonic() - began:.0f} s: {done} of {len(runs)}, {what}", file=sys.stderr)
            finally:
                for process in chain(*group):
                    process.process.kill()
                for process in chain(*group):
                    process.process.join()


def _measured(bench: Bench, run: Sequence[Process], samples: list[tuple[float, str]] | None) -> dict[str, object]:
    """Return a run's row. `samples` is the output of nvidia-smi, or None without a GPU."""
    results, begin, end = bench.window(run)
    row: dict[str, object] = {"kind": "alone" if len(run) == 1 else "pair"}
    if samples is not None:
        seen = [text for at, text in samples if begin <= at <= end]
        if not (seen and all(text.isdigit() for text in seen)):
            raise MeasurementError(
                f"nvidia-smi gives no utilization: {seen[:3]}; is the GPU partitioned into MIG slices?"
            )
        row["utilization_pct"] = median(map(int, seen))
    for side, process, (rate, gib) in zip("ab", run, results, strict=False):
        model, batch, parts = process.job or ("", 0, 0)
        row |= {side: model, f"{side}_batch": batch, f"{side}_parts": parts}
        row |= {f"{side}_iters_per_s": float(f"{rate:.6g}"), f"{side}_gib": gib and round(gib, 3)}
    offset = time.time() - time.monotonic()
    for key, moment in (("begin_utc", begin), ("end_utc", end)):
        row[key] = datetime.fromtimestamp(offset + moment, UTC).isoformat(timespec="milliseconds")
    return row


def _job(text: str) -> Job:
    model, _, batch = text.partition(":")
    if model not in MODELS or not (batch.isascii() and batch.isdigit() and int(batch)):
        raise argparse.ArgumentTypeError(f"'{text}' is not MODEL:BATCH; models are {', '.join(MODELS)}")
    return Job(model, int(batch))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark and return the exit code, which is 2 if nothing can be measured or read."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="DIR")
    parser.add_argument("--from", dest="source", type=Path, metavar="FILE", help="runs.csv from an earlier measurement")
    parser.add_argument("--jobs", type=_job, nargs="+", metavar="MODEL:BATCH", default=list(map(_job, JOBS)))
    parser.add_argument("--split", type=_job, nargs="*", metavar="MODEL:BATCH", default=list(map(_job, SPLIT)))
    parser.add_argument("--repeats", type=int, default=3, help="runs of each (%(default)s)")
    parser.add_argument("--window", type=float, default=2.0, metavar="SECONDS", help="length of a run (%(default)s)")
    ahead = "runs that start together and then train one after another (%(default)s); fewer need less memory"
    parser.add_argument("--ahead", type=int, default=12, metavar="N", help=ahead)
    limit = "time after which no run begins (%(default)s)"
    parser.add_argument("--limit", type=float, default=235.0, metavar="SECONDS", help=limit)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    chosen = parser.parse_args(arguments)
    if any(job.batch % max(PARTS) for job in chosen.split):
        parser.error(f"--split: a batch has to be a multiple of {max(PARTS)}")
    source = chosen.source or chosen.output / "runs.csv"
    try:
        if chosen.source is None:
            processes = multiprocessing.get_context("forkserver")
            processes.set_forkserver_preload(["torch"])
            plan = Plan(chosen.repeats, max(chosen.ahead, 1), chosen.limit)
            measure(source, chosen.jobs, chosen.split, plan, Bench(processes, chosen.device, chosen.window))
        runs = read_runs(source)
        print(summary(runs))
        chosen.output.mkdir(parents=True, exist_ok=True)
        (chosen.output / "models.toml").write_text(models_toml(runs), encoding="utf-8")
    except MeasurementError as error:
        print(f"gpu_sharing.py: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
