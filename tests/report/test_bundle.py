from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import pytest

from tracekit.report import bundle

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def made(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Count how often the bundle is made, and make a small one."""
    import vl_convert

    calls: list[str] = []

    def small(snippet: str) -> str:
        calls.append(snippet)
        return "var a='</script><!--';"

    monkeypatch.setattr(vl_convert, "javascript_bundle", small)
    # Another memory: that of the real bundle is for the other tests.
    monkeypatch.setattr(bundle, "start_bundle", functools.cache(bundle.start_bundle.__wrapped__))
    return calls


def _fresh() -> str:
    bundle.start_bundle.cache_clear()
    return bundle.vega_bundle()


def test_the_bundle_is_one_function_that_cannot_end_its_element(
    made: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    script = _fresh()
    assert script.partition("\n")[2] == "(function(){var a='<\\/script><\\!--';\n})();\n"
    assert "BSD-3-Clause" in script.partition("\n")[0]


def test_the_bundle_is_made_once_and_then_read(
    made: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert _fresh() == _fresh()
    assert len(made) == 1
    assert len(list((tmp_path / "tracekit").iterdir())) == 1


def test_a_damaged_cache_file_is_made_again(made: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    script = _fresh()
    kept = next((tmp_path / "tracekit").iterdir())
    for damage in (script[:-20].encode(), b"", b"\xff\xfe"):
        kept.write_bytes(damage)
        assert _fresh() == script
    assert len(made) == 4


def test_a_cache_folder_that_cannot_be_written_is_not_used(
    made: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert _fresh() == _fresh()
    assert len(made) == 2


def test_a_bundle_that_was_begun_is_not_made_again(
    made: list[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    bundle.start_bundle.cache_clear()
    begun = bundle.start_bundle()
    assert bundle.vega_bundle() == begun.result()
    assert len(made) == 1


def test_an_error_waits_until_the_page_needs_the_bundle(monkeypatch: pytest.MonkeyPatch, made: list[str]) -> None:
    monkeypatch.setattr(bundle, "_bundle", lambda: 1 // 0)
    bundle.start_bundle.cache_clear()
    bundle.start_bundle()
    with pytest.raises(ZeroDivisionError):
        bundle.vega_bundle()
