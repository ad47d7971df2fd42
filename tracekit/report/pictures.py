"""Charts as SVG files in the theme's light colours, for a folder of results."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from tracekit.outputs import StagedFolder, output_errors
from tracekit.report.theme import chart_config, colour_value

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tracekit.report.charts import Chart

_MARKER = "pictures.txt"
"""File that lists the plots. It also marks a folder of plots."""

_CLIP = re.compile(r'<clipPath id="(clip\d+)"')
_CLIP_USED = re.compile(r'(<clipPath id="|="url\(#)(clip\d+)(\)"|")')
_VARIABLE = re.compile(r"var\(--([a-z0-9_-]+)\)")


def side_by_side(
    charts: Sequence[Chart], width: int, *, title: str = "", under: Sequence[str] = (), columns: int = 0
) -> dict[str, Any]:
    """Combine charts of a given width [px] into one picture, in rows of `columns` or in one row, below the titles."""
    heading = {"title": {"text": title, "subtitle": list(under), "anchor": "start"}} if title else {}
    drawn = [{**c.drawn(), "width": width, **({"title": c.title} if c.title else {})} for c in charts]
    if len(drawn) == 1:
        return {**drawn[0], **heading}
    layout = {"concat": drawn, "columns": columns} if columns else {"hconcat": drawn}
    return {**layout, "spacing": 30, **heading}


def svg(picture: dict[str, Any]) -> str:
    """Return a picture as SVG that needs no network and no style sheet."""
    import vl_convert

    legend = {"title": None, "orient": "top", "columns": 4, "symbolOpacity": 1}
    config = {**chart_config(), "background": colour_value("paper"), "legend": legend}
    text = _VARIABLE.sub(lambda found: colour_value(found[1]), json.dumps({**picture, "config": config}))
    return _numbered(str(vl_convert.vegalite_to_svg(text)))


def _numbered(text: str) -> str:
    """Renumber the clip paths from 0, because the renderer never resets its counter."""
    names = {name: f"clip{i}" for i, name in enumerate(dict.fromkeys(_CLIP.findall(text)))}
    return _CLIP_USED.sub(lambda found: f"{found[1]}{names.get(found[2], found[2])}{found[3]}", text)


def write_pictures(out: Path, drawn: dict[str, str], *, png: bool = False, force: bool = False) -> None:
    """Write all pictures, or none, to a new folder.

    Parameters
    ----------
    out : Path
        The folder to write.
    drawn : dict
        SVG text by file name (without extension).
    png : bool
        Whether to also write each picture as PNG at twice the size.
    force : bool
        Whether to replace an earlier folder of pictures.

    Raises
    ------
    OutputError
        The folder already exists or cannot be written.
    """
    import vl_convert

    staged = StagedFolder(out, force=force, marker=_MARKER, kind="a folder of pictures")
    try:
        with output_errors(staged.target):
            for name, text in drawn.items():
                (staged.path / f"{name}.svg").write_text(text, encoding="utf-8")
                if png:
                    (staged.path / f"{name}.png").write_bytes(vl_convert.svg_to_png(text, scale=2))
            (staged.path / _MARKER).write_text("\n".join(drawn) + "\n", encoding="utf-8")
        staged.commit()
    finally:
        staged.discard()
