"""Limits of a server that follow from others."""

from __future__ import annotations

from viaduct.handover.serving.limits import Limits


def test_a_request_never_has_more_images_than_the_queue_holds() -> None:
    assert Limits(queue=3, max_images=64).images_per_request == 3
    assert Limits(queue=256, max_images=64).images_per_request == 64


def test_the_largest_body_always_fits_into_the_memory_of_uploads() -> None:
    large = Limits(max_bytes=1 << 30)
    assert large.upload_memory == 4 << 30
    assert Limits(max_bytes=1).upload_memory == 256 << 20
