"""Requests to a served page."""

from __future__ import annotations

import http.client
import urllib.request

from viaduct.reporting.page_server import ServedPage


def get(url: str, **headers: str) -> bytes:
    with urllib.request.urlopen(urllib.request.Request(url, headers=headers), timeout=20) as answer:
        found: bytes = answer.read()
    return found


def get_status(page: ServedPage, path: str, method: str = "GET", **headers: str) -> tuple[int, bytes]:
    """Ask with the path as it stands: urllib would tidy it up."""
    connection = http.client.HTTPConnection("127.0.0.1", page.port, timeout=20)
    try:
        connection.putrequest(method, path, skip_host="Host" in headers)
        for name, value in headers.items():
            connection.putheader(name, value)
        connection.endheaders()
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()
