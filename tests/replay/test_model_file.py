"""Models files of the user: laid over the built-in one, every mistake one line."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracekit.errors import UsageError
from tracekit.replay.assumptions.costs import overhead_ms
from tracekit.replay.assumptions.models import load_models
from tracekit.replay.assumptions.speeds import spread_ppm

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.replay.assumptions.models import Models


def refused(tmp_path: Path, text: str | bytes) -> str:
    file = tmp_path / "own.toml"
    file.write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(UsageError) as caught:
        load_models(file)
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith(str(file))
    return message.removeprefix(str(file))


def test_what_a_file_does_not_name_stays(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_text(
        "\ufeff[spread]\nlevel = 'mine'\nlevels.mine = 1\n[spread.families]\nmy-net = { '4/2' = 0.5 }\n"
        "[overhead.presets]\nhelios = { seconds = [1.5] }\nours = { base_s = 1, per_doubling_s = 0.5, resize_s = 2 }\n",
        encoding="utf-8",
    )
    models, default = load_models(file), load_models()
    assert models.spread.levels == {**default.spread.levels, "mine": 1.0}
    assert spread_ppm(models, 8, 2, 1) == 500_000
    assert spread_ppm(models, 4, 2, 1, family="my-net") == 500_000
    assert spread_ppm(models, 8, 4, 1, family="vgg16") == 260_000
    # A preset is replaced as a whole: the built-in steps of helios are gone.
    assert overhead_ms(models, "helios", [1, 64]).tolist() == [1_500, 1_500]
    assert overhead_ms(models, "ours", 4) == 2_500
    assert overhead_ms(models, "ours", 4, "resize") == 2_000
    assert models.power == default.power


def test_an_empty_file_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "own.toml"
    file.write_text("# nothing\n")
    assert load_models(file).spread == load_models().spread


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("\n[spred]\n", ", line 2: spred: no such section; did you mean 'spread'?"),
        ("[M4]\nlevel = 'low'", ", line 1: M4: no such section; M4 is the section [spread]"),
        ("[spread]\n\nlevl = 'low'", ", line 3: spread.levl: no such key; did you mean 'level'?"),
        ("[work]\nx = 1", ", line 2: work.x: no such key; there is none"),
        ("spread = 1", ", line 1: spread: 1 is not a table; write [spread]"),
        ("[spread]\ntitle = 'x'", ", line 2: spread.title: no such key; choose one of: families, level, levels"),
        ("[spread]\nlevel = 3", ', line 2: spread.level: 3 is not a text; write it in quotes: "..."'),
        ("[spread]\nlevel = 'hi'", ", line 2: spread.level: 'hi' is not in levels: low, default, high"),
        ("spread.levels.low = 'x'", ", line 1: spread.levels.low: 'x' is not a number"),
        ("[spread.levels]\nlow = true", ", line 2: spread.levels.low: True is not a number"),
        ("[spread.levels]\nlow = -1", ", line 2: spread.levels.low: -1 is out of range; it may be from 0 to 100"),
        ("[spread.levels]\nlow = nan", ", line 2: spread.levels.low: nan is out of range; it may be from 0 to 100"),
        ("[spread.levels]\nlow = inf", ", line 2: spread.levels.low: inf is out of range; it may be from 0 to 100"),
        (
            f"[spread.levels]\nlow = {'9' * 400}",
            ", line 2: spread.levels.low: a number of too many digits is out of range; it may be from 0 to 100",
        ),
        (
            "[spread]\nlevels = { low = 2000 }",
            ", line 2: spread.levels.low: 2000 is out of range; it may be from 0 to 100",
        ),
        ("[spread.families.x]\n'2/8' = 1.0", ", line 2: spread.families.x.2/8: is not GPUs/nodes such as 8/2"),
        ("[spread.families]\nx = 1", ", line 2: spread.families.x: 1 is not a table; write [spread.families.x]"),
        ("[elastic]\ngrow = 1.5", ", line 2: elastic.grow: 1.5 is not a whole number"),
        ("[elastic]\nrigid = 'no'", ", line 2: elastic.rigid: 'no' is neither true nor false"),
        (
            "[interference]\nrule = 'som'",
            ", line 2: interference.rule: 'som' is not an allowed value; did you mean 'sum'?",
        ),
        (
            "[interference]\nclass_thresholds = 1",
            ", line 2: interference.class_thresholds: 1 is not a list; write [..., ...]",
        ),
        (
            "[interference]\nclass_thresholds = [\n0.5,\n0.4]",
            ", line 2: interference.class_thresholds: must be two numbers, ascending",
        ),
        (
            "[estimates]\nnoise = 'orcle'",
            ", line 2: estimates.noise: 'orcle' is not an allowed value; did you mean 'oracle'?",
        ),
        ("[estimates]\nerrors = [[0.5, 0, 0.1]]", ", line 2: estimates.errors: has shares that do not sum to 1"),
        (
            "[estimates]\nerrors = [[1, 0.5, 2]]",
            ", line 2: estimates.errors: has a band on both sides of 1; split it there",
        ),
        (
            "[overhead.presets]\nx = { seconds = [1], up_to = [2] }",
            ", line 2: overhead.presets.x: needs one more value in seconds than in up_to",
        ),
        (
            "[overhead.presets.x]\nseconds = [1]\nbase_s = 2",
            ", line 1: overhead.presets.x: needs either seconds, or base_s and per_doubling_s",
        ),
        (
            "[overhead.presets.x]\nsecond = [1]",
            ", line 2: overhead.presets.x.second: no such key; did you mean 'seconds'?",
        ),
        ("[power.configs]\nx = { idle_w = 9 }", ", line 2: power.configs.x: has no max_w; its keys are: idle_w, max_w"),
        (
            "[power.configs]\nx = { idle_w = 9, max_w = 8 }",
            ", line 2: power.configs.x: has more idle power than maximum power",
        ),
        ("[power.gpu_models]\nA100 = 'dgx'", ", line 2: power.gpu_models.A100: 'dgx' is not in configs: "),
        ("[cpu.split]\nimage = 0.5", ", line 1: cpu.split: does not sum to 1"),
        ("[cpu.families.x]\nkind = 'image'\nspeed = [1]", ", line 3: cpu.families.x.speed: must be 8 numbers"),
        ("[type_speed.ratio]\na.b = 0.5\nb.a = 3", ", line 2: type_speed.ratio.a.b: is not the inverse of ratio.b.a"),
        ("[deadlines]\nfactor = 2020-01-01", ", line 2: deadlines.factor: 2020-01-01 is not a list"),
        ("[[spread]]", ", line 1: spread: [{}] is not a table; write [spread]"),
        ("['spread'] # mine\n'level' = 1", ", line 2: spread.level: 1 is not a text"),
        ("[spread\n", ", line 1: is not TOML: "),
        ("x = 1\nx = 2", ", line 2: is not TOML: "),
        (b"\xff\xfe", ": is not UTF-8 text; save the models as UTF-8"),
    ],
)
def test_a_mistake_is_one_line_with_file_line_and_key(tmp_path: Path, text: str | bytes, message: str) -> None:
    assert refused(tmp_path, text).startswith(message)


def test_a_missing_file_or_a_folder_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"none\.toml: cannot read the models: No such file"):
        load_models(tmp_path / "none.toml")
    with pytest.raises(UsageError, match="cannot read the models: "):
        load_models(tmp_path)


def test_depth_and_length_give_no_traceback(tmp_path: Path) -> None:
    refused(tmp_path, f"x = {'[' * 5000}{']' * 5000}")
    assert len(refused(tmp_path, f"[spread]\n{'k' * 10_000} = 1")) < 300
    assert len(refused(tmp_path, f"[spread]\nlevel = '{'k' * 10_000}'")) < 300


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(data=st.data())
def test_any_value_at_any_key_loads_or_is_one_line(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    default = load_models()
    section = data.draw(st.sampled_from(sorted(default.notes)))
    keys = sorted(vars(getattr(default, section))) or ["x"]
    key = data.draw(st.sampled_from(keys))
    file = tmp_path_factory.mktemp("models") / "own.toml"
    file.write_text(f"[{section}]\n{key} = {_toml(data.draw(values))}\n", encoding="utf-8")
    found = loaded(file)
    if isinstance(found, str):
        assert found.isprintable()
    else:
        assert type(getattr(found, section)) is type(getattr(default, section))


def loaded(file: Path) -> Models | str:
    try:
        return load_models(file)
    except UsageError as error:
        return str(error)


def _toml(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if value is None:
        return "''"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{_text(k)} = {_toml(v)}" for k, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(_toml(v) for v in value) + "]"
    return _text(value) if isinstance(value, str) else repr(value)


def _text(value: str) -> str:
    return '"' + "".join(f"\\U{ord(c):08x}" if not 0xD800 <= ord(c) < 0xE000 else "?" for c in value) + '"'
