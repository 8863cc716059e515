"""Server of one HTML page on loopback, for `train --watch` and `runs watch`.

    class RunPage(ServedPage): ...       # answers the requests
    page = RunPage(0, "--port")          # listens on 127.0.0.1 only; page.url is the address to open
    page.close()

    /              the page; its script requests /data.json?since=VERSION and reloads the page when the version changes
    /data.json     version and figures of the page; with `?since` the subclass waits before it answers
    /images/…      images, if the page has any

Torch is not imported.
"""

from __future__ import annotations

import abc
import errno
import json
import re
import socketserver
import sys
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

from viaduct.errors import BadValue

LOOPBACK = "127.0.0.1"
# Host headers that are answered; another name may be a foreign site whose name resolves to this machine (DNS
# rebinding). Any port is allowed, because the local end of a tunnel (`ssh -L`) has its own.
ALLOWED_HOST = re.compile(r"(127\.0\.0\.1|localhost)(:[0-9]{1,5})?", re.ASCII | re.IGNORECASE)
WAIT_S = 2.0  # shortest wait before a request with `?since` is answered, in seconds
IDLE_WAIT_S = 15.0  # longest wait; also the wait for hidden tabs, whose requests have `&idle`
HTML, JSON, TEXT = "text/html; charset=utf-8", "application/json", "text/plain; charset=utf-8"


class ServedPage(abc.ABC):
    """A page with its server, which runs in a daemon thread; subclasses answer the requests.

    A subclass calls this `__init__` at the end of its own, because requests may come at once. `flag` is the flag that
    gave the port, for the message of an error.
    """

    def __init__(self, port: int, flag: str) -> None:
        self.closed = False  # True: connections end without an answer
        self.ended = threading.Event()  # ends the wait of requests with `?since`
        self._lock = threading.Lock()
        self._server = bind_server(port, flag)
        self._server.page = self
        self.port: int = self._server.server_address[1]
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.2}, daemon=True, name="viaduct-watch"
        )
        self._thread.start()

    @property
    def url(self) -> str:
        return f"http://{LOOPBACK}:{self.port}/"

    @abc.abstractmethod
    def answer_page(self, query: dict[str, list[str]]) -> str:
        """Return the HTML of /."""

    @abc.abstractmethod
    def answer_data(self, query: dict[str, list[str]]) -> dict[str, Any]:
        """Return the content of /data.json."""

    def read_image(self, path: str) -> bytes | None:
        """Return the image at an address below /images; None if there is none, as on a page without images."""
        return None

    def close(self) -> None:
        """Stop listening; open connections get no further answer. May be called twice."""
        if self.closed:
            return
        self.closed = True
        self.ended.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class Server(ThreadingHTTPServer):
    """HTTP server of one page; each connection has a thread."""

    daemon_threads = True
    page: ServedPage

    def server_bind(self) -> None:
        """Bind without resolving this machine's name, as http.server would."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = LOOPBACK, self.server_address[1]

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a closed or silent connection; print any other error."""
        if not isinstance(sys.exc_info()[1], ConnectionError | TimeoutError):
            super().handle_error(request, client_address)


def bind_server(port: int, flag: str) -> Server:
    """Return a server that listens on a port of this machine (0: any free one); raise BadValue if it cannot."""
    try:
        return Server((LOOPBACK, port), Handler)
    except OSError as error:
        reasons = {errno.EADDRINUSE: "another process listens there", errno.EACCES: "it needs privileges"}
        reason = reasons.get(error.errno or 0, error.strerror or str(error))
        message = f"{flag} {port} cannot be used: {reason}."
        raise BadValue(message, f"Leave {flag} out for a port that is free, or give another one.") from None


def check_port(port: int, flag: str) -> None:
    """Raise BadValue if no server can listen on a port."""
    if port:
        bind_server(port, flag).server_close()


class Handler(BaseHTTPRequestHandler):
    """Answers GET and HEAD of /, /data.json and the images; refuses other methods, addresses and host names.

    http.server calls `do_GET`, `do_POST` and so on, which `__getattr__` returns.
    """

    protocol_version = "HTTP/1.1"
    server_version, sys_version = "viaduct", ""
    timeout = 60  # seconds for which a connection may be silent
    server: Server

    def __getattr__(self, name: str) -> Any:
        if name in ("do_GET", "do_HEAD"):
            return self.answer
        if name.startswith("do_"):
            return self.refuse_method
        raise AttributeError(name)

    def answer(self) -> None:
        """Answer GET or HEAD; refuse a request without exactly one Host header of this machine."""
        hosts = self.headers.get_all("Host") or []
        if len(hosts) != 1 or not ALLOWED_HOST.fullmatch(hosts[0].strip()):
            self.send_text(HTTPStatus.FORBIDDEN, "This page is served as 127.0.0.1 or localhost only.")
            return
        path, _, query_string = self.path.partition("?")
        query = parse_qs(query_string)
        if self.server.page.closed:
            self.close_connection = True
            return
        if path == "/":
            self.send(HTTPStatus.OK, HTML, self.server.page.answer_page(query).encode("utf-8", "backslashreplace"))
        elif path == "/data.json":
            self.send(HTTPStatus.OK, JSON, json.dumps(self.server.page.answer_data(query), allow_nan=False).encode())
        elif image := self.server.page.read_image(path):
            self.send(HTTPStatus.OK, "image/png", image, {"Cache-Control": "private, max-age=3600"})
        else:
            self.send_text(HTTPStatus.NOT_FOUND, "There is no such address: / is the page, /data.json its figures.")

    def refuse_method(self) -> None:
        self.close_connection = True  # the request may have a body, which is not read
        self.send_text(HTTPStatus.METHOD_NOT_ALLOWED, "GET and HEAD only.", {"Allow": "GET, HEAD"})

    def send_text(self, status: HTTPStatus, text: str, headers: dict[str, str] | None = None) -> None:
        self.send(status, TEXT, f"{text}\n".encode(), headers)

    def send(self, status: HTTPStatus, kind: str, body: bytes, headers: dict[str, str] | None = None) -> None:
        """Send a response with headers that keep it out of caches and other sites, unless `headers` replace them."""
        self.send_response(status)
        common_headers = {
            "Content-Type": kind,
            "Content-Length": str(len(body)),
            "Cache-Control": "no-store",
            "X-Content-Type-Options": "nosniff",
            "Cross-Origin-Resource-Policy": "same-origin",
            "Content-Security-Policy": "frame-ancestors 'none'",
            "Referrer-Policy": "no-referrer",
        }
        for name, value in (common_headers | (headers or {})).items():
            self.send_header(name, value)
        if self.close_connection:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Keep requests out of the run's output."""
