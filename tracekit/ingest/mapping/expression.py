"""Arithmetic over columns, parsed and compiled to Polars; anything else in the text is refused."""

from __future__ import annotations

import ast
import math
import re
from dataclasses import dataclass

import polars as pl

__all__ = ["Expression", "parse_expression"]

_LONGEST = 300


@dataclass(frozen=True)
class Expression:
    """A compiled expression."""

    text: str
    """As written."""
    names: tuple[str, ...]
    """The columns that it needs."""
    polars: pl.Expr
    """Its value, over Float64 columns of these names."""


def parse_expression(text: str) -> Expression:
    """Compile numbers, column names, + - * / and parentheses.

    A name that is not a plain word is written in backquotes: `` `GPUs per node` * 2``.

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
    compiled = _compiled(tree.body, names, quoted)
    if not names:
        raise ValueError("names no column")
    return Expression(text, tuple(names), compiled)


def _compiled(node: ast.expr, names: dict[str, None], quoted: dict[str, str]) -> pl.Expr:  # noqa: PLR0911 -- one a node kind
    # Only what is listed here can reach Polars; the text is never evaluated by Python.
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float) and not isinstance(node.value, bool):
        return pl.lit(_number(node.value), dtype=pl.Float64)
    if isinstance(node, ast.Name):
        name = quoted.get(node.id, node.id)
        names[name] = None
        return pl.col(name)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        operand = _compiled(node.operand, names, quoted)
        return -operand if isinstance(node.op, ast.USub) else operand
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub | ast.Mult | ast.Div):
        left, right = _compiled(node.left, names, quoted), _compiled(node.right, names, quoted)
        match node.op:
            case ast.Add():
                return left + right
            case ast.Sub():
                return left - right
            case ast.Mult():
                return left * right
            case _:
                return left / right
    raise ValueError(f"may not hold {type(node).__name__}: only numbers, column names, + - * / and parentheses")


def _number(value: float) -> float:
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise ValueError("holds a number that is too large")
    return number
