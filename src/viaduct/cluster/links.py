"""Network names and reach of this machine: addresses, interfaces, ports."""

from __future__ import annotations

import errno
import fcntl
import socket
import struct
import time
from collections.abc import Callable

from viaduct.errors import BadValue

SIOCGIFADDR = 0x8915  # Linux: the IPv4 address of an interface
RETRY_S = 0.5
BACKLOG = 2048
CONNECT_S = 3.0


def list_interfaces() -> dict[str, str]:
    """Return the first IPv4 address of each network interface that has one."""
    found = {}
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, name in socket.if_nameindex():
            request = struct.pack("256s", name.encode()[:15])
            try:
                answer = fcntl.ioctl(probe.fileno(), SIOCGIFADDR, request)
            except OSError:  # it has none
                continue
            found[name] = socket.inet_ntoa(answer[20:24])
    return found


def list_own_addresses() -> list[str]:
    """Return the first address of each of this machine's interfaces, without loopback."""
    return [address for name, address in list_interfaces().items() if name != "lo"]


def is_this_machine(host: str) -> bool:
    """Return True if a name or address is this machine's: only own addresses can be bound.

    A name that cannot be resolved is compared with this machine's name.
    """
    try:
        address = socket.gethostbyname(host)
    except (OSError, UnicodeError):
        return host == socket.gethostname()
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.bind((address, 0))
        except OSError:
            return False
    return True


def open_listening_socket(address: str, port: int = 0) -> socket.socket:
    """Return a socket that listens at one of this machine's addresses, and at no other."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((address, port))
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    return listener


def find_meeting_address(host: str) -> str:
    """Return the address at which other machines reach this one, if `host` is this machine; else `host` itself.

    /etc/hosts may give this machine's name the address 127.0.1.1, which no other machine can reach.
    """
    if not is_this_machine(host):
        return host
    try:
        address = socket.gethostbyname(host)
    except (OSError, UnicodeError):
        return host
    if not address.startswith("127.") or is_loopback(host):
        return address
    return next(iter(list_own_addresses()), address)


def is_loopback(host: str) -> bool:
    """Return True for `localhost` and 127.x: on every machine they mean that machine."""
    return host == "localhost" or host.startswith("127.")


def find_address_towards(host: str, port: int) -> str:
    """Return the address from which this machine would send to another; nothing is sent. Raises BadValue."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((socket.gethostbyname(host), port))
        except socket.gaierror:
            raise BadValue(f"no machine called {host!r} is known.", "--rdzv takes a name or an address.") from None
        except OSError as error:
            why = (error.strerror or str(error)).lower()
            raise BadValue(f"there is no way from this machine to {host}: {why}.") from error
        address: str = probe.getsockname()[0]
    if not address.startswith("127.") or is_loopback(host):
        return address
    # `host` is a name of this machine that resolves to loopback here: other machines need its network address.
    return next(iter(list_own_addresses()), address)


def is_port_free(port: int) -> bool:
    """Return True if nothing listens on a port of this machine; raise BadValue if users may not open the port."""
    with socket.socket(socket.AF_INET6 if socket.has_ipv6 else socket.AF_INET, socket.SOCK_STREAM) as probe:
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
    """Parse HOST:PORT, or HOST with the default port; raise BadValue."""
    host, colon, digits = text.strip().rpartition(":")
    if not colon:
        host, digits = text.strip(), str(default_port)
    if not host or not digits.isascii() or not digits.isdecimal() or not 1 <= int(digits) <= 65535:
        raise BadValue(f"--rdzv {text!r} is not HOST:PORT.", "Write it as 10.0.0.10:29500; ports are 1 to 65535.")
    return host, int(digits)


def wait_for_port(host: str, port: int, timeout: float, report: Callable[[str], None]) -> None:
    """Wait until something listens on a port; raise BadValue after `timeout` seconds.

    `report` gets one message if the first try fails.
    """
    end = time.monotonic() + timeout
    has_reported = False
    while True:
        why = try_connect(host, port, max(0.1, min(CONNECT_S, end - time.monotonic())))
        if why is None:
            return
        if time.monotonic() + RETRY_S >= end:
            raise BadValue(
                f"the rendezvous {host}:{port} was not reached within {timeout:g} seconds: {why}.",
                f"Is `viaduct launch` running on {host}, with this port, and may it be reached through firewalls?",
                "--timeout SECONDS waits longer.",
            )
        if not has_reported:
            report(f"waiting for {host}:{port} ({why})")
            has_reported = True
        time.sleep(RETRY_S)


def try_connect(host: str, port: int, timeout: float) -> str | None:
    """Try to connect; return None if something listens there, else why not."""
    try:
        with socket.create_connection((host, port), timeout=timeout):
            return None
    except socket.gaierror:
        return f"no machine called {host!r} is known"
    except TimeoutError:
        return "no answer"
    except OSError as error:
        return (error.strerror or str(error)).lower()
