"""Words of a source that a mapping file lists, as they are or as patterns with * and ?."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from collections.abc import Mapping


def meanings(texts: pl.Series, words: Mapping[str, str], *, exact: bool = False) -> pl.Series:
    """Return what each text means, NULL where it is in no list.

    A listed word means the text that is equal to it. In a pattern, * stands for any letters or none and ? for one. A
    text that is listed counts before any pattern, and of several patterns that fit the longest one.

    Parameters
    ----------
    texts : Series of String
        Cells of a column.
    words : mapping
        Meaning by word.
    exact : bool
        Whether no word is a pattern.
    """
    patterns = {} if exact else {word: meaning for word, meaning in words.items() if "*" in word or "?" in word}
    found = dict(words)
    if patterns:
        # Polars matches in linear time, whatever the pattern.
        left = texts.drop_nulls().unique()
        left = left.filter(~left.is_in(list(words)))
        for word in sorted(patterns, key=lambda word: (-len(word), word)):
            fits = left.str.contains(f"(?s)^{_regex(word)}$")
            found |= dict.fromkeys(left.filter(fits).to_list(), patterns[word])
            left = left.filter(~fits)
    return texts.replace_strict(found, default=None, return_dtype=pl.String)


def _regex(word: str) -> str:
    # Stars that follow each other mean one.
    parts = re.split(r"(\*+|\?)", word)
    return "".join(".*" if p.startswith("*") else "." if p == "?" else re.escape(p) for p in parts)
