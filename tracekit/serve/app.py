"""The addresses of a served report and their content. All are read-only, and none of them is a file path.

/                     the page of the report
/answer/NAME          the answer to a question for the part that the parameters select (since, until, where.*)
/first                the report's first sentence and numbers for such a part
/job/ID               a job (/node/ID a node, /user/NAME a user, /job?name=ID for names that a path cannot contain)
/find?q=WORDS         the search for jobs, nodes and users
/report.json          the report.json of an analysis (/report.md and /guidelines.md are its text versions)
/tables/NAME.csv      all rows of an answer (also NAME.parquet)
"""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import orjson
from starlette.applications import Starlette
from starlette.convertors import Convertor, register_url_convertor
from starlette.responses import HTMLResponse, PlainTextResponse, RedirectResponse, Response
from starlette.routing import Route

from tracekit.characterize.limits import StoppedError
from tracekit.damage import explain_damage, register_trace
from tracekit.errors import QueryError, TracekitError, UsageError
from tracekit.faults import Fault, Faults
from tracekit.report.headline import FIRST, LACKING, NAMES, OF_PART, first_numbers, state
from tracekit.report.page import chart_payload, chart_views, draw_fragment, draw_page, draw_plain_page
from tracekit.report.sections.interface import charts
from tracekit.report.table_view import table_view
from tracekit.report.through_time import sparkline
from tracekit.serve.limits import BusyError, Desk
from tracekit.serve.part import part_of, words_of
from tracekit.serve.things.job import job
from tracekit.serve.things.node import node
from tracekit.serve.things.search import LONGEST, find
from tracekit.serve.things.thing import NoSuchThingError, Thing
from tracekit.serve.things.user import user
from tracekit.text import shorten
from tracekit.trace import OTHERS_FREE

if TYPE_CHECKING:
    from collections.abc import Callable

    from duckdb import DuckDBPyConnection
    from polars import DataFrame
    from starlette.requests import Request

    from tracekit.answer import Answer
    from tracekit.characterize.limits import Stop
    from tracekit.report.sections.interface import TraceFacts
    from tracekit.serve.trace import PartAnswer, ServedTrace
    from tracekit.tables.window import Window
    from tracekit.trace import Trace


# The answer to a question about a part is rendered here with the page's code. The page's script only inserts it.

MOST_ROWS = 200
"""Maximum number of rows of a table."""

_OF_MACHINES = ("capacity", "free", "idle", "owned")
"""Words in column names that refer to the cluster's machines, regardless of the selected jobs."""
_OF_SAMPLES = "used_share"
"""The number on the first screen that describes machines, regardless of the selected jobs."""


def answer_json(found: PartAnswer, part: Window) -> dict[str, Any]:
    """Return the data for the page's script: the `html` to insert, its charts, and a description of the part."""
    facts, info = found.facts, found.info
    made = [] if found.empty else Faults().run("the charts", charts, info["name"], info["rows"], facts)
    drawn = [] if isinstance(made, Fault) else made
    name = f"asked/{info['name']}"  # must differ from the id of the whole log's chart
    shown = table_view(info, MOST_ROWS, drawn=bool(drawn), tenant=facts.tenant_of(info["kind"]), links=True)
    more = shown["more"]
    label = " ".join(filter(None, [info["question"], info["finding"]]))
    about_machines = any(word in c["name"] for c in info["columns"] for word in _OF_MACHINES)
    html = draw_fragment(
        "asked.html.j2",
        asked=words_of(part, facts),
        answer=info,
        empty=found.empty,
        charts=chart_views(name, drawn, label),
        undrawn=made if isinstance(made, Fault) else None,
        table={**shown, "more": 0, "unprinted": 0},
        more=more,
        remark=OTHERS_FREE if part.where and about_machines else "",
    )
    return {
        "name": info["name"],
        "asked": words_of(part, facts),
        "finding": None if found.empty else info["finding"],
        "rows": info["row_count"],
        "html": html,
        "charts": chart_payload({name: drawn}),
    }


def first_json(found: Answer, part: Window, facts: TraceFacts) -> dict[str, Any]:
    """Return a part's first sentence and numbers, as the page's script inserts them.

    Parameters
    ----------
    found : Answer
        Answer to `FIRST` for the part.
    part : Window
        The selected part.
    facts : TraceFacts
        Facts for describing the part.

    Returns
    -------
    dict
        `asked` describes the part, and `state` is the sentence. `numbers` has, by name, `value`, `text`, `change` from
        the first half of the period to the second, `path` of the sparkline, and `note`. `value` is null if the Trace
        does not record it.
    """
    answers = {FIRST: found}
    told = {one["name"]: one for one in first_numbers(answers, OF_PART, gpu_jobs=False)}
    numbers: dict[str, dict[str, Any]] = {}
    for name in NAMES:
        one, machines = told.get(name), bool(part.where) and name == _OF_SAMPLES
        if one is None or machines:
            why = LACKING["machines" if machines else "none"]
            numbers[name] = {"value": None, "text": LACKING["number"], "change": None, "note": why, "path": ""}
        else:
            path = sparkline(one["series"]) if one["series"] else ""
            numbers[name] = {**{key: one[key] for key in ("value", "text", "change", "note")}, "path": path}
    whole = next((row for row in found.rows() if row["period"] == "whole"), None)
    said = facts.no_gpu_jobs or state(answers, some=bool(part.where))
    return {
        "asked": words_of(part, facts),
        "state": said or LACKING["waits" if whole is not None and whole["jobs"] else "jobs"],
        "numbers": numbers,
    }


_OPENS = {"job": job, "node": node, "user": user}
_RETRY_S = 5
"""Time to wait before a request is repeated if the server is busy [s]."""


class _Name(Convertor[str]):
    """The rest of a path, including slashes and line breaks."""

    regex = "(?s:.*)"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("name", _Name())


def made_app(served: ServedTrace, desk: Desk | None = None) -> Starlette:
    """Return the application that answers requests about a Trace. It must be wrapped in `Gate`."""
    app = Starlette(routes=_Answers(served, desk or Desk()).routes())
    app.add_exception_handler(TracekitError, lambda _, error: _refused(error))
    app.add_exception_handler(404, _not_found)
    app.add_exception_handler(Exception, _failed)
    return app


class _Answers:
    """Handlers for all addresses."""

    def __init__(self, served: ServedTrace, desk: Desk) -> None:
        self._served, self._desk = served, desk

    def routes(self) -> list[Route]:
        handlers = {
            "/": self.page,
            "/answer/{name:name}": self.answer,
            "/first": self.first,
            "/find": self.find,
            "/report.json": self.data,
            "/report.md": self.text,
            "/guidelines.md": self.advice,
            "/tables/{name:name}": self.table,
            **{f"/{kind}{rest}": self.thing for kind in _OPENS for rest in ("", "/{name:name}")},
        }
        return [Route(path, handler, methods=["GET"]) for path, handler in handlers.items()]

    async def page(self, _: Request) -> Response:
        return HTMLResponse(self._served.page)

    async def answer(self, request: Request) -> Response:
        name: str = request.path_params["name"]
        return await self._of_part(request, lambda part, stop: answer_json(self._served.answer(name, part, stop), part))

    async def first(self, request: Request) -> Response:
        served = self._served
        return await self._of_part(request, lambda part, stop: first_json(served.first(part, stop), part, served.facts))

    async def _of_part(self, request: Request, work: Callable[[Window, Stop], dict[str, Any]]) -> Response:
        """Return the result of `work` for the part in the address, or an error on one line."""

        @explain_damage()
        def asked(stop: Stop) -> bytes:
            return orjson.dumps(work(part_of(request.query_params.multi_items()), stop))

        try:
            body = await self._desk.answer(request, asked)
        except TracekitError as error:
            return _refused(error, as_json=True)
        return Response(body, media_type=_JSON)

    async def thing(self, request: Request) -> Response:
        opens = _OPENS[request.scope["path"].split("/")[1]]
        # A name that a path cannot contain is a query parameter.
        name = request.path_params.get("name", request.query_params.get("name", ""))
        return await self._looked_up(request, lambda con, trace, facts: opens(con, trace, facts, name))

    async def find(self, request: Request) -> Response:
        words = request.query_params.get("q", "")[:LONGEST]
        return await self._looked_up(request, lambda con, trace, facts: find(con, trace, facts, words))

    async def _looked_up(
        self, request: Request, look: Callable[[DuckDBPyConnection, Trace, TraceFacts], Thing | str]
    ) -> Response:
        """Return a page with the result of `look` on the whole Trace, or redirect if `look` returns an address."""
        import duckdb

        served = self._served

        @explain_damage()
        def asked(stop: Stop) -> Response:
            register_trace(served.trace)
            try:
                with served.whole.used_by(stop), served.whole.connect() as con:
                    found = look(con, served.trace, served.facts)
            except duckdb.Error:
                stop.check()  # stopped SQL cannot be distinguished from failed SQL
                raise
            return RedirectResponse(found, 303) if isinstance(found, str) else HTMLResponse(_drawn(found, served.title))

        return await self._desk.answer(request, asked)

    async def data(self, _: Request) -> Response:
        return Response(orjson.dumps(self._served.report.data), media_type=_JSON)

    async def text(self, request: Request) -> Response:
        from tracekit.report.markdown import markdown

        return await self._desk.answer(request, lambda _: _text(markdown(self._served.report.data)))

    async def advice(self, request: Request) -> Response:
        from tracekit.guidelines.markdown import markdown

        document = self._served.report.data["guidelines"]
        return _not_found(request) if document is None else _text(markdown(document))

    async def table(self, request: Request) -> Response:
        name, _, form = request.path_params["name"].rpartition(".")
        if form not in {"csv", "parquet"}:
            return _not_found(request)
        try:
            return await self._desk.answer(request, lambda _: _file(self._served.report.answer(name), form))
        except QueryError:
            return _not_found(request)


_JSON = "application/json"


def _text(content: str) -> Response:
    return PlainTextResponse(content.encode("utf-8", errors="replace"))


def _file(frame: DataFrame, form: str) -> Response:
    """Return all rows of an answer as csv or parquet."""
    from tracekit.spreadsheets import csv_safe

    content = io.BytesIO()
    if form == "csv":
        csv_safe(frame).write_csv(content, datetime_format="%Y-%m-%dT%H:%M:%S%.f")
    else:
        frame.write_parquet(content, compression="zstd")
    kind = "text/csv; charset=utf-8" if form == "csv" else "application/vnd.apache.parquet"
    return Response(content.getvalue(), media_type=kind, headers={"Content-Disposition": "attachment"})


def _drawn(thing: Thing, title: str) -> str:
    if not thing.charts:
        return draw_plain_page("thing.html.j2", served=True, thing=thing, title=title, charts=[])
    name = f"of-{thing.kind}"
    views = chart_views(name, thing.charts, f"{thing.heading} over time.")
    return draw_page("thing.html.j2", {name: thing.charts}, served=True, thing=thing, title=title, charts=views)


def _refused(error: Exception, *, as_json: bool = False) -> Response:
    """Return an error on one line, as a page or as JSON. Its HTTP status depends on the cause."""
    code, headers = 400 if isinstance(error, UsageError | QueryError) else 500, None
    if isinstance(error, NoSuchThingError):
        code = 404
    if isinstance(error, BusyError | StoppedError):
        code = 503
    if isinstance(error, BusyError):
        headers = {"Retry-After": str(_RETRY_S)}
    words = "Something went wrong in tracekit. See the terminal in which it runs."
    if isinstance(error, TracekitError):
        words = str(error)
        if (error.where or "").startswith("--"):  # a browser has no command-line options
            words = words.removeprefix(f"{error.where}: ")
        words = shorten(words, 500)
    if as_json:
        return Response(orjson.dumps({"error": words}), code, headers, media_type=_JSON)
    return _page_of(words, code, headers)


def _page_of(words: str, code: int, headers: dict[str, str] | None = None) -> Response:
    thing = Thing("not found" if code == 404 else "no answer", None, [words])
    return HTMLResponse(_drawn(thing, "this trace"), code, headers)


def _failed(request: Request, error: Exception) -> Response:
    """Report an internal error. The terminal shows the details."""
    return _refused(error, as_json=request.scope["path"].startswith(("/answer/", "/first")))


def _not_found(request: Request, _: Exception | None = None) -> Response:
    return _page_of(f"There is nothing at {shorten(request.scope['path'], 200)}.", 404)
