"""A slow local server with the files of every public trace."""

from __future__ import annotations

import contextlib
import hashlib
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

__all__ = ["start_mirror"]

_BYTES = 200_000
"""Size of each file [bytes]."""
_STEP = 4_000
"""Bytes sent at once, every 10 ms."""


def start_mirror() -> str:
    """Start a server that runs until the process ends, and return its address."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return f"http://127.0.0.1:{server.server_port}"


class _Handler(BaseHTTPRequestHandler):
    """Sends a file for any path, from the position that the client asks for."""

    def do_GET(self) -> None:
        content = hashlib.shake_256(self.path.encode()).digest(_BYTES)
        start = int(self.headers.get("Range", "bytes=0-")[6:-1])
        self.send_response(206 if start else 200)
        self.send_header("ETag", '"content"')
        self.send_header("Content-Length", str(_BYTES - start))
        self.send_header("Content-Range", f"bytes {start}-{_BYTES - 1}/{_BYTES}")
        self.end_headers()
        with contextlib.suppress(OSError):  # the client was killed
            for at in range(start, _BYTES, _STEP):
                self.wfile.write(content[at : at + _STEP])
                time.sleep(0.01)

    def log_message(self, *_: object) -> None:
        return
