"""Rules: what ships, how files of the user's own join in, and what is said of a faulty one."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

import pytest

from tracekit.characterize.joblogs import Classifier, classify_logs, load_rules
from tracekit.characterize.joblogs.classify import required_literals
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


DONE = "[INFO] step 2436/2436\nTraining completed!\n"
"""How a training run says that it made all its steps."""


@pytest.mark.parametrize(
    "parting",
    [
        (
            "WARNING:torch.distributed.elastic.rendezvous.dynamic_rendezvous:The node 'n7_20_0' has failed to shutdown "
            "the rendezvous '333' due to an error of type RendezvousConnectionError."
        ),
        (
            "W0430 13:19:40.100 torch/distributed/elastic/rendezvous/dynamic_rendezvous.py:1345] The node 'n7' has "
            "failed to send a keep-alive heartbeat to the rendezvous '333' due to an error of type "
            "RendezvousTimeoutError."
        ),
        "[W socket.cpp:464] [c10d] The client socket has failed to connect to [n7]:29500 (errno: 111).",
        (
            "[rank3]:[W430 13:19:40.1 TCPStore.cpp:125] recvValue failed on SocketImpl: Connection reset by peer\n"
            "Exception raised from recvBytes at ../torch/csrc/distributed/c10d/Utils.hpp:667:\n"
            "frame #0: c10::Error::Error(c10::SourceLocation, std::string) + 0x57 (0x7f in libc10.so)"
        ),
        "/opt/lib/python3.11/multiprocessing/resource_tracker.py:254: UserWarning: a leaked semaphore, shutdown failed",
    ],
)
def test_a_run_that_said_it_completed_did_not_fail_by_a_parting_warning(parting: str) -> None:
    finding = Classifier(load_rules()).classify(io.BytesIO(f"{DONE}{parting}\n".encode()))
    assert (finding.hit, finding.ends_well, finding.failure_sign) == (None, True, False)


@pytest.mark.parametrize(
    ("log", "reason"),
    [
        (f"{DONE}RuntimeError: CUDA out of memory. Tried to allocate 2 GiB\n", "gpu_out_of_memory"),
        (f"{DONE}srun: error: n7: task 3: Segmentation fault (core dumped)\n", "core_dump"),
        ("WARNING: the rendezvous '333' failed: RendezvousTimeoutError\n", "rendezvous_timeout"),
        ("step 12/2436\nW0430 13:19:40.1 r.py:1] error of type RendezvousTimeoutError\n", "rendezvous_timeout"),
    ],
)
def test_an_error_after_the_end_still_counts_and_so_does_a_warning_without_one(log: str, reason: str) -> None:
    assert reason_of(log.encode()) == reason


def test_four_real_logs_that_made_all_their_steps_show_no_failure(real_data: Callable[[str], Path]) -> None:
    found = classify_logs([real_data("zhejiang_logs")])
    # master.log, worker-1.log to worker-3.log, and README.md
    assert (found.failures, found.without_sign) == ([], 5)


@pytest.mark.parametrize(
    ("text", "line", "parts"),
    [
        ("[[rule]\n", 1, ("is not TOML", "line 1")),
        ("colour = 1\n", 1, ("colour: no such key",)),
        ("place = 'above'\n", 1, ("place: 'above'", "after, before")),
        ("rule = 3\n", 1, ("rule: 3 is not a list",)),
        ("ignore = 'x'\n", 1, ("ignore: 'x' is not a list",)),
        ("\n[[rule]]\nreasons = 'x'\n", 3, ("reasons: no such key", "did you mean 'reason'?")),
        ("[[rule]]\nsignatures = ['abcde']\n", 1, ("has no reason",)),
        ("[[rule]]\nreason = 'Big Bang'\nsignatures = ['abcde']\n", 2, ("reason: 'Big Bang' is not a name",)),
        ("[[rule]]\nreason = 'no_signature'\nsignatures = ['abcde']\n", 2, ("the reason if no rule matches",)),
        ("[[rule]]\nreason = 'mine'\nsignatures = ['abcde']\n", 1, ("category: is missing", "engine, infrastructure")),
        ("[[rule]]\nreason = 'mine'\ncategory = 'usr'\nsignatures = ['abcde']\n", 3, ("did you mean 'user'?",)),
        (
            "[[rule]]\nreason = 'disk_full'\ncategory = 'user'\nsignatures = ['abcde']\n",
            3,
            ("already has the category 'infrastructure'",),
        ),
        ("[[rule]]\nreason = 'disk_full'\n", 1, ("signatures: is missing or empty",)),
        ("[[rule]]\nreason = 'disk_full'\nsignatures = [1]\n", 3, ("signatures[1]: 1 is not a text",)),
        ("[[rule]]\nreason = 'disk_full'\nsignatures = ['(a']\n", 3, ("'(a' cannot be used: missing )",)),
        ("[[rule]]\nreason = 'disk_full'\nsignatures = ['(?=a)']\n", 3, ("invalid perl operator",)),
        ("[[rule]]\nreason = 'disk_full'\nsignatures = ['a*']\n", 3, ("it matches an empty line",)),
        ("[[rule]]\nreason = 'disk_full'\nsignatures = ['\\Afoo']\n", 3, ("use ^ and $",)),
        ("[[rule]]\nreason = 'disk_full'\nsignatures = ['a']\nunless = ['[']\n", 4, ("unless: '['",)),
        ("[[rule]]\nreason = 'disk_full'\nsignatures = ['a']\nwithin_last_kib = 0\n", 4, ("within_last_kib: 0",)),
        ("[[rule]]\nreason = 'disk_full'\nsignatures = ['a']\nadvice = 1\n", 4, ("advice: 1 is not a text",)),
        (
            "[[rule]]\nreason = 'disk_full'\nsignatures = ['a']\n\n[[rule]]\nreason='disk_full'\nsignatures=['(']\n",
            7,
            ("signatures: '('",),
        ),
    ],
)
def test_a_fault_in_a_rules_file_is_reported_with_its_place(
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
