"""Counters of a server."""

from __future__ import annotations

from .conftest import Running, predict
from .sample_images import IMAGES


def test_the_metrics_count_what_was_answered(served: Running) -> None:
    def read() -> dict[str, float]:
        text = served.client.get("/metrics").text
        rows = (line.rsplit(" ", 1) for line in text.splitlines() if not line.startswith("#"))
        return {name: float(value) for name, value in rows}

    before = read()
    predict(served, IMAGES["JPEG"])
    predict(served, b"hello")
    after = read()

    def count_added(name: str) -> float:
        return after[name] - before.get(name, 0.0)

    assert count_added('viaduct_responses_total{code="200",route="/predict"}') == 1
    assert count_added('viaduct_responses_total{code="400",route="/predict"}') == 1
    for stage in ("preprocess", "queue", "network"):
        assert count_added(f"viaduct_{stage}_seconds_count") == 1
    assert count_added("viaduct_request_seconds_count") == 2
    assert count_added("viaduct_batch_images_sum") == 1
    assert after["viaduct_queue_images"] == 0
    assert after["viaduct_connections"] >= 1
