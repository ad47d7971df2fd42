"""Mutants, which Cosmic Ray finds in modules, or which change tokens in Cython files or text in any file."""

from __future__ import annotations

import ast
import contextlib
import hashlib
import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tools.mutating.tokens import changes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

__all__ = ["Mutant", "find", "is_python", "sampled", "text_change"]

_SEED = "1"
# Each comparison is negated and has its boundary moved, and each operation is replaced with its opposite. Most of
# Cosmic Ray's other replacements (a shift for a difference, identity for equality) break at once or make no difference
# for the values that occur.
_OPERATORS = re.compile(
    "ReplaceComparisonOperator_(Lt_LtE|Lt_GtE|LtE_Lt|LtE_Gt|Gt_GtE|Gt_LtE|GtE_Gt|GtE_Lt|Eq_NotEq|NotEq_Eq|Is_IsNot"
    "|IsNot_Is|In_NotIn|NotIn_In)"
    "|ReplaceBinaryOperator_(Add_Sub|Sub_Add|Mul_Div|Div_Mul|FloorDiv_Mul|Mod_Mul|Pow_Mul|BitAnd_BitOr|BitOr_BitAnd"
    "|LShift_RShift|RShift_LShift)"
    "|ReplaceUnaryOperator_Delete_.*|ReplaceTrueWithFalse|ReplaceFalseWithTrue|ReplaceAndWithOr|ReplaceOrWithAnd"
    "|ReplaceBreakWithContinue|ReplaceContinueWithBreak|AddNot|NumberReplacer|ZeroIterationForLoop|ExceptionReplacer"
)


@dataclass(frozen=True)
class Mutant:
    """One change, whose name stays the same when other lines change."""

    file: str
    """Path of the file in the checkout."""
    within: str
    """Function or class, or '' for the module itself."""
    change: str
    """Cosmic Ray's operator, 'old to new' for a Cython token, or 'text'."""
    line: str
    """The changed line without its indentation, or 'old -> new' for a text change."""
    nth: int = 1
    """Number of this change, from 1, among equal changes to equal lines of the same function."""
    occurrence: int = field(default=0, compare=False)
    """Cosmic Ray's identifier of the change in the current file, or the number among the file's token changes."""

    @classmethod
    def of(cls, entry: Mapping[str, Any]) -> Mutant:
        """Return the mutant described by an entry of survivors.toml."""
        return cls(entry["file"], entry.get("within", ""), entry["change"], entry["line"], entry.get("nth", 1))

    def __str__(self) -> str:
        nth = f" ({self.nth})" if self.nth > 1 else ""
        return f"{self.file}, {self.within or 'module'}, {self.change}{nth}: {self.line}"

    def applied(self, tree: Path) -> str:
        """Return the file's text with the change applied. The file in `tree` stays unchanged."""
        path = tree / self.file
        text = path.read_text(encoding="utf-8")
        if self.change == "text":
            old, new = self.line.split(" -> ")
            if text.count(old) != 1:
                raise SystemExit(f"{self.file} does not contain the text to change exactly once: {old}")
            return text.replace(old, new)
        if not self.file.endswith(".py"):
            return list(changes(text))[self.occurrence].made(text)
        from cosmic_ray.cli import cli

        try:
            with contextlib.suppress(SystemExit):  # the command line always ends with SystemExit
                cli.main(["apply", str(path), f"core/{self.change}", str(self.occurrence)])
            changed = path.read_text(encoding="utf-8")
        finally:
            path.write_text(text, encoding="utf-8")
        if changed == text:
            raise SystemExit(f"Cosmic Ray did not change {self}")
        return changed


def text_change(file: str, old: str, new: str) -> Mutant:
    """Return the mutant that replaces `old` with `new`."""
    return Mutant(file, "", "text", f"{old} -> {new}")


def find(tree: Path, module: str) -> list[Mutant]:
    """Return the mutants of a module or .pxi file in line order."""
    text = (tree / module).read_text(encoding="utf-8")
    lines = text.splitlines()
    met: Counter[tuple[str, str, str]] = Counter()
    mutants = []
    if not module.endswith(".py"):
        for occurrence, change in enumerate(changes(text)):
            key = change.within, change.what, lines[change.line - 1].strip()
            met[key] += 1
            mutants.append(Mutant(module, change.within, change.what, key[2], met[key], occurrence))
        return mutants
    unused = list(_annotations(ast.parse(text)))
    for item in sorted(_work_items(tree, module), key=lambda i: (i["start_pos"], i["operator_name"], i["occurrence"])):
        change = item["operator_name"].removeprefix("core/")
        row, column = item["start_pos"]
        if not _OPERATORS.fullmatch(change) or any(low <= (row, column) < high for low, high in unused):
            continue
        within, line = item["definition_name"] or "", lines[row - 1].strip()
        met[within, change, line] += 1
        mutants.append(Mutant(module, within, change, line, met[within, change, line], item["occurrence"]))
    return mutants


def is_python(file: str, text: str) -> bool:
    """Return whether a changed file can be parsed. Cosmic Ray takes the star in `f(*rows)` for a product."""
    try:
        if file.endswith(".py"):
            ast.parse(text)
    except SyntaxError:
        return False
    return True


def sampled(mutants: Sequence[Mutant], size: int) -> list[Mutant]:
    """Sample mutants by the hash of their names, so that a changed line affects only its own mutants."""
    kept = sorted(mutants, key=lambda m: hashlib.sha256(f"{_SEED} {m}".encode()).digest())[:size]
    return [mutant for mutant in mutants if mutant in kept]


def _work_items(tree: Path, module: str) -> Iterator[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder:
        config, session = Path(folder) / "config.toml", Path(folder) / "session.sqlite"
        config.write_text(
            f'[cosmic-ray]\nmodule-path = "{module}"\ntimeout = 60.0\nexcluded-modules = []\ntest-command = "true"\n'
            '[cosmic-ray.distributor]\nname = "local"\n',
            encoding="utf-8",
        )
        command = [sys.executable, "-m", "cosmic_ray.cli"]
        subprocess.run([*command, "init", str(config), str(session)], cwd=tree, check=True)
        told = subprocess.run([*command, "dump", str(session)], cwd=tree, check=True, capture_output=True, text=True)
    for line in told.stdout.splitlines():
        yield from json.loads(line)[0]["mutations"]


def _annotations(tree: ast.Module) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
    """Yield places without running code: annotations, signatures except defaults, and code for type checkers."""
    for node in ast.walk(tree):
        if isinstance(node, ast.AnnAssign):
            yield _span(node.annotation)
        elif isinstance(node, ast.FunctionDef):
            start = (node.lineno, node.col_offset)
            for default in (*node.args.defaults, *filter(None, node.args.kw_defaults)):
                yield start, _span(default)[0]
                start = _span(default)[1]
            yield start, _span(node.body[0])[0]
        elif isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
            yield _span(node)


def _span(node: ast.expr | ast.stmt) -> tuple[tuple[int, int], tuple[int, int]]:
    return (node.lineno, node.col_offset), (node.end_lineno or 0, node.end_col_offset or 0)
