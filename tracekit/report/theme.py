"""Fonts and colours of pages and charts, from reports/theme.json.

Charts refer to colours as CSS variables, so the same chart works in light mode, in dark mode and on paper.
"""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any

from tracekit import resources


@cache
def _theme() -> dict[str, dict[str, str]]:
    raw: dict[str, dict[str, str]] = json.loads(
        (resources.folder("reports") / "theme.json").read_text(encoding="utf-8")
    )
    return raw


def fonts() -> dict[str, str]:
    """Return the font stacks by use: text, plain, code."""
    return _theme()["fonts"]


def css_variables(mode: str) -> str:
    """Return the CSS declarations of one mode, 'light' or 'dark'."""
    return "".join(f"--{name}:{value};" for name, value in _theme()[mode].items())


def colour(name: str) -> str:
    """Look up a colour for a chart by its name in the theme.

    Raises
    ------
    KeyError
        The theme has no such colour.
    """
    if name not in _theme()["light"]:
        raise KeyError(name)
    return f"var(--{name})"


def text_colour(hue: str) -> str:
    """Return the colour for a line's text, which is darker if the line's colour is too pale to read.

    Examples
    --------
    >>> text_colour(colour("series-1")), text_colour(colour("series-2"))
    ('var(--series-1)', 'var(--series-2-text)')
    """
    darker = f"{hue.removeprefix('var(--').removesuffix(')')}-text"
    return colour(darker) if darker in _theme()["light"] else hue


def pale(name: str, strength: float) -> str:
    """Mix a colour with the paper colour, for a legend next to a chart. `strength` is the colour's fraction [0..1].

    Raises
    ------
    KeyError
        The theme has no such colour.
    """
    return f"color-mix(in srgb, {colour(name)} {100 * strength:.0f}%, {colour('paper')})"


_PALE = re.compile(r"color-mix\(in srgb, var\(--([a-z0-9_-]+)\) (\d+)%, var\(--paper\)\)")


def pale_value(words: str) -> str | None:
    """Return the light-mode value of a colour from `pale`, such as '#bfdcec', or None for any other text.

    Raises
    ------
    KeyError
        The theme has no such colour.
    """
    found = _PALE.fullmatch(words)
    if found is None:
        return None
    part = int(found[2]) / 100
    full, paper = (bytes.fromhex(colour_value(name)[1:]) for name in (found[1], "paper"))
    mixed = bytes(round(part * f + (1 - part) * p) for f, p in zip(full, paper, strict=True))
    return f"#{mixed.hex()}"


def colour_value(name: str) -> str:
    """Return the light-mode value of a colour, such as '#0072b2', for pictures without a style sheet.

    Raises
    ------
    KeyError
        The theme has no such colour.
    """
    return _theme()["light"][name]


def chart_config() -> dict[str, Any]:
    """Return the Vega-Lite config that every chart shares."""
    plain = fonts()["plain"]
    axis = {
        "labelColor": colour("muted"),
        "titleColor": colour("ink"),
        "gridColor": colour("grid"),
        "domainColor": colour("rule"),
        "tickColor": colour("rule"),
        "labelFontSize": 12,
        "titleFontSize": 12,
        "titleFontWeight": "normal",
        "titlePadding": 8,
        "labelPadding": 5,
        "labelLimit": 180,
        "tickSize": 4,
        "domain": False,
    }
    return {
        "background": None,
        "font": plain,
        "view": {"stroke": None},
        "axis": axis,
        "axisY": {"ticks": False},
        # Titles end with the axis. On a narrow chart, a long title then extends under the other axis instead of off the
        # page.
        "axisYQuantitative": {"titleAnchor": "end"},
        "axisX": {"domain": True, "labelFlush": False, "titleAnchor": "end"},
        "text": {"color": colour("ink"), "fontSize": 12},
        "bar": {"color": colour("series-1")},
        "legend": {"disable": True},
    }
