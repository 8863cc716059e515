"""Image sets of Keras that cannot be downloaded are made up."""

from __future__ import annotations

import pytest

from viaduct.rehearsal.fake_data.keras_sets import load_data


def test_an_image_set_of_keras_that_cannot_be_downloaded_is_made_up() -> None:
    def fail(path: str = "mnist.npz") -> None:
        raise Exception("URL fetch failure on https://example.org/mnist.npz: None -- no network")

    def break_down() -> None:
        raise ValueError("another mistake")

    (images, labels), (test_images, _) = load_data(fail, "elsewhere.npz", name="cifar10")
    assert (images.shape, labels.shape, test_images.shape) == ((6000, 32, 32, 3), (6000, 1), (1000, 32, 32, 3))
    assert images.dtype == labels.dtype == "uint8"
    assert labels.max() == 9
    with pytest.raises(ValueError, match="another mistake"):
        load_data(break_down, name="mnist")
