"""What stands before every answer: whose question it is, and what a browser may do with the answer.

A page of another origin must not learn anything of the Trace. It cannot read answers, and where its name was made to
mean this machine (DNS rebinding), it asks for a host of another name and is refused. A token keeps out whoever can
connect, such as the other users of a machine.
"""

from __future__ import annotations

import hmac
import ipaddress
import re
import secrets
import time
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl, quote, urlencode

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import PlainTextResponse, RedirectResponse

if TYPE_CHECKING:
    from collections.abc import Collection

    from starlette.responses import Response
    from starlette.types import ASGIApp, Message, Receive, Scope, Send

__all__ = ["Gate", "is_loopback"]

_HEADERS = {
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}
"""Of every answer. A page says in itself which of its scripts may run."""
_OF_PAGES = "frame-ancestors 'none'; base-uri 'none'"
_OF_DATA = "default-src 'none'; frame-ancestors 'none'; base-uri 'none'"

_HOST = re.compile(r"(?:\[(?P<inside>[0-9a-f:.]+)\]|(?P<name>[^\[\]:@/\s]+))(?::[0-9]+)?")

_COOKIE_S = 12 * 3600
"""How long a cookie lets in [s]."""

_FORBIDDEN = "Open the address that tracekit printed: it holds the token that is missing here.\n"


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine, and reached from nowhere else.

    Examples
    --------
    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("::1"), is_loopback("0.0.0.0")
    (True, True, True, False)
    """
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Gate:
    """Lets through questions that may be asked.

    Parameters
    ----------
    app : ASGI application
        What answers them.
    names : collection of str
        Names of this machine that may stand in the Host header, besides addresses.
    local : bool
        Whether only addresses of this machine itself may stand there.
    token : str, optional
        What a question has to know; None where whoever can connect may ask.
    port : int
        Where the server listens, which tells its cookie from those of others.
    """

    def __init__(
        self, app: ASGIApp, *, names: Collection[str], local: bool, token: str | None = None, port: int = 0
    ) -> None:
        self._app, self._local, self._token = app, local, token
        self._names = frozenset(name.lower().rstrip(".") for name in names)
        self._cookie = f"tracekit-{port}"
        # Browsers send a cookie to every port of its host. This key makes it worthless to all other servers, also to
        # those with the same token; the token itself is in no cookie.
        self._key = secrets.token_bytes(32)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuse a question, or hand it on and add headers to the answer."""
        if scope["type"] != "http":
            return  # neither sockets nor the events of a server's life are answered
        asked = Headers(scope=scope)
        body = "transfer-encoding" in asked or asked.get("content-length", "0").strip("0") != ""
        refused = self._refusal(scope, asked, body=body)

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                if body:
                    headers["Connection"] = "close"  # the body is not read
                for name, value in _HEADERS.items():
                    headers[name] = value
                page = headers.get("content-type", "").startswith("text/html")
                headers["Content-Security-Policy"] = _OF_PAGES if page else _OF_DATA
            await send(message)

        await (self._app if refused is None else refused)(scope, receive, with_headers)

    def _refusal(self, scope: Scope, headers: Headers, *, body: bool) -> Response | None:
        hosts = headers.getlist("host")
        if len(hosts) != 1 or not self._is_own(hosts[0]):
            return PlainTextResponse("This tracekit serves no host of that name.\n", 421)
        if scope["method"] not in {"GET", "HEAD"}:
            return PlainTextResponse("This server only answers GET and HEAD.\n", 405, {"Allow": "GET, HEAD"})
        if body:
            return PlainTextResponse("This server reads no request bodies.\n", 413)
        # Browsers say where a question comes from, and where they show the answer. A link that opens a page is no
        # danger; a frame in another page is.
        foreign = headers.get("sec-fetch-site", "none") not in {"none", "same-origin"}
        opened = headers.get("sec-fetch-mode") == "navigate" and headers.get("sec-fetch-dest", "document") == "document"
        if foreign and not opened:
            return PlainTextResponse("Only pages of this tracekit may ask this.\n", 403)
        return None if self._token is None else self._without_token(scope, headers, self._token)

    def _is_own(self, host: str) -> bool:
        found = _HOST.fullmatch(host.lower())
        if found is None:
            return False
        try:
            address = ipaddress.ip_address(found["inside"] or found["name"])
        except ValueError:
            return found["name"] is not None and found["name"].rstrip(".") in self._names
        return address.is_loopback or not self._local

    def _without_token(self, scope: Scope, headers: Headers, token: str) -> Response | None:
        """Refuse a question without the token; take one from the address into a cookie, so that no page shows it."""
        given = parse_qsl(scope["query_string"].decode("latin-1"), keep_blank_values=True)
        tokens = [value for name, value in given if name == "token"]
        if tokens:
            if not _same(tokens[0], token):
                return PlainTextResponse(_FORBIDDEN, 403)
            rest = urlencode([(name, value) for name, value in given if name != "token"])
            # One slash: two would name another host.
            path = "/" + quote(scope["path"].lstrip("/\\"))
            answer = RedirectResponse(f"{path}?{rest}" if rest else path, 303)
            ticket = self._ticket(int(time.time()) + _COOKIE_S)
            answer.set_cookie(self._cookie, ticket, max_age=_COOKIE_S, httponly=True, samesite="lax", path="/")
            return answer
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and _same(bearer.strip(), token):
            return None
        return None if self._has_ticket(headers) else PlainTextResponse(_FORBIDDEN, 403)

    def _ticket(self, until: int) -> str:
        """Return the value of a cookie that lets in until a time [s since 1970]."""
        return f"{until}-{hmac.digest(self._key, str(until).encode(), 'sha256').hex()}"

    def _has_ticket(self, headers: Headers) -> bool:
        for cookie in headers.get("cookie", "").split(";"):
            name, _, value = cookie.strip().partition("=")
            until = value.partition("-")[0]
            if name == self._cookie and re.fullmatch("[0-9]{1,12}", until):
                return int(until) > time.time() and _same(value, self._ticket(int(until)))
        return False


def _same(one: str, other: str) -> bool:
    """Compare in a time that does not tell how many letters are right."""
    return hmac.compare_digest(one.encode("utf-8", "replace"), other.encode("utf-8", "replace"))
