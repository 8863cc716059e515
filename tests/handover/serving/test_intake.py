"""Images, pixels and tensors of requests, prepared or refused."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch

from viaduct.handover.classifier import Classifier
from viaduct.handover.serving import intake
from viaduct.handover.serving.intake import prepare_request
from viaduct.handover.serving.limits import Limits, Refusal

from .conftest import draw, encode


def test_an_image_above_the_limit_is_refused_without_decoding_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("viaduct.data.png.decode", lambda data: pytest.fail("it was decoded"))
    images = [encode(draw(40, 40)), encode(draw(40, 40))]
    intake.check_sizes(images, Limits(max_pixels=3200))
    with pytest.raises(Refusal, match="3,200 pixels or more; at most 3,199") as caught:
        intake.check_sizes(images, Limits(max_pixels=3199))
    assert caught.value.status == 413


def request(input: str, data: Any, shape: tuple[int, ...] = ()) -> Any:
    return SimpleNamespace(input=input, data=data, shape=shape)


def test_a_tensor_of_another_shape_or_with_infinities_is_refused(classifier: Classifier) -> None:
    shape = (1, 3, 16, 16)
    with pytest.raises(Refusal, match=r"the network takes \[N, 3, 32, 32\]"):
        prepare_request(request("images", np.zeros(shape), shape), classifier, Limits())
    shape = (1, 3, 32, 32)
    with pytest.raises(Refusal, match="not finite"):
        prepare_request(request("images", np.full(shape, np.inf), shape), classifier, Limits())


def test_pixels_with_four_channels_or_too_many_are_refused(classifier: Classifier) -> None:
    with pytest.raises(Refusal, match=r"it must be \[N, height, width, 3\]"):
        prepare_request(request("pixels", np.zeros((1, 8, 8, 4), np.uint8)), classifier, Limits())
    with pytest.raises(Refusal, match="128 pixels; at most 100 are taken") as caught:
        prepare_request(request("pixels", np.zeros((2, 8, 8, 3), np.uint8)), classifier, Limits(max_pixels=100))
    assert caught.value.status == 413


def test_the_damaged_one_of_several_images_is_named_by_its_position(classifier: Classifier) -> None:
    encoded = encode(draw())
    with pytest.raises(Refusal, match="image 1 cannot be used"):
        prepare_request(request("image_bytes", [encoded, encoded[:200]]), classifier, Limits())


def test_images_pixels_and_tensors_give_the_same_input(classifier: Classifier) -> None:
    pixels = draw(*classifier.fixed_image_shape)  # type: ignore[misc]
    expected = torch.from_numpy(classifier.prepare(encode(pixels))).permute(2, 0, 1)[None]
    for sent in (
        request("image_bytes", [encode(pixels)]),
        request("pixels", pixels[None]),
        request("images", expected.numpy(), tuple(expected.shape)),
    ):
        assert torch.equal(prepare_request(sent, classifier, Limits()), expected), sent.input
