"""Charts as SVG files, with the theme's light colours, for a folder of results rather than a page."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from tracekit.report.theme import chart_config, colour_value

if TYPE_CHECKING:
    import altair as alt

__all__ = ["svg"]

_VARIABLE = re.compile(r"var\(--([a-z0-9_-]+)\)")


def svg(chart: alt.TopLevelMixin) -> str:
    """Return a chart as SVG text; it needs no network and no style sheet.

    Parameters
    ----------
    chart : altair chart
        Its data inlined, its colours those of `theme.colour`.
    """
    import vl_convert

    config: dict[str, Any] = {**chart_config(), "background": colour_value("paper")}
    del config["legend"]
    spec = {**chart.to_dict(), "config": config}
    text = _VARIABLE.sub(lambda found: colour_value(found[1]), json.dumps(spec))
    return str(vl_convert.vegalite_to_svg(text))
