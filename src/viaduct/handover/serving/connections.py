"""Limits on the number and the slowness of connections.

uvicorn waits forever for the headers of a request, and for a client that does not read its response, so slow clients
could use up all file descriptors. Here each connection has deadlines. If there are too many connections, those that
have waited longest without a complete request are dropped.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from typing import Any

from uvicorn.protocols.http.h11_impl import H11Protocol

from viaduct.handover.serving.limits import Limits
from viaduct.handover.serving.metrics import Metrics

# Share of the waiting connections that is dropped at once, so that they need not be sorted for each new one.
SHARE_DROPPED = 0.05


class GuardedProtocol(H11Protocol):
    """Connection that records since when it has been in its current state."""

    guard: ConnectionGuard  # set by `ConnectionGuard.build_protocol`

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self.state_since = time.monotonic()  # start of the current state
        self.awaits_request = True  # the connection is new, or a request has begun; False between requests
        self.stuck_since: float | None = None  # since when the client has not read the response; None: it reads
        super().connection_made(transport)
        self.guard.admit(self)

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.guard.remove(self)

    def data_received(self, data: bytes) -> None:
        if not self.awaits_request and not self.is_answering():
            self.state_since, self.awaits_request = time.monotonic(), True
        if not self.transport.is_closing():
            super().data_received(data)

    def on_response_complete(self) -> None:
        self.state_since, self.awaits_request = time.monotonic(), False
        super().on_response_complete()

    def pause_writing(self) -> None:
        self.stuck_since = time.monotonic()
        super().pause_writing()

    def resume_writing(self) -> None:
        self.stuck_since = None
        super().resume_writing()

    def is_answering(self) -> bool:
        """Return True between the headers of a request and the end of its response."""
        return self.cycle is not None and not self.cycle.response_complete

    def is_waiting_for_client(self) -> bool:
        """Return True if there is no complete request to answer."""
        return not self.is_answering() or self.cycle.more_body

    def find_drop_reason(self, now: float, limits: Limits) -> str | None:
        """Return the reason to drop the connection, or None."""
        if self.stuck_since is not None and now - self.stuck_since > limits.write_seconds:
            return "slow_reader"
        if self.is_answering():
            return None  # the upload has its own deadline
        if self.transport.is_closing():
            return "slow_reader" if now - self.state_since > limits.write_seconds else None
        allowed = limits.head_seconds if self.awaits_request else limits.idle_seconds
        if now - self.state_since > allowed:
            return "slow_headers" if self.awaits_request else "idle"
        return None


class ConnectionGuard:
    """All connections of a server."""

    def __init__(self, limits: Limits, metrics: Metrics) -> None:
        self.limits = limits
        self.metrics = metrics
        self.open: set[GuardedProtocol] = set()

    def build_protocol(self) -> type[asyncio.Protocol]:
        """Return the class of connections for uvicorn."""
        return type("ServedProtocol", (GuardedProtocol,), {"guard": self})

    def admit(self, connection: GuardedProtocol) -> None:
        """Add a connection; if there are too many, drop some that waited longest, or this one if none waits."""
        if len(self.open) >= self.limits.connections:
            slow = sorted(
                (other for other in self.open if other.is_waiting_for_client()), key=lambda other: other.state_since
            )
            self.drop(slow[: max(1, int(SHARE_DROPPED * len(slow)))] or [connection], "too_many")
        self.open.add(connection)
        self.metrics.connections.set(len(self.open))

    def remove(self, connection: GuardedProtocol) -> None:
        self.open.discard(connection)
        self.metrics.connections.set(len(self.open))

    def drop(self, connections: Iterable[GuardedProtocol], reason: str) -> None:
        """Close connections at once, even if data remain to be sent."""
        for connection in connections:
            self.metrics.dropped.labels(reason).inc()
            connection.transport.abort()
            self.open.discard(connection)

    async def sweep(self) -> None:
        """Drop connections that exceed a deadline, once a second, forever."""
        while True:
            await asyncio.sleep(1.0)
            now = time.monotonic()
            reasons: dict[str, list[Any]] = {}
            for connection in self.open:
                if reason := connection.find_drop_reason(now, self.limits):
                    reasons.setdefault(reason, []).append(connection)
            for reason, connections in reasons.items():
                self.drop(connections, reason)
