"""The typed decoder: what each type takes, and the one sentence that everything else ends in."""

from __future__ import annotations

import datetime as dt
from dataclasses import asdict, dataclass, field
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracekit.decode import Count, MisfitError, NonEmpty, Range, Text, abbreviated, decode, dotted


@dataclass(frozen=True)
class Inner:
    size: Count
    word: Literal["fast", "slow"] = "slow"


@dataclass(frozen=True)
class Outer:
    name: Text
    from_: dt.date | Annotated[float, Range(-5, 5)] | None = None
    share: float = 0.5
    whole: int = 0
    on: bool = False
    any_: object = None
    names: Annotated[tuple[str, ...], NonEmpty()] = ("a",)
    pair: tuple[int, str] | None = None
    items: list[Inner] = field(default_factory=list)
    by_name: dict[str, dict[str, Inner]] = field(default_factory=dict)
    either: str | Inner | None = None
    level: Literal["oracle"] | Annotated[float, Range(0, 1)] = 0.0


def decoded(**keys: Any) -> Outer:
    return decode(Outer, {"name": "x", **keys})


def refused(value: object) -> tuple[str, str | None]:
    with pytest.raises(MisfitError) as caught:
        decode(Outer, value)
    return str(caught.value), caught.value.hint


def test_what_is_left_out_has_its_default() -> None:
    assert decoded() == Outer("x")


def test_each_type_takes_what_a_file_gives_for_it() -> None:
    day, moment = dt.date(2020, 1, 2), dt.datetime(2020, 1, 2, 3)
    assert decoded(**{"from": day}).from_ == day
    assert decoded(**{"from": moment}).from_ == moment
    assert decoded(**{"from": 3}).from_ == 3.0
    assert type(decoded(share=1).share) is float
    assert decoded(whole=-(2**63), on=True, any=[1, {}], names=["b", "c"], pair=[1, "z"]) == Outer(
        "x", whole=-(2**63), on=True, any_=[1, {}], names=("b", "c"), pair=(1, "z")
    )
    assert decoded(items=[{"size": 1}, {"size": 2, "word": "fast"}]).items == [Inner(1), Inner(2, "fast")]
    assert decoded(by_name={"a.b": {"": {"size": 3}}}).by_name == {"a.b": {"": Inner(3)}}
    assert decoded(either="word").either == "word"
    assert decoded(either={"size": 4}).either == Inner(4)
    assert decoded(level="oracle").level == "oracle"
    assert decoded(level=1).level == 1.0
    assert decoded(pair=None).pair is None


@pytest.mark.parametrize(
    ("keys", "what", "hint"),
    [
        ({"nam": 1}, "nam: no such key", "did you mean 'name'?"),
        ({"from_": 1}, "from_: no such key", "did you mean 'from'?"),
        ({"name": 5}, "name: 5 is not a text", 'write it in quotes: "..."'),
        ({"name": ""}, "name: is empty", "write something, or leave the key out"),
        ({"name": "a\0"}, "name: 'a\0' contains a zero byte", "remove it"),
        ({"from": "soon"}, "from: 'soon' is neither a date nor a number", None),
        ({"from": -6}, "from: -6 is out of range", "it may be from -5 to 5"),
        ({"from": float("nan")}, "from: nan is out of range", "it may be from -5 to 5"),
        ({"share": True}, "share: True is not a number", None),
        ({"share": float("inf")}, "share: inf is out of range", "it may be from -1.79769e+308 to 1.79769e+308"),
        ({"share": 10**400}, "share: a number of too many digits is out of range", None),
        ({"whole": 1.0}, "whole: 1.0 is not a whole number", None),
        ({"whole": 2**63}, "whole: a number of too many digits is out of range", None),
        ({"on": 1}, "on: 1 is neither true nor false", None),
        ({"names": "a"}, "names: 'a' is not a list", "write [..., ...]"),
        ({"names": []}, "names: is empty", None),
        ({"names": ["a", 2]}, "names[2]: 2 is not a text", 'write it in quotes: "..."'),
        ({"pair": [1]}, "pair: is not a list of 2", None),
        ({"pair": [1, 2]}, "pair[2]: 2 is not a text", None),
        ({"items": {}}, "items: {} is not a list", "write [[items]]"),
        ({"items": [{"size": 1}, {}]}, "items[2]: has no size", "its keys are: size, word"),
        ({"items": [3]}, "items[1]: 3 is not a table", "write {size = ..., word = ...}"),
        (
            {"items": [{"size": -1}]},
            "items[1].size: -1 is out of range",
            "it may be from 0 to 9,223,372,036,854,775,807",
        ),
        ({"by_name": {"a.b": 1}}, "by_name.a.b: 1 is not a table", "write [by_name.a.b]"),
        (
            {"by_name": {"a": {"b": {"size": 1, "word": "fasst"}}}},
            "by_name.a.b.word: 'fasst' is not an allowed value",
            "did you mean 'fast'?",
        ),
        ({"either": 3}, "either: 3 is neither a text nor a table", None),
        ({"level": "orcle"}, "level: 'orcle' is not an allowed value", "did you mean 'oracle'?"),
        ({"level": 2}, "level: 2 is out of range", "it may be from 0 to 1"),
        ({"level": None}, "level: None is neither a text nor a number", None),
    ],
)
def test_anything_else_is_one_sentence_with_its_place(keys: dict[str, Any], what: str, hint: str | None) -> None:
    message, advice = refused({"name": "x", **keys})
    assert message == what
    assert hint is None or advice == hint


def test_a_part_that_is_missing_is_named_after_those_that_are_needed() -> None:
    message, hint = refused({})
    assert message == "has no name"
    assert hint is not None
    assert hint.startswith("its keys are: name, from, share, ")
    assert refused([])[0] == "[] is not a table"


def test_names_and_values_are_cut() -> None:
    assert len(dotted(("k" * 1000, 3, "v" * 1000))) == 80 + 3 + 1 + 80
    assert len(abbreviated("v" * 1000)) == 60
    assert abbreviated([1, "a"]) == "[1, 'a']"


json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["name", "size", "items", "by_name", "either", "x"]), inner, max_size=3)
    ),
    max_leaves=12,
)


def outcome(value: object) -> Outer | MisfitError:
    try:
        return decode(Outer, value)
    except MisfitError as error:
        return error


@given(json)
def test_any_value_is_decoded_whole_or_refused_with_its_place(value: object) -> None:
    found: Any = outcome(value)
    if isinstance(found, MisfitError):
        at: Any = value
        last: Any
        *above, last = found.place or (None,)
        for part in above:
            at = at[part]
        assert found.place == () or (last in at if isinstance(at, dict) else 0 <= last < len(at))
        return
    assert isinstance(value, dict)
    back = {key.removesuffix("_"): one for key, one in asdict(found).items()}
    for key, one in value.items():
        if isinstance(one, str | int | float | bool):
            assert back[key] == one
