"""A setting is listed once: the command line, the command of a report and Python take it from there."""

from __future__ import annotations

import datetime as dt
import inspect
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
from typer.testing import CliRunner

import tracekit
from tracekit.cli.options import with_options
from tracekit.settings import (
    AnalysisSettings,
    DigestSettings,
    FitSettings,
    Flag,
    GenerateSettings,
    IngestSettings,
    ReplaySettings,
    merge_settings,
)


def parsed(kind: type[Any], *words: str) -> Any:
    """Return the settings that a command gets."""
    got = []

    def command(*, settings: Any) -> None:
        got.append(settings)

    command.__annotations__["settings"] = kind
    app = typer.Typer()
    app.command()(with_options(command))
    found = CliRunner().invoke(app, words)
    if found.exit_code != 0:
        raise found.exception or AssertionError(found.output)
    return got[0]


def test_without_words_a_command_gets_the_defaults() -> None:
    assert parsed(ReplaySettings) == ReplaySettings()
    assert parsed(AnalysisSettings) == AnalysisSettings(options={})
    assert parsed(IngestSettings) == IngestSettings(options={})


def test_words_become_settings_of_their_types() -> None:
    words = ("--from", "2017-10-03", "--vc-partitions", "off", "--gpus", "0.5", "--limit", "9", "--models", "m.toml")
    assert parsed(ReplaySettings, *words, "--cluster", "auto", "--seed", "7") == ReplaySettings(
        start=dt.datetime(2017, 10, 3),
        partitioned=False,
        gpus=0.5,
        limit=9,
        models=Path("m.toml"),
        cluster="auto",
        seed=7,
    )
    assert parsed(ReplaySettings, "--vc-partitions", "on").partitioned is True


@pytest.mark.parametrize("words", [("--seed", "-1"), ("--vc-partitions", "maybe"), ("--load", "x"), ("--force",)])
def test_what_is_out_of_range_or_no_option_is_refused(words: tuple[str, ...]) -> None:
    with pytest.raises(SystemExit):
        parsed(ReplaySettings, *words)


def test_a_time_that_is_none_names_its_option() -> None:
    with pytest.raises(tracekit.TracekitError, match=r"^--measure-from: 'soon' is not a time; write it like"):
        parsed(ReplaySettings, "--measure-from", "soon")


@pytest.mark.parametrize(
    "settings",
    [
        AnalysisSettings(options={}),
        AnalysisSettings(fit=False, pdf=True, replay_jobs=0, options={"unit": "task", "list": "a b"}),
        AnalysisSettings(format_name="csv", options={}, max_reject_share=0.25, max_inflation=1000.0, capacity="x.csv"),
        AnalysisSettings(options={}, memory_limit="2GB", compare="2017-10-31"),
    ],
)
def test_the_command_of_a_report_gives_its_settings_again(settings: AnalysisSettings) -> None:
    words = shlex.split(settings.command(Path("logs"), Path("out")))
    assert words[:5] == ["tracekit", "analyze", "logs", "-o", "out"]
    assert parsed(AnalysisSettings, *words[5:]) == settings


def test_settings_at_their_defaults_are_not_reported() -> None:
    assert AnalysisSettings().command(Path("a b"), Path("out")) == "tracekit analyze 'a b' -o out"


def test_one_line_adds_a_setting() -> None:
    @dataclass(frozen=True)
    class Longer(ReplaySettings):
        depth: Annotated[int, Flag("--depth N", "How deep.", 1)] = 3

    # The annotations of a class inside a function are not found by name.
    Longer.__annotations__ = {"depth": Annotated[int, Flag("--depth N", "How deep.", 1)]}
    assert parsed(Longer).depth == 3
    assert parsed(Longer, "--depth", "4", "--limit", "2") == Longer(depth=4, limit=2)


@pytest.mark.parametrize(
    ("kind", "function"),
    [(GenerateSettings, tracekit.generate), (DigestSettings, tracekit.digest), (FitSettings, tracekit.fit)],
)
def test_settings_of_a_command_are_the_keywords_of_its_function(kind: type[Any], function: Any) -> None:
    known = inspect.signature(function).parameters
    assert {name: known[name].default for name in kind.__dataclass_fields__} == vars(kind())


def test_a_flag_names_its_options_and_the_placeholder() -> None:
    flag = Flag("-p --policy POLICY[,key=value...]", "")
    assert (flag.names, flag.name, flag.metavar) == (["-p", "--policy"], "--policy", "POLICY[,key=value...]")
    assert Flag("--log", "").metavar is None


def test_python_takes_settings_as_an_object_by_name_or_both() -> None:
    given = ReplaySettings(limit=5)
    assert merge_settings(ReplaySettings, None, {}) == ReplaySettings()
    assert merge_settings(ReplaySettings, given, {}) == given
    assert merge_settings(ReplaySettings, given, {"load": 2.0}) == ReplaySettings(limit=5, load=2.0)
    assert given == ReplaySettings(limit=5)
    with pytest.raises(TypeError, match="lod"):
        merge_settings(ReplaySettings, None, {"lod": 2.0})


def test_a_setting_that_does_not_exist_is_refused_before_any_work(tmp_path: Path) -> None:
    for call in (
        lambda: tracekit.analyze(tmp_path, tmp_path / "out", fti=False),
        lambda: tracekit.ingest_logs(tmp_path, tmp_path / "out", formt="swf"),
        lambda: tracekit.replay(tmp_path, limits=5),
    ):
        with pytest.raises(TypeError, match="unexpected keyword argument"):
            call()
    assert list(tmp_path.iterdir()) == []
