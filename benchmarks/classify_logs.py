"""Measure the speed of log classification on one core.

    python benchmarks/classify_logs.py [--mb 1000] [--kind ordinary|failing|hostile]

An ordinary log is a training log with a failure near its end and few other lines similar to a signature. In a failing
log, every tenth line matches a rule of low rank. A hostile log has progress bars with carriage returns, colours, NUL
bytes, bytes that are not UTF-8, and one line that makes up a tenth of the file. The bound is to read the file and count
its line feeds, in the same run. Speeds are based on processor time, which other programs on the machine affect less
than wall time.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import tempfile
from pathlib import Path

import _process

_PROGRESS = (
    b"2026-01-12 10:11:12,345 INFO trainer.py:123 [rank%d] epoch 3 step %d loss=2.3456 lr=1.0e-4 tokens/s=123456\n",
    b"Epoch: [%d][ %d/5004]\tTime 0.345 (0.356)\tData 0.002 (0.004)\tLoss 4.2134 (4.5678)\tAcc@1 12.50 (11.20)\n",
    b" iteration %d/ %d | consumed samples: 12345678 | elapsed time per iteration (ms): 1234.5 | lm loss: 2.34E+00 |\n",
    b"[%d] [DEBUG] loading shard /data/imagenet/train-%05d-of-01024.tfrecord, num examples 1251, errors: none\n",
    b"node%03d:%d:4711 [0] NCCL INFO Channel 00/08 : 0 1 2 3 4 5 6 7 via P2P/IPC/read\n",
    b"validation %d: step %d top1 76.12 top5 93.01 error rate 23.88 user time 0.34 saved checkpoint in 12.3 s\n",
)
_FAILURE = (
    b'Traceback (most recent call last):\n  File "train.py", line 12, in <module>\n'
    b"torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
)
_LOW_RANK = b"[rank3]: ConnectionResetError: [Errno 104] Connection reset by peer\n"
_BOUND = """
import os, sys
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
with open(sys.argv[1], 'rb', buffering=0) as file:
    count = 0
    while data := file.read(4 << 20):
        count += data.count(b'\\n')
"""
_START = """
import os
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
import tracekit.characterize.joblogs as j
import polars
j.Classifier(j.load_rules())
"""
_OURS = """
import os, sys
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
from pathlib import Path
from tracekit.characterize.joblogs import classify_logs
found = classify_logs([Path(sys.argv[1])])
assert found.failures[0].reason.name == sys.argv[2], found.failures
"""


def write_log(path: Path, kind: str, size: int, seed: int = 7) -> str:
    """Write a log of about `size` bytes, and return its failure reason."""
    rng = random.Random(seed)
    lines = [rng.choice(_PROGRESS) % (rng.randrange(100), rng.randrange(10**6)) for _ in range(20_000)]
    if kind == "failing":
        lines[::10] = [_LOW_RANK] * len(lines[::10])
    if kind == "hostile":
        bars = b"\r".join(b"%d%%|####      | %d/100 [00:10<00:20]" % (n % 100, n % 100) for n in range(1000))
        lines[::100] = [b"\x1b[32m" + bars + b"\x1b[0m\xff\xfe\0\n"] * len(lines[::100])
    block = b"".join(lines)
    with path.open("wb") as out:
        for number in range(max(1, size // len(block))):
            out.write(block)
            if kind == "hostile" and number == 0:
                for _ in range(size // 10 >> 20):
                    out.write(b"x" * (1 << 20))
                out.write(b"\n")
        out.write(_FAILURE)
    return "gpu_out_of_memory"


def main() -> None:
    """Print one line per kind of log."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--mb", type=int, default=1000, help="size of the log [MB]")
    parser.add_argument("--kind", choices=("ordinary", "failing", "hostile"), help="only this kind")
    parser.add_argument("--runs", type=int, default=3)
    given = parser.parse_args()
    begin = _process.run("-c", _START)
    print(f"start of the program and its rules: {begin.cpu_s:.2f} s; not counted below")
    print(f"{'kind':10}{'MB':>6}{'bound MB/s':>12}{'MB/s':>7}{'ratio':>7}{'MB/s by the clock':>19}{'peak MiB':>10}")
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log.txt"
        for kind in [given.kind] if given.kind else ["ordinary", "failing", "hostile"]:
            reason = write_log(log, kind, given.mb * 1_000_000)
            size = log.stat().st_size / 1e6
            empty = _process.run("-c", "pass")
            bound = min(_process.run("-c", _BOUND, str(log)).cpu_s for _ in range(given.runs)) - empty.cpu_s
            ours = [_process.run("-c", _OURS, str(log), reason) for _ in range(given.runs)]
            cpu = min(u.cpu_s for u in ours) - begin.cpu_s
            wall = min(u.wall_s for u in ours) - begin.wall_s
            peak = max(u.peak_mib for u in ours)
            speeds = f"{size / bound:12.0f}{size / cpu:7.0f}{cpu / bound:7.1f}{size / wall:19.0f}"
            print(f"{kind:10}{size:6.0f}{speeds}{peak:10.0f}")


if __name__ == "__main__":
    if not hasattr(os, "sched_setaffinity"):
        sys.exit("this machine cannot keep a process on one core")
    main()
