"""Conversion of a request's encoded images, pixels or tensor to the network's input; runs in decoding threads."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from contextlib import nullcontext

import numpy as np
import numpy.typing as npt
import torch

from viaduct.errors import BadData, TooLarge
from viaduct.handover.classifier import Classifier
from viaduct.handover.decoding import read_size
from viaduct.handover.predicting import stack_inputs
from viaduct.handover.preparing import Floats
from viaduct.handover.serving.limits import Limits, Refusal
from viaduct.handover.serving.open_inference import InferRequest

LARGE_REQUEST = 16_000_000  # pixels; requests with more are decoded one at a time, to limit memory
LARGE_REQUEST_LOCK = threading.Lock()


def prepare_request(request: InferRequest, classifier: Classifier, limits: Limits) -> torch.Tensor:
    """Return the network's input, N x 3 x size x size, for an inference request."""
    if request.input == "image_bytes":
        return prepare_images(request.data, classifier, limits)
    if request.input == "pixels":
        return prepare_pixels(request.data, classifier, limits)
    size = classifier.size
    if request.shape[1:] != (3, size, size):
        raise Refusal(
            400, f"input 'images': the shape is {list(request.shape)}; the network takes [N, 3, {size}, {size}]."
        )
    if not np.isfinite(request.data).all():
        raise Refusal(400, "input 'images' holds values that are not finite.")
    return torch.from_numpy(np.array(request.data, np.float32))


def prepare_images(images: Sequence[bytes], classifier: Classifier, limits: Limits) -> torch.Tensor:
    """Return the network's input for encoded images; check the sizes in their headers first."""
    pixels = check_sizes(images, limits)
    prepared: list[Floats] = []
    with LARGE_REQUEST_LOCK if pixels > LARGE_REQUEST else nullcontext():
        for position, data in enumerate(images):
            try:
                prepared.append(classifier.prepare(data))
            except BadData as error:
                raise make_image_refusal(position, len(images), error) from None
    return stack_inputs(prepared)


def check_sizes(images: Sequence[bytes], limits: Limits) -> int:
    """Return the pixels of all images together; raise Refusal if they are too many, or one is not an image."""
    pixels = 0
    for position, data in enumerate(images):
        try:
            height, width = read_size(data)
        except BadData as error:
            raise make_image_refusal(position, len(images), error) from None
        pixels += height * width
        if pixels > limits.max_pixels:
            subject = "the image has" if len(images) == 1 else "the images have together"
            raise Refusal(413, f"{subject} {pixels:,} pixels or more; at most {limits.max_pixels:,} are decoded.")
    return pixels


def prepare_pixels(images: npt.NDArray[np.uint8], classifier: Classifier, limits: Limits) -> torch.Tensor:
    """Return the network's input for decoded images."""
    count, height, width, channels = images.shape
    if channels != 3:
        raise Refusal(400, f"input 'pixels': the shape is {list(images.shape)}; it must be [N, height, width, 3].")
    if count * height * width > limits.max_pixels:
        raise Refusal(
            413, f"the images have {count * height * width:,} pixels; at most {limits.max_pixels:,} are taken."
        )
    try:
        return stack_inputs([classifier.prepare_pixels(np.array(image)) for image in images])
    except BadData as error:
        raise Refusal(400, f"input 'pixels': {error.message}") from None


def make_image_refusal(position: int, count: int, error: BadData) -> Refusal:
    """Return the refusal of a request with an image that cannot be decoded."""
    subject = "the image" if count == 1 else f"image {position}"
    status = 413 if isinstance(error, TooLarge) else 400
    return Refusal(status, f"{subject} cannot be used: {' '.join((error.message, *error.hints))}")
