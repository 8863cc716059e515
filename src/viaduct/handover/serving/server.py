"""The server: bind a socket, warm up, answer requests; on a signal answer accepted requests and end."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import re
import signal
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import TextIO

import uvicorn

from viaduct.errors import BadValue
from viaduct.handover.classifier import Classifier
from viaduct.handover.serving.access_log import AccessLog
from viaduct.handover.serving.app import Service, build_app
from viaduct.handover.serving.batching import Batcher, Run
from viaduct.handover.serving.connections import ConnectionGuard
from viaduct.handover.serving.limits import Limits
from viaduct.handover.serving.metrics import Metrics
from viaduct.signals import list_stop_signals

BACKLOG = 1024  # connections that wait to be accepted
SPARE_FILES = 64  # file descriptors that are not used for connections
MAX_FILES = 65_536  # file descriptors that the server asks for, at most


@dataclass(frozen=True)
class Address:
    """Address of the server; port 0 means any free port."""

    host: str
    port: int

    @property
    def url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"


def bind_socket(address: Address) -> socket.socket:
    """Return a socket bound to the address; it does not listen yet."""
    try:
        family, kind, protocol, _, target = socket.getaddrinfo(
            address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
    except (socket.gaierror, UnicodeError) as error:
        raise BadValue(f"--host {address.host}: no address of that name ({error}).", "Try 127.0.0.1.") from None
    listener = socket.socket(family, kind, protocol)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    with explain_address(address, listener):
        listener.bind(target)
    return listener


@contextlib.contextmanager
def explain_address(address: Address, listener: socket.socket) -> Iterator[None]:
    """Turn the usual errors of binding into a BadValue."""
    try:
        yield
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            raise BadValue(
                f"port {address.port} of {address.host} is in use.",
                "Give another one; --port 0 chooses a free one.",
            ) from None
        if error.errno == errno.EACCES:
            raise BadValue(
                f"port {address.port} may not be used by this account.", "Ports from 1024 on may, such as --port 8000."
            ) from None
        if error.errno == errno.EADDRNOTAVAIL:
            raise BadValue(
                f"--host {address.host} is not an address of this machine.", "127.0.0.1: only from here; 0.0.0.0: all."
            ) from None
        raise


def choose_name(requested: str | None, classifier: Classifier) -> str:
    """Return the model's name in URLs: the requested one, or that of the network."""
    if requested is not None:
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", requested):
            raise BadValue(
                f"--name {requested!r}: expected a letter or digit, then at most 99 letters, digits, '.', '_' or '-'."
            )
        return requested
    return re.sub(r"[^A-Za-z0-9._-]+", "_", classifier.name).strip("._-")[:100] or "model"


class Server(uvicorn.Server):
    """uvicorn server. After a signal it ends normally when accepted requests are answered, or drain_seconds later."""

    def __init__(
        self,
        config: uvicorn.Config,
        service: Service,
        guard: ConnectionGuard,
        access_log: AccessLog | None,
        on_ready: Callable[[], None],
    ) -> None:
        super().__init__(config)
        self.service = service
        self.guard = guard
        self.access_log = access_log
        self.on_ready = on_ready

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        """Warm the network up, then serve until a signal."""
        try:
            self.service.batcher.start(self.service.classifier.size)
            super().run(sockets)
        finally:
            self.service.batcher.stop()
            self.service.decoders.shutdown(wait=False, cancel_futures=True)
            if self.access_log is not None:
                self.access_log.close()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle the signals that end a command, without sending them to the process again as uvicorn does."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {number: signal.signal(number, self.handle_exit) for number in list_stop_signals()}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop; a second Ctrl-C ends the server without waiting."""
        self.service.stopping = True
        super().handle_exit(sig, frame)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.sweeper = asyncio.create_task(self.guard.sweep())
        self.on_ready()


def build_server(
    classifier: Classifier,
    run: Run,
    *,
    name: str,
    limits: Limits,
    log: TextIO | None = None,
    on_ready: Callable[[], None] = lambda: None,
) -> Server:
    """Return a server of this classifier; `run` computes logits and is called from one thread only."""
    limits = replace(limits, connections=min(limits.connections, allow_files() - SPARE_FILES))
    metrics = Metrics()
    batcher = Batcher(run, limits, metrics.observe_batch)
    service = Service(classifier, name, batcher, limits, metrics, decoders=min(4, os.cpu_count() or 1))
    guard = ConnectionGuard(limits, metrics)
    access_log = AccessLog(log) if log is not None else None
    for logger in ("uvicorn.error", "python_multipart"):  # they warn about bad requests, which are in the access log
        logging.getLogger(logger).setLevel(logging.ERROR)
    config = uvicorn.Config(
        build_app(service, access_log),
        loop="asyncio",
        http=guard.build_protocol(),
        ws="none",
        lifespan="off",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        date_header=False,  # MeasuredApp adds it
        backlog=BACKLOG,
        timeout_keep_alive=int(limits.idle_seconds),
        timeout_graceful_shutdown=int(limits.drain_seconds),
    )
    return Server(config, service, guard, access_log, on_ready)


def allow_files() -> int:
    """Raise this process's limit of open files as far as allowed, up to MAX_FILES; return the limit."""
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = MAX_FILES if hard == resource.RLIM_INFINITY else min(hard, MAX_FILES)
    if soft != resource.RLIM_INFINITY and soft < limit:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
            soft = limit
    return MAX_FILES if soft == resource.RLIM_INFINITY else soft


def open_log(path: Path | None) -> TextIO:
    """Open the access log for appending; the default is stderr."""
    if path is None:
        return sys.stderr
    if not path.parent.is_dir():
        raise BadValue(f"--access-log {path} cannot be written: there is no folder {path.parent}.", "Make it first.")
    # Without O_NONBLOCK, opening a named pipe without a reader would block.
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK
    stream = open(path, "a", encoding="utf-8", opener=lambda name, _: os.open(name, flags, 0o644))  # noqa: SIM115
    os.set_blocking(stream.fileno(), True)
    return stream
