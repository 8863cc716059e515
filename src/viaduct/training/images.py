"""Opens the images of a recipe, and fingerprints their labels."""

from __future__ import annotations

import zlib
from pathlib import Path

from viaduct.data.source import Arrays, Dataset, Source
from viaduct.data.synthetic import SYNTHETIC
from viaduct.errors import BadData
from viaduct.training.recipe_code import explain_part_errors


def load_images(data: Source, path: Path | None) -> Dataset:
    """Return the recipe's images; an error in the user's `Arrays` function becomes a BadValue with its line."""
    check_path(data, path)
    if not isinstance(data, Arrays):
        return data.open_images(path)
    with explain_part_errors("data.make", data.make):
        return data.open_images(path)


def check_path(data: Source, path: Path | None) -> None:
    """Raise an error for --data that is missing, not needed, or no such data; `synthetic` is noise for any dataset."""
    if path == SYNTHETIC:
        return
    if data.needs_path and path is None:
        hints = [data.how_to_get] if data.how_to_get else []
        raise BadData(f"this recipe trains on {data.name}: say where it is with --data DIR.", *hints)
    if path is not None and not data.takes_path:
        message = f"this recipe trains on {data.name} and takes no --data, but {str(path)!r} was given."
        raise BadData(message, "--data synthetic trains on noise.")
    if path is not None:
        data.check_path(path)


def fingerprint_labels(images: Dataset) -> dict[str, dict[str, int]]:
    """Return image counts and label checksums of both splits."""
    splits = {"training": images.train, "validation": images.validation}
    return {name: {"count": len(split), "labels": zlib.crc32(split.labels.tobytes())} for name, split in splits.items()}
