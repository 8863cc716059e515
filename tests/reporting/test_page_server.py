"""Server of one page: who is answered, and what."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from reporting.page_requests import get, get_status
from viaduct.errors import BadValue
from viaduct.reporting.page_server import ServedPage, check_port


class Greeting(ServedPage):
    def answer_page(self, query: dict[str, list[str]]) -> str:
        return "<p>hello</p>"

    def answer_data(self, query: dict[str, list[str]]) -> dict[str, Any]:
        return {"query": query}


@pytest.fixture
def page() -> Iterator[ServedPage]:
    opened = Greeting(0, "--port")
    yield opened
    opened.close()


def test_page_and_data_are_answered_and_other_addresses_are_not(page: ServedPage) -> None:
    assert get(page.url) == b"<p>hello</p>"
    assert json.loads(get(f"{page.url}data.json?since=4&idle=1")) == {"query": {"since": ["4"], "idle": ["1"]}}
    assert [get_status(page, path)[0] for path in ("/other", "/images/step-00000100.png")] == [404, 404]


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "0.0.0.0", "", "localhost@x"]
)
def test_another_name_for_this_machine_is_refused(page: ServedPage, host: str) -> None:
    for path in ("/", "/data.json", "/images/step-00000100.png"):
        assert get_status(page, path, Host=host)[0] == 403


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "LOCALHOST:9000", "127.0.0.1:8080"])
def test_this_machine_by_name_and_through_a_tunnel_is_answered(page: ServedPage, host: str) -> None:
    assert get_status(page, "/", Host=host)[0] == 200


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW"])
def test_only_get_and_head_are_allowed(page: ServedPage, method: str) -> None:
    assert get_status(page, "/", method)[0] == 405


def test_head_has_the_headers_without_the_page(page: ServedPage) -> None:
    assert get_status(page, "/", "HEAD") == (200, b"")


def test_it_listens_on_loopback_only(page: ServedPage) -> None:
    assert page._server.server_address[0] == "127.0.0.1"


def test_a_taken_port_is_refused_with_the_reason() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(BadValue, match=r"another process listens there.*\n.*Leave --port out"):
            Greeting(other.getsockname()[1], "--port")


def test_a_port_is_checked_before_the_work() -> None:
    check_port(0, "--port")
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        with pytest.raises(BadValue, match="another process listens there"):
            check_port(other.getsockname()[1], "--port")


def test_a_closed_page_answers_nothing(page: ServedPage) -> None:
    page.close()
    with pytest.raises(OSError, match="refused"):
        get_status(page, "/")
