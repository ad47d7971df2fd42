"""Parse arithmetic over columns and lookup values, and compile it to Polars. Anything else is rejected."""

from __future__ import annotations

import ast
import math
import operator
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

_LONGEST = 300
_UNARY: Mapping[type[ast.unaryop], Callable[[pl.Expr], pl.Expr]] = {ast.USub: operator.neg, ast.UAdd: operator.pos}
_BINARY: Mapping[type[ast.operator], Callable[[pl.Expr, pl.Expr], pl.Expr]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


@dataclass(frozen=True)
class Expression:
    """A compiled expression."""

    names: tuple[str, ...]
    """The columns that the expression needs."""
    polars: pl.Expr
    """The Polars expression, over Float64 columns named as in `names` and `calls`."""
    calls: Mapping[str, tuple[str, str]]
    """Lookup table and column for each value taken from a table."""


def parse_expression(text: str, lookups: Collection[str] = ()) -> Expression:
    """Compile numbers, column names, + - * / and parentheses.

    A name that is not a plain word is written in backquotes: `` `GPUs per node` * 2``. A lookup table in `lookups` is
    applied to a column's cells as in `nodes * gpus_per_node(queue)`.

    Raises
    ------
    ValueError
        `text` is not a valid expression. The message gives the reason.

    Examples
    --------
    >>> parse_expression("nodes * (gpus + 1)").names
    ('nodes', 'gpus')
    """
    if len(text) > _LONGEST:
        raise ValueError(f"is longer than {_LONGEST} characters")
    quoted: dict[str, str] = {}

    def stand_in(match: re.Match[str]) -> str:
        word = f"_quoted_{len(quoted)}_"
        quoted[word] = match[1]
        return f" {word} "

    plain = re.sub(r"`([^`]+)`", stand_in, text)
    try:
        tree = ast.parse(plain.strip(), mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ValueError("is not arithmetic: numbers, column names, + - * / and parentheses") from error
    compiler = _Compiler(quoted, lookups)
    polars = compiler.compiled(tree.body)
    if not compiler.names and not compiler.calls:
        raise ValueError("contains no column name")
    return Expression(tuple(compiler.names), polars, compiler.calls)


class _Compiler:
    """Compiles one expression and collects the columns and lookup values that it reads."""

    def __init__(self, quoted: Mapping[str, str], lookups: Collection[str]) -> None:
        self._quoted, self._lookups = quoted, lookups
        self.names: dict[str, None] = {}
        self.calls: dict[str, tuple[str, str]] = {}

    def name_of(self, node: ast.Name) -> str:
        return self._quoted.get(node.id, node.id)

    def compiled(self, node: ast.expr) -> pl.Expr:
        # Only the operations listed here can reach Polars. Python never evaluates the text.
        if isinstance(node, ast.Call):
            return self.looked_up(node)
        if isinstance(node, ast.Constant) and isinstance(node.value, int | float) and not isinstance(node.value, bool):
            return pl.lit(_number(node.value), dtype=pl.Float64)
        if isinstance(node, ast.Name):
            self.names[self.name_of(node)] = None
            return pl.col(self.name_of(node))
        if isinstance(node, ast.UnaryOp) and type(node.op) in _UNARY:
            return _UNARY[type(node.op)](self.compiled(node.operand))
        if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
            return _BINARY[type(node.op)](self.compiled(node.left), self.compiled(node.right))
        raise ValueError(f"must not contain {type(node).__name__}: only numbers, column names, + - * / and parentheses")

    def looked_up(self, node: ast.Call) -> pl.Expr:
        names_only = [one for one in (node.func, *node.args) if isinstance(one, ast.Name)]
        if len(names_only) != 2 or len(node.args) != 1 or node.keywords:
            raise ValueError("allows a call only as TABLE(COLUMN), with the name of a lookup table")
        table, column = map(self.name_of, names_only)
        if table not in self._lookups:
            raise ValueError(f"uses {table}(...), but [lookup.{table}] does not exist")
        self.calls[f"{table}({column})"] = (table, column)
        return pl.col(f"{table}({column})")


def _number(value: float) -> float:
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ValueError("contains a number that is too large")
    return number
