"""Network names and reach of this machine: addresses, interfaces, ports."""

from __future__ import annotations

import errno
import fcntl
import socket
import struct
import time
from collections.abc import Callable

from viaduct.errors import BadValue

SIOCGIFADDR = 0x8915
"""Linux: the IPv4 address of an interface."""
RETRY_S = 0.5
BACKLOG = 2048
CONNECT_S = 3.0


def list_interfaces() -> dict[str, str]:
    """Interface -> its first IPv4 address, of those that have one."""
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
    """Return this machine's addresses, for a message; second addresses of an interface are missing."""
    return [address for name, address in list_interfaces().items() if name != "lo"]


def is_mine(host: str) -> bool:
    """Is this name or address this machine? Only its own addresses can be bound."""
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
    made = socket.socket(family, socket.SOCK_STREAM)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind((address, port))
        made.listen(BACKLOG)
    except OSError:
        made.close()
        raise
    return made


def find_meeting_address(host: str) -> str:
    """Return the address at which the others reach this machine under that name, if it is this machine's; else it.

    /etc/hosts may call this machine 127.0.1.1, where nobody else finds it.
    """
    if not is_mine(host):
        return host
    try:
        address = socket.gethostbyname(host)
    except (OSError, UnicodeError):
        return host
    if not address.startswith("127.") or is_loopback(host):
        return address
    return next(iter(list_own_addresses()), address)


def is_loopback(host: str) -> bool:
    """Does it mean this machine on every machine?"""
    return host == "localhost" or host.startswith("127.")


def find_interface(address: str) -> str | None:
    """Return the interface that has an address."""
    return next((name for name, own in list_interfaces().items() if own == address), None)


def find_address_towards(host: str, port: int) -> str:
    """Our own address on the way to that machine; nothing is sent."""
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
    # The meeting place is this machine under a name that means another one elsewhere; the others need a real one.
    return next(iter(list_own_addresses()), address)


def is_port_free(port: int) -> bool:
    """Return True if nothing listens on a port of this machine."""
    with socket.socket(socket.AF_INET6 if socket.has_ipv6 else socket.AF_INET, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("", port))
        except OSError as error:
            if error.errno == errno.EADDRINUSE:
                return False
            if error.errno in (errno.EACCES, errno.EPERM):
                raise BadValue(f"port {port} is not for users.", "Take one above 1023: --port 29500.") from error
            if error.errno not in (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL):
                raise
    return True


def parse_endpoint(text: str, default_port: int) -> tuple[str, int]:
    """HOST:PORT, or HOST with the usual port."""
    host, colon, digits = text.strip().rpartition(":")
    if not colon:
        host, digits = text.strip(), str(default_port)
    if not host or not digits.isascii() or not digits.isdecimal() or not 1 <= int(digits) <= 65535:
        raise BadValue(f"--rdzv {text!r} is not HOST:PORT.", "Write it as 10.0.0.10:29500; ports are 1 to 65535.")
    return host, int(digits)


def wait_for(host: str, port: int, timeout: float, waiting: Callable[[str], None]) -> None:
    """Wait until something listens there; `waiting` gets one message if that is not at once."""
    end = time.monotonic() + timeout
    has_reported = False
    while True:
        why = connect(host, port, max(0.1, min(CONNECT_S, end - time.monotonic())))
        if why is None:
            return
        if time.monotonic() + RETRY_S >= end:
            raise BadValue(
                f"the rendezvous {host}:{port} was not reached within {timeout:g} seconds: {why}.",
                f"Is `viaduct launch` running on {host}, with this port, and may it be reached through firewalls?",
                "--timeout SECONDS waits longer.",
            )
        if not has_reported:
            waiting(f"waiting for {host}:{port} ({why})")
            has_reported = True
        time.sleep(RETRY_S)


def connect(host: str, port: int, timeout: float) -> str | None:
    """Return None if something listens there, else the reason."""
    try:
        with socket.create_connection((host, port), timeout=timeout):
            return None
    except socket.gaierror:
        return f"no machine called {host!r} is known"
    except TimeoutError:
        return "no answer"
    except OSError as error:
        return (error.strerror or str(error)).lower()
