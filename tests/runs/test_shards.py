"""Shards I/N, and how items are dealt out to them."""

from __future__ import annotations

import re
from collections import Counter
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.effort import examples
from tracekit.errors import UsageError
from tracekit.runs.ledger import Shard, dealt, numbers_in_words

if TYPE_CHECKING:
    from random import Random

ITEMS = st.dictionaries(st.text("0123456789abcdef", min_size=4, max_size=8), st.sampled_from("xyz"), max_size=60)


def test_a_shard_is_named_i_of_n() -> None:
    assert Shard.named("1/1") == (1, 1)
    assert Shard.named("07/08") == (7, 8)
    assert str(Shard.named("3/12")) == "3/12"


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("0/4", "there is no shard 0 of 4; I begins at 1 instead of 0; write it as I/N, with I from 1 to N"),
        ("5/4", "there is no shard 5 of 4; write it as I/N"),
        ("1/0", "there is no shard 1 of 0; write it as I/N"),
        ("0/0", "there is no shard 0 of 0; write it as I/N"),
        ("1/1000001", "there may be up to 1,000,000 shards"),
        *(
            (text, f"'{text}' is not a shard; write it")
            for text in ("", "3", "/", "1/", "-1/4", "1/4/2", "1.0/4", "٣/٤")
        ),
    ],
)
def test_what_is_not_a_shard_is_reported_in_one_line(text: str, part: str) -> None:
    with pytest.raises(UsageError, match=re.escape(part)) as caught:
        Shard.named(text)
    assert str(caught.value).startswith("--shard: ")
    assert "\n" not in str(caught.value)


def test_items_are_dealt_like_cards_by_kind_and_then_by_digest() -> None:
    items = {"c": "slow", "a": "slow", "f": "fast", "b": "fast", "e": "slow"}
    # In order: fast b, fast f, slow a, slow c, slow e.
    assert dealt(items, 2) == {"b": 1, "f": 2, "a": 1, "c": 2, "e": 1}
    assert dealt(items, 9) == {"b": 1, "f": 2, "a": 3, "c": 4, "e": 5}
    assert dealt({}, 3) == {}


@settings(max_examples=examples(150))
@given(items=ITEMS, of=st.integers(1, 9), random=st.randoms())
def test_every_item_has_one_shard_and_all_shards_as_many_of_each_kind(
    items: dict[str, str], of: int, random: Random
) -> None:
    owner = dealt(items, of)
    assert owner.keys() == items.keys()
    for kind in (*set(items.values()), None):
        counts = Counter(owner[digest] for digest in items if kind in (None, items[digest]))
        shares = [counts[number] for number in range(1, of + 1)]
        assert max(shares) - min(shares) <= 1
    turned = list(items.items())
    random.shuffle(turned)
    assert dealt(dict(turned), of) == owner


@settings(max_examples=examples(100))
@given(st.sets(st.integers(1, 40)))
def test_numbers_in_words_name_each_once(numbers: set[int]) -> None:
    words = numbers_in_words(numbers)
    ends = [part.split("-") for part in words.split(",") if part]
    named = [n for end in ends for n in range(int(end[0]), int(end[-1]) + 1)]
    assert named == sorted(numbers)
    # No two ranges could be one.
    assert all(int(b[0]) > int(a[-1]) + 1 for a, b in pairwise(ends))


def test_numbers_are_written_as_slurm_takes_them() -> None:
    assert numbers_in_words([7, 1, 2, 3, 9, 10]) == "1-3,7,9-10"
