from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tracekit import toml_text
from tracekit.errors import UsageError
from tracekit.toml_text import TomlText

if TYPE_CHECKING:
    from pathlib import Path

    from tracekit.decode import Place

DOCUMENT = """\
top = 1                       # line 1
list = [
    ["a"],
    [ "a" ]
]
dotted.inner.key = 2          # line 6

[table]                       # line 8
"with.dot" = 3
inline = {deep = 4}

[[rule]]                      # line 12
name = "first"

[[ rule ]]
name = "second = 2"           # line 16
[rule.of]
what = 5

[table.below]
key = 6                       # line 21

[lone.inner]                  # line 23
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "a.toml"


def refusal(path: Path, content: bytes, hint: str | None = None) -> tuple[str, int | None]:
    path.write_bytes(content)
    with pytest.raises(UsageError) as raised:
        TomlText(path, "cluster", hint)
    assert "\n" not in str(raised.value)
    return str(raised.value).removeprefix(str(path)), raised.value.line


@pytest.mark.parametrize(
    ("place", "line"),
    [
        (("top",), 1),
        (("list",), 2),
        (("dotted",), 6),
        (("dotted", "inner"), 6),
        (("dotted", "inner", "key"), 6),
        (("table",), 8),
        (("table", "with.dot"), 9),
        (("table", "inline", "deep"), 10),
        (("rule",), 12),
        (("rule", 0), 12),
        (("rule", 0, "name"), 13),
        (("rule", 1), 15),
        (("rule", 1, "name"), 16),
        (("rule", 1, "lacking"), 15),
        (("table", "below", "key"), 21),
        (("lone",), 23),
        (("lone", "inner", "lacking"), 23),
        (("lacking",), None),
        ((), None),
    ],
)
@pytest.mark.parametrize("end", ["\n", "\r\n"])
def test_the_line_of_a_key_or_of_the_table_around_it(path: Path, place: Place, line: int | None, end: str) -> None:
    path.write_bytes(DOCUMENT.replace("\n", end).encode())
    assert TomlText(path, "cluster").line(place) == line


def test_a_line_of_a_list_is_not_a_table(path: Path) -> None:
    path.write_text('[own]\nlist = [\n["own"]\n,\n["other"]\n]\nkey = 1\n')
    assert TomlText(path, "cluster").line(("own", "key")) == 7


def test_an_error_names_the_key_and_counts_tables_from_one(path: Path) -> None:
    path.write_text(DOCUMENT)
    text = TomlText(path, "cluster")
    assert (
        str(text.error(("rule", 1, "name"), "is bad", "mend it")) == f"{path}, line 16: rule[2].name: is bad; mend it"
    )
    assert str(text.error((), "is bad")) == f"{path}: is bad"
    assert len(str(text.error(("x" * 1000,), "is bad"))) < 100 + len(str(path))


def test_values_come_as_they_stand_even_behind_a_mark_of_byte_order(path: Path) -> None:
    path.write_bytes(b"\xef\xbb\xbfa = 1\n[b]\nc = ['d']\n")
    assert TomlText(path, "cluster").data == {"a": 1, "b": {"c": ["d"]}}


@pytest.mark.parametrize(
    ("content", "what", "line"),
    [
        (b"[a\n", ", line 1: is not TOML: Expected ']' at the end of a table declaration", 1),
        (b'\n\nx = "', ", line 3: is not TOML: Unterminated string", 3),
        (b"x = " + b"[" * 5000, ", line 1: is not TOML: ", 1),
        (b"x = " + b"9" * 5000, ", line 1: is not TOML: ", 1),
    ],
)
def test_what_is_not_toml_names_its_line(path: Path, content: bytes, what: str, line: int) -> None:
    message, found_line = refusal(path, content)
    assert message.startswith(what)
    assert found_line == line
    assert refusal(path, content, "see the manual")[0].endswith("; see the manual")


def test_what_cannot_be_read_is_one_line(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match=r"a\.toml: cannot read the cluster: No such file or directory$"):
        TomlText(path, "cluster")
    with pytest.raises(UsageError, match=r"cannot read the cluster: Is a directory; give a file$"):
        TomlText(path.parent, "cluster", "give a file")
    assert refusal(path, b"\xff") == (": is not UTF-8 text; save the cluster as UTF-8", None)
    monkeypatch.setattr(toml_text, "_LARGEST", 3)
    assert refusal(path, b"a = 1") == (": is too large to describe the cluster; give a TOML file", None)
