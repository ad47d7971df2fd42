"""Policies are found by name: in the package, as plug-ins, and in single files."""

from __future__ import annotations

from importlib import metadata
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from tracekit.errors import UsageError
from tracekit.policies import Card, Policy, parse_policy
from tracekit.replay import registry
from tracekit.replay.assumptions.models import load_models
from tracekit.replay.registry import broken_plugins, find_policy, policies

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

HEAD = "from __future__ import annotations\nfrom tracekit.policies import Card, Parameter, Policy\n"
CLASS = """
class {name}(Policy):
    card = Card(name="{policy}", title="t", rule="r", parameters=(Parameter("levels", 2, "queues"),))
    def mechanism(self, jobs, cluster, models, seed):
        return None
"""


@pytest.fixture
def plugins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[..., None]]:
    """Return a function that installs modules as plug-ins: entry point name -> (value, source of its module)."""
    entries: list[metadata.EntryPoint] = []

    def install(**given: tuple[str, str]) -> None:
        for name, (value, source) in given.items():
            (tmp_path / f"{value.partition(':')[0]}.py").write_text(source)
            entries.append(metadata.EntryPoint(name, value, "tracekit.policies"))

    def entry_points(**_: str) -> list[metadata.EntryPoint]:
        return entries

    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(registry, "metadata", SimpleNamespace(entry_points=entry_points))
    registry._known.cache_clear()
    yield install
    registry._known.cache_clear()


def test_each_policy_of_the_package_has_a_full_card() -> None:
    known = load_models().ids
    for name, kind in policies().items():
        card = kind.card
        assert card.name == name
        assert card.title
        assert card.rule
        assert card.sources
        assert [a for a in card.assumptions if a not in known] == []
        assert all(p.meaning for p in card.parameters)
        assert kind().parameters == {p.name: p.read(p.default) for p in card.parameters}
    assert list(policies()) == sorted(policies())


def test_a_plugin_is_found_beside_the_built_in_ones(plugins: Callable[..., None]) -> None:
    before = set(policies())
    registry._known.cache_clear()
    plugins(outside=("plug_good:Mine", HEAD + CLASS.format(name="Mine", policy="mine")))
    assert set(policies()) == before | {"mine"}
    assert broken_plugins() == {}
    assert parse_policy("mine,levels=3").parameters == {"levels": 3}


@pytest.mark.parametrize(
    ("value", "source", "fault"),
    [
        ("plug_a:Mine", "raise RuntimeError('no\\nluck')", "RuntimeError: no"),
        ("plug_b:Mine", "raise SystemExit(3)", "SystemExit: 3"),
        ("plug_c:Mine", "def f(:", "SyntaxError: "),
        ("plug_d:Mine", "import not_installed_at_all", "ModuleNotFoundError: No module named 'not_installed_at_all'"),
        ("plug_e:Mine", "Other = 1", "AttributeError: "),
        ("plug_f:Mine", "Mine = 1", "it is not a subclass of tracekit.policies.Policy"),
        ("plug_g:Mine", HEAD + "class Mine(Policy): pass", "Mine has no method mechanism"),
        ("plug_h:Mine", HEAD + "class Mine(Policy):\n def mechanism(self): pass", "Mine has no card"),
        ("plug_i:Mine", HEAD + CLASS.format(name="Mine", policy="A B"), "ValueError: 'A B' is not a policy name"),
    ],
)
def test_a_broken_plugin_is_one_line_and_spoils_no_other(
    plugins: Callable[..., None], value: str, source: str, fault: str
) -> None:
    plugins(bad=(value, source), good=("plug_z:Fine", HEAD + CLASS.format(name="Fine", policy="fine")))
    start = f"the policy plug-in bad ({value}) cannot be used: {fault}"
    assert broken_plugins()["bad"].startswith(start)
    assert "fine" in policies()
    with pytest.raises(UsageError) as caught:
        parse_policy("bad")
    assert str(caught.value).startswith(start.replace("\n", "\\n"))
    assert str(caught.value).isprintable()


def test_a_plugin_cannot_take_the_name_of_another_policy(plugins: Callable[..., None]) -> None:
    source = HEAD + CLASS.format(name="Mine", policy="mine")
    plugins(a=("plug_first:Mine", source), b=("plug_second:Mine", source))
    assert find_policy("mine").__module__ == "plug_first"
    assert broken_plugins()["b"].endswith("cannot be used: there is already a policy called 'mine'")


def test_an_unknown_policy_names_the_nearest(plugins: Callable[..., None]) -> None:
    plugins(outside=("plug_near:Mine", HEAD + CLASS.format(name="Mine", policy="my-own-policy")))
    with pytest.raises(UsageError, match=r"unknown policy 'my-own-polcy'; did you mean 'my-own-policy'\?"):
        parse_policy("my-own-polcy")
    with pytest.raises(UsageError) as caught:
        parse_policy("x" * 100_000)
    assert len(str(caught.value)) < 3_000


def test_a_policy_in_a_file_is_used_like_any_other(tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text(HEAD + CLASS.format(name="Mine", policy="mine"))
    for text in (f"{file}:Mine,levels=3", f"{file},levels=3"):
        policy = parse_policy(text)
        assert isinstance(policy, Policy)
        assert isinstance(policy.card, Card)
        assert policy.parameters == {"levels": 3}
    assert find_policy(f"{file}:Mine") is find_policy(str(file))
    file.write_text(HEAD + CLASS.format(name="Mine", policy="other"))
    assert find_policy(str(file)).card.name == "other"


@pytest.mark.parametrize(
    ("source", "name", "message"),
    [
        (None, "Mine", ": cannot read the policy: No such file or directory"),
        ("x = 1\ndef f(:\n", "Mine", ", line 2: cannot be run: SyntaxError: "),
        ("x = 1\n\n1 / 0\n", "Mine", ", line 3: cannot be run: ZeroDivisionError: division by zero"),
        ("def f():\n    raise SystemExit\nf()\n", "Mine", ", line 2: cannot be run: SystemExit"),
        ("import not_there_at_all", "Mine", ", line 1: cannot be run: ModuleNotFoundError: "),
        ("x = '\0'", "Mine", ": cannot be run: "),
        ("", "Mine", ": has no policy 'Mine'; there is none"),
        ("Mine = 1", "Mine", ": Mine cannot be used: it is not a subclass of tracekit.policies.Policy"),
        (HEAD, "Policy", ": Policy cannot be used: Policy has no method mechanism"),
        (HEAD + CLASS.format(name="Mine", policy="mine"), "Mein", ": has no policy 'Mein'; did you mean 'Mine'?"),
        (HEAD + CLASS.format(name="Mine", policy="mine"), "", ": has no policy ''; choose one of: Mine"),
        ("", None, ": contains 0 policies: none; name one: -p "),
    ],
)
def test_a_file_that_cannot_be_used_is_one_line(
    tmp_path: Path, source: str | None, name: str | None, message: str
) -> None:
    file = tmp_path / "own.py"
    if source is not None:
        file.write_text(source)
    with pytest.raises(UsageError) as caught:
        parse_policy(str(file) if name is None else f"{file}:{name}")
    text = str(caught.value)
    assert text.startswith(f"{file}{message}")
    assert text.isprintable()


def test_a_folder_or_a_path_of_nonsense_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "folder.py").mkdir()
    for text in (f"{tmp_path}/folder.py:X", "\0.py", f"{'x' * 5000}.py:X"):
        with pytest.raises(UsageError) as caught:
            find_policy(text)
        assert str(caught.value).isprintable()


def test_ctrl_c_in_a_policy_is_not_swallowed(tmp_path: Path) -> None:
    file = tmp_path / "own.py"
    file.write_text("raise KeyboardInterrupt")
    with pytest.raises(KeyboardInterrupt):
        find_policy(str(file))


def test_two_policies_of_the_package_cannot_share_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    def members(_: Any) -> list[type[Policy]]:
        return [type("Same", (Policy,), {"card": Card("same", "t", "r"), "mechanism": lambda *_: None})]

    class Info:
        def __init__(self, name: str) -> None:
            self.name = name

    registry._known.cache_clear()
    monkeypatch.setattr(registry, "_members", members)
    monkeypatch.setattr(registry, "walk_packages", lambda *_: [Info("tracekit.policies.interface")] * 2)
    with pytest.raises(ValueError, match="two policies have the name 'same'"):
        policies()
    monkeypatch.undo()
    registry._known.cache_clear()
