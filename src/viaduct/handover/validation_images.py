"""Encoded validation images of a run, if the data that it was trained on still exist."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

from viaduct.data.png import encode_png
from viaduct.data.source import Split
from viaduct.data.synthetic import SYNTHETIC, get_stored_data_path
from viaduct.errors import BadData, ViaductError
from viaduct.handover.classifier import Classifier
from viaduct.handover.decoding import decode_image
from viaduct.training.rundir import RunDir


def read_validation(classifier: Classifier, count: int) -> tuple[bytes, ...]:
    """Return the first `count` validation images of the run that can be decoded, or all if there are fewer.

    There are none if the weights are not of a run, the run trained on noise, or its data cannot be read.
    """
    if classifier.run is None:
        return ()
    source, path = classifier.recipe.data, get_stored_data_path(RunDir(classifier.run).read_recipe_json())
    if path == SYNTHETIC or (source.needs_path and (path is None or not path.exists())):
        return ()
    try:
        split = source.open_images(path).validation
        return tuple(islice(filter(is_decodable, encode_split(split)), count))
    except (ViaductError, OSError):
        return ()  # the data were moved or changed


def is_decodable(encoded: bytes) -> bool:
    try:
        decode_image(encoded)
    except BadData:
        return False
    return True


def encode_split(split: object) -> Iterator[bytes]:
    """Yield the encoded images of a split: those in files unchanged, those in memory as PNG."""
    if isinstance(split, Split):
        for pixels in split.images:
            yield encode_png(pixels)
        return
    folder = getattr(split, "folder", None)  # a `RecordSplit` has one, noise has none
    if folder is None:
        return
    for index in range(len(folder)):
        yield bytes(folder.read_fields(index).encoded)
