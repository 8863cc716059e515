"""Limits of a server on sizes, times and numbers, and the refusal of requests beyond them."""

from __future__ import annotations

from dataclasses import dataclass

MEGABYTE = 1 << 20


@dataclass(frozen=True)
class Limits:
    """Limits of one server."""

    max_batch: int = 16  # images that the network sees at once
    latency_budget: float = 0.05  # seconds in the queue and the network together, after decoding
    queue: int = 256  # images accepted and not yet answered
    max_bytes: int = 32 * MEGABYTE  # size of a request's body
    max_pixels: int = 1 << 26  # pixels of all images of a request together
    max_images: int = 64  # images in a request, if the queue is at least as long
    max_json: int = 8 * MEGABYTE  # bytes of a JSON body; parsing it blocks all other requests
    connections: int = 1000  # connections that are open at the same time
    head_seconds: float = 10.0  # time from the first byte of a request, or a new connection, to the end of the headers
    idle_seconds: float = 60.0  # time between two requests of a connection
    write_seconds: float = 30.0  # time without progress while a response is sent
    upload_grace: float = 10.0  # seconds added to the time that upload_rate allows
    upload_rate: int = 16 << 10  # least bytes per second of an upload, averaged since its start
    drain_seconds: float = 30.0  # time for accepted requests when the server stops

    @property
    def upload_memory(self) -> int:
        """Bytes of bodies that may be in memory at once."""
        return max(256 * MEGABYTE, 4 * self.max_bytes)

    @property
    def images_per_request(self) -> int:
        """Largest number of images in a request: at most the size of the queue."""
        return min(self.max_images, self.queue)


class Refusal(Exception):
    """Refusal of a request: the response is {"error": message} with this status and an optional Retry-After header."""

    def __init__(self, status: int, message: str, *, retry_after: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.retry_after = retry_after
