"""Rules: what ships, how files of the user's own join in, and what is said of a faulty one."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pytest

from tracekit.characterize.joblogs import Classifier, load_rules
from tracekit.characterize.joblogs.literals import required_literals
from tracekit.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    WriteRules = Callable[..., Path]

PHILLY = {
    "CPU out of memory", "Incorrect inputs", "Semantic error", "Core dump", "Invalid mem access", "Model ckpt error",
    "CUDA failure", "Syntax error", "Traceback from crash", "MPI error", "GPU out of memory", "MPI runtime failure",
    "Permission error", "Import error", "Job preempted", "CUDA init failed", "Model diverged", "CUDA ver. mismatch",
    "GPU ECC error", "Output node error", "Cannot load libs", "No signature",
}  # fmt: skip

MINE = """
[[rule]]
reason = "my_license"
category = "infrastructure"
advice = "call the vendor"
signatures = ['(?i)CUDA out of memory']
"""


def reason_of(log: bytes, *files: Path, built_in: bool = True) -> str | None:
    book = load_rules(files, built_in=built_in)
    hit = Classifier(book).classify(io.BytesIO(log)).hit
    return None if hit is None else book.rules[hit.rank].reason.name


def test_the_shipped_rules_know_all_reasons_of_the_published_table() -> None:
    book = load_rules()
    assert {reason.title for reason in book.reasons if reason.source == "philly"} == PHILLY
    assert book.reasons[-1].name == "no_signature"
    assert len({reason.name for reason in book.reasons}) == len(book.reasons)


def test_every_shipped_reason_has_an_advice_and_a_category() -> None:
    for reason in load_rules().reasons[:-1]:
        assert reason.advice
        assert reason.category in ("infrastructure", "engine", "user")


def test_every_shipped_signature_that_may_stand_anywhere_has_a_text_to_look_for() -> None:
    slow = [
        pattern
        for rule in load_rules().rules
        if rule.within_last_kib is None
        for pattern in rule.signatures
        if not required_literals(pattern)
    ]
    assert slow == []


def test_rules_of_the_user_stand_before_the_shipped_ones(write_rules: WriteRules) -> None:
    assert reason_of(b"CUDA out of memory\n", write_rules(MINE)) == "my_license"


def test_rules_may_stand_after_the_shipped_ones(write_rules: WriteRules) -> None:
    mine = write_rules('place = "after"\n' + MINE.replace("CUDA out", "CUDA out|flux capacitor"))
    assert reason_of(b"CUDA out of memory\n", mine) == "gpu_out_of_memory"
    assert reason_of(b"flux capacitor of memory\n", mine) == "my_license"


def test_files_stand_in_the_order_given(write_rules: WriteRules) -> None:
    other = write_rules(MINE.replace("my_license", "other"), "other.toml")
    mine = write_rules(MINE)
    assert reason_of(b"CUDA out of memory\n", other, mine) == "other"
    assert reason_of(b"CUDA out of memory\n", mine, other) == "my_license"


def test_without_the_shipped_rules_only_those_given_hold(write_rules: WriteRules) -> None:
    mine = write_rules(MINE)
    assert reason_of(b"Segmentation fault\n", mine, built_in=False) is None
    assert [reason.name for reason in load_rules([mine], built_in=False).reasons] == ["my_license", "no_signature"]


def test_a_signature_may_be_added_to_a_shipped_reason(write_rules: WriteRules) -> None:
    mine = write_rules('[[rule]]\nreason = "disk_full"\nsignatures = ["volume brimful"]\n')
    assert reason_of(b"error: volume brimful\n", mine) == "disk_full"
    assert load_rules([mine]).rules[0].reason.title == "Disk full"


def test_lines_to_ignore_may_be_added(write_rules: WriteRules) -> None:
    log = b"[canary] CUDA out of memory\n"
    assert reason_of(log) == "gpu_out_of_memory"
    assert reason_of(log, write_rules("ignore = ['^\\[canary\\] ']\n")) is None


@pytest.mark.parametrize(
    ("text", "line", "parts"),
    [
        ("[[rule]\n", 1, ("is not TOML", "line 1")),
        ("colour = 1\n", 1, ("colour: is not a key",)),
        ("place = 'above'\n", 1, ("place: 'above'", "before, after")),
        ("rule = 3\n", 1, ("rule: has to be a list of tables",)),
        ("ignore = 'x'\n", 1, ("ignore: has to be a list of texts",)),
        ("\n[[rule]]\nreasons = 'x'\n", 2, ("reasons: is not a key", "did you mean 'reason'?")),
        ("[[rule]]\nsignatures = ['abcde']\n", 1, ("reason: '' is not a name",)),
        ("[[rule]]\nreason = 'Big Bang'\nsignatures = ['abcde']\n", 1, ("reason: 'Big Bang' is not a name",)),
        ("[[rule]]\nreason = 'no_signature'\nsignatures = ['abcde']\n", 1, ("what no rule matched",)),
        ("[[rule]]\nreason = 'mine'\nsignatures = ['abcde']\n", 1, ("category: is missing", "engine, infrastructure")),
        ("[[rule]]\nreason = 'mine'\ncategory = 'usr'\nsignatures = ['abcde']\n", 1, ("did you mean 'user'?",)),
        (
            "[[rule]]\nreason = 'disk_full'\ncategory = 'user'\nsignatures = ['abcde']\n",
            1,
            ("'infrastructure' already",),
        ),
        ("[[rule]]\nreason = 'disk_full'\n", 1, ("signatures: is missing or empty",)),
        ("[[rule]]\nreason = 'disk_full'\nsignatures = [1]\n", 1, ("signatures: has to be a list of texts",)),
        ("[[rule]]\nreason = 'disk_full'\nsignatures = ['(a']\n", 1, ("'(a' cannot be used: missing )",)),
        ("[[rule]]\nreason = 'disk_full'\nsignatures = ['(?=a)']\n", 1, ("invalid perl operator",)),
        ("[[rule]]\nreason = 'disk_full'\nsignatures = ['a*']\n", 1, ("it matches an empty line",)),
        ("[[rule]]\nreason = 'disk_full'\nsignatures = ['\\Afoo']\n", 1, ("use ^ and $",)),
        ("[[rule]]\nreason = 'disk_full'\nsignatures = ['a']\nunless = ['[']\n", 1, ("unless: '['",)),
        ("[[rule]]\nreason = 'disk_full'\nsignatures = ['a']\nwithin_last_kib = 0\n", 1, ("within_last_kib: 0",)),
        ("[[rule]]\nreason = 'disk_full'\nsignatures = ['a']\nadvice = 1\n", 1, ("advice: has to be a text",)),
        (
            "[[rule]]\nreason = 'disk_full'\nsignatures = ['a']\n\n[[rule]]\nreason='disk_full'\nsignatures=['(']\n",
            5,
            ("signatures: '('",),
        ),
    ],
)
def test_a_fault_in_a_rules_file_is_told_with_its_place(
    write_rules: WriteRules, text: str, line: int, parts: tuple[str, ...]
) -> None:
    path = write_rules(text)
    with pytest.raises(UsageError) as caught:
        load_rules([path])
    assert caught.value.line == line
    assert str(caught.value).startswith(f"{path}")
    for part in parts:
        assert part in str(caught.value)


def test_a_rules_file_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="cannot read the rules: No such file"):
        load_rules([tmp_path / "absent.toml"])
    (tmp_path / "latin.toml").write_bytes(b"# \xff\n")
    with pytest.raises(UsageError, match="is not UTF-8 text"):
        load_rules([tmp_path / "latin.toml"])
