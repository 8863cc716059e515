"""This machine's network: names, addresses, interfaces, ports."""

from __future__ import annotations

import errno
import fcntl
import ipaddress
import socket
import struct
import time
from collections.abc import Callable
from pathlib import Path

from viaduct.errors import BadValue

SIOCGIFADDR = 0x8915  # Linux: the IPv4 address of an interface
IPV6_INTERFACES = Path("/proc/net/if_inet6")  # Linux: address, number, prefix, scope, flags and name of each
FORBIDDEN_IN_HOST = set("[]/%@#?,;\\\"'")  # and white space
RETRY_S = 0.5  # pause between two attempts to connect
BACKLOG = 2048  # connections that may wait to be accepted
CONNECT_S = 3.0  # limit of one attempt to connect


def list_interfaces() -> dict[str, str]:
    """Return the first IPv4 address of each network interface that has one."""
    addresses = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:15])
            try:
                answer = fcntl.ioctl(probe.fileno(), SIOCGIFADDR, request)
            except OSError:  # the interface has no address
                continue
            addresses[name] = socket.inet_ntoa(answer[20:24])  # behind the name (16 bytes), family and port (2 each)
    return addresses


def list_ipv6_addresses() -> list[tuple[str, str]]:
    """Return (address, interface) of this machine's IPv6 addresses, without link-local ones."""
    try:
        lines = IPV6_INTERFACES.read_text().splitlines()
    except OSError:  # the machine has no IPv6
        return []
    pairs = [(ipaddress.IPv6Address(bytes.fromhex(line.split()[0])), line.split()[-1]) for line in lines]
    return [(str(address), name) for address, name in pairs if not address.is_link_local]


def find_interface(address: str) -> str | None:
    """Return the network interface of this machine that has this numeric address, or None."""
    pairs = [(own_address, name) for name, own_address in list_interfaces().items()] + list_ipv6_addresses()
    return next((name for own_address, name in pairs if own_address == address), None)


def list_own_addresses() -> list[str]:
    """Return the first IPv4 address of each interface, then all IPv6 addresses, without loopback."""
    addresses = [address for name, address in list_interfaces().items() if name != "lo"]
    return addresses + [address for address, name in list_ipv6_addresses() if name != "lo"]


def resolve_host(host: str) -> str:
    """Return the numeric address of a name, IPv4 if it has both kinds. Raises OSError and UnicodeError."""
    addresses = [str(entry[4][0]) for entry in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)]
    return next((address for address in addresses if ":" not in address), addresses[0])


def get_family(address: str) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def format_endpoint(host: str, port: int) -> str:
    """Return HOST:PORT, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def is_this_machine(host: str) -> bool:
    """Return True if a name or address is this machine's."""
    try:
        address = resolve_host(host)
    except (OSError, UnicodeError):
        return host == socket.gethostname()
    with socket.socket(get_family(address), socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((address, 0))  # only this machine's addresses can be bound
        except OSError:
            return False
    return True


def open_listening_socket(address: str, port: int = 0) -> socket.socket:
    """Return a socket that listens at one of this machine's addresses only."""
    listener = socket.socket(get_family(address), socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


def find_reachable_address(host: str) -> str:
    """Return the address at which other machines reach this one, if `host` is this machine; else `host` itself.

    /etc/hosts may give this machine's name the address 127.0.1.1, which no other machine can reach.
    """
    if not is_this_machine(host):
        return host
    try:
        address = resolve_host(host)
    except (OSError, UnicodeError):
        return host
    return replace_loopback(address, host)


def replace_loopback(address: str, host: str) -> str:
    """Return this machine's network address instead of a loopback address, unless `host` itself asks for loopback."""
    if not is_loopback(address) or is_loopback(host):
        return address
    return next(iter(list_own_addresses()), address)


def is_loopback(host: str) -> bool:
    """Return True for `localhost`, 127.x and ::1."""
    return host in ("localhost", "::1") or host.startswith("127.")


def find_address_towards(host: str, port: int) -> str:
    """Return the address from which this machine would send to `host`; nothing is sent. Raises BadValue."""
    try:
        target = resolve_host(host)
    except (socket.gaierror, UnicodeError):
        raise BadValue(f"no machine called {host!r} is known.", "--rdzv takes a name or an address.") from None
    with socket.socket(get_family(target), socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((target, port))
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise BadValue(f"there is no way from this machine to {host}: {reason}.") from error
        address: str = probe.getsockname()[0]
    return replace_loopback(address, host)


def is_port_free(port: int) -> bool:
    """Return True if nothing listens on a port of this machine; raise BadValue if this user may not open it."""
    family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return False
            if error.errno in (errno.EACCES, errno.EPERM):
                raise BadValue(
                    f"you may not open port {port} on this machine.", "Take one above 1023: --port 29500."
                ) from error
            if error.errno not in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL):
                raise
    return True


def parse_endpoint(text: str, default_port: int) -> tuple[str, int]:
    """Parse HOST:PORT or [IPV6]:PORT, where :PORT may be missing; raise BadValue."""
    host, digits = split_endpoint(text.strip())
    if digits is None:
        digits = str(default_port)
    if not is_host_name(host) or not digits.isascii() or not digits.isdecimal() or not 1 <= int(digits) <= 65535:
        hint = "Write it as 10.0.0.10:29500; ports are 1 to 65535."
        if text.count(":") > 1:
            hint = "Write an IPv6 address in brackets: [2001:db8::7]:29500; ports are 1 to 65535."
        raise BadValue(f"--rdzv {text!r} is not HOST:PORT.", hint)
    refuse_ambiguous_address(host, text)
    return host, int(digits)


def split_endpoint(text: str) -> tuple[str, str | None]:
    """Return host and port of an endpoint as text: an empty host for malformed text, None for a missing port."""
    if is_ipv6(text):
        return text, None
    if text.startswith("["):
        host, bracket, suffix = text[1:].partition("]")
        if not bracket or not is_ipv6(host) or (suffix and suffix[0] != ":"):
            return "", None
        return host, suffix[1:] if suffix else None
    host, colon, digits = text.partition(":")
    return host, digits if colon else None


def is_ipv6(text: str) -> bool:
    """Return True for an IPv6 address, with or without a zone (fe80::1%eth0)."""
    try:
        ipaddress.IPv6Address(text)
    except ValueError:
        return False
    return True


def is_host_name(host: str) -> bool:
    """Return True if the text is well formed as a host name or an address."""
    if is_ipv6(host):
        return True
    return bool(host) and not any(letter.isspace() or letter in FORBIDDEN_IN_HOST for letter in host)


def refuse_ambiguous_address(host: str, text: str) -> None:
    """Raise BadValue for an address that does not name one machine: unspecified, multicast or link-local IPv6."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:  # a name
        return
    if address.is_unspecified or address.is_multicast:
        raise BadValue(f"--rdzv {text!r} is the address of no machine.", "Give one of a machine of the job.")
    if address.is_link_local and address.version == 6:
        raise BadValue(
            f"--rdzv {text!r} is a link-local address, which other machines cannot use as it is.",
            "Give a name, an IPv4 address or a global IPv6 address of that machine.",
        )


def wait_for_port(host: str, port: int, timeout: float, report: Callable[[str], None]) -> None:
    """Wait until something listens on a port; raise BadValue after `timeout` seconds. The wait is reported once."""
    end = time.monotonic() + timeout
    has_reported = False
    while True:
        problem = try_connect(host, port, max(0.1, min(CONNECT_S, end - time.monotonic())))
        if problem is None:
            return
        if time.monotonic() + RETRY_S >= end:
            raise BadValue(
                f"the rendezvous {format_endpoint(host, port)} was not reached within {timeout:g} seconds: {problem}.",
                f"Is `viaduct launch` running on {host}, with this port, and may it be reached through firewalls?",
                "--timeout SECONDS waits longer.",
            )
        if not has_reported:
            report(f"waiting for {format_endpoint(host, port)} ({problem})")
            has_reported = True
        time.sleep(RETRY_S)


def try_connect(host: str, port: int, timeout: float) -> str | None:
    """Try to connect; return None if it works, else the problem."""
    try:
        with socket.create_connection((host, port), timeout=timeout):
            return None
    except socket.gaierror:
        return f"no machine called {host!r} is known"
    except TimeoutError:
        return "no answer"
    except OSError as error:
        return (error.strerror or str(error)).lower()
