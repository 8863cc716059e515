"""Addresses and ports of this machine, without a network."""

from __future__ import annotations

import errno
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster.local_cluster import find_free_port
from viaduct.cluster import links
from viaduct.cluster.links import parse_endpoint, wait_for_port
from viaduct.errors import BadValue


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with links.open_listening_socket("127.0.0.1") as opened:
        yield opened


@pytest.mark.parametrize(
    "text",
    [
        *("", ":29500", "host:", "host:0", "host:65536", "host:x", "host:-1", "host:²", "host:2 9"),
        *("a b:1", "http://host:29500", "host/x", "[node]:5", "[10.0.0.10]:5", "[::1", "[::1]x", "[::1]:", "[::1]:0"),
        *("::1:65535", "2001:db8::7:29500", "[::1]:5:6", "1:2:3", "fe80::1%:29500"),
    ],
)
def test_what_is_no_host_and_port_is_refused_with_the_value(text: str) -> None:
    with pytest.raises(BadValue) as refused:
        parse_endpoint(text, 29500 if text else 0)
    assert repr(text) in str(refused.value)


@pytest.mark.parametrize(
    ("text", "endpoint"),
    [
        ("10.0.0.10:1", ("10.0.0.10", 1)),
        (" node-3 ", ("node-3", 29500)),
        ("::1", ("::1", 29500)),
        ("2001:db8::7", ("2001:db8::7", 29500)),
        ("[::1]", ("::1", 29500)),
        ("[2001:db8::7]:65535", ("2001:db8::7", 65535)),
    ],
)
def test_a_host_without_a_port_has_the_default(text: str, endpoint: tuple[str, int]) -> None:
    assert parse_endpoint(text, 29500) == endpoint
    host, port = endpoint
    assert parse_endpoint(links.format_endpoint(host, port), 1) == endpoint


@pytest.mark.parametrize("text", ["2001:db8::7:29500", "1:2:3"])
def test_an_ipv6_address_before_a_port_is_requested_in_brackets(text: str) -> None:
    with pytest.raises(BadValue) as refused:
        parse_endpoint(text, 29500)
    assert "in brackets: [2001:db8::7]:29500" in " ".join(refused.value.hints)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        *(("fe80::1%eth0", "link-local"), ("[fe80::1%eth0]:29500", "link-local"), ("[fe80::1]:29500", "link-local")),
        *(("::", "no machine"), ("0.0.0.0:29500", "no machine"), ("[ff02::1]:29500", "no machine")),
    ],
)
def test_an_address_that_names_no_single_machine_is_refused(text: str, reason: str) -> None:
    with pytest.raises(BadValue, match=reason):
        parse_endpoint(text, 29500)


@pytest.fixture
def ipv6_listener() -> Iterator[socket.socket]:
    try:
        opened = links.open_listening_socket("::1")
    except OSError:
        pytest.skip("this machine has no IPv6 loopback")
    with opened:
        yield opened


def test_an_ipv6_address_of_this_machine_is_met_like_an_ipv4_one(ipv6_listener: socket.socket) -> None:
    port = ipv6_listener.getsockname()[1]
    assert links.is_this_machine("::1")
    assert not links.is_this_machine("2001:db8::7")  # for documentation: no machine has it
    assert links.find_reachable_address("::1") == links.find_address_towards("::1", port) == "::1"
    assert links.try_connect("::1", port, 5) is None
    assert links.find_interface("::1") == links.find_interface("127.0.0.1") == "lo"
    assert "::1" not in links.list_own_addresses()


def test_a_machine_without_ipv6_has_no_ipv6_addresses(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(links, "IPV6_INTERFACES", tmp_path / "missing")
    assert links.list_ipv6_addresses() == []
    assert links.find_interface("::1") is None
    (tmp_path / "there").write_text("20010db8000000000000000000000007 04 40 00 82     eth0\n"
                                    "fe8000000000000000fc00fffe000001 04 40 20 80     eth0\n")  # fmt: skip
    monkeypatch.setattr(links, "IPV6_INTERFACES", tmp_path / "there")
    assert links.list_ipv6_addresses() == [("2001:db8::7", "eth0")]
    assert "2001:db8::7" in links.list_own_addresses()


def test_a_name_with_both_kinds_of_address_is_resolved_to_ipv4(monkeypatch: pytest.MonkeyPatch) -> None:
    both = [(socket.AF_INET6, None, 0, "", ("2001:db8::7", 0, 0, 0)), (socket.AF_INET, None, 0, "", ("192.0.2.7", 0))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **kwargs: both)
    assert links.resolve_host("node-3") == "192.0.2.7"
    monkeypatch.setattr(socket, "getaddrinfo", lambda *args, **kwargs: both[:1])
    assert links.resolve_host("node-3") == "2001:db8::7"


def test_a_port_in_use_is_not_free(listener: socket.socket) -> None:
    assert not links.is_port_free(listener.getsockname()[1])
    assert links.is_port_free(find_free_port())


def test_a_port_can_be_free_on_a_machine_without_ipv6(monkeypatch: pytest.MonkeyPatch) -> None:
    class SocketWithoutIpv6(socket.socket):
        def __init__(self, family: int = -1, *arguments: int, **options: int) -> None:
            if family == socket.AF_INET6:  # as with the kernel's parameter ipv6.disable=1
                raise OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol")
            super().__init__(family, *arguments, **options)

    port = find_free_port()
    monkeypatch.setattr(socket, "socket", SocketWithoutIpv6)
    assert links.is_port_free(port)


def test_a_socket_listens_at_its_address_and_at_no_other(listener: socket.socket) -> None:
    port = listener.getsockname()[1]
    assert links.try_connect("127.0.0.1", port, 5) is None
    assert links.try_connect("127.0.0.2", port, 5) == "connection refused"


def test_a_port_that_is_taken_closes_the_socket_again(listener: socket.socket) -> None:
    with pytest.raises(OSError, match="in use"):
        links.open_listening_socket("127.0.0.1", listener.getsockname()[1])


def test_a_port_that_answers_is_not_waited_for_and_nothing_is_reported(listener: socket.socket) -> None:
    messages: list[str] = []
    wait_for_port("127.0.0.1", listener.getsockname()[1], 60, messages.append)
    assert messages == []


def test_a_port_that_never_answers_is_reported_once_and_given_up_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(links, "RETRY_S", 0.05)
    messages: list[str] = []
    begin = time.monotonic()
    with pytest.raises(BadValue, match=r"was not reached within 0\.3 seconds: connection refused"):
        wait_for_port("127.0.0.1", port := find_free_port(), 0.3, messages.append)
    assert time.monotonic() - begin < 30
    assert messages == [f"waiting for 127.0.0.1:{port} (connection refused)"]


def test_another_machine_is_not_this_one_and_is_reached_at_its_own_address() -> None:
    assert not links.is_this_machine("192.0.2.7")  # for documentation: no machine has it
    assert links.find_reachable_address("192.0.2.7") == "192.0.2.7"
    assert links.is_this_machine("127.0.0.1")
    assert links.find_reachable_address("127.0.0.1") == "127.0.0.1"


def test_a_name_that_resolves_to_loopback_is_met_at_the_network_address(monkeypatch: pytest.MonkeyPatch) -> None:
    """/etc/hosts of many distributions gives the machine's own name a loopback address."""
    monkeypatch.setattr(links, "resolve_host", lambda host: "127.0.1.1")
    monkeypatch.setattr(links, "IPV6_INTERFACES", Path("/missing"))
    monkeypatch.setattr(links, "list_interfaces", lambda: {"lo": "127.0.0.1", "eth0": "10.0.0.10"})
    assert links.find_reachable_address("node-3") == "10.0.0.10"
    assert links.find_address_towards("node-3", 29500) == "10.0.0.10"
    assert links.find_reachable_address("localhost") == "127.0.1.1"
    monkeypatch.setattr(links, "list_interfaces", lambda: {"lo": "127.0.0.1"})
    assert links.find_reachable_address("node-3") == "127.0.1.1"


def test_an_unknown_host_name_is_an_error_of_the_user(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise socket.gaierror(-2, "Name or service not known")

    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    assert not links.is_this_machine("node-3")
    with pytest.raises(BadValue, match="no machine called 'node-3' is known"):
        links.find_address_towards("node-3", 29500)


def test_loopback_is_an_interface_and_no_address_of_the_network() -> None:
    assert links.list_interfaces()["lo"] == "127.0.0.1"
    assert "127.0.0.1" not in links.list_own_addresses()
