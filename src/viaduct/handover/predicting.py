"""Classification of image files with a trained network.

    for batch in predict_files(classifier, run, files, top=5, batch=32, reader=reader):
        for result in batch: result.file, result.predictions or result.error

`run` computes logits, such as `Engine.run`. Threads read, decode and prepare files, about two batches ahead of the
network. Results are in the order of the files.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from viaduct.cores import count_cores
from viaduct.data.prefetch import prepare_ahead
from viaduct.errors import BadData, OutOfMemory, is_out_of_memory
from viaduct.handover.classifier import Classifier
from viaduct.handover.decoding import read_size
from viaduct.handover.image_files import ImageFile, read_image_file
from viaduct.handover.preparing import Floats

Prepare: TypeAlias = Callable[[bytes], Floats]  # an encoded image to float32 size x size x 3
Run: TypeAlias = Callable[[Tensor], Tensor]  # float32 N x 3 x size x size to float32 N x classes
Thumbnail: TypeAlias = npt.NDArray[np.uint8]
LARGE_PIXELS = 1 << 24  # images with more pixels are decoded one at a time, to limit memory
MAX_THREADS = 8  # threads that read and decode


@dataclass(frozen=True)
class Prediction:
    """Predicted class and its probability."""

    label: str
    index: int
    probability: float


@dataclass(frozen=True)
class Result:
    """Result for a file: predictions, most probable first; an error; or neither for a non-image in a folder."""

    file: str
    predictions: tuple[Prediction, ...] = ()
    error: str = ""
    thumbnail: Thumbnail | None = None


@dataclass(frozen=True)
class Prepared:
    """File that was read: the network's input, an error, or neither for a non-image in a folder."""

    file: str
    inputs: Floats | None = None
    error: str = ""
    thumbnail: Thumbnail | None = None


class Reader:
    """Reads and prepares files, in several threads; `draw` makes thumbnails of the first `max_thumbnails` images."""

    def __init__(
        self, prepare: Prepare, draw: Callable[[bytes], Thumbnail] | None = None, max_thumbnails: int = 0
    ) -> None:
        self.prepare, self.draw, self.max_thumbnails = prepare, draw, max_thumbnails
        self.drawn = 0  # thumbnails drawn so far
        self.large_image_lock = threading.Lock()

    def __call__(self, file: ImageFile) -> Prepared:
        try:
            data = read_image_file(file)
            if data is None:
                return Prepared(file.path)
            height, width = read_size(data)
            if height * width <= LARGE_PIXELS:
                return self.decode(file.path, data)
            with self.large_image_lock:
                return self.decode(file.path, data)
        except BadData as error:
            return Prepared(file.path, error=" ".join((error.message, *error.hints)))
        except MemoryError:
            return Prepared(file.path, error="there is not enough memory to decode it.")

    def decode(self, path: str, data: bytes) -> Prepared:
        """Prepare an image, and draw a thumbnail if it is one of the first."""
        inputs, thumbnail = self.prepare(data), None
        if self.draw is not None and self.drawn < self.max_thumbnails + MAX_THREADS:
            # Threads finish out of order, so MAX_THREADS more are drawn to include the first ones.
            self.drawn += 1
            with suppress(BadData):  # the image is damaged outside of the network's crop
                thumbnail = self.draw(data)
        return Prepared(path, inputs, thumbnail=thumbnail)


def choose_batch(device: torch.device) -> int:
    return 32 if device.type == "cpu" else 128


def predict_files(
    classifier: Classifier, run: Run, files: Iterable[ImageFile], *, top: int, batch: int, reader: Reader
) -> Generator[list[Result], None, None]:
    """Yield the results of all files in order, in lists of `batch` images, with the other files that lie among them."""
    threads = min(MAX_THREADS, count_cores())
    pending, images = list[Prepared](), 0
    prepared_files = prepare_ahead(reader, files, workers=threads, ahead=2 * batch + threads)
    try:
        for prepared in prepared_files:
            pending.append(prepared)
            images += prepared.inputs is not None
            if images == batch:
                yield predict_batch(classifier, run, pending, top)
                pending, images = [], 0
        if pending:
            yield predict_batch(classifier, run, pending, top)
    finally:
        prepared_files.close()


def predict_batch(classifier: Classifier, run: Run, batch: Sequence[Prepared], top: int) -> list[Result]:
    """Return the results of a batch in order, including files that are not images."""
    inputs = [prepared.inputs for prepared in batch if prepared.inputs is not None]
    try:
        rows = iter(rank_classes(run(stack_inputs(inputs)), classifier.labels, top) if inputs else [])
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        raise OutOfMemory(
            f"the memory does not suffice for a batch of {len(inputs):,} images.", "Give a smaller one: --batch 8"
        ) from None
    results = []
    for prepared in batch:
        predictions = next(rows) if prepared.inputs is not None else ()
        reason = prepared.error
        if prepared.inputs is not None and not predictions:
            reason = "the network's outputs for it are not finite."
        results.append(Result(prepared.file, predictions, reason, prepared.thumbnail))
    return results


def stack_inputs(inputs: Sequence[Floats]) -> Tensor:
    """Stack images of size x size x 3 to a batch N x 3 x size x size, channels-last in memory."""
    return torch.from_numpy(np.stack(inputs)).permute(0, 3, 1, 2)


def rank_classes(logits: Tensor, labels: Sequence[str], top: int) -> list[tuple[Prediction, ...]]:
    """Return the `top` most probable classes of each image; none if its outputs are not finite."""
    probabilities = torch.softmax(logits.to(torch.float32), dim=1)
    values, indices = probabilities.topk(min(top, len(labels)), dim=1)
    ranked = []
    for row, classes in zip(values.numpy(), indices.tolist(), strict=True):
        pairs = zip(row, classes, strict=True) if np.isfinite(row).all() else ()
        # str() of a NumPy float32 is the shortest: 0.1, not 0.10000000149011612.
        ranked.append(tuple(Prediction(labels[index], index, float(str(value))) for value, index in pairs))
    return ranked
