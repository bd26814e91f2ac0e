"""The page, for browsers on this machine: plain files, and ticks by server-sent events."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from examples.live.publish import Publisher

_HERE = Path(__file__).resolve().parent
_FILES = {
    "/": ("page.html", "text/html; charset=utf-8"),
    "/page.css": ("page.css", "text/css; charset=utf-8"),
    "/page.js": ("page.js", "text/javascript; charset=utf-8"),
}
_BEAT = 5.0  # seconds between signs of life to a browser that waits
_MOST = 100  # browsers at a time

Route = Callable[[], tuple[bytes, str]]


def serve(
    publisher: Publisher, about: Mapping[str, Any], port: int, routes: Mapping[str, Route]
) -> ThreadingHTTPServer:
    """A server on this machine's own address, already running in threads; `shutdown` ends it.

    Paths: `/` the page, `/about.json` what it says of the run, `/releases.json` all ticks so far,
    `/events` ticks as they come, and `routes`.

    Args:
      publisher: where ticks come from.
      about: public parameters.
      port: 0 takes a free one.
      routes: what further paths give: a body and its type.
    """

    class Handler(_Handler):
        _publisher, _about, _routes = publisher, about, routes
        _room = threading.BoundedSemaphore(_MOST)

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server


class _Handler(BaseHTTPRequestHandler):
    """Answers one browser."""

    _publisher: Publisher
    _about: Mapping[str, Any]
    _routes: Mapping[str, Route]
    _room: threading.BoundedSemaphore

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        if path in _FILES:
            name, kind = _FILES[path]
            self._give((_HERE / name).read_bytes(), kind)
        elif path == "/about.json":
            self._give(json.dumps(self._about).encode(), "application/json")
        elif path == "/releases.json":
            self._give(json.dumps(self._publisher.after(0, 0)).encode(), "application/json")
        elif path == "/events":
            self._events()
        elif path in self._routes:
            self._give(*self._routes[path]())
        else:
            self.send_error(404)

    def _events(self) -> None:
        """Ticks from the one on that the browser has not seen, until it goes."""
        if not self._room.acquire(blocking=False):
            self.send_error(503)
            return
        try:
            self._head("text/event-stream")
            last = self.headers.get("Last-Event-ID", "0")
            # Python takes no number of thousands of digits, and would print what it was given.
            step = int(last) if last.isdecimal() and len(last) < 10 else 0
            self.wfile.write(b"retry: 1000\n\n")
            while not (self._publisher.over and step >= len(self._publisher.published)):
                ticks = self._publisher.after(step, _BEAT)
                for tick in ticks:
                    step = tick["step"]
                    self.wfile.write(f"id: {step}\ndata: {json.dumps(tick)}\n\n".encode())
                if not ticks:
                    if self._publisher.failed is not None:
                        return
                    self.wfile.write(b": still here\n\n")
                self.wfile.flush()
            self.wfile.write(b"event: over\ndata: {}\n\n")
        except OSError:
            pass  # the browser has gone
        finally:
            self._room.release()

    def _give(self, body: bytes, kind: str) -> None:
        self._head(kind, len(body))
        self.wfile.write(body)

    def _head(self, kind: str, length: int | None = None) -> None:
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Cache-Control", "no-store")
        self.send_header("Content-Security-Policy", "default-src 'self'; img-src 'self' data:")
        self.send_header("X-Content-Type-Options", "nosniff")
        if length is not None:
            self.send_header("Content-Length", str(length))
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass
