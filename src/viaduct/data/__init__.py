"""Images: their sources, the order in which they are used, and their batches.

    source.py            base classes of a recipe's `data`, and of the image arrays that it loads
    shapes.py            the built-in set, drawn from silhouettes.py; cifar10.py and fashion_mnist.py: sets in files
    order.py             sample order and random draws, pure functions of the position
    batches.py           batches of a split in arrays, on the device (imports torch); prefetch.py: threads for them
    augment.py           crop, mirror, normalise, cut out, resize, on whole batches (imports torch)

    preprocess.py        decode, crop and resize an image as a reference implementation of a network does
    references/          the preprocessing of each reference, made of views.py, or pillow_views.py for other packages
    geometry.py          random crops and bilinear resizing; colour.py: random changes of colour
    jpeg.py, png.py      decoding as TensorFlow does it; region.py: decoding only the region of a crop
    crops.py             crops of several records in one call; compiled.py: lookup of the C extensions' functions
    auto_augment.py      augmentation policies, made of operations.py; balance.py: class balancing

    records.py           TFRecords, MindRecords and class folders as a recipe's data
    record_batches.py    batches of these (imports torch)
    index.py             random access to TFRecords, with tfrecord.py, example.py, file_index.py, shards.py
    mindrecord_folder.py random access to MindRecords (mindrecord.py); folder.py: to class folders and lists
    build.py             TFRecords from images (origins.py); check.py, fetch.py, sheet.py: data check, fetch and show
    synthetic.py         noise instead of images; synthetic_batches.py: its batches (imports torch)
    notices.py           lines on stderr and parts of messages; output_files.py: writing the --out file of a verb

`preprocess` and `sample_crop` are public and stable. They are imported at their first use.
"""

from importlib import import_module
from typing import Any

from viaduct.data.cifar10 import Cifar10
from viaduct.data.shapes import Shapes
from viaduct.data.source import Arrays, Images, ImageSet, Split

__all__ = ["Arrays", "Cifar10", "ImageSet", "Images", "Shapes", "Split", "preprocess", "sample_crop"]


def __getattr__(name: str) -> Any:
    """Import a public function at its first use; the submodule `preprocess` can be called like its function."""
    if name == "preprocess":
        return import_module("viaduct.data.preprocess")
    if name == "sample_crop":
        return import_module("viaduct.data.preprocess").sample_crop
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
