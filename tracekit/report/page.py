"""Render report.html and index.html from the content of report.json and index.json.

A page is a single file that embeds styles, data and the Vega runtime. Its content-security policy forbids all requests
and all scripts other than those that tracekit embeds.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from functools import cache, partial
from typing import TYPE_CHECKING, Any

from tracekit import resources, text
from tracekit.faults import Fault, Faults
from tracekit.replay.panels import spoken
from tracekit.report.bundle import vega_bundle
from tracekit.report.data import trace_facts
from tracekit.report.guidelines import guidelines_view
from tracekit.report.parts import filters_of_page, moments, narrows, parts_for_page
from tracekit.report.published import published_view
from tracekit.report.sections.interface import charts, glossary
from tracekit.report.spreads import DISTRIBUTION
from tracekit.report.table_view import table_view
from tracekit.report.telling import all_zero
from tracekit.report.theme import chart_config, css_variables, fonts
from tracekit.report.through_time import sparkline, strip
from tracekit.report.times import start_of_day
from tracekit.report.unmade import all_faults, by_reason, summary_line, with_failed_sections

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import jinja2
    import markupsafe

    from tracekit.answer import Row
    from tracekit.report.charts import Chart
    from tracekit.report.facts import TraceFacts
    from tracekit.report.structure import AnswerInfo, IndexEntry, Report

ROWS = ((50, 200), (50, 120), (50, 0), (20, 0), (5, 0))
"""Maximum numbers of visible rows and of rows shown only by filters. The page uses the first pair that fits."""
HEAVIEST = 3_000_000
"""Target maximum size of a page [bytes]."""
OPEN = 3
"""Maximum number of rows of a table that is open because it has no chart."""
OPEN_COLUMNS = 6
"""Maximum number of columns of an open table."""
KINDS = {"cluster": "cluster", "partition": "partition", "user": "user", "gpu_model": "GPU model", "gpu_class": "size"}
"""Labels of the page's filters, except the tenant's."""
SCRIPTS = ("page.js", "parts.js", "tables.js")
"""Scripts of every page with charts, in execution order."""
STRIP = "strip"
"""Name of the first screen's charts."""
_FOLDED = ("replay/policies", "replay/assumptions")
"""Long tables that start folded."""


def render_report(report: Report, *, served: bool = False, faults: Faults | None = None) -> str:
    """Render the page of a report. A served page can query the server and open jobs, nodes and users.

    If a part fails, a message replaces it on the page, and the error is added to `faults`. If the whole page fails, a
    simple page lists the tables.
    """
    faults = Faults() if faults is None else faults
    page = faults.settled(lambda: faults.run("the page", _report_page, report, faults, served=served))
    if not isinstance(page, Fault):
        return page
    tables = [(a["question"], a["files"]) for s in report["sections"] for a in s["answers"] if a["files"]]
    return draw_unmade_page("report", report["title"], page, ("report.json", "report.md"), tables, served=served)


def _report_page(report: Report, faults: Faults, *, served: bool) -> str:
    facts = trace_facts(report["quality"], report["time"], report["tenant"])
    answers = [a for s in report["sections"] for a in s["answers"]]
    by_name = {a["name"]: a["rows"] for a in answers}
    made = {STRIP: faults.run("the charts over time", _strip, by_name, facts)}
    for a in answers:
        made[a["name"]] = faults.run(f"the charts of {a['name']}", _charts, a["name"], a["rows"], facts)
    drawn = {name: [] if isinstance(one, Fault) else one for name, one in made.items()}
    undrawn = {name: one for name, one in made.items() if isinstance(one, Fault)}
    filters = faults.run_or({}, "the choice of parts", filters_of_page, report, facts)
    parts = faults.run_or(None, "the sums of parts", parts_for_page, report, filters, facts)
    places = {name: {value: i for i, value in enumerate(values)} for name, values in filters.items()}
    advice = None
    if report["guidelines"] is not None:
        advice = faults.run_or(None, "the guidelines", guidelines_view, report["guidelines"], facts.tenant, faults)
    kinds = {**KINDS, "vc": facts.tenant.spelled}
    if report["source"]["by_pool"]:
        kinds["cluster"] = "nodes of partition" if "partition" in filters else "partition"
    lacking = by_reason(u for u in report["unanswered"] if not u["failed"])
    payload: dict[str, object] = {"filters": filters, "parts": parts}
    if served:
        payload["asked"] = {anchor(a["name"]): a["name"] for a in answers if a["kind"] == "query"}
    page = ""
    for rows in ROWS:
        sections = [
            {
                **s,
                "failed": by_reason(s["failed"]),
                "answers": [
                    _view_or_fault(
                        a, drawn[a["name"]], rows, places, facts, faults, undrawn.get(a["name"]), links=served
                    )
                    for a in s["answers"]
                ],
            }
            for s in with_failed_sections(report)
        ]
        unmade = all_faults(report["faults"], faults)
        without_advice = next((f for f in unmade if f.part == "the guidelines" and advice is None), None)
        more = {
            "report": report,
            "sections": sections,
            "tabs": _keyed_once(_tabs_of(sections, advice=advice is not None or without_advice is not None)),
            "strip": chart_views(STRIP, drawn[STRIP], report["opening"]["state"] or "The cluster over time."),
            "stripped": undrawn.get(STRIP),
            "advice": advice,
            "without_advice": without_advice,
            "filters": filters,
            "unanswered": lacking,
            "glossary": faults.run_or([], "the glossary", glossary, facts),
            "kinds": kinds,
            "moments": faults.run_or([], "the choice of times", moments, report, facts),
            "made": partial(made_or_fault, faults),
            "unmade": unmade,
            "unmade_line": summary_line(unmade),
        }
        day = partial(start_of_day, facts=facts)
        page = draw_page("report.html.j2", drawn, payload, served=served, day=day, **more)
        if len(page.encode(errors="replace")) <= HEAVIEST:
            break
    return page


def _strip(by_name: Mapping[str, list[Row]], facts: TraceFacts) -> list[Chart]:
    return writable(STRIP, strip(lambda name: by_name.get(name, []), facts))


def _charts(name: str, rows: list[Row], facts: TraceFacts) -> list[Chart]:
    return writable(name, charts(name, rows, facts))


def writable(name: str, drawn: list[Chart]) -> list[Chart]:
    """Return charts that the page can embed. An invalid specification raises its error here."""
    json_for_html(chart_payload({name: drawn}))
    return drawn


def made_or_fault(faults: Faults, part: str, make: Callable[..., str], *values: object) -> str:
    """Return the output of a template macro, or a sentence that explains why it failed."""
    found = faults.run(part, make, *values)
    return _safe(draw_fragment("_unmade.html.j2", fault=found)) if isinstance(found, Fault) else found


def _view_or_fault(
    answer: AnswerInfo,
    drawn: list[Chart],
    rows: tuple[int, int],
    places: Mapping[str, Mapping[str, int]],
    facts: TraceFacts,
    faults: Faults,
    undrawn: Fault | None,
    *,
    links: bool,
) -> dict[str, Any]:
    """Return an answer as the template needs it, or the reason why this failed."""
    part = f"the numbers of {answer['name']}"
    found = faults.run(part, _answer_view, answer, drawn, rows, places, facts, links=links)
    if isinstance(found, Fault):
        return {**answer, "id": anchor(answer["name"]), "charts": [], "unmade": found}
    return {**found, "undrawn": undrawn, "unmade": None}


_TABS = (
    ("overview", "Overview", ("change",)),
    ("queueing", "Queueing", ("queuing",)),
    ("placement", "Placement", ("locality",)),
    ("use", "Use and efficiency", ("utilization",)),
    ("failing", "Failures and goodput", ("failures",)),
    ("people", "Users and money", ("users", "money")),
    ("what-if", "What-if and plan", ("replay", "plan")),
    ("work", "Workload", ("overview", "workload", "fit")),
    ("more", "More questions", ()),
    ("quality-and-method", "Data quality and method", ()),
)
"""Id, title and question groups of each part of the page. Other groups go to "more"."""


def _tabs_of(sections: Sequence[dict[str, Any]], *, advice: bool) -> list[dict[str, Any]]:
    """Return the non-empty parts with their sections. `advice` is whether the page shows guidelines."""
    always = {"overview", "quality-and-method", *(["what-if"] if advice else [])}
    placed = {group for _, _, groups in _TABS for group in groups}
    found = []
    for name, title, groups in _TABS:
        own = [s for s in sections if s["name"] in groups or (name == "more" and s["name"] not in placed)]
        if own or name in always:
            found.append({"id": f"part-{name}", "name": name, "title": title, "sections": own})
    return found


def _keyed_once(tabs: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Mark the parts whose charts need the distribution key, and drop notes that repeat one above."""
    for tab in tabs:
        seen: set[str] = set()
        shown = [p for s in tab["sections"] for a in s["answers"] for p in a["charts"]]
        tab["keyed"] = any(p["keyed"] for p in shown)
        for chart in shown:
            if chart["note"] in seen:
                chart["note"] = ""
            seen.add(chart["note"])
    return tabs


def draw_page(
    template: str,
    drawn: Mapping[str, Sequence[Chart]],
    more: Mapping[str, object] | None = None,
    *,
    served: bool = False,
    **values: object,
) -> str:
    """Render a page with charts from a template, `values`, and the shared styles, scripts and data.

    Parameters
    ----------
    template : str
        Name of the template file in reports/.
    drawn : mapping of str to sequence of Chart
        The charts by query name.
    more : mapping, optional
        Additional JSON values for the page's script.
    served : bool
        Whether a server shows the page. The page's script then queries the server.
    **values : object
        Variables of the template.
    """
    payload = json_for_html({**chart_payload(drawn), **(more or {})})
    names = [*SCRIPTS, *(["serve.js"] if served else [])]
    scripts = [vega_bundle(), *(_resource(name) for name in names)]
    return (
        _environment()
        .get_template(template)
        .render(
            payload=_safe(payload),
            scripts=[_safe(script) for script in scripts],
            policy=_policy(scripts, served=served),
            css=_safe(_css(served=served)),
            served=served,
            **values,
        )
    )


def render_index(entries: Sequence[IndexEntry]) -> str:
    """Render the page that lists several reports."""
    return draw_plain_page("index.html.j2", entries=entries)


def draw_plain_page(template: str, *, served: bool = False, **values: object) -> str:
    """Render a page without charts and scripts from a template in reports/ and `values`."""
    policy, css = _policy([], served=served), _safe(_css(served=served))
    return _environment().get_template(template).render(policy=policy, css=css, served=served, **values)


def draw_unmade_page(
    whole: str,
    title: str,
    fault: Fault,
    data: Sequence[str],
    tables: Sequence[tuple[str, Sequence[str]]] = (),
    *,
    served: bool = False,
) -> str:
    """Render the replacement for a page that could not be made.

    Parameters
    ----------
    whole : str
        Kind of the page: report, comparison or digest.
    title : str
        Heading of the page.
    fault : Fault
        The reason why it could not be made.
    data : sequence of str
        URLs of the files with the numbers.
    tables : sequence of tuple of str and sequence of str
        Each answered question with the URLs of its rows.
    served : bool
        Whether a server shows the page.
    """
    return draw_plain_page(
        "unmade.html.j2", served=served, whole=whole, title=title, fault=fault, data=data, tables=tables
    )


def draw_fragment(template: str, **values: object) -> str:
    """Render a part of a page from a template in reports/ and `values`."""
    return _environment().get_template(template).render(**values)


def chart_payload(drawn: Mapping[str, Sequence[Chart]]) -> dict[str, Any]:
    """Return all charts as one JSON value that contains each dataset only once.

    Returns
    -------
    dict
        `config` and `datasets` are shared by all charts. `charts` contains each chart with the id of its placeholder.
    """
    datasets: dict[str, Any] = {}
    specs = []
    for name, several in drawn.items():
        for i, chart in enumerate(several):
            spec = chart.to_dict(checked=False)
            datasets |= spec.pop("datasets")
            specs.append({"id": chart_id(name, i), "spec": spec})
    return {"config": chart_config(), "datasets": datasets, "charts": specs}


def chart_id(name: str, number: int) -> str:
    """Return the id of a chart's placeholder in the page."""
    return f"{anchor(name)}-chart-{number}"


def anchor(name: str) -> str:
    """Return a query's id in the page."""
    return "q-" + "".join(c if c.isascii() and c.isalnum() else "-" for c in name)


def json_for_html(value: object) -> str:
    r"""Return `value` as JSON that cannot end an HTML element.

    Examples
    --------
    >>> json_for_html(["</script>"])
    '["\\u003c/script\\u003e"]'
    """
    body = json.dumps(value, ensure_ascii=True, separators=(",", ":"), allow_nan=False)
    return body.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _answer_view(
    answer: AnswerInfo,
    drawn: list[Chart],
    rows: tuple[int, int],
    places: Mapping[str, Mapping[str, int]],
    facts: TraceFacts,
    *,
    links: bool,
) -> dict[str, Any]:
    chosen = {name: places[name] for name in narrows(answer, facts) if name in places}
    label = " ".join(filter(None, [answer["question"], answer["finding"]]))
    return {
        **answer,
        "id": anchor(answer["name"]),
        "charts": chart_views(answer["name"], drawn, label, keyed=True),
        "table": table_view(
            answer, *rows, chosen, drawn=bool(drawn), tenant=facts.tenant_of(answer["kind"]), links=links
        ),
        "beside": published_view(answer["published"]),
        "open": not drawn and _is_seen(answer),
    }


def _is_seen(answer: AnswerInfo) -> bool:
    """Return whether a table starts open: if it is small, not all 0, and not already summarized in a sentence."""
    small = answer["row_count"] <= OPEN and len(answer["columns"]) <= OPEN_COLUMNS
    said = answer["finding"] is not None and answer["columns"][0]["name"] == "metric"
    return small and not said and answer["name"] not in _FOLDED and not all_zero(answer["rows"])


def chart_views(name: str, drawn: Sequence[Chart], label: str, *, keyed: bool = False) -> list[dict[str, Any]]:
    """Return the context of a query's charts: title, legend, note, and a `label` for screen readers.

    If the page shows the distribution key (`keyed`), notes do not explain the marks.
    """
    return [
        {
            "id": chart_id(name, i),
            "title": p.title,
            "legend": p.key,
            "ends": p.ends,
            "note": p.note.removeprefix(DISTRIBUTION).strip() if keyed else p.note,
            "keyed": keyed and p.note.startswith(DISTRIBUTION),
            "wide": p.wide,
            "label": f"Chart. {label} The table next to it contains the numbers.",
        }
        for i, p in enumerate(drawn)
    ]


@cache
def _resource(name: str) -> str:
    """Return a file of the page. Comment lines and indentation of scripts are removed to save space."""
    text = (resources.folder("reports") / name).read_text(encoding="utf-8")
    return re.sub(r"(?m)^[ \t]*//.*\n|^[ \t]+", "", text) if name.endswith(".js") else text


def _css(*, served: bool = False) -> str:
    stacks = "".join(f"--font-{name}:{stack};" for name, stack in fonts().items())
    light, dark = css_variables("light"), css_variables("dark")
    return (
        f":root{{{stacks}{light}color-scheme:light dark}}\n"
        f"@media screen and (prefers-color-scheme:dark){{:root:not([data-theme=light]){{{dark}}}}}\n"
        f"@media screen{{:root[data-theme=dark]{{{dark}color-scheme:dark}}"
        f":root[data-theme=light]{{color-scheme:light}}}}\n"
        f"{_resource('page.css')}{_resource('serve.css') if served else ''}"
    )


def _policy(scripts: Sequence[str], *, served: bool = False) -> str:
    """Return a content-security policy that allows only these scripts. Only a served page may query its server."""
    hashes = [base64.b64encode(hashlib.sha256(s.encode()).digest()).decode() for s in scripts]
    allowed = " ".join(f"'sha256-{h}'" for h in hashes) or "'none'"
    own = "connect-src 'self'; form-action 'self'" if served else "form-action 'none'"
    return f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; {own}"


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
        "spoken": spoken,
        "short": text.shorten,
        "words": lambda name: name.replace("_", " "),
        "keep": _keep_together,
        "sparkline": sparkline,
        "first_sentence": lambda words: re.split(r"(?<=[.;]) (?=['A-Z])", words, maxsplit=1)[0],
        "capitalize_first": lambda words: words[:1].upper() + words[1:],
        "plural": lambda n, word: f"{text.count(n)} {word}" + ("" if n == 1 else "s"),
    }
    return env


_UNIT = re.compile(r"(\d) (?=(?:%|s|min|h|d|GPUs?|GPU-hours|nodes?|jobs)\b|%)")

_RANGE = re.compile(r"(\d)-(?=\d)")

_NUMBER_OF = re.compile(r"\(n = (?=\d)")

_BECAME = re.compile(r"(?<=[\w%)]) -> (?=[<>]?\s?\d)")


def _keep_together(words: str) -> str:
    """Write '->' as an arrow, and prevent line breaks before units and inside ranges such as '2-4'."""
    words = _BECAME.sub("\N{NO-BREAK SPACE}\N{RIGHTWARDS ARROW} ", words)
    words = _NUMBER_OF.sub("(n\N{NO-BREAK SPACE}=\N{NO-BREAK SPACE}", words)
    return _RANGE.sub("\\1-\N{WORD JOINER}", _UNIT.sub("\\1\N{NO-BREAK SPACE}", words))


def _safe(trusted: str) -> markupsafe.Markup:
    """Mark text that tracekit wrote, or that `json_for_html` escaped, as safe for the page."""
    import markupsafe

    return markupsafe.Markup(trusted)  # noqa: S704 -- never called with text from a log
