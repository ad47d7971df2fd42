"""Find out from job logs why trials failed, with ordered rules.

book = load_rules(["mine.toml"])
found = classify_logs([Path("logs")], rules=book, trace=Trace.open("my-trace"))
write_failures(found.frame(), Path("failures.parquet"))
"""

from __future__ import annotations

from tracekit.characterize.joblogs.classify import Classifier, Hit, LogFinding
from tracekit.characterize.joblogs.logs import LogNames
from tracekit.characterize.joblogs.rules import LogRule, Reason, RuleBook, load_rules
from tracekit.characterize.joblogs.run import (
    Classification,
    Failure,
    ReasonCount,
    add_to_trace,
    check_target,
    classify_logs,
    evidence_file,
    write_failures,
)

__all__ = [
    "Classification",
    "Classifier",
    "Failure",
    "Hit",
    "LogFinding",
    "LogNames",
    "LogRule",
    "Reason",
    "ReasonCount",
    "RuleBook",
    "add_to_trace",
    "check_target",
    "classify_logs",
    "evidence_file",
    "load_rules",
    "write_failures",
]
