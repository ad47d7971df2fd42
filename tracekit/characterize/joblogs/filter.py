"""Find the few lines of a log that may hold a signature, far faster than any regular expression.

Each signature contains a literal text (see `literals`). Of each text five neighbouring bytes are chosen, the rarest in
ordinary logs; wherever they stand, four of them begin at an even position. So it is enough to look at the 32-bit words
at even positions and to ask a table whether one is among the chosen. That is plain array arithmetic, whatever the
number of signatures. Letters are folded, so that case does not matter here; the expressions decide about it.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

__all__ = ["SHORTEST", "Places", "WordFilter", "commonness"]

SHORTEST = 5
"""Length of the shortest literal that can be searched for [bytes]."""

_BITS = 18
_FACTOR = np.uint32(2_654_435_761)
_SHIFT = np.uint32(32 - _BITS)
_FOLD = np.uint32(0x20202020)
_BLOCK = 1 << 18
"""Bytes handled at once, so that the arrays between stay in the processor's cache."""

_ORDINARY = b"""
2026-01-12 10:11:12,345 - info - trainer.py:123 - [rank0] epoch 3/90 step 12345/20000 train loss: 2.3456 lr: 1.0e-04
validation accuracy top1 76.12 top5 93.01 time 0.345 (0.356) data 0.002 memory: 34567 grad_norm=0.81 tokens/s=123456
loading dataset from /data/imagenet/train/shard-00012-of-01024.tar number of samples per second 1234.5 images/sec
warning: deprecated argument in the config file, setting default value for parameter model.layers.12.attention.weight
node012:1234:1234 [0] nccl info channel 00/08 : 0 1 2 3 4 5 6 7 via p2p/ipc/read connected all rings, trees
saving checkpoint to /output/run/checkpoint-1000/pytorch_model.bin done in 12.3 seconds, eta 3:12:44
using torch version 2.5.1 cuda 12.4 python 3.11 /usr/lib/python3/site-packages/torch/distributed/launch.py
2026-01-12 10:11:12.345678: i tensorflow/core/common_runtime/gpu/gpu_device.cc:1532] created device /job:localhost
100%|##########| 1000/1000 [01:23<00:00, 12.03it/s, loss=0.123] user error rate 0 errors test result debug failed
gpu utilization, power and temperature of device 0: 98 percent, batch size 256, world size 64, local rank, host name
"""


class Places(NamedTuple):
    """Where words stand in a buffer, in no order."""

    position: npt.NDArray[np.int64]
    word: npt.NDArray[np.int64]
    """Number of the word, see `WordFilter.texts_of`."""


class WordFilter:
    """Tells where in a buffer some texts may stand: everywhere they do, and seldom elsewhere.

    Parameters
    ----------
    texts : sequence of str
        In lower case, each of at least `SHORTEST` ASCII characters.
    """

    def __init__(self, texts: Sequence[str]) -> None:
        pairs = {(_folded(word), number) for number, text in enumerate(texts) for word in _rarest(text.encode("ascii"))}
        ordered = sorted(pairs)
        of_word = np.array([word for word, _ in ordered], dtype=np.uint32)
        self._words, first = np.unique(of_word, return_index=True)
        numbers = np.array([number for _, number in ordered], dtype=np.int64)
        self.texts_of = np.split(numbers, first[1:])
        """For each word the numbers of the texts that it may belong to."""
        self._table = np.zeros(1 << _BITS, dtype=np.bool_)
        self._table[(self._words * _FACTOR) >> _SHIFT] = True
        self._slots = np.empty(_BLOCK // 4, dtype=np.uint32)
        self._hits = np.empty(_BLOCK // 4, dtype=np.bool_)

    def places(self, buffer: npt.NDArray[np.uint8]) -> Places:
        """Return where words of the texts stand; each text that is there shows one of its words.

        Parameters
        ----------
        buffer : array of uint8
            Its length has to be a multiple of 4, with at least 4 bytes of filling at the end.
        """
        positions, words = [], []
        for begin in range(0, len(buffer) - 4, _BLOCK):
            end = min(begin + _BLOCK, len(buffer) - 4)
            for shift in (0, 2):
                view: npt.NDArray[np.uint32] = buffer[begin + shift : end + shift].view("<u4")
                slots, hits = self._slots[: len(view)], self._hits[: len(view)]
                np.bitwise_or(view, _FOLD, out=slots)
                np.multiply(slots, _FACTOR, out=slots)
                np.right_shift(slots, _SHIFT, out=slots)
                self._table.take(slots, out=hits, mode="clip")
                index = np.flatnonzero(hits)
                if len(index):
                    found = view[index] | _FOLD
                    which = np.minimum(np.searchsorted(self._words, found), len(self._words) - 1)
                    real = self._words[which] == found
                    positions.append(index[real] * 4 + (begin + shift))
                    words.append(which[real])
        if not positions:
            return Places(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))
        return Places(np.concatenate(positions), np.concatenate(words))


def _folded(word: bytes) -> int:
    return int.from_bytes(word, "little") | int(_FOLD)


def commonness(text: str) -> float:
    """Return how often an ordinary log has what `WordFilter` looks for in place of a text."""
    return _frequency(_rarest(text.encode("ascii")))


def _rarest(text: bytes) -> tuple[bytes, bytes]:
    """Return the two overlapping words of four bytes that ordinary logs hold least."""
    return min(((text[i : i + 4], text[i + 1 : i + 5]) for i in range(len(text) - 4)), key=_frequency)


@cache
def _frequency(pair: tuple[bytes, bytes]) -> float:
    """Return how often ordinary logs hold either word; pairs of letters decide where they hold none."""
    letters = pair[0] + pair[1][-1:]
    bigrams = sum(_ORDINARY.count(letters[i : i + 2]) for i in range(4))
    return _ORDINARY.count(pair[0]) + _ORDINARY.count(pair[1]) + bigrams / 1000
