"""Metrics of a server in the text format of Prometheus; its client library adds memory and open files."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics, generate_latest
from prometheus_client.process_collector import ProcessCollector

# Upper bounds of the histograms' buckets.
SECONDS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
IMAGES = (1, 2, 4, 8, 16, 32, 64, 128, 256)


class Metrics:
    """Metrics of one server: seconds and batch sizes as histograms; images, responses and connections.

    `total` is observed for inference requests only.
    """

    def __init__(self) -> None:
        # Otherwise each counter would also report its creation time, which doubles the number of lines.
        disable_created_metrics()  # type: ignore[no-untyped-call]
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.total = self._histogram("viaduct_request_seconds", "From the headers of a request to its response.")
        self.preprocess = self._histogram("viaduct_preprocess_seconds", "Decoding and preparing a request's images.")
        self.queue = self._histogram("viaduct_queue_seconds", "Waiting for the network.")
        self.network = self._histogram("viaduct_network_seconds", "A batch in the network.")
        self.batch = Histogram("viaduct_batch_images", "Images of a batch.", buckets=IMAGES, registry=self.registry)
        self.images = Counter("viaduct_images", "Images that the network classified.", registry=self.registry)
        self.responses = Counter(
            "viaduct_responses", "Responses, by route and status code.", ["route", "code"], registry=self.registry
        )
        self.queued = Gauge("viaduct_queue_images", "Images accepted and not answered.", registry=self.registry)
        self.connections = Gauge("viaduct_connections", "Open connections.", registry=self.registry)
        self.dropped = Counter(
            "viaduct_dropped_connections", "Connections closed by the server.", ["reason"], registry=self.registry
        )

    def _histogram(self, name: str, text: str) -> Histogram:
        return Histogram(name, text, buckets=SECONDS, registry=self.registry)

    def observe_batch(self, images: int, seconds: float) -> None:
        self.batch.observe(images)
        self.network.observe(seconds)
        self.images.inc(images)

    def render(self) -> bytes:
        return generate_latest(self.registry)
