"""Policies as people spell them: parameters, their checks, and labels that read back."""

from __future__ import annotations

import math
import subprocess
import sys
from typing import TYPE_CHECKING, Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.effort import tried
from tracekit.errors import UsageError
from tracekit.policies import Card, Parameter, Policy, interface, parse_policy

if TYPE_CHECKING:
    from tests.reviewed import Golden
    from tracekit.replay.assumptions.models import Models
    from tracekit.replay.clusters.cluster import Cluster
    from tracekit.replay.jobs import Jobs
    from tracekit.replay.mechanisms import Mechanism


class Toy(Policy):
    """A policy with a parameter of each type."""

    card: ClassVar[Card] = Card(
        name="toy",
        title="For tests",
        rule="Nothing happens.",
        parameters=(
            Parameter("scan", "stop", "what the first job that cannot start does", choices=("stop", "skip")),
            Parameter("relax_after", math.inf, "wait before any nodes do [s]"),
            Parameter("levels", 2, "queues", minimum=1, maximum=10),
            Parameter("score", 2, "greatest sum of classes", minimum=-1, maximum=4),
            Parameter("share", 0.5, "share of GPUs [0..1]", maximum=1),
            Parameter("borrow", default=False, meaning="whether a quota may be exceeded"),
            Parameter("overhead", "none", "preset of M9"),
        ),
        assumptions=("M9",),
    )

    def mechanism(self, jobs: Jobs, cluster: Cluster, models: Models, seed: int) -> Mechanism:
        raise NotImplementedError


@pytest.fixture(autouse=True)
def only_the_toy(monkeypatch: pytest.MonkeyPatch) -> None:
    def find(name: str) -> type[Policy]:
        if name != "toy":
            raise UsageError(f"unknown policy '{name}'")
        return Toy

    monkeypatch.setattr(interface, "find_policy", find)


DEFAULTS = {
    "scan": "stop",
    "relax_after": math.inf,
    "levels": 2,
    "score": 2,
    "share": 0.5,
    "borrow": False,
    "overhead": "none",
}


def test_a_name_alone_has_all_defaults() -> None:
    policy = parse_policy("toy")
    assert policy.parameters == DEFAULTS
    assert policy.label == "toy"


def test_parameters_are_read_by_the_type_of_their_default() -> None:
    policy = parse_policy(" toy , scan=skip,relax_after=1.2e3,levels=3, score = -1,share=1,borrow=on,overhead=helios")
    assert policy.parameters == {
        "scan": "skip",
        "relax_after": 1200.0,
        "levels": 3,
        "score": -1,
        "share": 1.0,
        "borrow": True,
        "overhead": "helios",
    }
    assert [type(v) for v in policy.parameters.values()] == [str, float, int, int, float, bool, str]
    assert policy.label == "toy,scan=skip,relax_after=1200,levels=3,score=-1,share=1,borrow=on,overhead=helios"


def test_python_values_and_texts_are_taken_alike() -> None:
    policy = Toy(levels=3, share=1, borrow="true", relax_after="inf")
    assert policy.parameters == {**DEFAULTS, "levels": 3, "share": 1.0, "borrow": True}
    assert repr(policy) == "<policy toy,levels=3,share=1,borrow=on>"
    assert Toy(levels=3.0).parameters["levels"] == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no policy named; write NAME,key=value; 'tracekit policies' lists the names"),
        (",scan=skip", "no policy named"),
        ("toi", "unknown policy 'toi'"),
        ("toy,", "the policy toy: '' is not a parameter; write NAME,key=value,key=value"),
        ("toy,scan", "the policy toy: 'scan' is not a parameter; write NAME,key=value,key=value"),
        ("toy,=skip", "the policy toy: '=skip' is not a parameter"),
        ("toy,scna=skip", "the policy toy has no parameter 'scna'; did you mean 'scan'?"),
        ("toy,scan=skip,scan=stop", "the policy toy: scan is given twice; leave one out"),
        ("toy,scan=skp", "the policy toy: scan=skp is not an allowed value; did you mean 'skip'?"),
        ("toy,scan=", "the policy toy: scan= is not text"),
        ("toy,levels=2.5", "the policy toy: levels=2.5 is not a whole number; levels: queues"),
        ("toy,levels=two", "the policy toy: levels=two is not a whole number"),
        ("toy,levels=0", "the policy toy: levels=0 is out of range; use a number from 1 to 10"),
        ("toy,levels=11", "the policy toy: levels=11 is out of range; use a number from 1 to 10"),
        ("toy,levels=inf", "the policy toy: levels=inf is out of range"),
        ("toy,levels=1_0", "the policy toy: levels=1_0 is not a whole number"),
        (f"toy,levels={'9' * 399}", "the policy toy: levels=99999"),
        (f"toy,levels={'9' * 9999}", "the policy toy: levels=99999"),
        ("toy,relax_after=-1", "the policy toy: relax_after=-1 is out of range; use a number from 0 to 1e+15"),
        ("toy,relax_after=1e16", "the policy toy: relax_after=1e16 is out of range"),
        ("toy,relax_after=1e999", ""),
        ("toy,relax_after=nan", "the policy toy: relax_after=nan is not a number"),
        ("toy,relax_after=-inf", "the policy toy: relax_after=-inf is out of range"),
        ("toy,share=inf", "the policy toy: share=inf is out of range; use a number from 0 to 1"),
        ("toy,borrow=maybe", "the policy toy: borrow=maybe is neither on nor off; borrow: whether"),
        (f"toy,{'x' * 9999}=1", "the policy toy has no parameter 'xxxx"),
        (f"toy,{'x' * 9999}", "the policy toy: 'xxxx"),
    ],
)
def test_what_cannot_be_used_is_one_short_line(text: str, message: str) -> None:
    if not message:
        # Too large for a float: the same as inf.
        assert parse_policy(text).parameters["relax_after"] == math.inf
        return
    with pytest.raises(UsageError) as caught:
        parse_policy(text)
    assert str(caught.value).startswith(message)
    assert len(str(caught.value)) < 250
    assert str(caught.value).isprintable()


@pytest.mark.parametrize("value", [None, [1], True, b"2", 10**400, -(10**400)])
def test_python_values_that_are_not_levels_are_refused(value: object) -> None:
    with pytest.raises(UsageError, match=r"^the policy toy: levels="):
        Toy(levels=value)


@tried(5, 25, st.text(max_size=40))
def test_any_text_is_a_policy_or_one_line(text: str) -> None:
    found = parsed(f"toy,{text}")
    if isinstance(found, str):
        assert found.isprintable()
    else:
        assert parse_policy(found.label).parameters == found.parameters


def parsed(text: str) -> Policy | str:
    try:
        return parse_policy(text)
    except UsageError as error:
        return str(error)


@given(st.text(max_size=20), st.sampled_from(["levels", "relax_after", "borrow", "overhead"]))
def test_any_value_is_taken_or_one_line(text: str, name: str) -> None:
    found = parsed(f"toy,{name}={text}")
    if isinstance(found, str):
        assert found.isprintable()
    else:
        assert parse_policy(found.label).parameters == found.parameters


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "scan": st.sampled_from(["stop", "skip"]),
            "relax_after": st.floats(0, 1e15) | st.just(math.inf),
            "levels": st.integers(1, 10),
            "share": st.floats(0, 1),
            "borrow": st.booleans(),
        },
    )
)
def test_a_label_names_the_same_policy(given_values: dict[str, object]) -> None:
    policy = Toy(**given_values)
    assert parse_policy(policy.label).parameters == policy.parameters


def test_a_text_that_a_command_line_cannot_hold_is_refused() -> None:
    for text in ("a,b", " a", ""):
        with pytest.raises(UsageError, match=r"^the policy toy: overhead="):
            Toy(overhead=text)


def test_kinds_of_values_are_reported(golden: Golden) -> None:
    golden(f"{p.name}: {p.kind}" for p in Toy.card.parameters)


def test_a_card_with_a_mistake_is_refused_when_it_is_written() -> None:
    with pytest.raises(UsageError, match="scan=x is not an allowed value"):
        Parameter("scan", "x", "", choices=("stop", "skip"))
    with pytest.raises(ValueError, match="not a parameter name"):
        Parameter("a,b", 1, "")
    with pytest.raises(ValueError, match="the parameter scan needs a description for every choice, or none at all"):
        Parameter("scan", "stop", "", choices=("stop", "skip"), words=("it stops",))
    with pytest.raises(ValueError, match="not a policy name"):
        Card(name="A B", title="", rule="")
    with pytest.raises(ValueError, match="the policy twice has the parameter a twice"):
        Card(name="twice", title="", rule="", parameters=(Parameter("a", 1, ""), Parameter("a", 2, "")))
    with pytest.raises(TypeError, match="the policy Bad has a card that is not a Card"):
        type("Bad", (Policy,), {"card": "fifo"})


def test_what_a_policy_is_tells_its_choices_off_the_default() -> None:
    words = ("later jobs wait", "later jobs may pass")
    scan = Parameter("scan", "stop", "", choices=("stop", "skip"), words=words)
    card = Card(name="line", title="first come", rule="", parameters=(scan, Parameter("levels", 2, "queues")))
    line: Any = type("Line", (Toy,), {"card": card})
    assert [line(**given).what for given in ({}, {"scan": "skip"}, {"scan": "skip", "levels": 3}, {"levels": 3})] == [
        "first come",
        "first come; later jobs may pass",
        "first come; later jobs may pass",
        "first come",
    ]


class Documented(Toy):
    """Shortest job first.

    The shortest job starts first;
    ties go by submission.

    Equal to
    --------
    - With one job: fifo.
    - With equal jobs:
      fifo too.

    Sources
    -------
    - Our choice.
    """

    card = Card(name="documented", sources=("The log.",))


def test_a_card_takes_the_texts_that_it_lacks_from_the_docstring() -> None:
    assert Documented.card == Card(
        name="documented",
        title="shortest job first",
        rule="The shortest job starts first; ties go by submission.",
        equal_to=("With one job: fifo.", "With equal jobs: fifo too."),
        sources=("The log.",),
    )


@pytest.mark.parametrize(
    ("doc", "title", "rule"),
    [
        ("GPUs first.", "GPUs first", ""),
        ("DRF.\n\nA\nrule.\n\nMore.", "DRF", "A rule. More."),
        ("Two\nlines.\n\nA rule.\n\nParameters\n----------\nx : int", "two lines", "A rule."),
    ],
)
def test_a_title_keeps_the_capitals_of_an_acronym(doc: str, title: str, rule: str) -> None:
    made: Any = type("Made", (Toy,), {"card": Card(name="made"), "__doc__": doc})
    assert (made.card.title, made.card.rule, made.card.sources) == (title, rule, ())


def test_a_card_without_a_title_or_with_a_list_that_is_none_is_refused() -> None:
    with pytest.raises(TypeError, match="the policy Made needs a title"):
        type("Made", (Toy,), {"card": Card(name="made"), "__doc__": None})
    with pytest.raises(ValueError, match="each item of the section 'Sources' must begin with '- '"):
        type("Made", (Toy,), {"card": Card(name="made"), "__doc__": "A.\n\nSources\n-------\nOur choice."})


def test_cards_keep_their_texts_if_python_runs_without_docstrings() -> None:
    code = "from tracekit.replay.registry import policies; print([p.card.title for p in policies().values()])"
    commands = [sys.executable, "-c", code], [sys.executable, "-OO", "-c", code]
    shown = [subprocess.run(c, capture_output=True, text=True, check=True).stdout for c in commands]
    assert "shortest remaining time first" in shown[0]
    assert shown[0] == shown[1]


def test_a_policy_without_a_mechanism_cannot_be_made() -> None:
    half = type("Half", (Policy,), {"card": Toy.card})
    with pytest.raises(TypeError, match="abstract"):
        half()
