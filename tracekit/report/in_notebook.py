"""Show a report in a notebook: its page in a frame, and its charts as Altair objects.

Names from the log are harmless in both: the page runs in a frame isolated from the notebook, and charts contain no text
that could end the script that Altair writes them into.
"""

from __future__ import annotations

import contextlib
import re
from dataclasses import replace
from html import escape
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import altair as alt

from tracekit.faults import Fault, Faults
from tracekit.report.charts import Mark
from tracekit.report.data import trace_facts
from tracekit.report.sections.interface import charts
from tracekit.report.theme import chart_config, colour_value, pale_value

if TYPE_CHECKING:
    from tracekit.report.charts import Chart, Legend
    from tracekit.report.facts import TraceFacts
    from tracekit.report.structure import AnswerInfo, Report

    AltairChart = alt.Chart | alt.LayerChart

WIDTH = 560
"""Width of a chart's plot area [px]. On the page, it is the column's width."""

_LETTERS = 90
"""Maximum length of a title line [characters]."""
_VARIABLE = re.compile(r"var\(--([a-z0-9_-]+)\)")
_ENDS_SCRIPT = re.compile(r"<(?=/|!--|script)", re.IGNORECASE)
_LINK_OUT = re.compile(r'(<script\b.*?</script>)|(<a\b[^>]*?) href="(?!#)[^"]*"', re.DOTALL)
_ROWS = "values"
"""All values below this key are data."""
_TEXTS = frozenset({"domain", "title", "text", "subtitle"})
"""Keys of display text, such as names from the log. Such text is never a colour, even if it looks like one."""
_BASE = '<base href="about:srcdoc">'
_SANDBOX = "allow-scripts allow-downloads allow-modals allow-popups"
"""The page may run its own scripts, save files and print. Without an origin, it cannot access the notebook."""


def charts_of(report: Report) -> dict[str, list[AltairChart]]:
    """Return the charts of each question with charts, by name and in reading order. Charts that fail are left out.

    Charts use the colours of the light theme and contain their legends. If a name from the log contains '</', '<!--' or
    '<script', an invisible character (U+2060) is inserted after the '<'. A renderer writes charts into a script, which
    such a name would end.
    """
    facts = trace_facts(report["quality"], report["time"], report["tenant"])
    found: dict[str, list[AltairChart]] = {}
    faults = Faults()
    for section in report["sections"]:
        for answer in section["answers"]:
            drawn = faults.run(f"the charts of {answer['name']}", _charts, answer, facts)
            if drawn and not isinstance(drawn, Fault):
                found[answer["name"]] = drawn
    return found


def _charts(answer: AnswerInfo, facts: TraceFacts) -> list[AltairChart]:
    drawn = charts(answer["name"], answer["rows"], facts)
    return [in_altair(chart, answer["question"]) for chart in drawn]


def in_altair(chart: Chart, question: str) -> AltairChart:
    """Return a chart as an Altair object. Its title is its own heading or the question."""
    key = () if chart.ends else chart.key
    if key and chart.by is not None and not chart.by.column:  # Vega-Lite shows no legend for these marks
        chart = _with_key(chart, key)
    spec = chart.drawn()
    spec["title"] = {"text": wrap(chart.title or question, _LETTERS), "subtitle": wrap(chart.note, _LETTERS)}
    spec["width"] = WIDTH
    spec["config"] = _config(legend=bool(key))
    return _object(_inert(spec))


def _object(spec: dict[str, Any]) -> AltairChart:
    """Return a specification as an Altair object whose layers are full Altair charts."""
    rest = {name: part for name, part in spec.items() if name not in {"data", "layer"}}
    rows = alt.InlineData(**spec["data"]) if "data" in spec else alt.Undefined
    if "encoding" in rest:
        rest["encoding"] = alt.FacetedEncoding(**rest["encoding"])
    if "layer" in spec:
        return alt.LayerChart(data=rows, layer=[_object(part) for part in spec["layer"]], **rest)
    return alt.Chart(data=rows, **rest)


def _with_key(chart: Chart, key: Legend) -> Chart:
    """Add a mark to a chart that only draws a legend."""
    scale = {"domain": [words for words, _ in key], "range": [hue for _, hue in key]}
    hues = {"field": "key", "type": "nominal", "scale": scale, "legend": {"symbolOpacity": 1}}
    rows = [{"key": words} for words, _ in key]
    legend = Mark("point", {"filled": True, "opacity": 0}, on="", rows=rows, channels={"color": hues})
    return replace(chart, marks=[*chart.marks, legend])


def _config(*, legend: bool) -> dict[str, Any]:
    """Return the config of the page's charts, with a legend if the page shows one next to the chart."""
    config = {**chart_config(), "background": colour_value("paper")}
    if legend:
        config["legend"] = {"title": None, "orient": "top", "direction": "horizontal", "columns": 4}
    config["title"] = {"anchor": "start", "fontWeight": "normal", "subtitleColor": colour_value("muted")}
    plain: dict[str, Any] = _inert(config)
    return plain


def _inert(value: Any, *, data: bool = False, named: bool = False) -> Any:
    """Make a specification safe: with plain colours, and without text that could end a script.

    `data` means that the value is below the key `_ROWS`; `named` means that it belongs to one of `_TEXTS`.
    """
    if isinstance(value, dict):
        return {_broken(k): _inert(v, data=data or k == _ROWS, named=k in _TEXTS) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_inert(item, data=data, named=named) for item in value]
    if not isinstance(value, str):
        return value
    if not (data or named) and (variable := _VARIABLE.fullmatch(value)) is not None:
        with contextlib.suppress(KeyError):  # the name only looks like a colour of the theme
            return colour_value(variable[1])
    if not (data or named):
        with contextlib.suppress(KeyError):
            return pale_value(value) or _broken(value)
    return _broken(value)


def _broken(text: str) -> str:
    return _ENDS_SCRIPT.sub("<\N{WORD JOINER}", text)


def frame_of(page: str, height: int) -> str:
    """Wrap a page in a frame of `height` pixels whose links work only inside the frame.

    The linked files are next to report.html and do not exist here. Without its own base URL, the page would use the
    notebook's, and a link to a section of the page would open the notebook in the frame. The base element must come
    before the page's policy, which forbids later ones.
    """
    alone = _LINK_OUT.sub(lambda found: found[1] or found[2], page).replace("<head>", f"<head>{_BASE}", 1)
    return (
        f'<iframe title="tracekit report" sandbox="{_SANDBOX}" style="border:0;width:100%;height:{height}px"'
        f' srcdoc="{escape(alone)}"></iframe>'
    )
