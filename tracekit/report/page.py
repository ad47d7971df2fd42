"""Draw report.html and index.html from the structures that report.json and index.json hold.

A page is one file: styles, data and the Vega runtime stand inside it, and a content-security policy forbids
every request and every script but the two that were written here.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from functools import cache
from typing import TYPE_CHECKING, Any

from tracekit import resources
from tracekit.report import text
from tracekit.report.bundle import vega_bundle
from tracekit.report.published import published_view
from tracekit.report.sections import panels
from tracekit.report.theme import chart_config, css_variables, fonts
from tracekit.report.words import FEW

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import jinja2

    from tracekit.report.charts import Panel
    from tracekit.report.structure import Answer, IndexEntry, Report, Row

__all__ = ["TABLE_LIMIT", "anchor", "chart_payload", "draw_page", "panel_views", "render_index", "render_report"]

TABLE_LIMIT = 50
"""Most rows of a result shown in the page."""


def render_report(report: Report) -> str:
    """Return the page of a report.

    Parameters
    ----------
    report : Report
        What report.json holds; the page shows nothing else.
    """
    drawn = {a["name"]: panels(a["name"], a["rows"]) for s in report["sections"] for a in s["answers"]}
    sections = [{**s, "answers": [_answer_view(a, drawn[a["name"]]) for a in s["answers"]]} for s in report["sections"]]
    return draw_page("report.html.j2", drawn, report=report, sections=sections)


def draw_page(template: str, drawn: Mapping[str, Sequence[Panel]], **values: object) -> str:
    """Return a page with charts: the template filled with `values`, and with what every such page carries.

    Parameters
    ----------
    template : str
        File in reports/.
    drawn : mapping of str to sequence of Panel
        The charts of each query, by query name.
    **values : object
        What the template names.
    """
    payload = json_for_html(chart_payload(drawn))
    bundle, boot = vega_bundle(), _resource("page.js")
    return (
        _environment()
        .get_template(template)
        .render(
            payload=_safe(payload),
            scripts=[_safe(bundle), _safe(boot)],
            policy=_policy([bundle, boot]),
            css=_safe(_css()),
            **values,
        )
    )


def render_index(entries: Sequence[IndexEntry]) -> str:
    """Return the page that lists several reports.

    Parameters
    ----------
    entries : sequence of IndexEntry
        What index.json holds.
    """
    return _environment().get_template("index.html.j2").render(entries=entries, policy=_policy([]), css=_safe(_css()))


def chart_payload(drawn: Mapping[str, Sequence[Panel]]) -> dict[str, Any]:
    """Return all charts as one JSON value, each dataset once.

    Parameters
    ----------
    drawn : mapping of str to sequence of Panel
        The charts of each query, by query name.

    Returns
    -------
    dict
        `config` and `datasets` that all charts share, and `charts` with the id of each chart's place in the page.
    """
    datasets: dict[str, Any] = {}
    charts = []
    for name, several in drawn.items():
        for i, panel in enumerate(several):
            spec = panel.to_dict()
            spec.pop("config", None)
            datasets |= spec.pop("datasets", {})
            charts.append({"id": chart_id(name, i), "spec": spec})
    return {"config": chart_config(), "datasets": datasets, "charts": charts}


def chart_id(name: str, number: int) -> str:
    """Return the id of a chart's place in the page."""
    return f"{anchor(name)}-chart-{number}"


def anchor(name: str) -> str:
    """Return a query's id in the page."""
    return "q-" + "".join(c if c.isascii() and c.isalnum() else "-" for c in name)


def json_for_html(value: object) -> str:
    r"""Return `value` as JSON that no element of a page can be ended with.

    Examples
    --------
    >>> json_for_html(["</script>"])
    '["\\u003c/script\\u003e"]'
    """
    body = json.dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return body.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _answer_view(answer: Answer, drawn: list[Panel]) -> dict[str, Any]:
    label = " ".join(filter(None, [answer["question"], answer["finding"]]))
    return {
        **answer,
        "id": anchor(answer["name"]),
        "panels": panel_views(answer["name"], drawn, label),
        "table": _table_view(answer),
        "beside": published_view(answer["published"]),
    }


def panel_views(name: str, drawn: Sequence[Panel], label: str) -> list[dict[str, Any]]:
    """Return what stands around the charts of a query; `label` is read out in their place."""
    return [
        {
            "id": chart_id(name, i),
            "title": p.title,
            "legend": p.legend,
            "note": p.note,
            "label": f"Chart. {label} The table below holds the numbers.",
        }
        for i, p in enumerate(drawn)
    ]


def _table_view(answer: Answer) -> dict[str, Any]:
    rows = answer["rows"][:TABLE_LIMIT]
    own_units = any(c["unit"] == "see unit" for c in answer["columns"])
    columns = []
    for column in answer["columns"]:
        head, unit = text.heading(column["name"], column["unit"])
        numbers = any(isinstance(r[column["name"]], int | float) for r in rows)
        columns.append({"head": head, "unit": unit, "number": numbers, "meaning": column["meaning"]})
    cells = [[_cell(row, c["name"], c["unit"], own_units=own_units) for c in answer["columns"]] for row in rows]
    few = _add_intervals(answer, rows, cells)
    return {
        "columns": columns,
        "rows": cells,
        "more": answer["row_count"] - len(rows),
        "methods": sorted({i["method"] for i in answer["intervals"]}, reverse=True),
        "few": few,
    }


def _add_intervals(answer: Answer, rows: list[Row], cells: list[list[dict[str, Any]]]) -> bool:
    """Put the ends of confidence intervals below their values; return whether a row has few observations."""
    place = {c["name"]: i for i, c in enumerate(answer["columns"])}
    units = {c["name"]: c["unit"] for c in answer["columns"]}
    few = False
    for interval in answer["intervals"]:
        name = interval["column"]
        for number, row in enumerate(rows):
            low, high = interval["low"][number], interval["high"][number]
            if low is not None and high is not None:
                ends = (text.quantity(end, units[name], name) for end in (low, high))
                cells[number][place[name]]["range"] = " to ".join(ends)
            observed = row.get(interval["count"])
            if isinstance(observed, int | float) and observed < FEW:
                cells[number][place[interval["count"]]]["few"] = few = True
    return few


def _cell(row: Row, name: str, unit: str | None, *, own_units: bool) -> dict[str, Any]:
    value = row[name]
    if own_units and unit == "see unit":
        return {"text": text.quantity(value, row.get("unit")), "title": ""}
    if own_units and name == "unit":
        return {"text": text.display_unit(value).strip(), "title": ""}
    if own_units and name == "metric":
        return {"text": text.heading(str(value), row.get("unit"))[0], "title": ""}
    shown = text.quantity(value, unit, name)
    return {"text": shown, "title": text.visible(value) if isinstance(value, str) and shown != value else ""}


@cache
def _resource(name: str) -> str:
    return (resources.folder("reports") / name).read_text(encoding="utf-8")


def _css() -> str:
    stacks = "".join(f"--font-{name}:{stack};" for name, stack in fonts().items())
    light, dark = css_variables("light"), css_variables("dark")
    return (
        f":root{{{stacks}{light}color-scheme:light dark}}\n"
        f"@media screen and (prefers-color-scheme:dark){{:root{{{dark}}}}}\n{_resource('page.css')}"
    )


def _policy(scripts: Sequence[str]) -> str:
    """Return the content-security policy that lets exactly these scripts run and nothing be fetched."""
    hashes = [base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in scripts]
    allowed = " ".join(f"'sha256-{h}'" for h in hashes) or "'none'"
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:;"
        " base-uri 'none'; form-action 'none'"
    )


@cache
def _environment() -> jinja2.Environment:
    import jinja2

    env = jinja2.Environment(
        loader=jinja2.FileSystemLoader(resources.folder("reports")),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    env.filters |= {
        "count": text.count,
        "percent": text.percent,
        "bytes": text.size,
        "visible": text.visible,
        "short": text.shorten,
        "words": lambda name: name.replace("_", " "),
        "keep": _keep_together,
        "capitalize_first": lambda words: words[:1].upper() + words[1:],
        "plural": lambda n, word: f"{text.count(n)} {word}" + ("" if n == 1 else "s"),
    }
    return env


_UNIT = re.compile(r"(\d) (?=(?:%|s|min|h|d|GPUs?|GPU-hours|nodes?|jobs)\b|%)")

_RANGE = re.compile(r"(\d)-(?=\d)")


def _keep_together(words: str) -> str:
    """Return `words` with no line break between a number and its unit, nor inside '2-4'."""
    return _RANGE.sub("\\1-\N{WORD JOINER}", _UNIT.sub("\\1\N{NO-BREAK SPACE}", words))


def _safe(trusted: str) -> str:
    """Mark text that was written here, or escaped by `json_for_html`, as ready for the page."""
    import markupsafe

    return markupsafe.Markup(trusted)  # noqa: S704 -- never called with text from a log
