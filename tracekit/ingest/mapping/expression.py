"""Parse arithmetic over columns and lookup values, and compile it to Polars; anything else is rejected."""

from __future__ import annotations

import ast
import math
import operator
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

_LONGEST = 300


@dataclass(frozen=True)
class Expression:
    """A compiled expression."""

    text: str
    """Text of the expression as written."""
    names: tuple[str, ...]
    """The columns that the expression needs."""
    polars: pl.Expr
    """The Polars expression, over Float64 columns with these names and the names of `calls`."""
    calls: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Lookup table and column for each value taken from a table."""


def parse_expression(text: str, lookups: Collection[str] = ()) -> Expression:
    """Compile numbers, column names, + - * / and parentheses.

    A name that is not a plain word is written in backquotes: `` `GPUs per node` * 2``. The value of a column's cells in
    one of the lookup tables `lookups` is written like `nodes * gpus_per_node(queue)`.

    Raises
    ------
    ValueError
        The text is not such an expression; the message says why.

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
    names: dict[str, None] = {}
    calls: dict[str, tuple[str, str]] = {}
    compiled = _compiled(tree.body, names, quoted, (lookups, calls))
    if not names and not calls:
        raise ValueError("contains no column name")
    return Expression(text, tuple(names), compiled, calls)


_UNARY: Mapping[type[ast.unaryop], Callable[[pl.Expr], pl.Expr]] = {ast.USub: operator.neg, ast.UAdd: operator.pos}
_BINARY: Mapping[type[ast.operator], Callable[[pl.Expr, pl.Expr], pl.Expr]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
}


def _compiled(
    node: ast.expr,
    names: dict[str, None],
    quoted: dict[str, str],
    tables: tuple[Collection[str], dict[str, tuple[str, str]]],
) -> pl.Expr:
    # Only the operations listed here can reach Polars; the text is never evaluated by Python.
    if isinstance(node, ast.Call):
        return _looked_up(node, quoted, tables)
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float) and not isinstance(node.value, bool):
        return pl.lit(_number(node.value), dtype=pl.Float64)
    if isinstance(node, ast.Name):
        name = quoted.get(node.id, node.id)
        names[name] = None
        return pl.col(name)
    if isinstance(node, ast.UnaryOp) and type(node.op) in _UNARY:
        return _UNARY[type(node.op)](_compiled(node.operand, names, quoted, tables))
    if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
        left, right = (_compiled(side, names, quoted, tables) for side in (node.left, node.right))
        return _BINARY[type(node.op)](left, right)
    raise ValueError(f"must not contain {type(node).__name__}: only numbers, column names, + - * / and parentheses")


def _looked_up(
    node: ast.Call, quoted: dict[str, str], tables: tuple[Collection[str], dict[str, tuple[str, str]]]
) -> pl.Expr:
    lookups, calls = tables
    if (
        not isinstance(node.func, ast.Name)
        or len(node.args) != 1
        or node.keywords
        or not isinstance(node.args[0], ast.Name)
    ):
        raise ValueError("allows a call only as TABLE(COLUMN), with the name of a lookup table")
    table, column = quoted.get(node.func.id, node.func.id), quoted.get(node.args[0].id, node.args[0].id)
    if table not in lookups:
        raise ValueError(f"uses {table}(...), but [lookup.{table}] does not exist")
    name = f"{table}({column})"
    calls[name] = (table, column)
    return pl.col(name)


def _number(value: float) -> float:
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ValueError("contains a number that is too large")
    return number
