"""The search for words in a buffer, compared with looking everywhere."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracekit.characterize.joblogs.filter import WordFilter, commonness

ALPHABET = "abE \n_0"
TEXTS = st.text(ALPHABET.replace("\n", "").lower(), min_size=5, max_size=9)


def padded(data: bytes) -> np.ndarray[tuple[int], np.dtype[np.uint8]]:
    buffer = np.zeros((len(data) + 3) // 4 * 4 + 4, dtype=np.uint8)
    buffer[: len(data)] = np.frombuffer(data, dtype=np.uint8)
    return buffer


@given(st.lists(TEXTS, min_size=1, max_size=6), st.text(ALPHABET, max_size=60))
def test_each_occurrence_of_a_text_shows_one_of_its_words(texts: list[str], log: str) -> None:
    words = WordFilter(texts)
    places = words.places(padded(log.encode()))
    shown = [
        (position, number)
        for position, word in zip(places.position.tolist(), places.word.tolist(), strict=True)
        for number in words.texts_of[word].tolist()
    ]
    for number, text in enumerate(texts):
        begin = log.lower().find(text)
        while begin >= 0:
            assert any(begin <= position <= begin + len(text) - 4 for position, n in shown if n == number)
            begin = log.lower().find(text, begin + 1)


@pytest.mark.parametrize("offset", range(9))
def test_a_text_is_found_at_the_seam_of_two_blocks(offset: int) -> None:
    data = bytearray(b"." * ((1 << 18) + 40))
    begin = (1 << 18) - 8 + offset
    data[begin : begin + 8] = b"Watchdog"
    places = WordFilter(["watchdog"]).places(padded(bytes(data)))
    assert len(places.position) >= 1
    assert all(begin <= position <= begin + 4 for position in places.position.tolist())


def test_other_words_are_not_found() -> None:
    places = WordFilter(["watchdog"]).places(padded(b"the quick brown fox, the wat and the dog" * 99))
    assert len(places.position) == 0


def test_no_texts_are_found_nowhere() -> None:
    assert len(WordFilter([]).places(padded(b"anything")).position) == 0


def test_what_ordinary_logs_hold_is_common() -> None:
    assert commonness("epoch") > commonness("xyzzy")
    assert commonness("error") > commonness("error while loading")
