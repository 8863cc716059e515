"""Comparison of an exported file with PyTorch on images.

    images = find_images(classifier, request)           a folder of the user, validation images, or built-in shapes
    check_result = compare(runner, classifier, request, images)

The expected probabilities are those of the trained network in PyTorch: in float32, with its batch norms, after the
recipe's preprocessing, except that JPEGs are decoded exactly even if the recipe has decode=fast.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TypeVar

import numpy as np
import numpy.typing as npt
import torch

from viaduct.data import jpeg, png, preprocess
from viaduct.data.png import encode_png
from viaduct.data.records import Records
from viaduct.data.shapes import Shapes
from viaduct.errors import BadData, BadValue, ViaductError
from viaduct.handover.classifier import Classifier
from viaduct.handover.decoding import decode_image
from viaduct.handover.exporting.format import Batch, Runner
from viaduct.handover.exporting.graph import explain_failure
from viaduct.handover.exporting.request import ExportRequest
from viaduct.handover.preparing import Floats, fit_pixels
from viaduct.handover.validation_images import read_validation

Value = TypeVar("Value")
# Allowed differences by precision: absolute, and relative to a probability or to its logarithm.
TOLERANCES = {"fp32": (1e-5, 2e-3), "fp16": (5e-3, 0.25)}
MIN_PROBABILITY = 1e-30  # logarithms of smaller ones are not compared, because float32 has few digits for these
BATCH = 8  # batch size for graphs without a fixed one
SUFFIXES = (".jpg", ".jpeg", ".png")
WEAK_CHECK_NOTE = (
    "Attention: PyTorch gives all of these images nearly the same probabilities, so that this shows little; check with "
    "other images, or a network that has learnt something."
)


class WrongResult(ViaductError):
    """The exported graph fails, or does not compute what the trained network computes."""


@dataclass(frozen=True)
class CheckImages:
    """Encoded images and a description of their origin."""

    encoded: tuple[bytes, ...]
    origin: str


@dataclass(frozen=True)
class CheckResult:
    """Result of comparing an exported graph with PyTorch."""

    runtime: str  # name and version
    images: int  # number of images
    origin: str  # where they are from
    largest_difference: float  # absolute difference of a probability
    largest_log_difference: float  # difference of a logarithm of a probability, which shows small probabilities, too
    same_top1: int  # images with the same most probable class
    ties: int  # images with another most probable class, where both are equally probable within the tolerance
    tolerance: tuple[float, float]  # absolute and relative, as in TOLERANCES
    images_differ: bool = True  # False: PyTorch gives all images nearly the same probabilities (`is_distinct`)

    def __str__(self) -> str:
        absolute, relative = self.tolerance
        ties = f" ({self.ties} tie{'s' if self.ties != 1 else ''})" if self.ties else ""
        images = f"{self.images:,} image{'s' if self.images != 1 else ''}"
        note = "" if self.images_differ else f" {WEAK_CHECK_NOTE}"
        return (
            f"Checked in {self.runtime} against PyTorch on {images} ({self.origin}): "
            f"probabilities differ by at most {self.largest_difference:.2g} "
            f"(allowed: {absolute:g} + {100 * relative:g} %), their logarithms by {self.largest_log_difference:.2g}, "
            f"top-1 equal on {self.same_top1:,} of {self.images:,}{ties}.{note}"
        )


def find_images(classifier: Classifier, request: ExportRequest) -> CheckImages:
    """Return the images of --check-images, the run's validation images, or the built-in shapes."""
    count = request.check_count
    if request.check_images is not None:
        return read_folder(request.check_images, count)
    encoded = read_validation(classifier, count)
    if encoded:
        return CheckImages(encoded, "the run's validation images")
    side = max(32, min(classifier.size + 32, 256))
    height, width = classifier.image_shape or classifier.recipe.data.image_shape or (side, side)
    drawn = Shapes(global_batch=1, size=max(height, width), train_images=1, validation_images=count).load(None)
    pixels = [image[:height, :width] for image in drawn.validation.images]
    reason = "" if classifier.run is None else "; the run has no validation images that can be read"
    return CheckImages(tuple(map(encode_png, pixels)), f"built-in shapes, {width}x{height}{reason}")


def read_folder(folder: Path, count: int) -> CheckImages:
    """Return the first `count` JPEG and PNG files of a folder, found by suffix, or a single file."""
    files = [folder]
    if not folder.is_file():
        files = sorted(file for file in folder.rglob("*") if file.suffix.lower() in SUFFIXES and file.is_file())
    if not files:
        missing = "it holds no .jpg, .jpeg or .png files" if folder.exists() else "there is no such folder"
        raise BadData(f"--check-images {folder}: {missing}.")
    encoded = []
    for file in islice(files, count):
        encoded.append(file.read_bytes())
        try:
            decode_image(encoded[-1])
        except BadData as error:
            raise BadData(f"--check-images {file}: {error.message}", "Take it out of the folder.") from None
    return CheckImages(tuple(encoded), f"of {folder}")


def compare(runner: Runner, classifier: Classifier, request: ExportRequest, images: CheckImages) -> CheckResult:
    """Compare PyTorch and the exported graph; raise WrongResult if they differ by more than the tolerance.

    A different most probable class is allowed in a tie: if PyTorch's probabilities of both classes differ by at most
    twice the tolerance, because either may be off by it.
    """
    expected = np.concatenate([compute_expected(classifier, part) for part in split(images.encoded, BATCH)])
    with explain_failure(WrongResult, f"{runner.runtime} cannot run the exported graph", "Nothing was written."):
        probabilities, classes = run_graph(runner, classifier, request, images.encoded)
    if probabilities.shape != expected.shape or not np.array_equal(classes, probabilities.argmax(1)):
        raise WrongResult(f"{runner.runtime} gives inconsistent outputs.", "Nothing was written.")
    tolerance = absolute, relative = TOLERANCES[request.precision]
    difference = np.abs(probabilities - expected)
    allowed = absolute + relative * expected
    has_log = expected > MIN_PROBABILITY
    logs = np.log(expected, where=has_log, out=np.zeros_like(expected))
    # log(0) is infinite; the logarithm of a millionth of MIN_PROBABILITY also differs by more than the tolerance.
    log_difference = np.abs(np.log(np.maximum(probabilities, MIN_PROBABILITY / 1e6)) - logs) * has_log
    allowed_logs = relative * np.maximum(1, np.abs(logs))
    same = expected.argmax(1) == classes
    tied = expected.max(1) - expected[np.arange(len(expected)), classes] <= 2 * allowed.max(1)
    check_result = CheckResult(
        runtime=runner.runtime,
        images=len(expected),
        origin=images.origin,
        largest_difference=float(difference.max()) if np.isfinite(probabilities).all() else float("nan"),
        largest_log_difference=float(log_difference.max()),
        same_top1=int(same.sum()),
        ties=int((~same & tied).sum()),
        tolerance=tolerance,
        images_differ=is_distinct(expected, allowed),
    )
    is_within = (difference <= allowed).all() and (log_difference <= allowed_logs).all()  # False for NaN
    if not is_within or not (same | tied).all():
        hints = ["Nothing was written."]
        if request.precision == "fp16":
            hints.append("float16 may be too inaccurate for this network: try --precision fp32.")
        raise WrongResult(f"the exported graph does not compute what PyTorch does. {check_result}", *hints)
    return check_result


def is_distinct(expected: Floats, allowed: Floats) -> bool:
    """Return True if the probabilities of two images differ by more than twice the tolerance."""
    return bool((np.ptp(expected, axis=0) > 2 * allowed.max(0)).any())


def compute_expected(classifier: Classifier, encoded: Sequence[bytes]) -> Floats:
    """Return the trained network's probabilities in PyTorch."""
    with torch.inference_mode():
        logits = classifier.network(torch.from_numpy(np.stack([prepare(classifier, data) for data in encoded])))
        probabilities: Floats = torch.softmax(logits.float(), 1).numpy()
    return probabilities


def prepare(classifier: Classifier, encoded: bytes) -> Floats:
    """Return the network's input, 3 x size x size; a JPEG is decoded exactly even if the recipe decodes `fast`."""
    source = classifier.recipe.data
    if isinstance(source, Records) and (png.is_png(encoded) or jpeg.is_jpeg(encoded)):
        prepared = preprocess.prepare_image(source.preprocess, encoded, size=source.size, mode="exact", normalised=True)
    else:
        prepared = classifier.prepare(encoded)
    return np.ascontiguousarray(prepared.transpose(2, 0, 1))


def run_graph(
    runner: Runner, classifier: Classifier, request: ExportRequest, encoded: Sequence[bytes]
) -> tuple[Floats, npt.NDArray[np.int64]]:
    """Return the graph's probabilities and classes, in the order of the images."""
    probabilities = np.zeros((len(encoded), len(classifier.labels)), np.float32)
    classes = np.zeros(len(encoded), np.int64)
    for indices, batch in make_batches(runner, classifier, request, encoded):
        batch_probabilities, batch_classes = runner.run(batch)
        probabilities[indices] = batch_probabilities[: len(indices)]
        classes[indices] = batch_classes[: len(indices)]
    return probabilities, classes


def make_batches(
    runner: Runner, classifier: Classifier, request: ExportRequest, encoded: Sequence[bytes]
) -> Iterator[tuple[list[int], Batch]]:
    """Yield batches for the graph's input, each with the indices of its images.

    All images of a batch have the same size. If the batch size is variable, the first image of each size is a batch of
    its own, so that a batch of one is tested, too. An incomplete batch of fixed size is filled with its last image.
    """
    by_size: dict[object, list[int]] = {}
    for index, data in enumerate(encoded):
        key = decode_for_graph(classifier, data).shape if request.input == "pixels" else None
        by_size.setdefault(key, []).append(index)
    for same_size in by_size.values():
        first = [] if request.batch else [same_size[:1]]
        for indices in [*first, *split(same_size[len(first) :], request.batch or BATCH)]:
            filled = [*indices, *[indices[-1]] * ((request.batch or len(indices)) - len(indices))]
            yield list(indices), build_batch(runner, classifier, request, [encoded[index] for index in filled])


def build_batch(runner: Runner, classifier: Classifier, request: ExportRequest, images: list[bytes]) -> Batch:
    """Return the graph's input: encoded images, their pixels, or the prepared tensor, as the request says."""
    if request.input == "image-bytes":
        has_fixed_size = classifier.fixed_image_shape is not None
        return [encode_png(decode_for_graph(classifier, data)) for data in images] if has_fixed_size else images
    if request.input == "pixels":
        return np.stack([decode_for_graph(classifier, data) for data in images])
    prepared = np.stack([prepare(classifier, data) for data in images])
    return np.ascontiguousarray(prepared.transpose(0, 2, 3, 1)) if runner.takes_nhwc else prepared


def decode_for_graph(classifier: Classifier, data: bytes) -> npt.NDArray[np.uint8]:
    """Decode an image as in evaluation; for recipes of images in arrays, resize it to their size."""
    source = classifier.recipe.data
    if isinstance(source, Records):
        return decode_image(data, fancy_upsampling=preprocess.find_preprocessing(source.preprocess).fancy_upsampling)
    if classifier.fixed_image_shape is not None:
        return fit_pixels(decode_image(data), classifier.fixed_image_shape)
    raise BadValue(f"images of a {type(source).__name__} recipe cannot be prepared one by one.")


def split(values: Sequence[Value], size: int) -> Iterator[Sequence[Value]]:
    """Yield consecutive parts of at most `size` values."""
    for start in range(0, len(values), size):
        yield values[start : start + size]
