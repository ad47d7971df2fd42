"""The build hook, on a package of a few lines: what it compiles, for whom, and what it does where it cannot."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest

import hatch_build

KERNEL = "tracekit/replay/kernel.abi3.so"
FIRST = "tracekit/replay/engine/state.pxi"

needs_compiler = pytest.mark.skipif(
    not hatch_build.installed_compiler() or not hatch_build.header().is_file(),
    reason="no C compiler or no headers of Python's here",
)


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """Return the root of a package with one function, in a file that needs the struct of another."""
    for name, text in {
        FIRST: "cdef struct Pair:\n    long long a\n    long long b\n",
        "tracekit/replay/adding/sums.pxi": (
            "def total(long long a, long long b):\n    cdef Pair pair\n    pair.a = a\n    pair.b = b\n"
            "    return pair.a + pair.b\n"
        ),
    }.items():
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def hook_of(package: Path) -> hatch_build.KernelHook:
    # Neither the metadata nor the application is asked for anything.
    return hatch_build.KernelHook(str(package), {}, None, None, "", "wheel")  # type: ignore[arg-type]  # it asks for none of them


def built(package: Path, version: str = "standard") -> tuple[hatch_build.KernelHook, dict[str, Any]]:
    hook = hook_of(package)
    data: dict[str, Any] = {"force_include": {}, "pure_python": True}
    hook.initialize(version, data)
    return hook, data


def called(extension: Path, expression: str) -> str:
    """Return what an expression of the extension's functions gives in a fresh process."""
    load = (
        "from importlib.util import module_from_spec, spec_from_file_location as at; "
        f"spec = at('tracekit.replay.kernel', {str(extension)!r}); kernel = module_from_spec(spec); "
        f"spec.loader.exec_module(kernel); print({expression})"
    )
    done = subprocess.run([sys.executable, "-c", load], capture_output=True, text=True, check=False)
    return done.stdout.strip() or done.stderr.splitlines()[-1]


def files(root: Path) -> set[str]:
    return {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}


def test_every_state_comes_before_what_is_built_on_it(tmp_path: Path) -> None:
    names = (
        "tracekit/policies/pollux.pxi",
        "tracekit/replay/cells/binding.pxi",
        "tracekit/replay/cells/state.pxi",
        "tracekit/replay/backfilling/state.pxi",
        "tracekit/replay/engine/heap.pxi",
        FIRST,
    )
    for name in names:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    text = hatch_build.module_text(tmp_path, checked=False).splitlines()
    assert [line for line in text if line.startswith("include")] == [
        f'include "{FIRST}"',
        'include "tracekit/replay/backfilling/state.pxi"',
        'include "tracekit/replay/cells/state.pxi"',
        'include "tracekit/policies/pollux.pxi"',
        'include "tracekit/replay/cells/binding.pxi"',
        'include "tracekit/replay/engine/heap.pxi"',
    ]
    assert text[0] == "# cython: language_level=3"


def test_the_checked_build_switches_checks_on_and_changes_no_meaning(package: Path) -> None:
    fast, checked = (hatch_build.module_text(package, checked=c).splitlines() for c in (False, True))
    assert [(a, b) for a, b in zip(fast, checked, strict=True) if a != b] == [
        ("# cython: boundscheck=False", "# cython: boundscheck=True"),
        ("# cython: initializedcheck=False", "# cython: initializedcheck=True"),
        ("# cython: nonecheck=False", "# cython: nonecheck=True"),
        ("# cython: overflowcheck=False", "# cython: overflowcheck=True"),
        ("CHECKED = False", "CHECKED = True"),
    ]


def test_the_digest_changes_with_every_source_and_with_its_name(package: Path) -> None:
    found = {hatch_build.digest(package)}
    (package / FIRST).write_text("cdef struct Pair:\n    int a\n")
    found.add(hatch_build.digest(package))
    (package / FIRST).rename(package / "tracekit/replay/engine/states.pxi")
    found.add(hatch_build.digest(package))
    (package / "tracekit/replay/kernel.pxd").touch()
    found.add(hatch_build.digest(package))
    assert len(found) == 4


@pytest.mark.thorough
@needs_compiler
def test_a_wheel_carries_the_extension_and_the_tree_stays_clean(package: Path) -> None:
    before = files(package)
    hook, data = built(package)
    assert files(package) == before
    assert not data["pure_python"]
    assert data["tag"].startswith("cp311-abi3-")
    ((extension, name),) = data["force_include"].items()
    assert name == KERNEL
    assert called(Path(extension), "kernel.total(2**62, 2**62), kernel.CHECKED") == f"{-(2**63)} False"
    hook.finalize("standard", data, "")
    assert not Path(extension).parent.exists()


@pytest.mark.thorough
@needs_compiler
def test_an_editable_installation_puts_the_extension_into_the_tree(
    package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TRACEKIT_BUILD", "checked")
    before = files(package)
    _, data = built(package, "editable")
    assert files(package) - before == {KERNEL}
    assert data["pure_python"]
    assert called(package / KERNEL, "kernel.total(2, 3), kernel.CHECKED") == "5 True"
    assert called(package / KERNEL, "kernel.total(2**62, 2**62)") == "OverflowError: value too large"


def test_without_headers_the_wheel_is_pure_and_one_line_says_so(
    package: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sysconfig, "get_path", {"include": "/nowhere"}.get)
    hook, data = built(package)
    assert data == {"force_include": {}, "pure_python": True}
    assert "".join(capfd.readouterr()) == (
        "tracekit is built WITHOUT its replay engine, everything else works: /nowhere/Python.h is missing\n"
    )
    hook.finalize("standard", data, "")


def test_where_the_compiler_fails_no_older_extension_stays(
    package: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CC", "false")
    (package / KERNEL).write_text("of other sources")
    before = files(package)
    built(package, "editable")
    assert files(package) == before - {KERNEL}
    told = "".join(capfd.readouterr()).splitlines()
    assert len(told) == 1
    assert told[0].startswith(
        "tracekit is built WITHOUT its replay engine, everything else works: the C compiler failed"
    )


def test_a_mistake_in_a_source_ends_the_build(package: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (package / FIRST).write_text("cdef struct Pair\n    long long a\n")
    with pytest.raises(SystemExit):
        built(package)
    told = "".join(capfd.readouterr())
    assert "state.pxi:2:0: Expected" in told
    assert "Cython found a mistake" in told


def tools(folder: Path, *names: str) -> str:
    """Return a search path on which these programs are, and no other."""
    for name in names:
        (folder / name).touch(mode=0o755)
    return str(folder)


def test_a_compiler_is_asked_for_only_where_there_is_none(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hook = hook_of(package)
    monkeypatch.setattr(sysconfig, "get_path", {"include": tools(package, "Python.h")}.get)
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", tools(package))
    assert hook.dependencies() == ["ziglang>=0.13"]
    monkeypatch.setenv("PATH", tools(package, "clang"))
    assert (hook.dependencies(), hatch_build.installed_compiler()) == ([], ["clang"])
    monkeypatch.setenv("PATH", tools(package, "cc"))
    assert (hook.dependencies(), hatch_build.installed_compiler()[0]) == ([], "cc")
    monkeypatch.setenv("CC", "ccache my-gcc")
    assert (hook.dependencies(), hatch_build.installed_compiler()) == ([], ["ccache", "my-gcc"])


def test_no_compiler_is_asked_for_where_it_could_not_help(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hook = hook_of(package)
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", str(package))
    monkeypatch.setattr(sysconfig, "get_path", {"include": "/nowhere"}.get)
    assert hook.dependencies() == []
