"""Make labelled logs, with the messages of failing programs inside ordinary output.

Everything is seeded. The failure messages are in messages.toml, on which rules may be tuned, and in held_out.toml, on
which rules are not tuned because its messages were collected after the rules were written. The surrounding output is in
surroundings.toml.
"""

from __future__ import annotations

import random
import re
import tomllib
from dataclasses import dataclass
from pathlib import Path

__all__ = ["NOT_FAILED", "LabelledLog", "make_corpus", "messages"]

HERE = Path(__file__).parent
_EACH = 4
"""Number of logs made from each held-out message."""

NOT_FAILED = "not_failed"
"""Label of a log whose job succeeded."""

_EXCEPTION = re.compile(
    r"^(?:[\w]+\.)*[A-Z]\w*(?:Error|Exception|Failure|Conflict|Interrupt|Iteration)\b", re.MULTILINE
)

with (HERE / "surroundings.toml").open("rb") as _file:
    _AROUND: dict[str, list[str]] = tomllib.load(_file)

_ECHOES_OF = {
    "nccl_timeout": (3, 6),
    "nccl_error": (3, 6),
    "rendezvous_timeout": (3,),
    "core_dump": (0, 2, 3, 5),
    "dataloader_worker_killed": (0, 1, 3),
    "mpi_error": (5,),
    "mpi_runtime_failure": (),
    "traceback_from_crash": (),
    "no_signature": (),
    "job_cancelled": (),
    "job_timeout": (),
    "job_preempted": (),
    "node_lost": (0, 2),
}
"""Numbers of the echoes that may follow a reason. Any echo may follow a reason that is missing here."""


@dataclass(frozen=True)
class LabelledLog:
    """A log and the reason that it contains."""

    reason: str
    """The reason's name, or NOT_FAILED if the job succeeded."""
    data: bytes


def messages(part: str) -> dict[str, list[str]]:
    """Return the failure messages by reason, where `part` is 'messages' or 'held_out'."""
    with (HERE / f"{part}.toml").open("rb") as file:
        return tomllib.load(file)


def make_corpus(part: str, per_reason: int = 14, seed: int = 2019) -> list[LabelledLog]:
    """Return logs for every reason, and half as many again for jobs that succeeded.

    Parameters
    ----------
    part : str
        'messages' or 'held_out'.
    per_reason : int
        Minimum number of logs per reason. A reason with more messages than that gets one log per message.
    seed : int
        Seed. The same seed gives the same bytes.
    """
    rng = random.Random(seed)
    logs = []
    texts = messages(part)
    for reason, variants in texts.items():
        # All held-out messages have equal weight, however many a reason has.
        count = _EACH * len(variants) if part == "held_out" else max(per_reason, len(variants))
        logs += [LabelledLog(reason, _failed(rng, reason, variants[n % len(variants)])) for n in range(count)]
    logs += [LabelledLog(NOT_FAILED, _succeeded(rng)) for _ in range(per_reason * len(texts) // 2)]
    return logs


def _failed(rng: random.Random, reason: str, text: str) -> bytes:
    parts = _before(rng)
    rank = f"[rank{rng.randrange(8)}]: " if rng.random() < 0.3 and not text.startswith("[") else ""
    if _EXCEPTION.match(text):
        text = _frames(rng) + text
        rank = rank or rng.choice(("", "", "[1,3]<stderr>:"))
    else:
        rank = ""
    parts.append("\n".join(rank + line for line in text.split("\n")))
    echoes = _ECHOES_OF.get(reason, tuple(range(len(_AROUND["echo"]))))
    if echoes and rng.random() < 0.6:
        parts += [_AROUND["echo"][i] for i in rng.sample(echoes, rng.randint(1, min(3, len(echoes))))]
    ending = rng.choice(_AROUND["endings"])
    if "CANCELLED" not in ending or reason != "no_signature":
        parts.append(ending)
    return _finish(rng, parts)


def _succeeded(rng: random.Random) -> bytes:
    parts = _before(rng)
    for _ in range(rng.randint(0, 2)):
        parts += [rng.choice(_AROUND["handled"]), *_progress(rng, 2)]
    return _finish(rng, [*parts, *_progress(rng, 3), rng.choice(_AROUND["successes"])])


def _before(rng: random.Random) -> list[str]:
    parts = rng.sample(_AROUND["start"], rng.randint(1, 3))
    for _ in range(rng.randint(0, 4)):
        parts += _progress(rng, rng.randint(1, 20))
        if rng.random() < 0.6:
            parts.append(rng.choice(_AROUND["overcome"]))
    return parts


def _progress(rng: random.Random, count: int) -> list[str]:
    if rng.random() < 0.2:
        bar = "\r".join(
            f"{p}%|{'#' * (p // 10):10}| {p}/100 [00:{p % 60:02}<00:10, 12.3it/s]" for p in range(0, 100, 9)
        )
        return [bar]
    return [rng.choice(_AROUND["progress"]) for _ in range(count)]


def _frames(rng: random.Random) -> str:
    files = [f'  File "/app/{name}.py", line {rng.randrange(900)}, in {name}' for name in ("main", "train", "step")]
    body = "\n".join(f"{frame}\n    return fn(*args, **kwargs)" for frame in files[: rng.randint(1, 3)])
    return f"Traceback (most recent call last):\n{body}\n"


def _finish(rng: random.Random, parts: list[str]) -> bytes:
    text = "\n".join(part for part in parts if part) + rng.choice(("\n", "\n", ""))
    text = re.sub(r"<([RNHJTD])>", lambda m: _value(rng, m[1]), text)
    if rng.random() < 0.15:
        text = text.replace("Error:", "\x1b[31mError\x1b[0m:").replace("\x1b[31mError\x1b[0m:", "Error:\x1b[0m", 1)
    if rng.random() < 0.15:
        text = text.replace("\n", "\r\n")
    data = text.encode()
    return data.replace(b"epoch", b"epo\xffch", 1) if rng.random() < 0.1 else data


def _value(rng: random.Random, kind: str) -> str:
    if kind == "R":
        return str(rng.randrange(8))
    if kind == "D":
        return str(rng.randrange(10))
    if kind == "H":
        return f"{rng.choice(('gpu', 'node', 'cn-'))}{rng.randrange(1000):03}"
    if kind == "T":
        return f"2026-0{rng.randint(1, 9)}-1{rng.randrange(10)}T1{rng.randrange(10)}:20:30"
    return str(rng.randrange(1000, 999_999))
